//! The published routes: the only state that callers read.
//!
//! A caller looks its slot up and pushes its unit under one read lock. The coordinator replaces
//! the snapshot under the write lock, together with the moves that the new routes depend on. So no
//! unit can fall between two snapshots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;

use super::clock;
use super::direct::{self, Driven};
use super::load::{Amount, Load, NoRoom};
use super::node::NodeHandle;
use super::records::amount;
use crate::config::WhenFull;
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::{NodeKey, View};
use crate::proto::outcome::Reason;
use crate::proto::slot::Slot;
use crate::proto::unit::{Target, Ticket, Unit};
use crate::reply::{Home, Settler};
use crate::sync::RwLock;

/// Where callers put units.
#[derive(Debug)]
pub(crate) struct Routes {
    /// Read by every caller for a moment, also while it pushes into a channel (that never blocks);
    /// written by the coordinator.
    snapshot: RwLock<Arc<Snapshot>>,
    /// To the coordinator: units of slots that are held.
    parked: Sender<Unit<Settler>>,
    /// What waits at the coordinator.
    pub(crate) parked_load: Load,
    /// It is a single server: asked for each command, so it has a place of its own.
    standalone: AtomicBool,
    /// Spreads keyless commands and replica reads.
    turn: AtomicUsize,
}

/// What callers see at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) view: View,
    /// By key.
    pub(crate) nodes: Vec<Option<Arc<NodeHandle>>>,
    /// The client was closed.
    pub(crate) closed: bool,
}

/// A wish beside the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The primary, or any of them.
    Primary,
    /// A replica if there is one.
    Replica,
    /// This node.
    Node(NodeAddr),
}

/// What became of the parts of a pipeline that are not simply queued.
#[derive(Default)]
pub(crate) struct Submitted {
    /// On the wire, to be written by the calling thread.
    pub(crate) driven: Vec<Driven>,
    /// There was no room.
    pub(crate) late: Vec<(Option<NodeKey>, Unit<Settler>)>,
}

/// A unit that found no room, and where; `None` is the coordinator. The routes are not held: a
/// wait would keep the coordinator from publishing.
struct Full {
    unit: Unit<Settler>,
    node: Option<Arc<NodeHandle>>,
}

impl Full {
    /// Waits until there may be room, but at most so long. At the end of its caller's time the
    /// unit is settled.
    fn wait(self, routes: &Routes, patience: Option<Duration>) -> Option<Unit<Settler>> {
        let Full { unit, node } = self;
        let records = node.as_ref().map(|node| &node.wire.records);
        let load = records.map_or(&routes.parked_load, |records| &records.load);
        let home = records.map_or(Home::Coordinator, |records| Home::Node(records.key));
        let until = patience.map(|patience| clock::now() + patience);
        let end = |now| unit.ticket.room_until(home, unit.deadline, now);
        let first = |now| end(now).into_iter().chain(until).min();
        let has_room = load.wait_for_room(amount(&unit), first, || unit.ticket.is_dead());
        let now = clock::now();
        if has_room || !(unit.ticket.is_dead() || end(now).is_some_and(|end| end <= now)) {
            return Some(unit);
        }
        fail(
            unit,
            Reason::QueueFull,
            records.map(|records| &records.addr),
        );
        None
    }
}

/// Where a unit goes.
enum Way<'a> {
    Node(&'a Arc<NodeHandle>),
    Coordinator,
    Nowhere,
}

impl Way<'_> {
    fn addr(&self) -> Option<&NodeAddr> {
        match self {
            Way::Node(node) => Some(&node.wire.records.addr),
            Way::Coordinator | Way::Nowhere => None,
        }
    }
}

impl Snapshot {
    pub(crate) fn node(&self, key: NodeKey) -> Option<&Arc<NodeHandle>> {
        self.nodes.get(key.index())?.as_ref()
    }

    /// The address of a node.
    pub(crate) fn addr(&self, key: NodeKey) -> Option<NodeAddr> {
        self.node(key).map(|node| node.wire.records.addr.clone())
    }

    /// The addresses of all primaries, sorted.
    pub(crate) fn primaries(&self) -> Vec<NodeAddr> {
        let primaries = self.view.primaries.iter();
        let mut addrs: Vec<_> = primaries.filter_map(|key| self.addr(*key)).collect();
        addrs.sort();
        addrs
    }

    /// The node to name when a caller gives up on a command of this slot that was here. One without
    /// a slot waits with the coordinator because no node can be reached: any of them tells why.
    pub(crate) fn blamed(&self, home: Home, slot: Option<Slot>) -> Option<&Arc<NodeHandle>> {
        match (home, slot) {
            (Home::Node(key), _) => self.node(key),
            (Home::Coordinator, Some(_)) => None,
            (Home::Coordinator, None) => {
                let mut nodes = self.nodes.iter().flatten();
                nodes.find(|node| node.wire.records.connect_error().is_some())
            }
        }
    }

