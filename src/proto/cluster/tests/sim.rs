//! One client, its callers, and the servers, in steps that can be put in any order.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::book::Book;
use super::node::{Message, Node, Report, TestEvent};
use super::world::{Deed, World};
use crate::proto::backoff::Random;
use crate::proto::cluster::commit::{Commit, View};
use crate::proto::cluster::{
    Cluster, Effect, Event, NodeKey, QueryError, QueryId, Settings, Source,
};
use crate::proto::testing::wire::{ANY, Command, pipeline, single, transaction};
use crate::proto::testing::{Ledger, TestTicket, slot};
use crate::proto::unit::Unit;

/// What the coordinator carries out, one step at a time.
#[derive(Debug)]
enum Action {
    Effect(Effect<TestTicket>),
    TakeOver(NodeKey, crate::proto::slot::SlotSet, Vec<Unit<TestTicket>>),
    Publish(View),
    GiveUp(
        NodeKey,
        crate::proto::inflight::BarrierId,
        crate::proto::slot::SlotSet,
    ),
    Release(NodeKey, bool),
    Retire(NodeKey),
    Unlock,
}

/// What a caller wants to run at once.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Single(Command),
    Chain(Vec<Command>),
    Pipeline(Vec<Command>),
}

pub(super) struct Sim {
    pub(super) now: Instant,
    begin: Instant,
    pub(super) ledger: Ledger,
    pub(super) settings: Settings,
    pub(super) cluster: Cluster<TestTicket>,
    pub(super) nodes: BTreeMap<NodeKey, Node>,
    pub(super) world: World,
    pub(super) book: Book,
    events: VecDeque<TestEvent>,
    todo: VecDeque<Action>,
    /// Callers cannot route: the coordinator carries out a commit.
    locked: bool,
    /// Callers write by themselves where they can.
    pub(super) direct: bool,
    view: View,
    parked: VecDeque<Unit<TestTicket>>,
    queries: Vec<(QueryId, Source)>,
    pub(super) ready: Option<Result<(), Vec<String>>>,
    last_refresh: Option<Instant>,
    trace: VecDeque<String>,
}

/// Prints what led to a failure.
impl Drop for Sim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in &self.trace {
                eprintln!("{line}");
            }
        }
    }
}

const TRACE: usize = 1500;

