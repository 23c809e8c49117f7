//! What is written, in which order, and what is left when slots or the connection go.

use std::time::{Duration, Instant};

use super::{ASKING, Disconnected, Inflight, Outbox};
use crate::proto::addr::NodeAddr;
use crate::proto::limits;
use crate::proto::outcome::{Certainty, Failure, Outcome, Reason};
use crate::proto::testing::wire::{Command, padded, pipeline, single, transaction};
use crate::proto::testing::{Ledger, TestTicket, slots};
use crate::proto::unit::{Body, Bytes, Facts, Target, Ticket, Unit};

mod random;

/// One node with a connection, and the ledger of everything that is sent through it.
struct Node {
    ledger: Ledger,
    outbox: Outbox<TestTicket>,
    inflight: Inflight<TestTicket>,
    now: Instant,
}

impl Node {
    fn new() -> Self {
        let mut node = Self {
            ledger: Ledger::new(),
            outbox: Outbox::new(),
            inflight: Inflight::new(NodeAddr::new("node", 7000)),
            now: Instant::now(),
        };
        node.outbox.connect();
        node
    }

    /// Queues a unit that this node takes.
    fn submit(&mut self, unit: Unit<TestTicket>) {
        let mut strays = Vec::new();
        self.outbox.submit(unit, &mut strays);
        assert!(strays.is_empty(), "passed back: {strays:?}");
    }

    /// Queues a unit of which something is passed back; gives its places.
    fn submit_stray(&mut self, unit: Unit<TestTicket>) -> Vec<usize> {
        let mut strays = Vec::new();
        self.outbox.submit(unit, &mut strays);
        self.take_back(strays)
    }

    fn stage(&mut self) -> Vec<(TestTicket, Outcome)> {
        let mut expired = Vec::new();
        self.outbox
            .stage(&mut self.inflight, self.now, &mut expired);
        expired
    }

    /// Writes everything that is staged; gives the bytes.
    fn write_all(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(bytes) = self.outbox.next_bytes() {
            out.extend_from_slice(bytes);
            let count = bytes.len();
            self.outbox.wrote(count);
        }
        out
    }

    fn write_text(&mut self) -> String {
        assert!(self.stage().is_empty());
        String::from_utf8(self.write_all()).expect("ASCII")
    }

    fn disconnect(&mut self, retry_reads: bool) -> Disconnected<TestTicket> {
        self.outbox
            .disconnect(&mut self.inflight, Reason::ConnectionLost, retry_reads)
    }

    /// The places of units that came back; they end here.
    fn take_back(&self, units: Vec<Unit<TestTicket>>) -> Vec<usize> {
        let each = units.into_iter();
        each.flat_map(|unit| self.ledger.settle(unit.ticket))
            .collect()
    }

    fn take_settled(&self, settled: Vec<(TestTicket, Outcome)>) -> Vec<usize> {
        let each = settled.into_iter().flat_map(|(ticket, outcome)| {
            let failure = outcome.expect_err("its connection was lost");
            assert_eq!(failure.certainty(), Certainty::Unknown);
            self.ledger.settle(ticket)
        });
        each.collect()
    }
}

fn write(slot: u16) -> Command {
    Command::write(slot, 0)
}

fn asking(mut unit: Unit<TestTicket>) -> Unit<TestTicket> {
    unit.asking = true;
    unit
}

/// Many units leave with one write, in the order in which they came.
#[test]
fn small_units_share_one_write() {
    let mut node = Node::new();
    node.submit(single(&node.ledger, &write(1)));
    node.submit(pipeline(&node.ledger, &[write(2), write(3)]));
    node.submit(transaction(&node.ledger, &[write(4)]));
    assert!(node.outbox.can_stage() && !node.outbox.has_staged());
    assert!(node.stage().is_empty());
    let first = node.outbox.next_bytes().expect("staged").len();
    let text = String::from_utf8(node.write_all()).expect("ASCII");
    assert_eq!(first, text.len(), "one piece");
    assert_eq!(
        text,
        "C 0 1 0 w\nC 1 2 0 w\nC 2 3 0 w\nM 3\nQ 3 4 0 w\nE 3\n"
    );
    assert!(node.outbox.is_idle());
    assert_eq!(node.inflight.commands(), 6);
    let lost = node.disconnect(false);
    node.take_settled(lost.settled);
    node.ledger.check_all_settled_once();
}