    /// The node that serves a slot, as far as it is published.
    pub(crate) fn owner(&self, slot: Slot) -> Option<NodeKey> {
        self.view.slots.get(slot.index()).copied().flatten()
    }

    fn way(&self, target: Target, pick: &Pick, turn: &AtomicUsize) -> Way<'_> {
        let key = match (target, pick) {
            (_, Pick::Node(addr)) => {
                let known = self.view.addrs.iter().find(|(name, _)| name == addr);
                return known
                    .and_then(|(_, key)| self.node(*key))
                    .map_or(Way::Nowhere, Way::Node);
            }
            (Target::Slot(slot), Pick::Replica) if !self.view.replicas.is_empty() => {
                self.replica(slot, turn).or(self.owner(slot))
            }
            (Target::Slot(slot), Pick::Primary | Pick::Replica) => self.owner(slot),
            (Target::Any | Target::Node, _) => choose(&self.view.usable, turn),
        };
        key.and_then(|key| self.node(key))
            .map_or(Way::Coordinator, Way::Node)
    }

    fn replica(&self, slot: Slot, turn: &AtomicUsize) -> Option<NodeKey> {
        let migrating = self.view.primary_only.as_ref();
        if migrating.is_some_and(|slots| slots.contains(slot)) {
            return None;
        }
        let owner = self.owner(slot)?;
        let shard = self
            .view
            .replicas
            .iter()
            .find(|(primary, _)| *primary == owner)?;
        choose(&shard.1, turn)
    }
}

fn choose(nodes: &[NodeKey], turn: &AtomicUsize) -> Option<NodeKey> {
    let at = turn
        .fetch_add(1, Ordering::Relaxed)
        .checked_rem(nodes.len())?;
    nodes.get(at).copied()
}

impl Routes {
    pub(crate) fn new(parked: Sender<Unit<Settler>>, limit: Amount) -> Self {
        Self {
            snapshot: RwLock::new(Arc::default()),
            parked,
            parked_load: Load::new(limit),
            standalone: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
        }
    }

    pub(crate) fn is_standalone(&self) -> bool {
        self.standalone.load(Ordering::Relaxed)
    }

