//! A coordinator without nodes: what it is told, and in words what it does about it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::proto::addr::NodeAddr;
use crate::proto::cluster::commit::View;
use crate::proto::cluster::{
    Cluster, Dial, Effect, Event, NodeKey, QueryError, QueryId, Settings, Source,
};
use crate::proto::inflight::BarrierId;
use crate::proto::outcome::Failure;
use crate::proto::redirect::Redirect;
use crate::proto::testing::{Ledger, TestTicket, one, slot};
use crate::proto::topology::{NodeInfo, SlotRange, Topology};
use crate::proto::unit::{Ticket, Unit};
use crate::proto::value::{ServerError, Value};
use crate::proto::verdict::{Answer, judge};

/// A slot of `a`, one of `b`, and another of `a`.
pub(super) const A: u16 = 5;
pub(super) const B: u16 = 9000;
pub(super) const A2: u16 = 6;

pub(super) struct Desk {
    pub(super) cluster: Cluster<TestTicket>,
    pub(super) ledger: Ledger,
    pub(super) now: Instant,
    /// Units that left the coordinator, by their first place.
    pub(super) out: BTreeMap<usize, Unit<TestTicket>>,
    pub(super) failures: BTreeMap<usize, Failure>,
    pub(super) queries: Vec<QueryId>,
    pub(super) barriers: Vec<(String, BarrierId)>,
    pub(super) view: View,
    names: BTreeMap<NodeKey, String>,
}

pub(super) fn addr(name: &str) -> NodeAddr {
    NodeAddr::new(name, 7000)
}

pub(super) fn settings() -> Settings {
    Settings {
        seeds: vec![addr("a")],
        max_redirects: 5,
        follow_redirects: true,
        strict_order: false,
        replica_reads: false,
        lazy: false,
        refresh_least: Duration::from_millis(100),
        refresh_most: Duration::from_secs(5),
        refresh_period: None,
        drain_limit: Duration::from_secs(1),
    }
}

/// A map in which each range has a primary, and perhaps replicas.
pub(super) fn map(ranges: &[(u16, u16, &str)]) -> Topology {
    let info = |name: &str| NodeInfo {
        addr: addr(name),
        aliases: Vec::new(),
    };
    let ranges = ranges.iter().map(|&(first, last, names)| {
        let mut nodes = names.split('+').map(info);
        SlotRange {
            first,
            last,
            primary: nodes.next(),
            replicas: nodes.collect(),
        }
    });
    Topology {
        ranges: ranges.collect(),
    }
}

pub(super) fn halves() -> Topology {
    map(&[(0, 8191, "a"), (8192, 16383, "b")])
}

impl Desk {
    /// Nothing is known but the seeds.
    pub(super) fn empty(settings: Settings) -> Self {
        let now = Instant::now();
        let mut desk = Self {
            cluster: Cluster::new(settings, 1, now),
            ledger: Ledger::new(),
            now,
            out: BTreeMap::new(),
            failures: BTreeMap::new(),
            queries: Vec::new(),
            barriers: Vec::new(),
            view: View::default(),
            names: BTreeMap::new(),
        };
        desk.effects();
        desk
    }

    /// All nodes of the map are connected, the routes are published, and the first refresh is long
    /// ago.
    pub(super) fn with(settings: Settings, topology: Topology) -> Self {
        let mut desk = Self::empty(settings);
        desk.answer(Ok(topology));
        let nodes: Vec<NodeKey> = desk.names.keys().copied().collect();
        for node in nodes {
            desk.handle(Event::NodeUp { node });
        }
        desk.commit();
        desk.now += Duration::from_secs(10);
        desk
    }

    pub(super) fn ready() -> Self {
        Self::with(settings(), halves())
    }

    pub(super) fn unit(&self, number: u16) -> Unit<TestTicket> {
        one(&self.ledger, number)
    }

    /// A unit that left the coordinator earlier.
    pub(super) fn take(&mut self, place: usize) -> Unit<TestTicket> {
        self.out.remove(&place).expect("it left the coordinator")
    }

    pub(super) fn key(&self, name: &str) -> NodeKey {
        let known = self.names.iter().rev().find(|(_, known)| *known == name);
        *known.expect("a node that was started").0
    }

    fn name(&self, key: NodeKey) -> String {
        self.names.get(&key).cloned().unwrap_or("?".to_owned())
    }

    pub(super) fn handle(&mut self, event: Event<TestTicket>) -> Vec<String> {
        self.cluster.handle(event, self.now);
        self.effects()
    }

    /// A node answers a unit with this line.
    pub(super) fn redirect(
        &mut self,
        from: &str,
        unit: Unit<TestTicket>,
        line: &str,
    ) -> Vec<String> {
        unit.ticket.claim();
        let reply = Ok(Value::Error(ServerError::new(line)));
        let mut answers = Vec::new();
        judge(unit, reply, &addr(from), &mut answers);
        let from = self.key(from);
        let event = match answers.pop().expect("an answer") {
            Answer::Redirected(unit, redirect) => Event::Redirected {
                from,
                generation: 1,
                unit,
                redirect,
            },
            Answer::Learned(redirect) => Event::Learned { from, redirect },
            other => panic!("{other:?}"),
        };
        self.handle(event)
    }

    pub(super) fn learned(&mut self, from: &str, line: &str) -> Vec<String> {
        let redirect = Redirect::parse(&ServerError::new(line)).expect("a redirect");
        let from = self.key(from);
        self.handle(Event::Learned { from, redirect })
    }