impl Sim {
    pub(super) fn new(world: World, settings: Settings, seed: u64) -> Self {
        let now = Instant::now();
        let mut sim = Self {
            now,
            begin: now,
            ledger: Ledger::new(),
            cluster: Cluster::new(settings.clone(), seed, now),
            settings,
            nodes: BTreeMap::new(),
            world,
            book: Book::default(),
            events: VecDeque::new(),
            todo: VecDeque::new(),
            locked: false,
            direct: false,
            view: View {
                slots: vec![None; 16384],
                ..View::default()
            },
            parked: VecDeque::new(),
            queries: Vec::new(),
            ready: None,
            last_refresh: None,
            trace: VecDeque::new(),
        };
        sim.take_effects();
        sim
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        let at = self.now.duration_since(self.begin).as_micros();
        let line = line();
        self.trace.push_back(format!("{at:>7}us {line}"));
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    // Callers.

    /// Hands over what a caller wants; `false` if it cannot route at this moment.
    pub(super) fn submit(
        &mut self,
        thread: usize,
        wish: &Wish,
        deadline: Option<Duration>,
    ) -> bool {
        if self.locked {
            return false;
        }
        let first = self.ledger.len();
        let deadline = deadline.map(|after| self.now + after);
        match wish {
            Wish::Single(command) => {
                let unit = single(&self.ledger, command);
                self.book.submitted(thread, first, vec![command.clone()]);
                self.push(unit, command.slot, deadline);
            }
            Wish::Chain(members) => {
                let unit = transaction(&self.ledger, members);
                self.book.submitted(thread, first, members.clone());
                self.push(unit, members[0].slot, deadline);
            }
            Wish::Pipeline(commands) => {
                let mut parts: BTreeMap<Option<NodeKey>, Vec<Command>> = BTreeMap::new();
                for command in commands {
                    let way = self.route(command.slot);
                    parts.entry(way).or_default().push(command.clone());
                }
                for commands in parts.into_values() {
                    let at = self.ledger.len();
                    let unit = pipeline(&self.ledger, &commands);
                    for (place, command) in (at..).zip(&commands) {
                        self.book.submitted(thread, place, vec![command.clone()]);
                    }
                    self.push(unit, commands[0].slot, deadline);
                }
            }
        }
        self.book.submissions.push(first..self.ledger.len());
        self.note(|| format!("thread {thread}: {first}.. {wish:?}"));
        true
    }

    fn route(&self, number: u16) -> Option<NodeKey> {
        if number == ANY {
            let turn = self.ledger.len();
            let usable = &self.view.usable;
            return usable.get(turn.checked_rem(usable.len())?).copied();
        }
        self.view.slots[slot(number).index()]
    }

    fn push(&mut self, mut unit: Unit<TestTicket>, number: u16, deadline: Option<Instant>) {
        unit.deadline = deadline;
        match self.route(number) {
            Some(key) if self.direct => self.stage_at_once(key, unit),
            Some(key) => self.tell(key, Message::Submit(unit)),
            None => self.parked.push_back(unit),
        }
    }

    fn stage_at_once(&mut self, key: NodeKey, unit: Unit<TestTicket>) {
        let mut rest = None;
        self.with_node(key, |node, now, _, report| {
            rest = node.stage_at_once(unit, now, report).err();
        });
        if let Some(unit) = rest {
            self.tell(key, Message::Submit(unit));
        }
    }

    /// A caller gives up everything that it submitted together.
    pub(super) fn cancel(&mut self, submission: usize, random: &mut Random) {
        let places = self.book.submissions[submission].clone();
        if !self.book.is_open(&self.ledger, &places) {
            return;
        }
        self.note(|| format!("cancel {places:?}"));
        let count = places.len();
        self.ledger.cancel_all(places);
        match random.below(3) {
            0 => self.cluster.forget_dead(),
            _ => {
                for node in self.nodes.values_mut() {
                    node.inbox.push_back(Message::Gone(count));
                }
            }
        }
    }

    /// Whether a server may become the owner of a slot: nothing may be on its way there that was
    /// sent when it was the owner before. Commands that a server refuses, while it runs younger
    /// ones that had been sent behind them, are in an order that nobody can mend.
    pub(super) fn may_take(&self, server: usize) -> bool {
        let addr = &self.world.servers[server].addr;
        let mut nodes = self.nodes.values().filter(|node| node.addr == *addr);
        let mut connections = self.world.connections.values();
        nodes.all(Node::is_quiet)
            && connections.all(|connection| {
                connection.server != server || connection.closed || connection.parser.is_empty()
            })
    }

    // The coordinator.

    /// One step of the coordinator; `false` if it has nothing to do now. `eager`: it looks at
    /// events before it publishes.
    pub(super) fn coordinate(&mut self, eager: bool) -> bool {
        if let Some(action) = self.todo.pop_front() {
            self.carry_out(action);
            return true;
        }
        let wants_commit = self.cluster.wants_commit(self.now) || !self.parked.is_empty();
        let commit_first = !eager || self.events.is_empty();
        if wants_commit && commit_first {
            self.commit();
            return true;
        }
        if let Some(event) = self.events.pop_front() {
            self.note(|| format!("coordinator: {}", short(&event)));
            if let Event::Retired { node, .. } = &event {
                self.nodes.remove(node);
            }
            self.cluster.handle(event, self.now);
            self.take_effects();
            return true;
        }
        if self.cluster.next_tick().is_some_and(|at| at <= self.now) {
            self.cluster.tick(self.now);
            self.take_effects();
            return true;
        }
        false
    }

    fn take_effects(&mut self) {
        let effects = self.cluster.take_effects();
        let refreshes = |effect: &Effect<_>| matches!(effect, Effect::Refresh(_));
        if effects.iter().any(refreshes) {
            let least = self.settings.refresh_least;
            let spaced = self
                .last_refresh
                .is_none_or(|last| self.now >= last + least);
            assert!(spaced, "refreshes too close to each other");
            self.last_refresh = Some(self.now);
        }
        self.todo.extend(effects.into_iter().map(Action::Effect));
    }

    fn commit(&mut self) {
        self.locked = true;
        while let Some(unit) = self.parked.pop_front() {
            self.cluster.submit(unit, self.now);
        }
        let commit = self.cluster.commit(self.now);
        self.take_effects();
        let Commit {
            take_overs,
            view,
            give_ups,
            release,
            retire,
        } = commit;
        let actions = take_overs
            .into_iter()
            .map(|(node, slots, units)| Action::TakeOver(node, slots, units))
            .chain(view.into_iter().map(Action::Publish))
            .chain(
                give_ups
                    .into_iter()
                    .map(|(node, id, slots)| Action::GiveUp(node, id, slots)),
            )
            .chain(
                release
                    .into_iter()
                    .map(|(node, reads)| Action::Release(node, reads)),
            )
            .chain(retire.into_iter().map(Action::Retire));
        self.todo.extend(actions);
        self.todo.push_back(Action::Unlock);
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Effect(effect) => self.carry_out_effect(effect),
            Action::TakeOver(key, slots, units) => {
                let places: Vec<_> = units.iter().map(|unit| unit.ticket.places()).collect();
                let used: Vec<_> = slots.iter().map(|slot| slot.number()).take(4).collect();
                self.note(|| format!("commit: {key:?} takes {used:?} with {places:?}"));
                self.tell(key, Message::TakeOver(slots, units));
            }
            Action::Publish(view) => {
                let used: Vec<_> = view.slots.iter().take(super::world::USED).collect();
                let line = format!("commit: routes {used:?}");
                self.note(|| line);
                self.view = view;
            }
            Action::GiveUp(key, id, slots) => {
                let used: Vec<_> = slots.iter().map(|slot| slot.number()).take(4).collect();
                self.note(|| format!("commit: {key:?} gives up {used:?}, {id:?}"));
                self.tell(key, Message::GiveUp(id, slots));
            }
            Action::Release(key, reads) => {
                self.note(|| format!("commit: {key:?} passes on what others can run"));
                self.tell(key, Message::Release(reads));
            }
            Action::Retire(key) => {
                self.note(|| format!("commit: {key:?} ends"));
                assert!(
                    !self.view.slots.contains(&Some(key)),
                    "a route to a node that ends"
                );
                let limit = self.now + self.settings.drain_limit;
                self.tell(key, Message::End(limit));
            }
            Action::Unlock => self.locked = false,
        }
    }