/// T020, T022, T024: an ASKING of its own in front of each unit that was sent by ASK.
#[test]
fn each_asked_unit_has_its_own_asking() {
    let mut node = Node::new();
    node.submit(asking(single(&node.ledger, &write(1))));
    node.submit(single(&node.ledger, &write(1)));
    node.submit(asking(transaction(&node.ledger, &[write(1)])));
    node.submit(asking(single(&node.ledger, &write(1))));
    let prefix = String::from_utf8(ASKING.to_vec()).expect("ASCII");
    let wanted =
        format!("{prefix}C 0 1 0 w\nC 1 1 0 w\n{prefix}M 2\nQ 2 1 0 w\nE 2\n{prefix}C 3 1 0 w\n");
    assert_eq!(node.write_text(), wanted);
    let lost = node.disconnect(false);
    node.take_settled(lost.settled);
}

/// A large unit is written from its own buffer, between its neighbours, and with its ASKING.
#[test]
fn a_large_unit_is_not_copied() {
    let mut node = Node::new();
    let big = padded(&node.ledger, &write(1), limits::LARGE_BYTES);
    let at = big.bytes().as_ptr();
    node.submit(asking(big));
    node.submit(single(&node.ledger, &write(1)));
    assert!(node.stage().is_empty());
    assert_eq!(node.outbox.next_bytes(), Some(ASKING));
    node.outbox.wrote(ASKING.len());
    let bytes = node.outbox.next_bytes().expect("the unit itself");
    assert_eq!((bytes.as_ptr(), bytes.len()), (at, limits::LARGE_BYTES));
    node.outbox.wrote(limits::LARGE_BYTES);
    assert_eq!(node.write_all(), b"C 1 1 0 w\n");
    let lost = node.disconnect(false);
    assert_eq!(node.take_settled(lost.settled), [0, 1]);
}

/// What is claimed is bounded: the rest stays movable.
#[test]
fn no_more_is_claimed_than_one_write() {
    let mut node = Node::new();
    let size = limits::LARGE_BYTES / 2;
    let count = 4 * limits::WRITE_BYTES / size;
    for _ in 0..count {
        node.submit(padded(&node.ledger, &write(1), size));
    }
    assert!(node.stage().is_empty());
    assert_eq!(node.inflight.commands(), limits::WRITE_BYTES / size);
    assert!(node.stage().is_empty());
    assert_eq!(
        node.inflight.commands(),
        limits::WRITE_BYTES / size,
        "not before it left"
    );
    let moved = node.outbox.give_up(&slots(&[1]));
    assert_eq!(moved.len(), count - limits::WRITE_BYTES / size);
    node.take_back(moved);
    let lost = node.disconnect(false);
    node.take_back(lost.strays);
    node.ledger.check_all_settled_once();
}

/// A large pipeline is claimed front by front.
#[test]
fn a_large_part_is_claimed_front_by_front() {
    let mut node = Node::new();
    let commands = vec![write(1); 3 * limits::WRITE_BYTES / 10];
    node.submit(pipeline(&node.ledger, &commands));
    assert!(node.stage().is_empty());
    assert!(node.inflight.bytes() < 2 * limits::WRITE_BYTES);
    let claimed = node.inflight.commands();
    let moved = node.outbox.give_up(&slots(&[1]));
    assert_eq!(moved[0].ticket.places()[0], claimed, "the rest moves");
    node.take_back(moved);
    let lost = node.disconnect(false);
    node.take_back(lost.strays);
    node.ledger.check_all_settled_once();
}