    /// What callers see now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read())
    }

    /// Runs `change` while no caller can route; what it returns is published.
    pub(crate) fn publish(&self, change: impl FnOnce(&Snapshot) -> Option<Snapshot>) {
        let mut snapshot = self.snapshot.write();
        if let Some(next) = change(&snapshot) {
            self.standalone
                .store(next.view.standalone, Ordering::Relaxed);
            *snapshot = Arc::new(next);
        }
    }

    /// Puts a unit where it belongs, waiting for room if need be. A unit that cannot be put
    /// anywhere is settled: its caller learns of it as of any other end.
    pub(crate) fn submit(&self, unit: Unit<Settler>, pick: &Pick, when_full: WhenFull) {
        let driven = self.submit_or_drive(unit, pick, when_full, false);
        debug_assert!(driven.is_none(), "nobody would write it");
    }

    /// The same; but with `direct` a unit for a free node is put on the wire at once, to be
    /// written and read by the calling thread.
    pub(crate) fn submit_or_drive(
        &self,
        unit: Unit<Settler>,
        pick: &Pick,
        when_full: WhenFull,
        direct: bool,
    ) -> Option<Driven> {
        let mut unit = unit;
        loop {
            unit = match self.try_submit(unit, pick, when_full, direct) {
                Ok(driven) => return driven,
                Err(full) => full.wait(self, None)?,
            };
        }
    }

    /// Puts a unit where it belongs if there is room. Otherwise it comes back, after a wait of at
    /// most `patience` (`None`: as long as its caller waits) for room.
    pub(crate) fn offer(
        &self,
        unit: Unit<Settler>,
        pick: &Pick,
        when_full: WhenFull,
        patience: Option<Duration>,
    ) -> Option<Unit<Settler>> {
        let tried = self.try_submit(unit, pick, when_full, false);
        tried.err()?.wait(self, patience)
    }

    /// Does not wait for room.
    fn try_submit(
        &self,
        unit: Unit<Settler>,
        pick: &Pick,
        when_full: WhenFull,
        direct: bool,
    ) -> Result<Option<Driven>, Full> {
        let target = unit.facts(0).target;
        let more = amount(&unit);
        loop {
            let snapshot = self.snapshot.read();
            if snapshot.closed {
                drop(snapshot);
                fail(unit, Reason::Closed, None);
                return Ok(None);
            }
            let way = snapshot.way(target, pick, &self.turn);
            let load = match &way {
                Way::Node(node) => &node.wire.records.load,
                Way::Coordinator => &self.parked_load,
                Way::Nowhere => {
                    push_nowhere(unit, pick);
                    return Ok(None);
                }
            };
            match load.try_admit(more) {
                Ok(()) => return Ok(self.push(unit, &way, direct)),
                Err(NoRoom::Full) if when_full == WhenFull::Wait => {
                    let node = match way {
                        Way::Node(node) => Some(Arc::clone(node)),
                        Way::Coordinator | Way::Nowhere => None,
                    };
                    return Err(Full { unit, node });
                }
                Err(NoRoom::TooLarge) => {
                    fail_for_good(unit, load.limit(), way.addr());
                    return Ok(None);
                }
                Err(NoRoom::Full) => {
                    fail(unit, Reason::QueueFull, way.addr());
                    return Ok(None);
                }
                // The routes are about to change.
                Err(NoRoom::Closed) => std::thread::yield_now(),
            }
        }
    }

    /// Hands over a unit that was admitted.
    fn push(&self, unit: Unit<Settler>, way: &Way<'_>, direct: bool) -> Option<Driven> {
        match way {
            Way::Node(node) if direct => match direct::stage(node, unit) {
                Ok(driven) => return Some(driven),
                Err(unit) => node.submit(unit),
            },
            Way::Node(node) => node.submit(unit),
            Way::Coordinator => {
                unit.ticket.set_home(Home::Coordinator);
                // The coordinator ends after the snapshot says closed, so it still listens.
                drop(self.parked.send(unit));
            }
            Way::Nowhere => fail(unit, Reason::NodeGone, None),
        }
        None
    }

    /// The node that a unit would go to by this snapshot; `None` is the coordinator.
    pub(crate) fn route(&self, seen: &Snapshot, target: Target, pick: &Pick) -> Option<NodeKey> {
        match seen.way(target, pick, &self.turn) {
            Way::Node(node) => Some(node.key),
            Way::Coordinator | Way::Nowhere => None,
        }
    }

    /// Puts the parts of one pipeline where they belong, if `seen` is still what is published;
    /// otherwise they come back to be grouped anew. With `direct`, parts for free nodes are put on
    /// the wire by the calling thread.
    pub(crate) fn submit_parts(
        &self,
        seen: &Arc<Snapshot>,
        parts: Vec<(Option<NodeKey>, Unit<Settler>)>,
        direct: bool,
    ) -> Result<Submitted, Vec<Unit<Settler>>> {
        let snapshot = self.snapshot.read();
        if !Arc::ptr_eq(&snapshot, seen) {
            return Err(parts.into_iter().map(|(_, unit)| unit).collect());
        }
        if snapshot.closed {
            drop(snapshot);
            parts
                .into_iter()
                .for_each(|(_, unit)| fail(unit, Reason::Closed, None));
            return Ok(Submitted::default());
        }
        let mut submitted = Submitted::default();
        let mut full = Vec::new();
        for (key, unit) in parts {
            // What was grouped anew has several parts for one node: none may pass another.
            if full.contains(&key) {
                submitted.late.push((key, unit));
                continue;
            }
            let way = key
                .and_then(|key| snapshot.node(key))
                .map_or(Way::Coordinator, Way::Node);
            let load = match &way {
                Way::Node(node) => &node.wire.records.load,
                Way::Coordinator | Way::Nowhere => &self.parked_load,
            };
            match load.try_admit(amount(&unit)) {
                Ok(()) => submitted.driven.extend(self.push(unit, &way, direct)),
                Err(_) => {
                    full.push(key);
                    submitted.late.push((key, unit));
                }
            }
        }
        Ok(submitted)
    }
}

/// Ends a unit for a node that nobody knows.
fn push_nowhere(unit: Unit<Settler>, pick: &Pick) {
    let addr = match pick {
        Pick::Node(addr) => Some(addr),
        Pick::Primary | Pick::Replica => None,
    };
    fail(unit, Reason::NodeGone, addr);
}

/// Ends a unit that has more commands than any queue takes.
fn fail_for_good(unit: Unit<Settler>, limit: Amount, node: Option<&NodeAddr>) {
    if unit.places() > 1 {
        return fail(unit, Reason::QueueFull, node);
    }
    let mut failure = unit.failure(Reason::QueueFull, node);
    let (commands, most) = (unit.commands(), limit.commands);
    let text = format!("{commands} commands in one piece never fit: queue_commands is {most}");
    failure.detail = Some(text.into());
    unit.ticket.settle(Err(failure));
}

/// Ends a unit that was never handed over.
pub(crate) fn fail(mut unit: Unit<Settler>, reason: Reason, node: Option<&NodeAddr>) {
    while unit.places() > 1 {
        let mut rest = unit.split_front(1);
        std::mem::swap(&mut rest, &mut unit);
        let failure = unit.failure(reason, node);
        unit.ticket.settle(Err(failure));
        unit = rest;
    }
    if !unit.ticket.is_dead() {
        let failure = unit.failure(reason, node);
        unit.ticket.settle(Err(failure));
    }
}