    fn tell(&mut self, key: NodeKey, message: Message) {
        let node = self.nodes.get_mut(&key);
        let node = node.unwrap_or_else(|| panic!("{key:?} has ended: {message:?}"));
        let late = node.end.is_some() && !matches!(message, Message::Break | Message::Replace(_));
        assert!(!late, "{key:?} was told to end: {message:?}");
        node.inbox.push_back(message);
    }

    fn carry_out_effect(&mut self, effect: Effect<TestTicket>) {
        match effect {
            Effect::Settle(ticket, outcome) => {
                self.note(|| format!("coordinator settles {ticket:?}: {outcome:?}"));
                self.book.settle(&self.ledger, ticket, vec![outcome]);
            }
            Effect::Send(key, unit) => {
                let (ticket, asking) = (&unit.ticket, unit.asking);
                let line = format!("coordinator sends {ticket:?} to {key:?}, asking: {asking}");
                self.note(|| line);
                self.tell(key, Message::Submit(unit));
            }
            Effect::Spawn(key, addr, dial) => {
                self.note(|| format!("{key:?} begins: {addr}"));
                let node = Node::new(key, addr, dial, self.now);
                assert!(self.nodes.insert(key, node).is_none(), "{key:?} twice");
            }
            Effect::Replace(key, generation) => {
                if self.nodes.contains_key(&key) {
                    self.tell(key, Message::Replace(generation));
                }
            }
            Effect::Break(key) => {
                self.note(|| format!("coordinator breaks {key:?}"));
                self.tell(key, Message::Break);
            }
            Effect::Refresh(cause) => {
                self.note(|| format!("refresh: {cause:?}"));
                assert!(!self.is_asking(), "one refresh at a time");
            }
            Effect::Query(id, source) => {
                let first = self.is_first(id);
                assert!(first || !self.is_asking(), "one query at a time");
                self.queries.push((id, source));
            }
            Effect::Ready(result) => {
                assert!(self.ready.is_none(), "told twice");
                self.ready = Some(result);
            }
        }
    }

