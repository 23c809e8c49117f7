//! Announced moves of slots, on virtual time: what is applied, what follows, who is asked.

use std::collections::HashMap;
use std::time::Duration;

use super::super::{Effect, Event, QueryId, Settings, Source, View};
use super::*;
use crate::proto::maintenance::Work;
use crate::proto::slot::SlotSet;
use crate::proto::testing::{Ledger, TestTicket, one, slot, slots};
use crate::proto::topology::{NodeInfo, SlotRange, Topology};
use crate::proto::unit::Unit;

const SECOND: Duration = Duration::from_secs(1);

/// A coordinator whose nodes do at once what they are told and answer nothing.
struct Rig {
    cluster: Cluster<TestTicket>,
    ledger: Ledger,
    now: Instant,
    queues: HashMap<NodeKey, Vec<Unit<TestTicket>>>,
    view: View,
    spawned: Vec<NodeAddr>,
    retired: Vec<NodeKey>,
    queries: Vec<(QueryId, Source)>,
    causes: Vec<RefreshCause>,
}

fn addr(name: &str) -> NodeAddr {
    NodeAddr::new(name, 1)
}

fn info(name: &str) -> NodeInfo {
    NodeInfo {
        addr: addr(name),
        aliases: Vec::new(),
    }
}

/// Ranges with their primaries; a name after a slash is a replica.
fn map(ranges: &[(u16, u16, &str)]) -> Topology {
    let range = |&(first, last, nodes): &(u16, u16, &str)| {
        let mut names = nodes.split('/').map(info);
        SlotRange {
            first,
            last,
            primary: names.next(),
            replicas: names.collect(),
        }
    };
    Topology {
        ranges: ranges.iter().map(range).collect(),
    }
}

fn moved(seq: i64, deltas: &[(&str, &str, &[u16])]) -> Notice {
    let delta = |&(from, to, numbers): &(&str, &str, &[u16])| Delta {
        from: addr(from),
        to: addr(to),
        slots: slots(numbers),
    };
    Notice::SlotsMoved(seq, deltas.iter().map(delta).collect())
}

impl Rig {
    fn new(ranges: &[(u16, u16, &str)]) -> Self {
        let now = Instant::now();
        let settings = Settings {
            seeds: vec![addr("seed")],
            max_redirects: 16,
            follow_redirects: true,
            strict_order: false,
            replica_reads: true,
            lazy: false,
            refresh_least: Duration::from_millis(100),
            refresh_most: SECOND,
            refresh_period: None,
            drain_limit: SECOND,
        };
        let mut rig = Self {
            cluster: Cluster::new(settings, 1, now),
            ledger: Ledger::new(),
            now,
            queues: HashMap::new(),
            view: View::default(),
            spawned: Vec::new(),
            retired: Vec::new(),
            queries: Vec::new(),
            causes: Vec::new(),
        };
        rig.pump();
        rig.answer(map(ranges));
        rig.after(SECOND);
        rig.queries.clear();
        rig.spawned.clear();
        rig.causes.clear();
        rig
    }

    fn key(&self, name: &str) -> NodeKey {
        self.cluster.nodes.find(&addr(name)).expect("a known node")
    }

    fn owner(&self, number: u16) -> Option<NodeAddr> {
        let key = self.cluster.owner(slot(number))?;
        self.cluster.nodes.get(key).map(|node| node.addr.clone())
    }

    /// The routes say what the map says: nothing is held back.
    fn route(&self, number: u16) -> Option<NodeAddr> {
        let key = self.view.slots[usize::from(number)]?;
        self.cluster.nodes.get(key).map(|node| node.addr.clone())
    }

    /// A caller's command, on the way that the routes show.
    fn send(&mut self, number: u16) {
        let unit = one(&self.ledger, number);
        match self.view.slots[usize::from(number)] {
            Some(node) => self.queues.entry(node).or_default().push(unit),
            None => self.cluster.submit(unit, self.now),
        }
    }

    /// The places of what is queued at a node, in order.
    fn queued(&self, name: &str) -> Vec<usize> {
        let queue = self.queues.get(&self.key(name));
        let units = queue.into_iter().flatten();
        units.flat_map(|unit| unit.ticket.places()).collect()
    }

    fn announce(&mut self, from: &str, notice: Notice) {
        let from = self.key(from);
        let event = Event::Announced { from, notice };
        self.cluster.handle(event, self.now);
        self.pump();
    }

    fn after(&mut self, time: Duration) {
        self.now += time;
        self.cluster.tick(self.now);
        self.pump();
    }

    /// Answers the last query.
    fn answer(&mut self, topology: Topology) {
        let (query, _) = self.queries.pop().expect("a query");
        let result = Ok(topology);
        self.cluster
            .handle(Event::Topology { query, result }, self.now);
        self.pump();
    }

