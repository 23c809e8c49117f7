//! Outbox and in-flight list against a model server, in every interleaving that chance finds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::Node;
use crate::proto::backoff::Random;
use crate::proto::inflight::BarrierId;
use crate::proto::limits;
use crate::proto::outcome::{Certainty, Reason};
use crate::proto::testing::wire::{Command, Line, Parser, padded, pipeline, single, transaction};
use crate::proto::testing::{TestTicket, for_each_seed, slots as set};
use crate::proto::unit::Unit;
use crate::proto::value::{ServerError, Value};
use crate::proto::verdict::{Answer, Reply};

const SLOTS: usize = 4;

/// One node, the server at the other end, and everything that must hold between them.
struct Test {
    node: Node,
    random: Random,
    server: Server,
    submissions: Vec<Range<usize>>,
    /// Slots that left the node, with the barrier that is still open.
    away: BTreeMap<u16, Option<BarrierId>>,
    next_barrier: u64,
    /// Places that left without an end: they would be handed to another node.
    returned: BTreeSet<usize>,
}

/// The other end of one connection. It runs a command when it has read it.
#[derive(Default)]
struct Server {
    parser: Parser,
    replies: VecDeque<Reply>,
    /// Whether the chain that is being read was refused.
    refused: bool,
    executed: BTreeMap<usize, u32>,
    writes: BTreeSet<usize>,
    /// The last place that each slot has seen on this connection.
    last: BTreeMap<u16, usize>,
}

impl Server {
    /// Another connection to the same server.
    fn reconnect(&mut self) {
        self.parser = Parser::default();
        self.replies.clear();
        self.last.clear();
    }

    fn see(&mut self, place: usize, command: &Command, node: &Node) {
        let ticket = node.ledger.place(place);
        assert!(
            !ticket.proven_unsent,
            "place {place} is written after a proven cancel"
        );
        let last = self.last.insert(command.slot, place);
        assert!(
            last.is_none_or(|last| last <= place),
            "slot {}: {place} after {last:?}",
            command.slot
        );
        if command.write {
            self.writes.insert(place);
        }
    }

    fn run(&mut self, place: usize) {
        *self.executed.entry(place).or_default() += 1;
    }

    fn read(&mut self, line: Line, node: &Node, refuse: bool) {
        let refusal = |slot| Ok(Value::Error(ServerError::new(format!("MOVED {slot} b:1"))));
        let reply = match line {
            Line::Asking => Ok(Value::Ok),
            Line::One(place, command) => {
                self.see(place, &command, node);
                if refuse {
                    refusal(command.slot)
                } else {
                    self.run(place);
                    Ok(Value::Integer(place as i64))
                }
            }
            Line::Multi(_) => {
                self.refused = false;
                Ok(Value::Ok)
            }
            Line::Member(place, command) => {
                self.see(place, &command, node);
                if refuse {
                    self.refused = true;
                    refusal(command.slot)
                } else {
                    Ok(Value::Simple(b"QUEUED".to_vec()))
                }
            }
            Line::Exec(_) if self.refused => Ok(Value::Error(ServerError::new("EXECABORT"))),
            Line::Exec(place) => {
                self.run(place);
                Ok(Value::Array(vec![Value::Integer(place as i64)]))
            }
        };
        self.replies.push_back(reply);
    }
}

impl Test {
    fn new(seed: u64) -> Self {
        Self {
            node: Node::new(),
            random: Random::new(seed),
            server: Server::default(),
            submissions: Vec::new(),
            away: BTreeMap::new(),
            next_barrier: 0,
            returned: BTreeSet::new(),
        }
    }

    fn slot(&mut self) -> u16 {
        self.random.below(SLOTS) as u16
    }

    fn command(&mut self) -> Command {
        Command {
            write: self.random.below(3) > 0,
            ..Command::write(self.slot(), 0)
        }
    }

    fn unit(&mut self) -> Unit<TestTicket> {
        let first = self.node.ledger.len();
        let mut unit = match self.random.below(8) {
            0 | 1 => {
                let member = Command::write(self.slot(), 0);
                transaction(&self.node.ledger, &[member.clone(), member])
            }
            2..5 => {
                let length = 1 + self.random.below(6);
                let commands: Vec<_> = (0..length).map(|_| self.command()).collect();
                pipeline(&self.node.ledger, &commands)
            }
            5 if self.random.below(4) == 0 => {
                let command = self.command();
                padded(&self.node.ledger, &command, limits::LARGE_BYTES)
            }
            _ => {
                let command = self.command();
                single(&self.node.ledger, &command)
            }
        };
        self.submissions.push(first..self.node.ledger.len());
        if self.random.below(10) == 0 {
            unit.deadline = Some(self.node.now + std::time::Duration::from_millis(5));
        }
        unit
    }

    /// A unit leaves this node for another.
    fn give_back(&mut self, units: Vec<Unit<TestTicket>>) {
        for unit in units {
            let places = self.node.ledger.settle(unit.ticket);
            self.returned.extend(places);
        }
    }

    fn submit(&mut self) {
        let mut unit = self.unit();
        let single = unit.places() == 1;
        let slot = unit.slot(0).expect("a slot").number();
        // The coordinator sends nothing by ASK while it waits for a barrier.
        let open = self.away.get(&slot).is_some_and(Option::is_some);
        unit.asking = single && !open && self.random.below(4) == 0;
        let mut strays = Vec::new();
        self.node.outbox.submit(unit, &mut strays);
        for stray in &strays {
            assert!(stray.touches(|slot| self.away.contains_key(&slot.number())));
        }
        self.give_back(strays);
    }

