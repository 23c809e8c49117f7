//! Tickets and units for the tests of the core: every place that goes in must come out once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::outcome::{Certainty, Failure};
use super::slot::{Slot, SlotSet};
use super::unit::{Batch, Body, Bytes, Facts, Target, Ticket, Unit};

pub(crate) mod wire;

/// What is known about each place that was handed out.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    places: Rc<RefCell<BTreeMap<usize, Place>>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Place {
    pub(crate) settled: u32,
    pub(crate) claimed: bool,
    pub(crate) cancelled: bool,
    /// It was on a wire, and nobody knows whether it ran there.
    pub(crate) may_have_run: bool,
    /// Whether the cancel found it unclaimed: then it must never be written.
    pub(crate) proven_unsent: bool,
    pub(crate) writes: u32,
}

/// A ticket of consecutive places. Dropping it unsettled is a failure of the test.
pub(crate) struct TestTicket {
    range: Range<usize>,
    ledger: Ledger,
    done: bool,
}

impl std::fmt::Debug for TestTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.range)
    }
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn ticket(&self, count: usize) -> TestTicket {
        let mut places = self.places.borrow_mut();
        let start = places.len();
        places.extend((start..start + count).map(|place| (place, Place::default())));
        TestTicket {
            range: start..start + count,
            ledger: self.clone(),
            done: false,
        }
    }

    pub(crate) fn place(&self, place: usize) -> Place {
        self.places.borrow()[&place].clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.borrow().len()
    }

    /// The caller goes away: proven unsent if nobody claimed it.
    pub(crate) fn cancel(&self, place: usize) {
        let mut places = self.places.borrow_mut();
        let entry = places.get_mut(&place).expect("a place that was handed out");
        if entry.settled == 0 && !entry.cancelled {
            entry.cancelled = true;
            entry.proven_unsent = !entry.claimed && !entry.may_have_run;
        }
    }

    /// The caller of all these places goes away; those that are settled do not notice.
    pub(crate) fn cancel_all(&self, places: Range<usize>) {
        places.for_each(|place| self.cancel(place));
    }

    /// Settles every place of a ticket.
    pub(crate) fn settle(&self, mut ticket: TestTicket) -> Range<usize> {
        ticket.done = true;
        for place in ticket.range.clone() {
            self.places
                .borrow_mut()
                .get_mut(&place)
                .expect("known")
                .settled += 1;
        }
        ticket.range.clone()
    }

    /// Settles a ticket whose fate does not matter to the test.
    pub(crate) fn discard(&self, ticket: TestTicket) {
        self.settle(ticket);
    }

    /// Every place was settled exactly once.
    pub(crate) fn check_all_settled_once(&self) {
        for (place, entry) in self.places.borrow().iter() {
            assert_eq!(entry.settled, 1, "place {place}: {entry:?}");
        }
    }
}

impl TestTicket {
    pub(crate) fn places(&self) -> Vec<usize> {
        self.range.clone().collect()
    }

    fn any(&self, question: impl Fn(&Place) -> bool) -> bool {
        let places = self.ledger.places.borrow();
        self.range.clone().any(|place| question(&places[&place]))
    }
}

impl Ticket for TestTicket {
    fn split_front(&mut self, places: usize) -> Self {
        assert!(places < self.range.len());
        let front = self.range.start..self.range.start + places;
        self.range.start = front.end;
        TestTicket {
            range: front,
            ledger: self.ledger.clone(),
            done: false,
        }
    }

    fn claim(&self) -> bool {
        if self.is_dead() {
            return false;
        }
        let mut places = self.ledger.places.borrow_mut();
        for place in self.range.clone() {
            let entry = places.get_mut(&place).expect("known");
            assert!(
                !entry.claimed,
                "place {place} is written twice without a release"
            );
            entry.claimed = true;
            entry.writes += 1;
        }
        true
    }