    fn pump(&mut self) {
        loop {
            for effect in self.cluster.take_effects() {
                self.carry_out(effect);
            }
            if !self.cluster.wants_commit(self.now) {
                return;
            }
            let commit = self.cluster.commit(self.now);
            for effect in self.cluster.take_effects() {
                self.carry_out(effect);
            }
            for (node, _, units) in commit.take_overs {
                self.queues.entry(node).or_default().extend(units);
            }
            self.view = commit.view.unwrap_or(std::mem::take(&mut self.view));
            for (node, id, slots) in commit.give_ups {
                let units = self.give_up(node, &slots);
                self.cluster
                    .handle(Event::Extracted { id, units }, self.now);
                self.cluster.handle(Event::Cleared { id }, self.now);
            }
            self.retired.extend(commit.retire);
        }
    }

    fn give_up(&mut self, node: NodeKey, slots: &SlotSet) -> Vec<Unit<TestTicket>> {
        let queue = self.queues.entry(node).or_default();
        let all = std::mem::take(queue).into_iter();
        let (gone, kept) = all.partition(|unit| unit.touches(|slot| slots.contains(slot)));
        *queue = kept;
        gone
    }

    fn carry_out(&mut self, effect: Effect<TestTicket>) {
        match effect {
            Effect::Settle(ticket, _) => self.ledger.discard(ticket),
            Effect::Send(node, unit) => self.queues.entry(node).or_default().push(unit),
            Effect::Spawn(node, addr, _) => {
                self.spawned.push(addr);
                self.cluster.handle(Event::NodeUp { node }, self.now);
            }
            Effect::Query(id, source) => self.queries.push((id, source)),
            Effect::Refresh(cause) => self.causes.push(cause),
            Effect::Replace(..) | Effect::Break(_) | Effect::Ready(_) => {}
        }
    }

    /// Every unit is in exactly one queue: nothing was lost, nothing is held.
    fn finish(mut self) {
        assert_eq!(self.cluster.waiting(), 0);
        for unit in self.queues.drain().flat_map(|(_, units)| units) {
            self.ledger.settle(unit.ticket);
        }
        self.ledger.check_all_settled_once();
    }
}

#[test]
fn queued_commands_follow_their_slots_at_once_and_in_order() {
    let mut rig = Rig::new(&[(0, 99, "a"), (100, 199, "b")]);
    for number in [1, 2, 1, 3, 100, 1] {
        rig.send(number);
    }
    rig.announce("a", moved(1, &[("a", "b", &[1, 3])]));
    assert_eq!(rig.owner(1), Some(addr("b")));
    assert_eq!(rig.route(1), Some(addr("b")));
    assert_eq!(rig.queued("a"), [1]);
    let at_b = rig.queued("b");
    let of_slot_1: Vec<_> = at_b
        .iter()
        .filter(|place| [0, 2, 5].contains(*place))
        .collect();
    assert_eq!(of_slot_1, [&0, &2, &5]);
    assert_eq!(at_b.len(), 5);
    rig.finish();
}

#[test]
fn the_map_is_verified_by_the_destination_first() {
    let mut rig = Rig::new(&[(0, 99, "a"), (100, 199, "b"), (200, 299, "c")]);
    rig.announce("a", moved(1, &[("a", "c", &[1])]));
    let (_, source) = &rig.queries[..][0];
    assert_eq!(*source, Source::Node(addr("c")));
    assert_eq!(rig.causes, [RefreshCause::Maintenance]);
}

#[test]
fn copies_move_nothing_and_ask_nobody() {
    let mut rig = Rig::new(&[(0, 99, "a"), (100, 199, "b")]);
    for from in ["a", "b", "a"] {
        rig.announce(from, moved(1, &[("a", "b", &[1])]));
        rig.after(Duration::ZERO);
    }
    assert_eq!(rig.queries.len(), 1);
    rig.answer(map(&[
        (0, 0, "a"),
        (1, 1, "b"),
        (2, 99, "a"),
        (100, 199, "b"),
    ]));
    rig.after(10 * SECOND);
    assert_eq!(rig.queries.len(), 0);
    assert_eq!(rig.causes, [RefreshCause::Maintenance]);
}

#[test]
fn a_late_copy_does_not_bring_a_slot_back() {
    let mut rig = Rig::new(&[(0, 99, "a"), (100, 199, "b"), (200, 299, "c")]);
    let first = moved(1, &[("a", "b", &[1])]);
    rig.announce("a", first.clone());
    rig.announce("b", moved(2, &[("b", "c", &[1])]));
    let expected = map(&[
        (0, 0, "a"),
        (1, 1, "c"),
        (2, 99, "a"),
        (100, 199, "b"),
        (200, 299, "c"),
    ]);
    rig.answer(expected.clone());
    rig.after(SECOND);
    rig.answer(expected);
    // By now it is forgotten that this was heard.
    rig.after(300 * SECOND);
    rig.queries.clear();
    rig.announce("c", first);
    assert_eq!(rig.owner(1), Some(addr("c")));
    assert_eq!(rig.queries.len(), 1, "but the map is verified");
}

