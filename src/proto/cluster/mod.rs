//! The coordinator's mind: events in, effects out.
//!
//! It alone changes the slot map. Any change of the owner of a slot, from whatever source, runs
//! the same steps:
//!
//! 1. The slot is *held*: published so that new units for it come here and are parked in order.
//! 2. The old owner gives up what it has queued for the slot.
//! 3. What the old owner has on the wire for it is waited for, for a limited time.
//! 4. The new owner gets everything, oldest first, and only then the new route is published.
//!
//! A further change while a slot is held only replaces the destination. So nothing can overtake:
//! *units of one slot, submitted by one thread, are executed in the order of submission unless one
//! of them fails or is answered TRYAGAIN.* Publishing before step 4 would break that.
//!
//! Legal calls: [`handle`](Cluster::handle) for each event and [`tick`](Cluster::tick) when
//! [`next_tick`](Cluster::next_tick) has come. What [`take_effects`](Cluster::take_effects) gives
//! afterwards is carried out in order, and before the next commit: a unit that is sent to a node
//! must arrive there before the node is told to give its slot up. Whenever
//! [`wants_commit`](Cluster::wants_commit): stop all callers from routing, hand in with
//! [`submit`](Cluster::submit) whatever they parked so far, call [`commit`](Cluster::commit) with
//! no event in between, carry it out, let the callers go on.
//!
//! What nobody can mend: a server that refuses a command and runs a younger one that was behind it
//! on the same wire, because it was ready, or became the owner again, between the two.

mod commit;
mod holds;
mod maintenance;
mod nodes;
mod redirects;
mod topology;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

pub(crate) use commit::{Commit, View};
use holds::{Holds, Place};
use nodes::Nodes;
pub(crate) use nodes::{Health, NodeKey, Role};

use super::addr::NodeAddr;
use super::backoff::{Backoff, Random};
use super::inflight::BarrierId;
use super::maintenance::{Notice, Seen};
use super::outcome::{Outcome, Reason};
use super::redirect::Redirect;
use super::refresh::{RefreshCause, RefreshGate};
use super::slot::map::SlotMap;
use super::slot::{SLOTS, Slot, SlotSet};
use super::topology::Topology;
use super::unit::{Target, Ticket, Unit};

/// What happened.
#[derive(Debug)]
pub(crate) enum Event<T> {
    /// A command did not run and is to be sent elsewhere or later. `generation` names the
    /// connection that the reply came from.
    Redirected {
        from: NodeKey,
        generation: u64,
        unit: Unit<T>,
        redirect: Redirect,
    },
    /// A redirect that nobody waits for.
    Learned { from: NodeKey, redirect: Redirect },
    /// A redirect that does not fit its command.
    Confused { from: NodeKey },
    /// Units that were on the wire of a connection that was lost after their slots had left the
    /// node. Comes before the `Cleared` of the barrier that they hold.
    Strays { from: NodeKey, units: Vec<Unit<T>> },
    /// A node gave up what it had queued for a barrier's slots.
    Extracted { id: BarrierId, units: Vec<Unit<T>> },
    /// A node has nothing more on the wire for a barrier's slots. Comes after `Extracted`.
    Cleared { id: BarrierId },
    /// A connection is ready.
    NodeUp { node: NodeKey },
    /// A connection was lost or could not be made.
    NodeDown { node: NodeKey },
    /// Commands time out on a node.
    Suspect { node: NodeKey },
    /// A node announced maintenance.
    Announced { from: NodeKey, notice: Notice },
    /// A node that was told to retire has ended; what it had left over.
    Retired { node: NodeKey, units: Vec<Unit<T>> },
    /// A node answered the topology query, or failed to.
    Topology {
        query: QueryId,
        result: Result<Topology, QueryError>,
    },
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Effect<T> {
    /// A command ends.
    Settle(T, Outcome),
    /// Queue a unit at a node, behind everything that is there.
    Send(NodeKey, Unit<T>),
    /// Start the threads of a node.
    Spawn(NodeKey, NodeAddr, Dial),
    /// Replace the connection of a node once its written units are answered, unless it was
    /// replaced since this generation.
    Replace(NodeKey, u64),
    /// Close the connection of a node now: it does not answer.
    Break(NodeKey),
    /// A refresh starts, for this reason.
    Refresh(RefreshCause),
    /// Ask a node for its map, over a connection of its own.
    Query(QueryId, Source),
    /// The client is usable, or cannot become so: the reason of each seed.
    Ready(Result<(), Vec<String>>),
}

/// When a node connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dial {
    /// At once.
    Now,
    /// With the first unit.
    OnDemand,
}

