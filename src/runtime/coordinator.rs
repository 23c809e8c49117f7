//! The coordinator thread: drives the cluster's mind, owns the nodes, publishes the routes.
//!
//! It decides nothing by itself and never waits for a node or a socket: everything reaches it as
//! an event, and what it is told to do it does by sending messages and starting threads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Select, Sender, bounded, unbounded};

use super::clock;
use super::dial::Dialer;
use super::load::Amount;
use super::node::{NodeHandle, NodeSetup};
use super::query;
use super::records::NodeMessage;
use super::routes::{Routes, Snapshot};
use super::settings::settings;
use super::thread::Thread;
use crate::config::Config;
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::{Cluster, Commit, Dial, Effect, Event, NodeKey};
use crate::proto::outcome::{Outcome, Reason};
use crate::proto::unit::Unit;
use crate::reply::Settler;
use crate::stats::ClientCounters;

/// What users of the client tell the coordinator.
#[derive(Debug)]
pub(crate) enum Control {
    /// Callers of units that wait here have gone.
    Gone,
    /// End, and drain until then.
    Close { limit: Instant },
}

/// What the client holds of its coordinator. Dropping it waits for the thread.
#[derive(Debug)]
pub(crate) struct CoordinatorHandle {
    pub(crate) routes: Arc<Routes>,
    pub(crate) counters: Arc<ClientCounters>,
    control: Sender<Control>,
    events: Sender<Event<Settler>>,
    thread: Thread,
}

/// Tells whether the client could be made: each seed's reason if not.
pub(crate) type Ready = Receiver<Result<(), Vec<String>>>;

/// While closing, how often the nodes are looked at.
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// The most events handled before the routes are published.
const EVENTS_AT_ONCE: usize = 1024;

impl CoordinatorHandle {
    /// Starts the coordinator, which asks the seeds at once.
    pub(crate) fn start(
        config: Arc<Config>,
        dialer: Arc<Dialer>,
    ) -> std::io::Result<(Self, Ready)> {
        let (control, controls) = unbounded();
        let (park, parked) = unbounded();
        let (report, events) = unbounded();
        let (ready, when_ready) = bounded(1);
        let limit = Amount {
            commands: config.queue_commands,
            bytes: config.queue_bytes,
        };
        let routes = Arc::new(Routes::new(park, limit));
        let counters = Arc::new(ClientCounters::default());
        let actor = Coordinator {
            cluster: Cluster::new(settings(&config), clock::seed(), clock::now()),
            nodes: HashMap::new(),
            routes: Arc::clone(&routes),
            counters: Arc::clone(&counters),
            controls,
            parked,
            events,
            report,
            ready,
            announce: None,
            settled: Vec::new(),
            queries: Vec::new(),
            stop: Some(bounded(0)),
            closing: None,
            config,
            dialer,
        };
        let events = actor.report.clone();
        let thread = Thread::spawn("coordinator", move || actor.run())?;
        Ok((
            Self {
                routes,
                counters,
                control,
                events,
                thread,
            },
            when_ready,
        ))
    }

    /// For telling it something while it runs.
    pub(crate) fn control(&self) -> Sender<Control> {
        self.control.clone()
    }

    /// For reporting what threads outside of the runtime learn.
    pub(crate) fn events(&self) -> Sender<Event<Settler>> {
        self.events.clone()
    }

    pub(crate) fn tell(&self, control: Control) {
        // After its end nothing is left to tell.
        drop(self.control.send(control));
    }

    /// Waits for the end that was asked for.
    pub(crate) fn join(self) {
        drop(self.thread);
    }
}

struct Coordinator {
    config: Arc<Config>,
    dialer: Arc<Dialer>,
    cluster: Cluster<Settler>,
    nodes: HashMap<NodeKey, (Arc<NodeHandle>, Thread)>,
    routes: Arc<Routes>,
    counters: Arc<ClientCounters>,
    controls: Receiver<Control>,
    /// Units of held slots, from callers.
    parked: Receiver<Unit<Settler>>,
    events: Receiver<Event<Settler>>,
    /// Cloned for each node and query.
    report: Sender<Event<Settler>>,
    ready: Sender<Result<(), Vec<String>>>,
    /// What `ready` is told once the routes are published.
    announce: Option<Result<(), Vec<String>>>,
    /// What ends in this step. Its callers wake up when the routes are published, so that their
    /// next command goes by what this one has taught.
    settled: Vec<(Settler, Outcome)>,
    /// Topology queries under way.
    queries: Vec<Thread>,
    /// Dropped to stop the queries.
    stop: Option<(Sender<()>, Receiver<()>)>,
    /// The client is closing: until when.
    closing: Option<Instant>,
}