    /// The queries at the start go to all seeds at once, and only one answer is waited for.
    fn is_first(&self, query: QueryId) -> bool {
        query.0 < self.settings.seeds.len() as u64
    }

    pub(super) fn is_asking(&self) -> bool {
        self.queries.iter().any(|&(query, _)| !self.is_first(query))
    }

    // The outside.

    /// A server answers one topology query, by what it believes at this moment.
    pub(super) fn answer_query(&mut self, at: usize) {
        if self.queries.is_empty() {
            return;
        }
        let (query, source) = self.queries.swap_remove(at % self.queries.len());
        let (Source::Seed(addr) | Source::Node(addr)) = &source;
        let server = self.world.find(addr).filter(|&server| {
            let server = &self.world.servers[server];
            server.up && !server.frozen
        });
        let result = match server {
            Some(server) => Ok(self.world.topology(server)),
            None => Err(QueryError::Failed("cannot connect".to_owned())),
        };
        self.note(|| format!("{addr} answers {query:?}: {}", result.is_ok()));
        self.events.push_back(Event::Topology { query, result });
    }

    pub(super) fn serve(&mut self, connection: u64) -> bool {
        let mut deeds = Vec::new();
        let abandoned = self
            .world
            .connections
            .get(&connection)
            .is_some_and(|connection| connection.abandoned);
        let served = self.world.serve(connection, &mut deeds);
        for deed in deeds {
            let server = self.world.connections[&connection].server;
            match &deed {
                Deed::Saw(_) => {}
                Deed::Ran(place) => self.note(|| format!("s{server} runs {place}")),
                Deed::Refused(place, code) => {
                    self.note(|| format!("s{server} answers {place}: {code}"));
                }
            }
            self.book.done(&deed, &self.ledger, connection, abandoned);
        }
        served
    }

    /// Lets one thread of a node do something.
    pub(super) fn with_node(
        &mut self,
        key: NodeKey,
        act: impl FnOnce(&mut Node, Instant, &mut World, &mut Report),
    ) {
        let mut report = Report::default();
        let Some(node) = self.nodes.get_mut(&key) else {
            return;
        };
        if !node.over {
            act(node, self.now, &mut self.world, &mut report);
        }
        for (ticket, outcomes) in report.settled {
            self.book.settle(&self.ledger, ticket, outcomes);
        }
        for (place, other, connection) in report.behind {
            self.book.behind(place, other, connection);
        }
        for event in report.events {
            if let Event::Redirected { unit, redirect, .. } = &event {
                self.book.redirected(unit.ticket.places()[0], redirect);
            }
            self.note(|| format!("{key:?} reports {}", short(&event)));
            self.events.push_back(event);
        }
    }

    /// Everything that a node can do at once, with its server, without partial steps.
    pub(super) fn run_node(&mut self, key: NodeKey) {
        self.with_node(key, |node, now, world, report| {
            node.dial(now, world, report);
            while !node.inbox.is_empty() {
                node.take(world, report);
            }
            node.write(usize::MAX, now, world, report);
        });
        let connections = self.world.connections.iter();
        let open = connections.filter(|(_, connection)| !connection.closed);
        let ids: Vec<u64> = open.map(|(&id, _)| id).collect();
        for id in ids {
            while self.serve(id) {}
        }
        self.with_node(key, |node, now, world, report| {
            node.read(usize::MAX, now, world, report);
            node.finish(now, world, report);
        });
    }

    /// How much was reported to the coordinator.
    pub(super) fn reported(&self) -> usize {
        self.events.len()
    }

    // The end.

    /// Whether nothing is left to do but to wait for the time.
    fn is_quiet(&self) -> bool {
        self.todo.is_empty()
            && self.events.is_empty()
            && self.parked.is_empty()
            && self.queries.is_empty()
            && self.nodes.values().all(Node::is_quiet)
    }

