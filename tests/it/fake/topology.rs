//! Who owns which slot, and the many ways to say so in `CLUSTER SLOTS`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::resp;

/// Number of slots of every cluster.
pub const SLOTS: u16 = 16384;

/// Owners of slots and their replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The owner of each slot.
    owners: Vec<Option<usize>>,
    /// Replica → primary.
    primaries: BTreeMap<usize, usize>,
}

impl Topology {
    /// Nobody owns anything.
    pub fn empty() -> Self {
        Self {
            owners: vec![None; usize::from(SLOTS)],
            primaries: BTreeMap::new(),
        }
    }

    /// Nodes `0..count` share the slots in equal ranges.
    pub fn even(count: usize) -> Self {
        let mut topology = Self::empty();
        for (slot, owner) in topology.owners.iter_mut().enumerate() {
            *owner = (count > 0).then(|| slot * count / usize::from(SLOTS));
        }
        topology
    }

    /// Gives slots to a node. A replica becomes a primary by it.
    pub fn assign(&mut self, slots: RangeInclusive<u16>, node: usize) {
        self.primaries.remove(&node);
        self.range(slots).fill(Some(node));
    }

    /// Takes slots from their owners: nobody serves them.
    pub fn unassign(&mut self, slots: RangeInclusive<u16>) {
        self.range(slots).fill(None);
    }

    /// Makes a node a replica of another one; slots that it owned are left without an owner.
    pub fn replicate(&mut self, replica: usize, primary: usize) {
        for owner in &mut self.owners {
            owner.take_if(|node| *node == replica);
        }
        self.primaries.insert(replica, primary);
    }

    /// Failover: the replica takes all slots of its primary, which becomes its replica, as do the
    /// other replicas.
    ///
    /// # Panics
    ///
    /// If the node is not a replica.
    pub fn promote(&mut self, replica: usize) {
        let primary = self.primaries.remove(&replica).expect("a replica");
        for owner in self.owners.iter_mut().flatten() {
            if *owner == primary {
                *owner = replica;
            }
        }
        for followed in self.primaries.values_mut() {
            if *followed == primary {
                *followed = replica;
            }
        }
        self.primaries.insert(primary, replica);
    }

    /// The owner of a slot.
    pub fn owner(&self, slot: u16) -> Option<usize> {
        self.owners[usize::from(slot)]
    }

    /// The primary of a replica; `None` for a primary.
    pub fn primary_of(&self, node: usize) -> Option<usize> {
        self.primaries.get(&node).copied()
    }

    /// The replicas of a primary.
    pub fn replicas(&self, primary: usize) -> Vec<usize> {
        let own = self.primaries.iter().filter(|&(_, &p)| p == primary);
        own.map(|(&replica, _)| replica).collect()
    }

    /// Neighbouring slots of one owner, joined: first slot, last slot, owner.
    pub fn ranges(&self) -> Vec<(u16, u16, usize)> {
        let mut ranges: Vec<(u16, u16, usize)> = Vec::new();
        for (slot, owner) in (0..SLOTS).zip(&self.owners) {
            let Some(owner) = *owner else { continue };
            match ranges.last_mut() {
                Some((_, last, same)) if *same == owner && *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot, owner)),
            }
        }
        ranges
    }

    fn range(&mut self, slots: RangeInclusive<u16>) -> &mut [Option<usize>] {
        &mut self.owners[usize::from(*slots.start())..=usize::from(*slots.end())]
    }
}

/// How a node writes hosts and node entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// What stands for the host, in maps and redirects.
    pub host: Host,
    /// How many fields a node entry has.
    pub fields: Fields,
    /// Whether each answer lists replicas in another order.
    pub rotate_replicas: bool,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            host: Host::Ip,
            fields: Fields::Three,
            rotate_replicas: false,
        }
    }
}

/// What stands for the host of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// `127.0.0.1`.
    Ip,
    /// `::1`, where nodes listen if the cluster was built with `ipv6`.
    Ip6,
    /// Null in maps, nothing in redirects: the host that was asked.
    Null,
    /// An empty string in maps, nothing in redirects.
    Empty,
    /// `?`: not known.
    Unknown,
    /// A name, or an address that only a translation makes sense of.
    Name(String),
}

impl Host {
    /// The host in a redirect.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Ip => "127.0.0.1",
            Self::Ip6 => "::1",
            Self::Null | Self::Empty => "",
            Self::Unknown => "?",
            Self::Name(name) => name,
        }
    }
}

/// The fields of a node entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// Host and port.
    Two,
    /// Host, port, node id.
    Three,
    /// Host, port, node id, metadata that is empty.
    Four,
    /// Host, port, node id, metadata with the IP address: a map in RESP3, else a flat array.
    Metadata,
    /// As `Metadata`, and two fields more that nobody knows.
    Six,
}

/// Names of a node in maps.
pub(super) struct Identity<'a> {
    pub(super) port: u16,
    pub(super) id: &'a str,
}

/// The answer to `CLUSTER SLOTS`. `round` turns the order of replicas if the format says so.
pub(super) fn slots_reply<'a>(
    topology: &Topology,
    format: &Format,
    protocol: u8,
    round: usize,
    identity: impl Fn(usize) -> Identity<'a>,
) -> Vec<u8> {
    let entry = |node| node_entry(format, protocol, &identity(node));
    let ranges = topology.ranges().into_iter().map(|(first, last, owner)| {
        let mut replicas = topology.replicas(owner);
        if format.rotate_replicas && !replicas.is_empty() {
            let places = round % replicas.len();
            replicas.rotate_left(places);
        }
        let mut items = vec![resp::integer(first.into()), resp::integer(last.into())];
        items.push(entry(owner));
        items.extend(replicas.into_iter().map(entry));
        resp::array(&items)
    });
    resp::array(&ranges.collect::<Vec<_>>())
}

fn node_entry(format: &Format, protocol: u8, node: &Identity<'_>) -> Vec<u8> {
    let host = match &format.host {
        Host::Null => resp::null(protocol),
        host => resp::bulk(host.text()),
    };
    let address = [resp::bulk("ip"), resp::bulk("127.0.0.1")];
    let fields = [
        host,
        resp::integer(node.port.into()),
        resp::bulk(node.id),
        match format.fields {
            Fields::Four => resp::map(protocol, &[b""; 0]),
            _ => resp::map(protocol, &address),
        },
        resp::bulk("fifth"),
        resp::null(protocol),
    ];
    let count = match format.fields {
        Fields::Two => 2,
        Fields::Three => 3,
        Fields::Four | Fields::Metadata => 4,
        Fields::Six => 6,
    };
    resp::array(&fields[..count])
}
