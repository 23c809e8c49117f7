//! What `CLUSTER SLOTS` says: which nodes serve which slots.
//!
//! Entry lengths, null hosts, several ranges of one primary, missing replicas and holes are all
//! valid (Redis documentation, `CLUSTER SLOTS`). What cannot be read is an error as a whole: a map
//! is adopted only if every entry of it is understood.

use super::addr::NodeAddr;
use super::slot::SLOTS;
use super::value::Value;

/// The nodes of a cluster and their slots, as one node sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    /// Ranges of slots, both ends included, in the order sent.
    pub(crate) ranges: Vec<SlotRange>,
}

/// Neighbouring slots of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    /// `None` if the cluster does not know a name for it.
    pub(crate) primary: Option<NodeInfo>,
    pub(crate) replicas: Vec<NodeInfo>,
}

/// A node and the other names it goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeInfo {
    pub(crate) addr: NodeAddr,
    pub(crate) aliases: Vec<NodeAddr>,
}

impl Topology {
    /// A single server that serves everything.
    pub(crate) fn standalone(addr: NodeAddr) -> Self {
        let primary = Some(NodeInfo {
            addr,
            aliases: Vec::new(),
        });
        let range = SlotRange {
            first: 0,
            last: SLOTS - 1,
            primary,
            replicas: Vec::new(),
        };
        Self {
            ranges: vec![range],
        }
    }

    /// Reads the reply of `CLUSTER SLOTS`. `origin` is the node that was asked: a missing host
    /// means its host.
    pub(crate) fn parse(reply: &Value, origin: &NodeAddr) -> Result<Self, &'static str> {
        let Value::Array(entries) = reply else {
            return Err("CLUSTER SLOTS is not an array");
        };
        let ranges: Result<Vec<_>, _> = entries
            .iter()
            .map(|entry| SlotRange::parse(entry, origin))
            .collect();
        let ranges = ranges?;
        if ranges.is_empty() {
            return Err("CLUSTER SLOTS is empty: the node knows no slots");
        }
        Ok(Self { ranges })
    }
}

impl SlotRange {
    fn parse(entry: &Value, origin: &NodeAddr) -> Result<Self, &'static str> {
        let Value::Array(fields) = entry else {
            return Err("a slot range is not an array");
        };
        let [Value::Integer(first), Value::Integer(last), nodes @ ..] = fields.as_slice() else {
            return Err("a slot range does not start with two numbers");
        };
        let number = |&number: &i64| u16::try_from(number).ok().filter(|&slot| slot < SLOTS);
        let (Some(first), Some(last)) = (number(first), number(last)) else {
            return Err("a slot number is out of range");
        };
        if first > last {
            return Err("a slot range is reversed");
        }
        let mut infos = nodes.iter().map(|node| NodeInfo::parse(node, origin));
        let primary = infos.next().ok_or("a slot range has no nodes")??;
        let replicas: Result<Vec<_>, _> = infos.collect();
        Ok(Self {
            first,
            last,
            primary,
            replicas: replicas?.into_iter().flatten().collect(),
        })
    }
}

impl NodeInfo {
    /// Host, port, and optionally id, metadata and whatever later versions add. `None` is a node
    /// that has no usable name.
    fn parse(node: &Value, origin: &NodeAddr) -> Result<Option<Self>, &'static str> {
        let Value::Array(fields) = node else {
            return Err("a node is not an array");
        };
        let [host, Value::Integer(port), rest @ ..] = fields.as_slice() else {
            return Err("a node does not start with host and port");
        };
        let port = u16::try_from(*port).ok().filter(|&port| port != 0);
        let port = port.ok_or("a port is out of range")?;
        let mut names = rest.get(1).map_or_else(Vec::new, metadata_hosts);
        let host = match host {
            Value::Null => Some(origin.host().to_owned()),
            Value::Bulk(name) | Value::Simple(name) => match name.as_slice() {
                b"" => Some(origin.host().to_owned()),
                b"?" => (!names.is_empty()).then(|| names.remove(0)),
                name => Some(text(name)?),
            },
            _ => return Err("a host is not a string"),
        };
        Ok(host.map(|host| Self {
            addr: NodeAddr::new(&host, port),
            aliases: names.iter().map(|name| NodeAddr::new(name, port)).collect(),
        }))
    }
}

fn text(bytes: &[u8]) -> Result<String, &'static str> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a host is not UTF-8")
}

