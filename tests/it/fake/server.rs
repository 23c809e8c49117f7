//! The fake cluster: its nodes, and changes to who owns what.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::keys::slot_of;
use super::log::Log;
use super::node::{Accept, Node};
use super::placement;
use super::rule::On;
use super::script::Gate;
use super::shared::{NodeState, Shared, State};
use super::store::Store;
use super::topology::{Format, Topology};

/// A scripted cluster on loopback; see the [module](super).
#[derive(Debug)]
pub struct FakeCluster {
    shared: Arc<Shared>,
    nodes: Vec<Node>,
}

impl FakeCluster {
    /// So many nodes, which share the slots in equal ranges.
    ///
    /// # Panics
    ///
    /// If no sockets can be opened.
    #[track_caller]
    pub fn start(nodes: usize) -> Self {
        Self::builder(nodes).start()
    }

    /// So many nodes, with options.
    pub fn builder(nodes: usize) -> Builder {
        Builder {
            nodes,
            owners: nodes,
            ipv6: false,
            resp2_only: false,
            password: None,
            dialect: Dialect::Redis,
        }
    }

    /// One of its nodes.
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// All its nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All nodes as seeds of a client: `redis://127.0.0.1:7000,127.0.0.1:7001`.
    pub fn url(&self) -> String {
        let addrs: Vec<String> = self.nodes.iter().map(|n| n.addr().to_string()).collect();
        format!("redis://{}", addrs.join(","))
    }

    /// What arrived, to be narrowed down.
    pub fn log(&self) -> Log {
        Log::new(Arc::clone(&self.shared))
    }

    /// A rule for a command on any node: a name, or name and subcommand such as `CLUSTER SLOTS`.
    pub fn on(&self, command: &str) -> On {
        On::new(Arc::clone(&self.shared), None, Some(command))
    }

    /// A rule for any command on any node.
    pub fn on_any(&self) -> On {
        On::new(Arc::clone(&self.shared), None, None)
    }

    /// A closed gate for scripts.
    pub fn gate(&self) -> Gate {
        Gate::new(Arc::clone(&self.shared))
    }

    /// How often commands with this key were run, on all nodes together.
    pub fn executions(&self, key: impl AsRef<[u8]>) -> usize {
        self.log().executed().key(key).count()
    }

    /// Changes how all nodes write hosts and node entries.
    pub fn set_format(&self, format: &Format) {
        for node in &self.nodes {
            node.set_format(format.clone());
        }
    }

    /// The true owners of the slots.
    pub fn topology(&self) -> Topology {
        self.shared.lock().topology.clone()
    }

    /// Changes the true owners of the slots by any of the methods of [`Topology`]. Keys move to
    /// their new owners; slots in motion that have arrived are not in motion any more.
    pub fn change(&self, change: impl FnOnce(&mut Topology)) {
        self.shared.update(|state| {
            change(&mut state.topology);
            placement::settle(state);
        });
    }

    /// Gives slots with their keys to a node: from now on all nodes without a view of their own
    /// redirect to it.
    pub fn assign(&self, slots: RangeInclusive<u16>, node: usize) {
        self.change(|topology| topology.assign(slots, node));
    }

    /// Makes a node a replica of another one. It gets what that one holds and what it will write.
    pub fn replicate(&self, replica: usize, primary: usize) {
        self.change(|topology| topology.replicate(replica, primary));
    }

    /// Failover: the replica takes over from its primary, which becomes a replica.
    pub fn promote(&self, replica: usize) {
        self.change(|topology| topology.promote(replica));
    }

    /// Lets a node believe in other owners than the true ones: it serves, redirects and tells
    /// maps by them.
    pub fn set_view(&self, node: usize, view: Topology) {
        self.shared.update(|state| state.views.insert(node, view));
    }

    /// Lets a node know the true owners again.
    pub fn clear_view(&self, node: usize) {
        self.shared.update(|state| state.views.remove(&node));
    }

    /// Opens a slot on its owner and on the target: from now on the owner answers `ASK` for keys
    /// that it does not have.
    ///
    /// # Panics
    ///
    /// If nobody owns the slot.
    #[track_caller]
    pub fn begin_move(&self, slot: u16, to: usize) {
        self.shared.update(|state| {
            let from = state.topology.owner(slot).expect("an owner");
            state.nodes[from].migrating.insert(slot, to);
            state.nodes[to].importing.insert(slot, from);
        });
    }