#[test]
fn what_does_not_fit_the_map_only_asks_for_a_new_one() {
    for notice in [
        moved(1, &[]),
        moved(1, &[("elsewhere", "b", &[1])]),
        moved(1, &[("a", "a", &[1])]),
        moved(1, &[("b", "new", &[1])]),
        Notice::Unreadable(Work::Slots),
        Notice::Unreadable(Work::Endpoint),
        Notice::Ended(Work::Failover, 1),
    ] {
        let mut rig = Rig::new(&[(0, 99, "a"), (100, 199, "b")]);
        rig.send(1);
        rig.announce("a", notice.clone());
        assert_eq!(rig.owner(1), Some(addr("a")), "{notice:?}");
        assert_eq!(rig.queued("a"), [0], "{notice:?}");
        assert_eq!(rig.queries.len(), 1, "{notice:?}");
        assert_eq!(rig.spawned, [], "{notice:?}");
        rig.finish();
    }
    let mut rig = Rig::new(&[(0, 99, "a")]);
    rig.announce("a", Notice::Begun(Work::Slots, 1));
    rig.after(SECOND);
    assert_eq!(rig.queries.len(), 0, "nothing has moved yet");
}

#[test]
fn a_slot_that_nobody_served_gets_its_owner() {
    let mut rig = Rig::new(&[(0, 99, "a"), (200, 299, "b")]);
    rig.send(150);
    rig.announce("a", moved(1, &[("a", "b", &[150])]));
    assert_eq!(rig.route(150), Some(addr("b")));
    assert_eq!(rig.queued("b"), [0]);
    rig.finish();
}

#[test]
fn an_unknown_destination_is_connected_to() {
    let mut rig = Rig::new(&[(0, 99, "a")]);
    rig.send(1);
    rig.announce("a", moved(1, &[("a", "new", &[1])]));
    assert_eq!(rig.spawned, [addr("new")]);
    assert_eq!(rig.queued("new"), [0]);
    let new = rig.key("new");
    assert!(rig.view.primaries.contains(&new));
    rig.finish();
}

#[test]
fn a_destination_known_as_replica_is_promoted() {
    let mut rig = Rig::new(&[(0, 99, "a/r"), (100, 199, "b")]);
    let replica = rig.key("r");
    assert!(!rig.view.primaries.contains(&replica));
    rig.announce("b", moved(1, &[("a", "r", &[1])]));
    assert_eq!(rig.route(1), Some(addr("r")));
    assert!(rig.view.primaries.contains(&replica));
    let is_listed = |(_, list): &(_, Vec<NodeKey>)| list.contains(&replica);
    assert!(!rig.view.replicas.iter().any(is_listed));
}

#[test]
fn an_older_map_on_its_way_does_not_undo_it() {
    let ranges = [(0, 99, "a"), (100, 199, "b")];
    let mut rig = Rig::new(&ranges);
    rig.announce("a", Notice::Unreadable(Work::Slots));
    assert_eq!(rig.queries.len(), 1);
    rig.announce("a", moved(1, &[("a", "b", &[1])]));
    rig.answer(map(&ranges));
    assert_eq!(rig.owner(1), Some(addr("b")));
    rig.after(SECOND);
    assert_eq!(rig.queries.len(), 1, "that map was older than the move");
    rig.answer(map(&ranges));
    assert_eq!(rig.owner(1), Some(addr("a")), "a newer one decides");
}

#[test]
fn a_source_without_slots_ends_once_the_map_says_so() {
    let mut rig = Rig::new(&[(0, 1, "a"), (2, 199, "b")]);
    rig.send(0);
    let a = rig.key("a");
    rig.announce("a", moved(1, &[("a", "b", &[0, 1])]));
    assert_eq!(rig.retired, []);
    rig.answer(map(&[(0, 199, "b")]));
    assert_eq!(rig.retired, [a]);
    assert!(rig.cluster.nodes.find(&addr("a")).is_none());
    assert_eq!(rig.queued("b"), [0]);
    rig.finish();
}

/// All histories of up to three moves of one slot between three nodes, each announced twice: the
/// owner is what a plain rule says, and every command arrives there, in order.
#[test]
fn all_short_histories_of_moves() {
    let names = ["a", "b", "c"];
    let verbs: Vec<(usize, usize)> = (0..3)
        .flat_map(|from| (0..3).map(move |to| (from, to)))
        .collect();
    for length in 0..=3 {
        for mut number in 0..verbs.len().pow(length) {
            let mut rig = Rig::new(&[(0, 9, "a"), (10, 19, "b"), (20, 29, "c")]);
            let mut owner = 0;
            let mut sent = Vec::new();
            for seq in 0..length {
                let (from, to) = verbs[number % verbs.len()];
                number /= verbs.len();
                sent.push(rig.ledger.len());
                rig.send(5);
                let notice = moved(i64::from(seq), &[(names[from], names[to], &[5])]);
                rig.announce(names[from], notice.clone());
                if owner == from {
                    owner = to;
                }
                rig.announce(names[to], notice);
                assert_eq!(rig.owner(5), Some(addr(names[owner])));
            }
            assert_eq!(rig.route(5), Some(addr(names[owner])));
            assert_eq!(rig.queued(names[owner]), sent);
            rig.finish();
        }
    }
}