/// Whom to ask for the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// An address that the user gave: it is dialled as it is.
    Seed(NodeAddr),
    /// An address that the cluster gave.
    Node(NodeAddr),
}

/// Names a topology query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct QueryId(pub(crate) u64);

/// Why a node gave no map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueryError {
    /// It is a single server, not part of a cluster.
    NotACluster(NodeAddr, String),
    /// Anything else.
    Failed(String),
}

/// What the coordinator must know of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) seeds: Vec<NodeAddr>,
    pub(crate) max_redirects: u32,
    /// Redirects are followed; otherwise they only teach.
    pub(crate) follow_redirects: bool,
    /// TRYAGAIN in the middle of other commands is not retried.
    pub(crate) strict_order: bool,
    /// Reads go to replicas.
    pub(crate) replica_reads: bool,
    /// Connect to a node only when it is needed.
    pub(crate) lazy: bool,
    pub(crate) refresh_least: Duration,
    pub(crate) refresh_most: Duration,
    pub(crate) refresh_period: Option<Duration>,
    /// How long written units of a moving slot are waited for.
    pub(crate) drain_limit: Duration,
}

/// Pauses after TRYAGAIN, CLUSTERDOWN, LOADING and the like.
const PAUSE: Backoff = Backoff {
    first: Duration::from_millis(10),
    most: Duration::from_millis(500),
};

/// Pauses from the second redirect of one command on: two nodes that do not agree need time.
const REDIRECT_PAUSE: Backoff = Backoff {
    first: Duration::from_millis(1),
    most: Duration::from_millis(50),
};

/// How often units that are held are looked at for their deadlines.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);

/// How long a node that only redirects named is kept after the last one.
const UNLISTED_LINGER: Duration = Duration::from_secs(5);

/// How long commands that other nodes can run as well avoid a node that did not serve one.
const AVOID: Duration = Duration::from_secs(2);

/// The state of the cluster, and of everything that is on its way through the coordinator.
#[derive(Debug)]
pub(crate) struct Cluster<T> {
    settings: Settings,
    nodes: Nodes,
    /// The owner of each slot. While a slot is held this is its destination.
    owners: Vec<Option<NodeKey>>,
    /// The replicas of each primary, as the last map says.
    replicas: HashMap<NodeKey, Vec<NodeKey>>,
    holds: Holds<T>,
    barriers: BTreeMap<BarrierId, Barrier>,
    next_barrier: u64,
    /// Where ASK sent units of a slot, until it is handed over: the node that the owner named, the
    /// one that that node named in turn, and so on.
    asked: SlotMap<Vec<NodeKey>>,
    /// Single units that wait for a moment, by time and number.
    delayed: BTreeMap<(Instant, u64), Unit<T>>,
    next_delayed: u64,
    gate: RefreshGate,
    /// The generation of the last MOVED of a slot: older maps do not overwrite it.
    patched: SlotMap<u64>,
    /// Slots that the last adopted map left out; only a second one makes them ownerless.
    holes: SlotSet,
    query: topology::Queries,
    /// Announcements that were acted on.
    seen: Seen,
    /// What callers see, and whether it differs from what was published last.
    routes: Vec<Option<NodeKey>>,
    dirty: bool,
    /// Nodes that are to pass on what others can run as well; replicas also reads.
    releasing: BTreeMap<NodeKey, bool>,
    standalone: bool,
    effects: Vec<Effect<T>>,
    random: Random,
    next_expiry: Option<Instant>,
    next_period: Option<Instant>,
}

/// A question to a node: "tell me when these slots are off the wire".
#[derive(Debug)]
struct Barrier {
    node: NodeKey,
    slots: SlotSet,
    /// When its connection is closed instead; `None` after that.
    limit: Option<Instant>,
}

impl<T: Ticket> Cluster<T> {
    /// A cluster of which only the seeds are known. Asks all of them at once.
    pub(crate) fn new(settings: Settings, seed: u64, now: Instant) -> Self {
        let gate = RefreshGate::new(settings.refresh_least, settings.refresh_most);
        let mut cluster = Self {
            nodes: Nodes::default(),
            owners: vec![None; usize::from(SLOTS)],
            replicas: HashMap::new(),
            holds: Holds::new(),
            barriers: BTreeMap::new(),
            next_barrier: 0,
            asked: SlotMap::new(),
            delayed: BTreeMap::new(),
            next_delayed: 0,
            gate,
            patched: SlotMap::new(),
            holes: SlotSet::new(),
            query: topology::Queries::default(),
            seen: Seen::default(),
            routes: vec![None; usize::from(SLOTS)],
            dirty: true,
            releasing: BTreeMap::new(),
            standalone: false,
            effects: Vec::new(),
            random: Random::new(seed),
            next_expiry: None,
            next_period: None,
            settings,
        };
        cluster.ask_seeds(now);
        cluster
    }