    /// Moves a key of a slot that is in motion.
    ///
    /// # Panics
    ///
    /// If its slot is not in motion.
    #[track_caller]
    pub fn migrate_key(&self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        let slot = slot_of(key);
        self.shared.update(|state| {
            let from = state.topology.owner(slot).expect("an owner");
            let target = state.nodes[from].migrating.get(&slot).copied();
            let to = target.expect("a slot in motion");
            for (key, data) in state.nodes[from].store.take(|own| own == key) {
                state.nodes[to].store.put(&key, Some(data));
            }
        });
    }

    /// Ends the motion of a slot: its target owns it and gets the keys that are left.
    ///
    /// # Panics
    ///
    /// If the slot is not in motion.
    #[track_caller]
    pub fn finish_move(&self, slot: u16) {
        let target = {
            let state = self.shared.lock();
            let from = state.topology.owner(slot).expect("an owner");
            state.nodes[from].migrating.get(&slot).copied()
        };
        self.assign(slot..=slot, target.expect("a slot in motion"));
    }
}

impl Drop for FakeCluster {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.shut_down();
        }
    }
}

/// Options of a fake cluster.
#[derive(Clone, Debug)]
pub struct Builder {
    nodes: usize,
    owners: usize,
    ipv6: bool,
    resp2_only: bool,
    password: Option<String>,
    dialect: Dialect,
}

/// In which family's way a transaction is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `ASK` and `TRYAGAIN` come when a command is queued; `MULTI` and `WATCH` inside `MULTI` are
    /// errors that do no harm (Redis 7).
    Redis,
    /// `ASK` and `TRYAGAIN` come at `EXEC`; `MULTI` and `WATCH` inside `MULTI` spoil the
    /// transaction (Valkey 9).
    Valkey,
}

impl Builder {
    /// Only the first so many nodes own slots; the rest are for replicas, moves and redirects.
    pub fn owners(mut self, count: usize) -> Self {
        self.owners = count;
        self
    }

    /// Nodes listen on `::1` too, at the same port.
    pub fn ipv6(mut self) -> Self {
        self.ipv6 = true;
        self
    }

    /// `HELLO` is unknown.
    pub fn resp2_only(mut self) -> Self {
        self.resp2_only = true;
        self
    }

    /// Clients must log in.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Whose ways the nodes have; Redis's unless told otherwise.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Opens the sockets.
    ///
    /// # Panics
    ///
    /// If that fails.
    #[track_caller]
    pub fn start(self) -> FakeCluster {
        self.try_start().expect("sockets on loopback")
    }

    fn try_start(self) -> io::Result<FakeCluster> {
        let sockets: io::Result<Vec<Vec<TcpListener>>> =
            (0..self.nodes).map(|_| Node::bind(self.ipv6)).collect();
        let sockets = sockets?;
        let mut nodes = Vec::new();
        for (index, own) in sockets.iter().enumerate() {
            nodes.push(node_state(own[0].local_addr()?.port(), index));
        }
        let shared = Arc::new(Shared::new(State {
            topology: Topology::even(self.owners),
            views: BTreeMap::new(),
            nodes,
            connections: Vec::new(),
            rules: Vec::new(),
            gates: Vec::new(),
            arrived: Vec::new(),
            executed: Vec::new(),
            password: self.password,
            dialect: self.dialect,
            resp2_only: self.resp2_only,
        }));
        let nodes: io::Result<Vec<Node>> = sockets
            .into_iter()
            .enumerate()
            .map(|(index, own)| Node::start(Arc::clone(&shared), index, own))
            .collect();
        Ok(FakeCluster {
            shared,
            nodes: nodes?,
        })
    }
}

fn node_state(port: u16, index: usize) -> NodeState {
    NodeState {
        port,
        id: format!("{:040x}", index + 1),
        format: Format::default(),
        store: Store::default(),
        migrating: BTreeMap::new(),
        importing: BTreeMap::new(),
        accept: Accept::Serve,
        reading: true,
        bytes_until_close: None,
        maps_told: 0,
    }
}