impl Coordinator {
    fn run(mut self) {
        loop {
            self.step();
            if self
                .closing
                .is_some_and(|limit| self.is_drained() || limit <= clock::now())
            {
                return self.finish();
            }
            self.wait();
        }
    }

    /// Handles what has happened and publishes what follows from it.
    fn step(&mut self) {
        let mut gone = false;
        while let Ok(control) = self.controls.try_recv() {
            match control {
                Control::Gone => gone = true,
                Control::Close { limit } => self.begin_close(limit),
            }
        }
        let events: Vec<_> = self.events.try_iter().take(EVENTS_AT_ONCE).collect();
        let is_map =
            |event: &&Event<Settler>| matches!(event, Event::Topology { result: Ok(_), .. });
        let maps = events.iter().filter(is_map).count() as u64;
        events.into_iter().for_each(|event| self.handle(event));
        self.take_parked();
        if gone {
            self.cluster.forget_dead();
        }
        self.cluster.tick(clock::now());
        self.carry_out();
        self.publish();
        for (ticket, outcome) in self.settled.drain(..) {
            self.counters.settled(&outcome);
            ticket.settle(outcome);
        }
        self.counters.maps.fetch_add(maps, Ordering::Relaxed);
        if let Some(result) = self.announce.take() {
            drop(self.ready.send(result));
        }
        let (commands, bytes) = self.cluster.amount();
        self.counters
            .parked_now
            .store(commands as u64, Ordering::Relaxed);
        self.routes
            .parked_load
            .set_queued(Amount { commands, bytes });
    }

    fn handle(&mut self, event: Event<Settler>) {
        if let Event::Retired { node, .. } = &event {
            // Its write loop has said its last; this joins it.
            drop(self.nodes.remove(node));
        }
        self.counters.observe(&event);
        self.cluster.handle(event, clock::now());
    }

    fn take_parked(&mut self) {
        while let Ok(unit) = self.parked.try_recv() {
            self.routes
                .parked_load
                .arrived(super::records::amount(&unit));
            self.counters.parked.fetch_add(1, Ordering::Relaxed);
            self.cluster.submit(unit, clock::now());
        }
    }

    /// Blocks until something happens or is due.
    fn wait(&mut self) {
        if !self.events.is_empty() {
            return;
        }
        let mut select = Select::new();
        select.recv(&self.controls);
        select.recv(&self.parked);
        select.recv(&self.events);
        let due = self.cluster.next_tick();
        let poll = self.closing.map(|_| clock::now() + CLOSE_POLL);
        match due.into_iter().chain(poll).min() {
            // Only that something is there matters: `step` takes it.
            Some(deadline) => drop(select.ready_deadline(deadline)),
            None => {
                select.ready();
            }
        }
    }

    fn carry_out(&mut self) {
        loop {
            let effects = self.cluster.take_effects();
            if effects.is_empty() {
                return;
            }
            effects
                .into_iter()
                .for_each(|effect| self.carry_out_one(effect));
        }
    }

    fn carry_out_one(&mut self, effect: Effect<Settler>) {
        match effect {
            Effect::Settle(ticket, outcome) => self.settled.push((ticket, outcome)),
            Effect::Send(node, unit) => self.send(node, unit),
            Effect::Spawn(key, addr, dial) => self.spawn(key, addr, dial),
            Effect::Replace(node, generation) => self.tell(node, NodeMessage::Replace(generation)),
            Effect::Break(node) => self.tell(node, NodeMessage::Break),
            Effect::Refresh(cause) => {
                log::debug!("topology refresh: {cause:?}");
                self.counters.refresh(cause);
            }
            Effect::Query(id, source) => {
                self.counters
                    .topology_queries
                    .fetch_add(1, Ordering::Relaxed);
                self.queries.retain(|query| !query.is_finished());
                let Some((_, stop)) = &self.stop else { return };
                let (dialer, report) = (Arc::clone(&self.dialer), self.report.clone());
                match query::start(id, source, dialer, report, stop.clone()) {
                    Ok(thread) => self.queries.push(thread),
                    Err(error) => log::error!("cannot start a thread: {error}"),
                }
            }
            Effect::Ready(result) => self.announce = Some(result),
        }
    }

    fn send(&self, node: NodeKey, unit: Unit<Settler>) {
        match self.nodes.get(&node) {
            Some((handle, _)) => {
                handle
                    .wire
                    .records
                    .load
                    .coming(super::records::amount(&unit));
                handle.submit(unit);
            }
            None => super::routes::fail(unit, Reason::NodeGone, None),
        }
    }

    fn tell(&self, node: NodeKey, message: NodeMessage) {
        if let Some((handle, _)) = self.nodes.get(&node) {
            handle.tell(message);
        }
    }

