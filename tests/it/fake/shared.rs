//! The state of the whole cluster behind one lock.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::log::Entry;
use super::node::Accept;
use super::rule::RuleState;
use super::script::GateState;
use super::server::Dialect;
use super::store::Store;
use super::topology::{Format, Topology};

/// The state and the bell that rings when it changes. The lock is never held while writing to a
/// socket or running a test's script; conditions of a log or a wait do run under it.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// For looking only; whoever changes something uses [`Self::update`].
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes everybody who waits for a change.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `look` finds something, or the deadline has passed.
    pub(super) fn wait<T>(
        &self,
        deadline: Instant,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let woken = self.changed.wait_timeout(state, left);
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `look` finds something.
    pub(super) fn wait_forever<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&mut state) {
                return found;
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Everything that is true about the cluster now.
#[derive(Debug)]
pub(super) struct State {
    pub(super) topology: Topology,
    /// Nodes that see the slots in another way.
    pub(super) views: BTreeMap<usize, Topology>,
    pub(super) nodes: Vec<NodeState>,
    /// By connection number.
    pub(super) connections: Vec<ConnectionState>,
    /// In order of installation; the first that fits answers.
    pub(super) rules: Vec<Arc<RuleState>>,
    pub(super) gates: Vec<GateState>,
    /// Every command, logged before it is handled.
    pub(super) arrived: Vec<Entry>,
    /// Every command on keys that a node ran.
    pub(super) executed: Vec<Entry>,
    /// What clients must log in with.
    pub(super) password: Option<String>,
    pub(super) dialect: Dialect,
    /// Whether `HELLO` is unknown, as in old servers and some proxies.
    pub(super) resp2_only: bool,
}

impl State {
    /// The slots in the eyes of a node.
    pub(super) fn view(&self, node: usize) -> &Topology {
        self.views.get(&node).unwrap_or(&self.topology)
    }

    /// The end of a redirect to a node, as `from` writes it: `host:port`.
    pub(super) fn address(&self, from: usize, to: usize) -> String {
        let host = self.nodes[from].format.host.text();
        format!("{host}:{}", self.nodes[to].port)
    }

    /// The numbers of a node's connections that are open.
    pub(super) fn open(&self, node: usize) -> Vec<usize> {
        let own = self.connections.iter().enumerate();
        own.filter(|(_, c)| c.node == node && c.open)
            .map(|(number, _)| number)
            .collect()
    }

    /// Closes a connection from the node's side: nothing that it has read runs any more.
    pub(super) fn kill(&mut self, connection: usize) {
        let connection = &mut self.connections[connection];
        connection.open = false;
        connection.killed = true;
        if let Some(stream) = connection.stream.take() {
            // Wakes the threads that use it; fails if the client was faster.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Closes all connections of a node, also those that the client has closed already and of
    /// which a script still holds commands.
    pub(super) fn kill_all(&mut self, node: usize) {
        for number in 0..self.connections.len() {
            if self.connections[number].node == node {
                self.kill(number);
            }
        }
    }
}

/// One node.
#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) port: u16,
    pub(super) id: String,
    pub(super) format: Format,
    pub(super) store: Store,
    /// Slots on their way out, with their target.
    pub(super) migrating: BTreeMap<u16, usize>,
    /// Slots on their way in, with their source.
    pub(super) importing: BTreeMap<u16, usize>,
    pub(super) accept: Accept,
    /// Whether its connections are read at all.
    pub(super) reading: bool,
    /// After so many more bytes the connection that brought the last one is closed.
    pub(super) bytes_until_close: Option<usize>,
    /// How often it has told the slot map.
    pub(super) maps_told: usize,
}

/// One connection, open or not.
#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) node: usize,
    /// Absent once the node has closed it, so that the socket really closes.
    pub(super) stream: Option<Arc<TcpStream>>,
    /// Held while a reply or push is written, so that none lands inside another.
    pub(super) write_lock: Arc<Mutex<()>>,
    /// Neither side has closed it.
    pub(super) open: bool,
    /// The node has closed it.
    pub(super) killed: bool,
    /// Whether it is read.
    pub(super) reading: bool,
}