/// T104, T105, T109: the head of a chain is written, a command of its slot and one of another
/// wait. What waits leaves; the chain is completed, or sent again as a whole if it never was.
#[test]
fn a_half_written_chain_stays_whole() {
    for complete in [true, false] {
        let mut node = Node::new();
        node.submit(transaction(&node.ledger, &[write(1), write(1)]));
        assert!(node.stage().is_empty());
        node.outbox.wrote(7);
        node.submit(single(&node.ledger, &write(1)));
        node.submit(single(&node.ledger, &write(2)));
        let moved = node.outbox.give_up(&slots(&[1]));
        assert_eq!(node.take_back(moved), [1]);
        assert!(node.outbox.has_staged(), "the tail is still to be written");
        if complete {
            assert!(node.write_all().ends_with(b"E 0\n"));
        }
        let lost = node.disconnect(true);
        if complete {
            assert_eq!(node.take_settled(lost.settled), [0]);
            assert!(lost.strays.is_empty());
        } else {
            assert_eq!(lost.strays.len(), 1);
            assert_eq!(lost.strays[0].commands(), 4);
            assert!(matches!(lost.strays[0].body, Body::Chain { .. }));
            assert_eq!(node.take_back(lost.strays), [0]);
        }
        // CH5: nothing of the old stream is written to the next connection.
        node.outbox.connect();
        assert_eq!(node.write_text(), "C 2 2 0 w\n");
        let lost = node.disconnect(true);
        node.take_settled(lost.settled);
        node.ledger.check_all_settled_once();
    }
}

/// T106, T107: a chain that is written, or of another slot, holds nothing back.
#[test]
fn a_written_chain_and_a_foreign_chain_stop_nothing() {
    let mut node = Node::new();
    node.submit(transaction(&node.ledger, &[write(5)]));
    assert!(node.stage().is_empty());
    node.outbox.wrote(3);
    node.submit(transaction(&node.ledger, &[write(1)]));
    node.submit(single(&node.ledger, &write(1)));
    let moved = node.outbox.give_up(&slots(&[1]));
    assert_eq!(node.take_back(moved), [1, 2]);
    assert!(node.write_all().ends_with(b"E 0\n"));
    node.submit(single(&node.ledger, &write(5)));
    let moved = node.outbox.give_up(&slots(&[5]));
    assert_eq!(node.take_back(moved), [3], "all of the chain is written");
    let lost = node.disconnect(true);
    assert_eq!(node.take_settled(lost.settled), [0]);
    node.ledger.check_all_settled_once();
}

/// T116: what still arrives for a slot that has left is passed back, and nothing else of it.
#[test]
fn late_arrivals_are_passed_back() {
    let mut node = Node::new();
    node.take_back(Vec::new());
    assert!(node.outbox.give_up(&slots(&[1, 2])).is_empty());
    assert_eq!(node.submit_stray(single(&node.ledger, &write(1))), [0]);
    let mixed = [write(3), write(1), write(2), write(3)];
    assert_eq!(node.submit_stray(pipeline(&node.ledger, &mixed)), [2, 3]);
    assert_eq!(
        node.submit_stray(transaction(&node.ledger, &[write(2)])),
        [5]
    );
    node.submit(single(&node.ledger, &write(4)));
    assert_eq!(node.write_text(), "C 1 3 0 w\nC 4 3 0 w\nC 6 4 0 w\n");
    let lost = node.disconnect(true);
    node.take_settled(lost.settled);
    node.ledger.check_all_settled_once();
}

/// A slot that comes back is taken again, behind what is older.
#[test]
fn a_slot_that_returns_is_no_longer_given_away() {
    let mut node = Node::new();
    assert!(node.outbox.give_up(&slots(&[1, 2])).is_empty());
    node.submit(asking(single(&node.ledger, &write(1))));
    let units = vec![single(&node.ledger, &write(1))];
    node.outbox.take_over(&slots(&[1]), units);
    node.submit(single(&node.ledger, &write(1)));
    assert_eq!(node.submit_stray(single(&node.ledger, &write(2))), [3]);
    let text = node.write_text();
    let order: Vec<&str> = text.lines().filter(|line| line.starts_with('C')).collect();
    assert_eq!(order, ["C 0 1 0 w", "C 1 1 0 w", "C 2 1 0 w"]);
    let lost = node.disconnect(true);
    assert_eq!(node.take_settled(lost.settled), [0, 1, 2]);
}

