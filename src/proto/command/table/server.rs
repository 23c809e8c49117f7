//! The server itself: data as a whole, scripts and functions, configuration, diagnosis.
//!
//! What changes every shard goes to all primaries. What only describes a server goes to any primary
//! if servers of one cluster answer alike or nobody can mind which one answers; if it matters which
//! one does, the caller has to name the node.

use super::super::aggregate::Aggregate::*;
use super::super::blocking::Wait;
use super::super::spec::Scope::{All, Any, Named, Refused};
use super::super::spec::Spec;

const ONE_NODE: &str = on_one_node!("tells about one node");
const ONE_SERVER: &str = on_one_node!("acts on one server, not on the cluster");
const REPLICATION: &str = "speaks the replication protocol, which takes the connection over";

pub(super) const COMMANDS: &[Spec] = &[
    // The data as a whole.
    Spec::inspect("DBSIZE", All(Sum)).read_only(),
    Spec::inspect("KEYS", All(Concat)).read_only(),
    Spec::inspect("RANDOMKEY", All(FirstNonNull)).read_only(),
    Spec::inspect("SCAN", Named(SCAN)).read_only(),
    Spec::change("FLUSHALL", All(AllSucceed)),
    Spec::change("FLUSHDB", All(AllSucceed)),
    Spec::change("SWAPDB", Any),
    Spec::inspect("WAIT", Named(WAIT)).waits(Wait::Millis(2)),
    Spec::inspect("WAITAOF", Named(WAIT)).waits(Wait::Millis(3)),
    Spec::change("SAVE", Named(ONE_SERVER)),
    Spec::change("BGSAVE", Named(ONE_SERVER)),
    Spec::change("BGREWRITEAOF", Named(ONE_SERVER)),
    Spec::inspect("LASTSAVE", Named(ONE_NODE)),
    // Scripts and functions.
    Spec::container("SCRIPT"),
    Spec::change("SCRIPT", Refused(SCRIPT_DEBUG)).sub("DEBUG"),
    Spec::inspect("SCRIPT", All(AndPerIndex)).sub("EXISTS"),
    Spec::change("SCRIPT", All(AllSucceed)).sub("FLUSH"),
    Spec::inspect("SCRIPT", Any).sub("HELP"),
    Spec::change("SCRIPT", All(AnySucceeds)).sub("KILL"),
    Spec::change("SCRIPT", All(AllSucceed)).sub("LOAD"),
    Spec::inspect("SCRIPT", Any).sub("SHOW"),
    Spec::container("FUNCTION"),
    Spec::change("FUNCTION", All(AllSucceed)).sub("DELETE"),
    Spec::inspect("FUNCTION", Any).sub("DUMP"),
    Spec::change("FUNCTION", All(AllSucceed)).sub("FLUSH"),
    Spec::inspect("FUNCTION", Any).sub("HELP"),
    Spec::change("FUNCTION", All(AnySucceeds)).sub("KILL"),
    Spec::inspect("FUNCTION", Any).sub("LIST"),
    Spec::change("FUNCTION", All(AllSucceed)).sub("LOAD"),
    Spec::change("FUNCTION", All(AllSucceed)).sub("RESTORE"),
    Spec::inspect("FUNCTION", Named(ONE_NODE)).sub("STATS"),
    // Configuration and users.
    Spec::container("CONFIG"),
    Spec::inspect("CONFIG", Any).sub("GET"),
    Spec::inspect("CONFIG", Any).sub("HELP"),
    Spec::change("CONFIG", All(AllSucceed)).sub("RESETSTAT"),
    Spec::change("CONFIG", All(AllSucceed)).sub("REWRITE"),
    Spec::change("CONFIG", All(AllSucceed)).sub("SET"),
    Spec::container("ACL"),
    Spec::inspect("ACL", Any).sub("CAT"),
    Spec::change("ACL", All(AllSucceed)).sub("DELUSER"),
    Spec::inspect("ACL", Any).sub("DRYRUN"),
    Spec::inspect("ACL", Any).sub("GENPASS"),
    Spec::inspect("ACL", Any).sub("GETUSER"),
    Spec::inspect("ACL", Any).sub("HELP"),
    Spec::inspect("ACL", Any).sub("LIST"),
    Spec::change("ACL", All(AllSucceed)).sub("LOAD"),
    // `ACL LOG RESET` clears it.
    Spec::change("ACL", Named(ONE_NODE)).sub("LOG"),
    Spec::change("ACL", All(AllSucceed)).sub("SAVE"),
    Spec::change("ACL", All(AllSucceed)).sub("SETUSER"),
    Spec::inspect("ACL", Any).sub("USERS"),
    Spec::inspect("ACL", Any).sub("WHOAMI"),
    Spec::container("MODULE"),
    Spec::inspect("MODULE", Any).sub("HELP"),
    Spec::inspect("MODULE", Any).sub("LIST"),
    Spec::change("MODULE", Named(ONE_SERVER)).sub("LOAD"),
    Spec::change("MODULE", Named(ONE_SERVER)).sub("LOADEX"),
    Spec::change("MODULE", Named(ONE_SERVER)).sub("UNLOAD"),
    // Diagnosis.
    Spec::inspect("INFO", Any),
    Spec::inspect("TIME", Any),
    Spec::inspect("LOLWUT", Any).read_only(),
    Spec::inspect("PFSELFTEST", Any),
    Spec::inspect("ROLE", Named(ONE_NODE)),
    Spec::change("DEBUG", Named(ONE_SERVER)),
    Spec::container("COMMAND"),
    Spec::inspect("COMMAND", Any).sub("COUNT"),
    Spec::inspect("COMMAND", Any).sub("DOCS"),
    Spec::inspect("COMMAND", Any).sub("GETKEYS"),
    Spec::inspect("COMMAND", Any).sub("GETKEYSANDFLAGS"),
    Spec::inspect("COMMAND", Any).sub("HELP"),
    Spec::inspect("COMMAND", Any).sub("INFO"),
    Spec::inspect("COMMAND", Any).sub("LIST"),
    Spec::container("MEMORY"),
    Spec::inspect("MEMORY", Named(ONE_NODE)).sub("DOCTOR"),
    Spec::inspect("MEMORY", Any).sub("HELP"),
    Spec::inspect("MEMORY", Named(ONE_NODE)).sub("MALLOC-STATS"),
    Spec::change("MEMORY", All(AllSucceed)).sub("PURGE"),
    Spec::inspect("MEMORY", Named(ONE_NODE)).sub("STATS"),
    Spec::read("MEMORY").sub("USAGE").range(2, 2, 1),
    Spec::container("LATENCY"),
    Spec::inspect("LATENCY", Named(ONE_NODE)).sub("DOCTOR"),
    Spec::inspect("LATENCY", Named(ONE_NODE)).sub("GRAPH"),
    Spec::inspect("LATENCY", Any).sub("HELP"),
    Spec::inspect("LATENCY", Named(ONE_NODE)).sub("HISTOGRAM"),
    Spec::inspect("LATENCY", Named(ONE_NODE)).sub("HISTORY"),
    Spec::inspect("LATENCY", Named(ONE_NODE)).sub("LATEST"),
    Spec::change("LATENCY", All(Sum)).sub("RESET"),
    Spec::container("SLOWLOG"),
    Spec::inspect("SLOWLOG", All(Concat)).sub("GET"),
    Spec::inspect("SLOWLOG", Any).sub("HELP"),
    Spec::inspect("SLOWLOG", All(Sum)).sub("LEN"),
    Spec::change("SLOWLOG", All(AllSucceed)).sub("RESET"),
    Spec::container("COMMANDLOG"),
    Spec::inspect("COMMANDLOG", All(Concat)).sub("GET"),
    Spec::inspect("COMMANDLOG", Any).sub("HELP"),
    Spec::inspect("COMMANDLOG", All(Sum)).sub("LEN"),
    Spec::change("COMMANDLOG", All(AllSucceed)).sub("RESET"),
    // Life and replication of a server.
    Spec::change("SHUTDOWN", Named(ONE_SERVER)),
    Spec::change("FAILOVER", Named(ONE_SERVER)),
    Spec::change("REPLICAOF", Named(ONE_SERVER)),
    Spec::change("SLAVEOF", Named(ONE_SERVER)),
    Spec::change("SYNC", Refused(REPLICATION)),
    Spec::change("PSYNC", Refused(REPLICATION)),
    Spec::change("REPLCONF", Refused(REPLICATION)),
    Spec::change("MONITOR", Refused(MONITOR)),
];

const SCAN: &str = "walks the keys of one node: send it with `Cmd::route(Route::Node(addr))` to \
    each of `Client::primaries()`";
// On a connection that it does not share with the writes it would have nothing to wait for.
const WAIT: &str = "waits for the writes of its own connection: write and wait in one session of \
    `Client::watch`";
const SCRIPT_DEBUG: &str =
    "turns the connection into a debugger: use a command line client for that";
const MONITOR: &str =
    "turns the connection into an endless stream: use a command line client for that";