    fn release(&self, known: Option<Box<Failure>>) -> bool {
        let unknown = known.is_some_and(|known| known.certainty == Certainty::Unknown);
        let mut places = self.ledger.places.borrow_mut();
        for place in self.range.clone() {
            let entry = places.get_mut(&place).expect("known");
            entry.claimed = false;
            entry.may_have_run |= unknown;
        }
        drop(places);
        !self.is_dead()
    }

    fn is_dead(&self) -> bool {
        self.any(|place| place.cancelled)
    }

    fn note(&self, _failure: Box<Failure>) {}
}

impl Drop for TestTicket {
    fn drop(&mut self) {
        if !self.done && !std::thread::panicking() {
            // A caller that has gone needs no answer, any other one does.
            assert!(
                self.is_dead(),
                "places {:?} were dropped unsettled",
                self.range
            );
            let range = self.range.clone();
            for place in range {
                self.ledger
                    .places
                    .borrow_mut()
                    .get_mut(&place)
                    .expect("known")
                    .settled += 1;
            }
        }
    }
}

pub(crate) fn facts(slot: u16) -> Facts {
    Facts::new(Target::Slot(Slot::new(slot).expect("a slot")), false)
}

/// A command of this slot; its bytes are `<slot>\n`.
pub(crate) fn one(ledger: &Ledger, slot: u16) -> Unit<TestTicket> {
    one_with(ledger, facts(slot))
}

pub(crate) fn one_with(ledger: &Ledger, facts: Facts) -> Unit<TestTicket> {
    let text = facts
        .target
        .slot()
        .map_or("any\n".to_owned(), |slot| format!("{slot}\n"));
    Unit::new(
        ledger.ticket(1),
        Body::One(Bytes::Own(text.into_bytes(), 0), facts),
        None,
    )
}

/// A chain of two members of this slot.
pub(crate) fn chain(ledger: &Ledger, slot: u16) -> Unit<TestTicket> {
    let bytes = Bytes::Own(
        format!("M{slot}\n{slot}\n{slot}\nE{slot}\n").into_bytes(),
        0,
    );
    let body = Body::Chain {
        bytes,
        members: 2,
        target: facts(slot).target,
    };
    Unit::new(ledger.ticket(1), body, None)
}

/// A part of a pipeline with one command per slot named.
pub(crate) fn part(ledger: &Ledger, slots: &[u16]) -> Unit<TestTicket> {
    let mut batch = Batch::with_room(0);
    for &slot in slots {
        batch.push(format!("{slot}\n").as_bytes(), facts(slot));
    }
    let body = Body::Part(Arc::new(batch), 0..slots.len());
    Unit::new(ledger.ticket(slots.len()), body, None)
}

pub(crate) fn slot(number: u16) -> Slot {
    Slot::new(number).expect("a slot")
}

pub(crate) fn slots(numbers: &[u16]) -> SlotSet {
    numbers.iter().map(|&number| slot(number)).collect()
}

/// How many rounds a random test makes: `usual`, or so many percent of it.
pub(crate) fn rounds(usual: usize) -> usize {
    let percent = std::env::var("RESLOT_TEST_ROUNDS").ok();
    let percent = percent.map_or(100, |text| text.parse().expect("percent, as a number"));
    (usual * percent / 100).max(1)
}

/// Runs a random test once per seed, and names the seed of the round that failed. A seed in
/// `RESLOT_TEST_SEED` is run alone.
pub(crate) fn for_each_seed(usual: usize, mut round: impl FnMut(u64)) {
    struct Name(u64);
    impl Drop for Name {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("run it alone with RESLOT_TEST_SEED={}", self.0);
            }
        }
    }
    let alone = std::env::var("RESLOT_TEST_SEED").ok();
    let seeds = match alone {
        Some(text) => {
            let seed: u64 = text.parse().expect("a seed is a number");
            seed..seed + 1
        }
        None => 0..rounds(usual) as u64,
    };
    for seed in seeds {
        let _name = Name(seed);
        round(seed);
    }
}
