//! The cluster: its map, and the administration of its nodes.

use super::super::spec::Scope::{Any, Named, Refused, SlotNumber};
use super::super::spec::Spec;

const ONE_NODE: &str = on_one_node!("tells what one node knows");
const ADMIN: &str = on_one_node!("changes the cluster as one node sees it");

pub(super) const COMMANDS: &[Spec] = &[
    Spec::container("CLUSTER"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("ADDSLOTS"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("ADDSLOTSRANGE"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("BUMPEPOCH"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("CANCELSLOTMIGRATIONS"),
    Spec::inspect("CLUSTER", Named(ONE_NODE)).sub("COUNT-FAILURE-REPORTS"),
    Spec::inspect("CLUSTER", SlotNumber).sub("COUNTKEYSINSLOT"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("DELSLOTS"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("DELSLOTSRANGE"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("FAILOVER"),
    Spec::change("CLUSTER", SlotNumber).sub("FLUSHSLOT"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("FLUSHSLOTS"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("FORGET"),
    Spec::inspect("CLUSTER", SlotNumber).sub("GETKEYSINSLOT"),
    Spec::inspect("CLUSTER", Named(ONE_NODE)).sub("GETSLOTMIGRATIONS"),
    Spec::inspect("CLUSTER", Any).sub("HELP"),
    Spec::inspect("CLUSTER", Any).sub("INFO"),
    Spec::inspect("CLUSTER", Any).sub("KEYSLOT"),
    Spec::inspect("CLUSTER", Named(ONE_NODE)).sub("LINKS"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("MEET"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("MIGRATESLOTS"),
    Spec::inspect("CLUSTER", Named(ONE_NODE)).sub("MYID"),
    Spec::inspect("CLUSTER", Named(ONE_NODE)).sub("MYSHARDID"),
    Spec::inspect("CLUSTER", Any).sub("NODES"),
    Spec::inspect("CLUSTER", Any).sub("REPLICAS"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("REPLICATE"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("RESET"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("SAVECONFIG"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("SET-CONFIG-EPOCH"),
    Spec::change("CLUSTER", Named(ADMIN)).sub("SETSLOT"),
    Spec::inspect("CLUSTER", Any).sub("SHARDS"),
    Spec::inspect("CLUSTER", Any).sub("SLAVES"),
    Spec::inspect("CLUSTER", Named(ONE_NODE)).sub("SLOT-STATS"),
    Spec::inspect("CLUSTER", Any).sub("SLOTS"),
    Spec::change("CLUSTER", Refused(SYNCSLOTS)).sub("SYNCSLOTS"),
    // Its cursor carries the slot as a hash tag.
    Spec::read("CLUSTERSCAN"),
    Spec::change("ASKING", Refused(ASKING)),
    Spec::change("READONLY", Refused(READONLY)),
    Spec::change("READWRITE", Refused(READONLY)),
];

const SYNCSLOTS: &str = "is spoken between servers and takes the connection over";
const ASKING: &str = "is sent by the client itself whenever a server answers ASK";
const READONLY: &str = shared!(": use `Builder::read_from`");