    /// Takes an event.
    pub(crate) fn handle(&mut self, event: Event<T>, now: Instant) {
        match event {
            Event::Redirected {
                from,
                generation,
                unit,
                redirect,
            } => {
                self.redirected(from, generation, unit, redirect, now);
            }
            Event::Learned { from, redirect } => self.learned(from, &redirect, now),
            Event::Confused { from } => self.want_refresh(RefreshCause::Confused, Some(from)),
            Event::Strays { from, units } => {
                units
                    .into_iter()
                    .for_each(|unit| self.stray(from, unit, now));
            }
            Event::Extracted { id, units } => self.extracted(id, units, now),
            Event::Cleared { id } => self.cleared(id),
            Event::NodeUp { node } => self.set_health(node, Health::Up),
            Event::NodeDown { node } => {
                self.set_health(node, Health::Failing);
                self.release_from(node);
                self.want_refresh(RefreshCause::ConnectionLost, None);
            }
            Event::Suspect { node } => {
                if self.nodes.get(node).is_some() {
                    self.avoid(node, now);
                    self.want_refresh(RefreshCause::Timeout, None);
                }
            }
            Event::Announced { from, notice } => self.announced(from, &notice, now),
            Event::Retired { node, units } => self.retired(node, units, now),
            Event::Topology { query, result } => self.topology(query, result, now),
        }
        self.start_refresh(now);
    }

    /// Does what is due at this time.
    pub(crate) fn tick(&mut self, now: Instant) {
        while let Some(entry) = self
            .delayed
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        {
            let unit = entry.remove();
            self.dispatch(unit, now);
        }
        let late: Vec<NodeKey> = self.late_barriers(now);
        self.effects.extend(late.into_iter().map(Effect::Break));
        if self.next_expiry.is_some_and(|at| at <= now) {
            self.expire(now);
        }
        if self.next_period.is_some_and(|at| at <= now) {
            self.want_refresh(RefreshCause::Periodic, None);
            self.schedule_period(now);
        }
        self.reap(now);
        self.start_refresh(now);
    }