/// The values of `ip` and `hostname` in the metadata of a node: a flat array in RESP2, a map in
/// RESP3. Whatever else stands there does not matter.
fn metadata_hosts(metadata: &Value) -> Vec<String> {
    let pairs: Vec<(&Value, &Value)> = match metadata {
        Value::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
        Value::Array(flat) => flat
            .chunks_exact(2)
            .map(|pair| (&pair[0], &pair[1]))
            .collect(),
        _ => Vec::new(),
    };
    let mut hosts = Vec::new();
    for (key, value) in pairs {
        let (Value::Bulk(key) | Value::Simple(key)) = key else {
            continue;
        };
        let (Value::Bulk(value) | Value::Simple(value)) = value else {
            continue;
        };
        let wanted = matches!(key.as_slice(), b"ip" | b"hostname");
        if wanted && !value.is_empty() && value.as_slice() != b"?" {
            hosts.extend(text(value));
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn map_of(node: Vec<Value>) -> Value {
        let range = vec![Value::Integer(0), Value::Integer(16383), Value::Array(node)];
        Value::Array(vec![Value::Array(range)])
    }

    fn primary(node: Vec<Value>) -> Option<NodeInfo> {
        let origin = NodeAddr::new("origin", 1);
        Topology::parse(&map_of(node), &origin).unwrap().ranges[0]
            .primary
            .clone()
    }

    #[test]
    fn entries_of_all_lengths() {
        let port = Value::Integer(7000);
        let ip = Value::Array(vec![bulk("ip"), bulk("10.0.0.1")]);
        let ip_map = Value::Map(vec![(bulk("ip"), bulk("10.0.0.1"))]);
        let plain = NodeAddr::new("h", 7000);
        for node in [
            vec![bulk("h"), port.clone()],
            vec![bulk("h"), port.clone(), bulk("id")],
            vec![bulk("h"), port.clone(), bulk("id"), Value::Array(vec![])],
            vec![
                bulk("h"),
                port.clone(),
                bulk("id"),
                ip.clone(),
                Value::Null,
                Value::Integer(1),
            ],
            vec![bulk("h"), port.clone(), bulk("id"), ip_map.clone()],
        ] {
            assert_eq!(primary(node).unwrap().addr, plain);
        }
        let named = primary(vec![bulk("h"), port.clone(), bulk("id"), ip_map]).unwrap();
        assert_eq!(named.aliases, [NodeAddr::new("10.0.0.1", 7000)]);
    }

    #[test]
    fn missing_and_unknown_hosts() {
        let port = Value::Integer(7000);
        let ip = Value::Array(vec![bulk("ip"), bulk("10.0.0.1")]);
        let host = |host: Value, meta: Value| {
            primary(vec![host, port.clone(), bulk("id"), meta]).map(|info| info.addr.to_string())
        };
        let none = Value::Array(vec![]);
        assert_eq!(
            host(Value::Null, ip.clone()).as_deref(),
            Some("origin:7000")
        );
        assert_eq!(host(bulk(""), none.clone()).as_deref(), Some("origin:7000"));
        assert_eq!(host(bulk("?"), ip).as_deref(), Some("10.0.0.1:7000"));
        assert_eq!(host(bulk("?"), none), None);
    }

    #[test]
    fn what_cannot_be_read_is_refused_as_a_whole() {
        let origin = NodeAddr::new("origin", 1);
        let node = || Value::Array(vec![bulk("h"), Value::Integer(1)]);
        let range = |first, last| vec![Value::Integer(first), Value::Integer(last), node()];
        for bad in [
            Value::Null,
            Value::Array(vec![]),
            Value::Array(vec![Value::Null]),
            Value::Array(vec![Value::Array(range(0, 16384))]),
            Value::Array(vec![Value::Array(range(-1, 5))]),
            Value::Array(vec![Value::Array(range(6, 5))]),
            Value::Array(vec![
                Value::Array(range(0, 5)),
                Value::Array(vec![bulk("x")]),
            ]),
            Value::Array(vec![Value::Array(vec![
                Value::Integer(0),
                Value::Integer(1),
            ])]),
            map_of(vec![bulk("h")]),
            map_of(vec![bulk("h"), Value::Integer(0)]),
            map_of(vec![bulk("h"), Value::Integer(70000)]),
            map_of(vec![Value::Integer(1), Value::Integer(1)]),
        ] {
            assert!(Topology::parse(&bad, &origin).is_err(), "{bad:?}");
        }
    }
}