/// The routes lead here again, but that the slot is back has not been heard here: what is written
/// at once must not pass by that.
#[test]
fn nothing_is_free_to_go_before_the_news_of_its_slot() {
    let mut node = Node::new();
    assert!(node.outbox.give_up(&slots(&[1])).is_empty());
    let unit = pipeline(&node.ledger, &[write(2), write(1)]);
    assert!(!node.outbox.is_free_for(&unit));
    node.outbox.take_over(&slots(&[1]), Vec::new());
    assert!(node.outbox.is_free_for(&unit));
    node.submit(unit);
    let other = single(&node.ledger, &write(2));
    assert!(!node.outbox.is_free_for(&other), "others wait");
    assert!(node.stage().is_empty());
    assert!(!node.outbox.is_free_for(&other), "others are half written");
    node.write_all();
    assert!(node.outbox.is_free_for(&other));
    let lost = node.disconnect(true);
    node.take_settled(lost.settled);
    assert!(!node.outbox.is_free_for(&other), "there is no connection");
    node.take_back(vec![other]);
    node.ledger.check_all_settled_once();
}

/// A unit that ASK sent to a node that once owned the slot is a guest there: it is written, and
/// queued again after a lost connection, in front of later guests.
#[test]
fn guests_stay_over_a_reconnect() {
    let mut node = Node::new();
    assert!(node.outbox.give_up(&slots(&[1])).is_empty());
    node.submit(asking(single(&node.ledger, &write(1))));
    assert!(node.stage().is_empty());
    node.outbox.wrote(ASKING.len());
    node.submit(asking(single(&node.ledger, &write(1))));
    // T027: the connection ends between ASKING and its command.
    let lost = node.disconnect(true);
    assert!(lost.strays.is_empty() && lost.settled.is_empty());
    node.outbox.connect();
    let prefix = String::from_utf8(ASKING.to_vec()).expect("ASCII");
    let wanted = format!("{prefix}C 0 1 0 w\n{prefix}C 1 1 0 w\n");
    assert_eq!(node.write_text(), wanted);
    let lost = node.disconnect(true);
    node.take_settled(lost.settled);
}

/// T029: when the slot leaves for good, guests leave with it, and nothing of them stays behind.
#[test]
fn guests_leave_with_the_slot() {
    let mut node = Node::new();
    node.submit(asking(single(&node.ledger, &Command::read(1, 0))));
    let text = node.write_text();
    assert!(text.ends_with("C 0 1 0 r\n"));
    node.submit(asking(single(&node.ledger, &write(1))));
    let moved = node.outbox.give_up(&slots(&[1]));
    assert!(!moved[0].asking);
    assert_eq!(node.take_back(moved), [1]);
    let lost = node.disconnect(true);
    assert_eq!(node.take_back(lost.strays), [0]);
    node.outbox.connect();
    assert!(node.stage().is_empty());
    assert!(!node.outbox.has_staged(), "no lone ASKING is left behind");
    node.ledger.check_all_settled_once();
}

/// T146, T147: what was not written to its end is written to the next connection, in front.
#[test]
fn unsent_units_are_queued_in_front_again() {
    let mut node = Node::new();
    for _ in 0..3 {
        node.submit(single(&node.ledger, &write(1)));
    }
    assert!(node.stage().is_empty());
    node.outbox.wrote(15);
    node.submit(single(&node.ledger, &write(1)));
    let lost = node.disconnect(true);
    assert_eq!(node.take_settled(lost.settled), [0]);
    assert_eq!(node.outbox.waiting(), 3);
    node.outbox.connect();
    assert_eq!(node.write_text(), "C 1 1 0 w\nC 2 1 0 w\nC 3 1 0 w\n");
    let lost = node.disconnect(true);
    node.take_settled(lost.settled);
    node.ledger.check_all_settled_once();
}

/// T132, T134: a unit past its deadline is never written, and says so.
#[test]
fn a_late_unit_ends_unsent() {
    let mut node = Node::new();
    let mut late = pipeline(&node.ledger, &[write(1), write(2)]);
    late.deadline = Some(node.now);
    node.submit(late);
    let mut fresh = single(&node.ledger, &write(3));
    fresh.deadline = Some(node.now + Duration::from_nanos(1));
    node.submit(fresh);
    let expired = node.stage();
    assert_eq!(expired.len(), 2);
    for ((ticket, outcome), slot) in expired.into_iter().zip([1, 2]) {
        let failure = outcome.expect_err("too late");
        assert_eq!(failure.reason(), Reason::Timeout);
        assert_eq!(failure.certainty(), Certainty::NotSent);
        assert_eq!(failure.slot().map(|slot| slot.number()), Some(slot));
        node.ledger.discard(ticket);
    }
    assert_eq!(node.write_all(), b"C 2 3 0 w\n");
    let lost = node.disconnect(true);
    node.take_settled(lost.settled);
    node.ledger.check_all_settled_once();
}

