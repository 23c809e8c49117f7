//! The nodes that the coordinator knows, by every name they go by.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Instant;

use crate::proto::addr::NodeAddr;
use crate::proto::slot::SlotSet;

/// Names a node for as long as this client knows it. A node that leaves and comes back at the
/// same address is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeKey(NonZeroU32);

impl NodeKey {
    /// The key of the node at this place of a list. Never zero inside, so that the table of all
    /// slots, where a slot may have no node, stays as small as the list of its keys.
    pub(crate) fn new(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// What is known about a node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) addr: NodeAddr,
    /// Whether the last map names it, and as what.
    pub(crate) role: Role,
    pub(crate) health: Health,
    /// Its threads run.
    pub(crate) spawned: bool,
    /// Until when commands that others can run as well avoid it.
    pub(crate) avoid_until: Option<Instant>,
    /// Until when it is kept although the map does not name it: a redirect did.
    pub(crate) linger_until: Option<Instant>,
    /// Slots that it is to give up with the next commit.
    pub(crate) giving_up: Option<SlotSet>,
}

impl Node {
    /// Whether it is worth trying with a command that others can run as well.
    pub(crate) fn is_usable(&self) -> bool {
        self.health != Health::Failing && self.avoid_until.is_none()
    }
}

/// What the map says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It serves slots.
    Primary,
    /// It copies a primary.
    Replica,
    /// A redirect named it, the map does not (yet).
    Unlisted,
}

/// How its connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Not tried yet.
    Unknown,
    /// Connected.
    Up,
    /// The connection was lost, or cannot be made.
    Failing,
}

/// All nodes.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// By key; those that have ended have left their places empty.
    nodes: Vec<Option<Node>>,
    names: HashMap<NodeAddr, NodeKey>,
}

impl Nodes {
    pub(crate) fn get(&self, key: NodeKey) -> Option<&Node> {
        self.nodes.get(key.index())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: NodeKey) -> Option<&mut Node> {
        self.nodes.get_mut(key.index())?.as_mut()
    }

    pub(crate) fn find(&self, addr: &NodeAddr) -> Option<NodeKey> {
        self.names.get(addr).copied()
    }

    /// The node of this address; a new one if nobody named it before.
    pub(crate) fn get_or_create(&mut self, addr: &NodeAddr) -> NodeKey {
        if let Some(key) = self.find(addr) {
            return key;
        }
        let key = key_of(self.nodes.len());
        let node = Node {
            addr: addr.clone(),
            role: Role::Unlisted,
            health: Health::Unknown,
            spawned: false,
            avoid_until: None,
            linger_until: None,
            giving_up: None,
        };
        self.nodes.push(Some(node));
        self.names.insert(addr.clone(), key);
        key
    }

    /// Every name with its node.
    pub(crate) fn names(&self) -> impl Iterator<Item = (NodeAddr, NodeKey)> + '_ {
        self.names.iter().map(|(name, &key)| (name.clone(), key))
    }

    /// Lets a node go by another name, too.
    pub(crate) fn add_alias(&mut self, key: NodeKey, alias: &NodeAddr) {
        self.names.entry(alias.clone()).or_insert(key);
    }

    /// Forgets the names of a node, so that the same address is a new node from now on.
    pub(crate) fn unname(&mut self, key: NodeKey) {
        self.names.retain(|_, named| *named != key);
    }

    pub(crate) fn remove(&mut self, key: NodeKey) -> Option<Node> {
        self.unname(key);
        self.nodes.get_mut(key.index())?.take()
    }

    /// All of them, in the order in which they became known.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeKey, &Node)> {
        let all = self.nodes.iter().enumerate();
        all.filter_map(|(at, node)| Some((key_of(at), node.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (NodeKey, &mut Node)> {
        let all = self.nodes.iter_mut().enumerate();
        all.filter_map(|(at, node)| Some((key_of(at), node.as_mut()?)))
    }
}

/// The key of the node at this place.
fn key_of(at: usize) -> NodeKey {
    NodeKey::new(u32::try_from(at).expect("a client meets fewer than four billion nodes"))
}