    /// Lets a short history come to its end.
    pub(super) fn finish_soon(self) -> Book {
        self.finish_after(Duration::ZERO)
    }

    /// Heals the world and lets everything come to its end; then nothing may be left over. Takes
    /// long enough for nodes that linger, and for another look at the map.
    pub(super) fn finish(self) -> Book {
        self.finish_after(Duration::from_secs(12))
    }

    fn finish_after(mut self, least: Duration) -> Book {
        self.note(|| "--- the end begins".to_owned());
        for server in 0..self.world.servers.len() {
            self.world.servers[server].up = true;
            self.world.servers[server].frozen = false;
        }
        for number in 0..super::world::USED {
            while self.world.migrations[number].is_some() {
                self.world.go_on_migrating(number);
            }
        }
        for server in 0..self.world.servers.len() {
            self.world.gossip(server);
        }
        let begin = self.now;
        let limit = begin + Duration::from_secs(60);
        let least = self.now + least;
        while self.now < limit {
            self.settle_down();
            let open = (0..self.ledger.len()).any(|place| self.ledger.place(place).settled == 0);
            let done = self.is_quiet() && !open;
            if done && self.now >= least {
                break;
            }
            self.now += Duration::from_millis(if done { 1000 } else { 20 });
        }
        self.check_end();
        if least > begin + Duration::from_secs(1) {
            self.check_map();
        }
        std::mem::take(&mut self.book)
    }

    /// Runs until nothing happens without the time going on.
    fn settle_down(&mut self) {
        for _ in 0..1000 {
            while self.coordinate(false) {}
            let keys: Vec<NodeKey> = self.nodes.keys().copied().collect();
            keys.into_iter().for_each(|key| self.run_node(key));
            let queries = !self.queries.is_empty();
            self.answer_query(0);
            if !queries && self.todo.is_empty() && self.events.is_empty() && self.parked.is_empty()
            {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    fn check_end(&self) {
        self.ledger.check_all_settled_once();
        assert!(self.is_quiet());
        let cluster = &self.cluster;
        assert_eq!(cluster.waiting(), 0);
        assert!(cluster.barriers.is_empty(), "{:?}", cluster.barriers);
        let mut nodes = cluster.nodes.iter();
        assert!(nodes.all(|(_, node)| node.giving_up.is_none()));
        assert_eq!(
            cluster.routes, self.view.slots,
            "what is published is known"
        );
        if self.ready == Some(Ok(())) {
            assert!(!cluster.routes.contains(&None), "every slot is free again");
            assert_eq!(cluster.routes, cluster.owners);
        }
        self.book.check(&self.ledger, self.settings.max_redirects);
    }

    /// The map is right in the end, and no node is left that is of no use.
    fn check_map(&self) {
        let cluster = &self.cluster;
        for (number, &owner) in self.world.owner.iter().enumerate() {
            let key = cluster.owners[number].expect("every slot has an owner");
            let addr = &self.world.servers[owner].addr;
            assert_eq!(&self.nodes[&key].addr, addr, "slot {number}");
        }
        for key in self.nodes.keys() {
            assert!(cluster.owners.contains(&Some(*key)), "{key:?} is of no use");
        }
    }
}

/// An event without its details.
fn short(event: &TestEvent) -> String {
    let places = |units: &[Unit<TestTicket>]| {
        let places: Vec<_> = units.iter().map(|unit| unit.ticket.places()).collect();
        format!("{places:?}")
    };
    match event {
        Event::Redirected {
            from,
            unit,
            redirect,
            ..
        } => format!("Redirected {:?} by {from:?}: {redirect:?}", unit.ticket),
        Event::Strays { units, .. } => format!("Strays {}", places(units)),
        Event::Extracted { id, units } => format!("Extracted {id:?} {}", places(units)),
        Event::Retired { node, units } => format!("Retired {node:?} {}", places(units)),
        Event::Topology { query, result } => format!("Topology {query:?} {}", result.is_ok()),
        other => format!("{other:?}"),
    }
}