    /// When [`tick`](Self::tick) is due; `None` if nothing waits for the time.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let barrier = self
            .barriers
            .values()
            .filter_map(|barrier| barrier.limit)
            .min();
        let delayed = self.delayed.first_key_value().map(|(&(at, _), _)| at);
        let linger = self.next_reap();
        [
            barrier,
            delayed,
            linger,
            self.holds.next_timer(),
            self.gate.due(),
            self.next_expiry,
            self.next_period,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect<T>> {
        std::mem::take(&mut self.effects)
    }

    /// Units that wait here.
    pub(crate) fn waiting(&self) -> usize {
        self.amount().0
    }

    /// Commands and bytes that wait here.
    pub(crate) fn amount(&self) -> (usize, usize) {
        let delayed = self.delayed.values();
        delayed.fold(self.holds.amount(), |(commands, bytes), unit| {
            (commands + unit.commands(), bytes + unit.bytes().len())
        })
    }

    /// A unit that a caller handed to the coordinator: its slot was held when it looked.
    pub(crate) fn submit(&mut self, unit: Unit<T>, now: Instant) {
        self.divide_by_slot(unit, |cluster, piece| match piece.slot(0) {
            // Also if the slot is free by now: what its caller sends after the next commit must
            // not overtake it, so it goes out with that commit.
            Some(slot) if !piece.is_expired(now) => cluster.park(slot, piece, now),
            _ => cluster.dispatch(piece, now),
        });
    }

    /// Callers of units that wait here have gone: their units are dropped.
    pub(crate) fn forget_dead(&mut self) {
        self.holds.forget_dead();
        self.delayed.retain(|_, unit| !unit.ticket.is_dead());
    }

    /// Ends everything that waits here.
    pub(crate) fn close(&mut self) {
        let mut units = self.holds.take_all();
        units.extend(std::mem::take(&mut self.delayed).into_values());
        units
            .into_iter()
            .for_each(|unit| self.fail(unit, Reason::Closed, None));
    }

    fn divide_by_slot(&mut self, unit: Unit<T>, mut each: impl FnMut(&mut Self, Unit<T>)) {
        if unit.ticket.is_dead() {
            return;
        }
        unit.divide(|target| target, |_, piece| each(self, piece));
    }

    /// Sends a unit of one target where it belongs now, or keeps it until somewhere is known.
    fn dispatch(&mut self, unit: Unit<T>, now: Instant) {
        if unit.ticket.is_dead() {
            return;
        }
        if unit.is_expired(now) {
            return self.fail(unit, Reason::Timeout, None);
        }
        match unit.facts(0).target {
            Target::Slot(slot) => self.dispatch_to_slot(slot, unit, now),
            Target::Any => match self.any_primary() {
                Some(node) => self.send(node, unit),
                None => {
                    self.want_refresh(RefreshCause::Uncovered, None);
                    self.delay(unit, now + PAUSE.first);
                }
            },
            Target::Node => self.fail(unit, Reason::NodeGone, None),
        }
    }

    fn dispatch_to_slot(&mut self, slot: Slot, unit: Unit<T>, now: Instant) {
        match self.owner(slot) {
            Some(owner) if !self.holds.contains(slot) => self.send(owner, unit),
            _ => self.park(slot, unit, now),
        }
    }

    fn park(&mut self, slot: Slot, unit: Unit<T>, now: Instant) {
        if self.owner(slot).is_none() {
            unit.ticket.note(unit.failure(Reason::SlotUncovered, None));
            self.want_refresh(RefreshCause::Uncovered, None);
        }
        self.hold(slot).push(Place::Parked, unit);
        self.watch_deadlines(now);
    }

    /// A unit that was on the wire when its slot left: older than whatever waited behind it.
    fn stray(&mut self, from: NodeKey, unit: Unit<T>, now: Instant) {
        self.divide_by_slot(unit, |cluster, mut piece| {
            piece.asking = false;
            match piece.slot(0).filter(|&slot| cluster.holds.contains(slot)) {
                Some(slot) => {
                    let place = cluster.place_of(slot, Some(from), Place::Returned);
                    cluster.hold(slot).push(place, piece);
                }
                None => cluster.dispatch(piece, now),
            }
        });
        self.watch_deadlines(now);
    }

    fn send(&mut self, node: NodeKey, unit: Unit<T>) {
        self.effects.push(Effect::Send(node, unit));
    }

    fn delay(&mut self, unit: Unit<T>, until: Instant) {
        self.next_delayed += 1;
        // A unit whose deadline is nearer ends there: `dispatch` looks at it.
        let at = unit.ends_at(until).map_or(until, |end| end.min(until));
        self.delayed.insert((at, self.next_delayed), unit);
    }

    /// Ends a unit that is certainly not on any wire.
    fn fail(&mut self, mut unit: Unit<T>, reason: Reason, node: Option<&NodeAddr>) {
        while unit.places() > 1 {
            let first = unit.split_front(1);
            self.fail(first, reason, node);
        }
        let failure = unit.failure(reason, node);
        self.effects.push(Effect::Settle(unit.ticket, Err(failure)));
    }

    fn watch_deadlines(&mut self, now: Instant) {
        self.next_expiry.get_or_insert(now + EXPIRY_INTERVAL);
    }

    fn expire(&mut self, now: Instant) {
        for unit in self.holds.expire(now) {
            let slot = unit.slot(0);
            let uncovered = slot.is_some_and(|slot| self.owner(slot).is_none());
            let reason = if uncovered {
                Reason::SlotUncovered
            } else {
                Reason::Timeout
            };
            self.fail(unit, reason, None);
        }
        self.delayed.retain(|_, unit| !unit.ticket.is_dead());
        self.next_expiry = (self.waiting() > 0).then(|| now + EXPIRY_INTERVAL);
    }

    fn owner(&self, slot: Slot) -> Option<NodeKey> {
        self.owners[slot.index()]
    }

    fn set_health(&mut self, node: NodeKey, health: Health) {
        if let Some(node) = self.nodes.get_mut(node) {
            let failed = node.health == Health::Failing;
            self.dirty |= failed != (health == Health::Failing);
            node.health = health;
        }
        self.check_ready();
    }

    /// A primary for a command without keys: one that answers if there is any.
    fn any_primary(&mut self) -> Option<NodeKey> {
        let from = self.usable_primaries();
        if from.is_empty() {
            None
        } else {
            Some(from[self.random.below(from.len())])
        }
    }
}

#[cfg(test)]
mod tests;