    fn write(&mut self) {
        let most = self.random.below(40);
        let Some(bytes) = self.node.outbox.next_bytes() else {
            return;
        };
        let count = if self.random.below(3) == 0 {
            bytes.len()
        } else {
            bytes.len().min(most)
        };
        self.server.parser.feed(&bytes[..count]);
        self.node.outbox.wrote(count);
    }

    fn serve(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            if let Some(line) = self.server.parser.next_line() {
                let refuse = self.random.below(8) == 0;
                self.server.read(line, &self.node, refuse);
            }
        }
    }

    fn read(&mut self) {
        let count = self.random.below(self.server.replies.len() + 1);
        let mut replies: VecDeque<Reply> = self.server.replies.drain(..count).collect();
        let mut answers = Vec::new();
        self.node
            .inflight
            .accept(&mut replies, &mut answers)
            .expect("in step");
        for answer in answers {
            match answer {
                Answer::Settled(ticket, outcome) => self.settle(ticket, vec![outcome]),
                Answer::Run(ticket, outcomes) => self.settle(ticket, outcomes),
                Answer::Redirected(unit, _) => self.give_back(vec![unit]),
                Answer::Learned(_) => {}
                Answer::Confused => panic!("slots agree here"),
            }
        }
        self.open_barriers();
    }

    fn settle(&mut self, ticket: TestTicket, outcomes: Vec<crate::proto::outcome::Outcome>) {
        for (place, outcome) in ticket.places().into_iter().zip(outcomes) {
            let number = Value::Integer(place as i64);
            let own = match &outcome {
                Ok(Value::Array(items)) => items == &[number],
                Ok(value) => *value == number,
                Err(failure) => failure.certainty() != Certainty::Unknown,
            };
            assert!(own, "{outcome:?} for place {place}");
        }
        self.node.ledger.discard(ticket);
    }

    fn open_barriers(&mut self) {
        for id in self.node.inflight.cleared() {
            self.away
                .values_mut()
                .filter(|barrier| **barrier == Some(id))
                .for_each(|barrier| *barrier = None);
        }
    }

    fn disconnect(&mut self) {
        let retry_reads = self.random.below(4) > 0;
        let lost = self.node.disconnect(retry_reads);
        self.give_back(lost.strays);
        for (ticket, outcome) in lost.settled {
            let failure = outcome.expect_err("a lost connection");
            assert_eq!(failure.certainty(), Certainty::Unknown);
            self.node.ledger.discard(ticket);
        }
        self.open_barriers();
        self.server.reconnect();
        self.node.outbox.connect();
    }

    fn give_up(&mut self) {
        let slot = self.slot();
        if self.away.contains_key(&slot) {
            return;
        }
        let id = BarrierId(self.next_barrier);
        self.next_barrier += 1;
        let units = self.node.outbox.give_up(&set(&[slot]));
        for unit in &units {
            assert!(unit.touches(|touched| touched.number() == slot) && !unit.asking);
        }
        self.give_back(units);
        self.node.inflight.add_barrier(id, set(&[slot]));
        self.away.insert(slot, Some(id));
        self.open_barriers();
    }

    fn take_over(&mut self) {
        let slot = self.slot();
        if self.away.get(&slot) == Some(&None) {
            self.away.remove(&slot);
            let first = self.node.ledger.len();
            let units = vec![single(&self.node.ledger, &Command::write(slot, 0))];
            self.submissions.push(first..self.node.ledger.len());
            self.node.outbox.take_over(&set(&[slot]), units);
        }
    }

    fn cancel(&mut self) {
        let Some(last) = self.submissions.len().checked_sub(1) else {
            return;
        };
        let at = last - self.random.below(last.min(5) + 1);
        let places = self.submissions[at].clone();
        self.node.ledger.cancel_all(places.clone());
        // The count may be wrong in both directions: a unit is on its way, or has left.
        self.node.outbox.note_dead(places.len());
        self.node.inflight.recheck_barriers();
        self.open_barriers();
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..4 => self.submit(),
            4..7 => {
                for (ticket, outcome) in self.node.stage() {
                    let failure = outcome.expect_err("past its deadline");
                    assert_eq!(failure.reason(), Reason::Timeout);
                    self.node.ledger.discard(ticket);
                }
            }
            7..11 => self.write(),
            11..14 => self.serve(),
            14..16 => self.read(),
            16 => self.give_up(),
            17 => self.take_over(),
            18 => self.cancel(),
            _ if self.random.below(3) == 0 => self.disconnect(),
            _ => self.node.now += std::time::Duration::from_millis(1),
        }
    }

    /// Lets everything that was begun come to its end.
    fn finish(mut self) {
        while self.node.outbox.can_stage() || !self.node.inflight.is_empty() {
            for (ticket, _) in self.node.stage() {
                self.node.ledger.discard(ticket);
            }
            self.write();
            self.serve();
            self.read();
        }
        assert!(self.node.outbox.is_idle());
        assert_eq!(self.node.outbox.waiting_bytes(), 0);
        assert_eq!(
            (self.node.inflight.commands(), self.node.inflight.bytes()),
            (0, 0)
        );
        assert!(self.away.values().all(Option::is_none), "open barriers");
        self.node.ledger.check_all_settled_once();
        for (place, count) in &self.server.executed {
            let write = self.server.writes.contains(place);
            assert!(*count == 1 || !write, "place {place} ran {count} times");
            assert!(
                !self.returned.contains(place) || !write,
                "place {place} ran and was handed on"
            );
        }
    }
}

/// Every ticket ends once or is returned once, nothing proven unsent is written, each slot is
/// written in order, no chain is ever split, no write runs twice.
#[test]
fn any_interleaving_keeps_the_books() {
    for_each_seed(1000, |seed| {
        let mut test = Test::new(seed);
        for _ in 0..150 {
            test.step();
        }
        test.finish();
    });
}