    fn spawn(&mut self, key: NodeKey, addr: NodeAddr, dial: Dial) {
        let setup = NodeSetup {
            key,
            addr,
            dial,
            limit: Amount {
                commands: self.config.queue_commands,
                bytes: self.config.queue_bytes,
            },
            drain_limit: self.config.drain_limit,
            retry_reads: self.config.retry_reads,
            dialer: Arc::clone(&self.dialer),
            events: self.report.clone(),
        };
        match NodeHandle::start(setup) {
            Ok(node) => drop(self.nodes.insert(key, node)),
            Err(error) => log::error!("cannot start the threads of a node: {error}"),
        }
    }

    /// Publishes new routes, with everything that must happen while nobody can route.
    fn publish(&mut self) {
        while self.cluster.wants_commit(clock::now()) {
            let routes = Arc::clone(&self.routes);
            routes.publish(|snapshot| {
                // Whatever callers parked under the old routes is older than what they will
                // send by the new ones.
                self.take_parked();
                let commit = self.cluster.commit(clock::now());
                self.apply(commit, snapshot.closed)
            });
            self.carry_out();
        }
    }

    fn apply(&mut self, commit: Commit<Settler>, closed: bool) -> Option<Snapshot> {
        // A node may be named here for the first time.
        let effects = self.cluster.take_effects();
        effects
            .into_iter()
            .for_each(|effect| self.carry_out_one(effect));
        for (node, slots, units) in commit.take_overs {
            match self.nodes.get(&node) {
                Some((handle, _)) => handle.take_over(slots, units),
                None => units
                    .into_iter()
                    .for_each(|u| super::routes::fail(u, Reason::NodeGone, None)),
            }
        }
        for (node, id, slots) in commit.give_ups {
            match self.nodes.get(&node) {
                Some((handle, _)) => handle.tell(NodeMessage::GiveUp(id, slots)),
                None => drop(self.report.send(Event::Cleared { id })),
            }
        }
        for (node, reads) in commit.release {
            self.tell(node, NodeMessage::Release { reads });
        }
        let limit = clock::now() + self.config.drain_limit;
        for node in commit.retire {
            self.tell(
                node,
                NodeMessage::End {
                    limit,
                    why: Reason::NodeGone,
                },
            );
        }
        let view = commit.view?;
        let last = self
            .nodes
            .keys()
            .map(|key| key.index() + 1)
            .max()
            .unwrap_or(0);
        let mut nodes = vec![None; last];
        for (key, (handle, _)) in &self.nodes {
            nodes[key.index()] = Some(Arc::clone(handle));
        }
        Some(Snapshot {
            view,
            nodes,
            closed,
        })
    }

    fn begin_close(&mut self, limit: Instant) {
        self.closing = Some(self.closing.map_or(limit, |present| present.min(limit)));
        self.routes.publish(|snapshot| {
            let view = snapshot.view.clone();
            Some(Snapshot {
                view,
                nodes: snapshot.nodes.clone(),
                closed: true,
            })
        });
        self.routes.parked_load.close();
    }

    /// Whether nothing waits anywhere.
    fn is_drained(&self) -> bool {
        let idle = |node: &Arc<NodeHandle>| node.wire.records.load.total() == Amount::default();
        self.parked.is_empty()
            && self.events.is_empty()
            && self.cluster.waiting() == 0
            && self.nodes.values().all(|(node, _)| idle(node))
    }

    /// Ends all threads and settles everything.
    fn finish(mut self) {
        drop(self.stop.take());
        let limit = clock::now();
        for (node, _) in self.nodes.values() {
            node.tell(NodeMessage::End {
                limit,
                why: Reason::Closed,
            });
        }
        while !self.nodes.is_empty() {
            let Ok(event) = self.events.recv() else { break };
            self.handle_last(event);
        }
        self.queries.clear();
        while let Ok(event) = self.events.try_recv() {
            self.handle_last(event);
        }
        while let Ok(unit) = self.parked.try_recv() {
            super::routes::fail(unit, Reason::Closed, None);
        }
        self.cluster.close();
        for effect in self.cluster.take_effects() {
            if let Effect::Settle(ticket, outcome) = effect {
                ticket.settle(outcome);
            }
        }
    }

    /// After the end was decided units are not moved any more.
    fn handle_last(&mut self, event: Event<Settler>) {
        let closed = |unit| super::routes::fail(unit, Reason::Closed, None);
        match event {
            Event::Redirected { unit, .. } => closed(unit),
            Event::Strays { units, .. } | Event::Extracted { units, .. } => {
                units.into_iter().for_each(closed);
            }
            Event::Retired { node, units } => {
                units.into_iter().for_each(closed);
                drop(self.nodes.remove(&node));
            }
            _ => {}
        }
    }
}
