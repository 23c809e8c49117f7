//! Which nodes have announced maintenance, so that callers who wait for them wait longer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::Home;
use crate::proto::cluster::NodeKey;
use crate::proto::maintenance::{Notice, Windows};
use crate::sync::Mutex;

/// The windows of all nodes. Only callers whose deadline has passed look here.
#[derive(Debug)]
pub(crate) struct Relax {
    /// How long a call waits at least while a window is open.
    timeout: Duration,
    /// Held for a look; nothing else is locked meanwhile.
    nodes: Mutex<HashMap<NodeKey, Windows>>,
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
        now + self.timeout
    }

    /// A connection of a node brought an announcement.
    pub(crate) fn hear(&self, node: NodeKey, notice: &Notice, now: Instant) {
        self.nodes.lock().entry(node).or_default().hear(notice, now);
    }

    /// A node has another connection.
    pub(crate) fn reconnected(&self, node: NodeKey) {
        if let Some(windows) = self.nodes.lock().get_mut(&node) {
            windows.reconnected();
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
            Home::Node(node) => nodes.get(node).is_some_and(|open| open.is_open(now)),
            Home::Coordinator => nodes.values().any(|open| open.is_open(now)),
        })
    }
}