    /// The latest query is answered.
    pub(super) fn answer(&mut self, result: Result<Topology, QueryError>) -> Vec<String> {
        let query = self.queries.pop().expect("somebody was asked");
        self.handle(Event::Topology { query, result })
    }

    /// A node gives up what a barrier asked for, and has nothing on the wire.
    pub(super) fn extracted(&mut self, from: &str, units: Vec<Unit<TestTicket>>) -> Vec<String> {
        let open = self.barriers.iter().find(|(name, _)| name == from);
        let id = open.expect("it was told to give up something").1;
        self.handle(Event::Extracted { id, units })
    }

    pub(super) fn cleared(&mut self, from: &str) -> Vec<String> {
        let at = self.barriers.iter().position(|(name, _)| name == from);
        let (_, id) = self.barriers.remove(at.expect("an open barrier"));
        self.handle(Event::Cleared { id })
    }

    pub(super) fn all_cleared(&mut self, names: &[&str]) {
        for name in names {
            self.cleared(name);
        }
    }

    /// All open barriers open, and what follows is published.
    pub(super) fn hand_over(&mut self) -> Vec<String> {
        for (name, _) in self.barriers.clone() {
            self.extracted(&name, Vec::new());
            self.cleared(&name);
        }
        self.commit()
    }

    /// A caller's unit that went to the coordinator.
    pub(super) fn park(&mut self, unit: Unit<TestTicket>) -> Vec<String> {
        self.cluster.submit(unit, self.now);
        self.effects()
    }

    /// Time passes; what is due is done.
    pub(super) fn wait(&mut self, millis: u64) -> Vec<String> {
        let until = self.now + Duration::from_millis(millis);
        let mut did = Vec::new();
        while let Some(at) = self.cluster.next_tick().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.cluster.tick(self.now);
            did.extend(self.effects());
            did.extend(self.commit());
        }
        self.now = until;
        did.extend(self.commit());
        did
    }

    /// Commits as often as it is wanted.
    pub(super) fn commit(&mut self) -> Vec<String> {
        let mut did = Vec::new();
        for _ in 0..20 {
            if !self.cluster.wants_commit(self.now) {
                return did;
            }
            let commit = self.cluster.commit(self.now);
            for (node, slots, units) in commit.take_overs {
                let places: Vec<_> = units.iter().map(|unit| unit.ticket.places()[0]).collect();
                let slots: Vec<_> = slots.iter().take(4).map(|slot| slot.number()).collect();
                did.push(format!("{} takes {slots:?}: {places:?}", self.name(node)));
                for unit in units {
                    self.out.insert(unit.ticket.places()[0], unit);
                }
            }
            if let Some(view) = commit.view {
                self.view = view;
            }
            for (node, id, slots) in commit.give_ups {
                let slots: Vec<_> = slots.iter().take(4).map(|slot| slot.number()).collect();
                did.push(format!("{} gives up {slots:?}", self.name(node)));
                self.barriers.push((self.name(node), id));
            }
            for node in commit.retire {
                did.push(format!("{} ends", self.name(node)));
            }
            did.extend(self.effects());
        }
        panic!("it never stops to want commits");
    }

    /// Where callers send units of a slot; `None`: here.
    pub(super) fn route(&self, number: u16) -> Option<String> {
        self.view.slots[slot(number).index()].map(|key| self.name(key))
    }

    fn effects(&mut self) -> Vec<String> {
        let effects = self.cluster.take_effects();
        effects
            .into_iter()
            .map(|effect| self.word(effect))
            .collect()
    }

    fn word(&mut self, effect: Effect<TestTicket>) -> String {
        match effect {
            Effect::Settle(ticket, outcome) => {
                let place = self.ledger.settle(ticket).start;
                let failure = outcome.expect_err("the coordinator has no values");
                let word = format!("{place} fails: {:?}", failure.reason());
                self.failures.insert(place, *failure);
                word
            }
            Effect::Send(key, unit) => {
                let place = unit.ticket.places()[0];
                let asking = if unit.asking { " asking" } else { "" };
                let word = format!("{place} to {}{asking}", self.name(key));
                self.out.insert(place, unit);
                word
            }
            Effect::Spawn(key, addr, dial) => {
                self.names.insert(key, addr.host().to_owned());
                let when = if dial == Dial::Now { "now" } else { "later" };
                format!("start {} {when}", addr.host())
            }
            Effect::Replace(key, generation) => format!("replace {} {generation}", self.name(key)),
            Effect::Break(key) => format!("break {}", self.name(key)),
            Effect::Refresh(cause) => format!("refresh {cause:?}"),
            Effect::Query(id, source) => {
                self.queries.push(id);
                match source {
                    Source::Seed(addr) => format!("ask seed {}", addr.host()),
                    Source::Node(addr) => format!("ask {}", addr.host()),
                }
            }
            Effect::Ready(Ok(())) => "ready".to_owned(),
            Effect::Ready(Err(errors)) => format!("not ready: {errors:?}"),
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.cluster.close();
        if !std::thread::panicking() {
            self.effects();
            for unit in std::mem::take(&mut self.out).into_values() {
                self.ledger.discard(unit.ticket);
            }
            self.ledger.check_all_settled_once();
        } else {
            self.cluster.take_effects().clear();
        }
    }
}