/// T130, T139: a cancel before the claim keeps everything off the wire; after it, the caller goes
/// and the chain is completed.
#[test]
fn a_cancel_wins_only_before_the_claim() {
    let mut node = Node::new();
    node.submit(transaction(&node.ledger, &[write(1)]));
    assert!(node.stage().is_empty());
    node.outbox.wrote(2);
    node.submit(single(&node.ledger, &write(1)));
    node.ledger.cancel(0);
    node.ledger.cancel(1);
    node.outbox.note_dead(1);
    assert!(!node.ledger.place(0).proven_unsent);
    assert!(node.ledger.place(1).proven_unsent);
    assert!(node.write_all().ends_with(b"E 0\n"));
    assert_eq!(node.write_text(), "");
    assert!(node.outbox.is_idle());
    assert_eq!(node.inflight.dead(), 3);
    node.disconnect(true);
    node.ledger.check_all_settled_once();
}

/// M4: a connection that is to be replaced writes what it began, and nothing new.
#[test]
fn a_closing_connection_takes_nothing_new() {
    let mut node = Node::new();
    node.submit(single(&node.ledger, &write(1)));
    assert!(node.stage().is_empty());
    node.outbox.close_when_answered();
    node.submit(single(&node.ledger, &write(1)));
    assert!(!node.outbox.can_stage() && !node.outbox.is_closing());
    assert_eq!(node.write_all(), b"C 0 1 0 w\n");
    assert!(node.outbox.is_closing());
    assert!(node.stage().is_empty());
    assert!(!node.outbox.has_staged());
    let lost = node.disconnect(true);
    assert_eq!(node.take_settled(lost.settled), [0]);
    node.outbox.connect();
    assert_eq!(node.write_text(), "C 1 1 0 w\n");
    let lost = node.disconnect(true);
    node.take_settled(lost.settled);
}

/// A replica that cannot be reached passes on what others can serve, and no slot with it.
#[test]
fn a_release_takes_what_others_can_run() {
    let mut node = Node::new();
    node.submit(single(&node.ledger, &Command::read(1, 0)));
    node.disconnect(true);
    let mut addressed = single(&node.ledger, &Command::read(2, 0));
    if let Body::One(_, facts) = &mut addressed.body {
        facts.target = Target::Node;
    }
    node.submit(addressed);
    node.submit(pipeline(
        &node.ledger,
        &[Command::read(3, 0), Command::read(1, 0)],
    ));
    let units = node.outbox.release(true);
    assert_eq!(node.take_back(units), [0, 2, 3]);
    node.submit(single(&node.ledger, &Command::read(1, 0)));
    node.outbox.connect();
    assert_eq!(node.write_text(), "C 1 2 0 r\nC 4 1 0 r\n");
    let lost = node.disconnect(false);
    node.take_settled(lost.settled);
    node.ledger.check_all_settled_once();
}

/// A ticket whose caller goes between the look at the queue and the claim.
struct Fleeting;

impl Ticket for Fleeting {
    fn split_front(&mut self, _places: usize) -> Self {
        Fleeting
    }
    fn claim(&self) -> bool {
        false
    }
    fn release(&self, _note: Option<Box<Failure>>) -> bool {
        false
    }
    fn is_dead(&self) -> bool {
        false
    }
    fn note(&self, _failure: Box<Failure>) {}
}

/// T141: the claim decides, however late the caller goes.
#[test]
fn a_cancel_at_the_last_moment_still_wins() {
    let mut outbox = Outbox::new();
    let mut inflight = Inflight::new(NodeAddr::new("node", 7000));
    outbox.connect();
    let facts = Facts::new(Target::Any, false);
    let body = Body::One(Bytes::Own(b"PING".to_vec(), 0), facts);
    outbox.submit(Unit::new(Fleeting, body, None), &mut Vec::new());
    outbox.stage(&mut inflight, Instant::now(), &mut Vec::new());
    assert!(!outbox.has_staged() && inflight.is_empty() && outbox.is_idle());
}
