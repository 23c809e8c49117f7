//! Which nodes have announced maintenance, so that callers who wait for them wait longer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Home;
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::NodeKey;
use crate::proto::maintenance::{Notice, Windows};
use crate::sync::Mutex;

/// The windows of all nodes. Only callers whose deadline has passed look here.
#[derive(Debug)]
pub(crate) struct Relax {
    /// How long a call waits at least while a window is open.
    timeout: Duration,
    /// Held for a look; nothing else is locked meanwhile.
    nodes: Mutex<HashMap<NodeKey, Node>>,
}

/// A node that has announced something.
#[derive(Debug)]
struct Node {
    addr: NodeAddr,
    windows: Windows,
}

/// The longer time of a call that has a connection for itself.
#[derive(Debug)]
pub(crate) struct Extension {
    relax: Arc<Relax>,
    end: Instant,
    /// Maintenance was announced when its deadline had passed. Once this was said it stays.
    granted: AtomicBool,
}

impl Extension {
    /// For a call that should have its reply soon after `base`.
    pub(crate) fn new(relax: &Arc<Relax>, base: Instant) -> Self {
        Self {
            relax: Arc::clone(relax),
            end: relax.end(base),
            granted: AtomicBool::new(false),
        }
    }

    /// The end of a call whose deadline has passed at a node, or while it is at none.
    pub(crate) fn extend(&self, node: Option<&NodeAddr>, now: Instant) -> Option<Instant> {
        if !self.granted.load(Ordering::Relaxed) && self.relax.is_open_at(node, now) {
            self.granted.store(true, Ordering::Relaxed);
        }
        self.granted()
    }

    /// The end, if it was granted.
    pub(crate) fn granted(&self) -> Option<Instant> {
        self.granted.load(Ordering::Relaxed).then_some(self.end)
    }
}

impl Relax {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            nodes: Mutex::new(HashMap::new()),
        }
    }

    /// Until when a call that begins now waits, if a window is open when its deadline passes.
    pub(super) fn end(&self, now: Instant) -> Instant {
        now.checked_add(self.timeout).unwrap_or(now)
    }

    /// A connection of a node brought an announcement.
    pub(crate) fn hear(&self, node: NodeKey, addr: &NodeAddr, notice: &Notice, now: Instant) {
        let mut nodes = self.nodes.lock();
        let node = nodes.entry(node).or_insert_with(|| Node {
            addr: addr.clone(),
            windows: Windows::default(),
        });
        node.windows.hear(notice, now);
    }

    /// A node has another connection.
    pub(crate) fn reconnected(&self, node: NodeKey) {
        if let Some(node) = self.nodes.lock().get_mut(&node) {
            node.windows.reconnected();
        }
    }

    /// A node has ended.
    pub(crate) fn forget(&self, node: NodeKey) {
        self.nodes.lock().remove(&node);
    }

    /// Whether a window is open where any of these units is. What is with the coordinator comes
    /// from some node, or goes to one.
    pub(super) fn is_open(&self, homes: &[Home], now: Instant) -> bool {
        let nodes = self.nodes.lock();
        homes.iter().any(|home| match home {
            Home::Node(node) => nodes
                .get(node)
                .is_some_and(|node| node.windows.is_open(now)),
            Home::Coordinator => nodes.values().any(|node| node.windows.is_open(now)),
        })
    }

    /// Whether a window is open at a node, or at any.
    fn is_open_at(&self, addr: Option<&NodeAddr>, now: Instant) -> bool {
        let nodes = self.nodes.lock();
        let mut at = nodes
            .values()
            .filter(|node| addr.is_none_or(|addr| *addr == node.addr));
        at.any(|node| node.windows.is_open(now))
    }
}
