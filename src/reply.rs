//! The reply cell: where a caller waits and a command is settled, exactly once.
//!
//! A cell has one *place* per command. Each place is `Queued → Claimed → Done`. The write loop
//! claims right before the first byte; a caller that gives up finds a place queued (it will never
//! be written) or claimed (it may run). Whoever comes first wins, under the lock of the cell;
//! everybody else finds the place done and does nothing.
//!
//! The state is pure and the lock is taken once per step, so the races are few enough to model.

pub(crate) mod asked;
mod home;
pub(crate) mod order;
pub(crate) mod relax;

use std::sync::Arc;
use std::time::Instant;

use crate::proto::addr::NodeAddr;
use crate::proto::outcome::{Certainty, Failure, Outcome, Reason};
use crate::proto::slot::Slot;
use crate::proto::unit::Ticket;
use crate::sync::modelled::{Condvar, Mutex};
use asked::Asked;
pub(crate) use home::Home;
use home::Homes;
use order::{Order, may_have_run};
use relax::Relax;

/// A cell that a caller waits on.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Held for a few instructions at a time; never while anything else is locked or called.
    state: Mutex<State>,
    /// Signalled when the last place is done, and when its caller is asked to read.
    done: Condvar,
    /// The slot of its command, if it has only one.
    slot: Option<Slot>,
    /// `None`: its caller never waits longer than until its deadline.
    patience: Option<Patience>,
}

/// How a caller waits while maintenance is announced.
#[derive(Debug)]
pub(crate) struct Patience {
    relax: Arc<Relax>,
    /// Until when it waits at least.
    end: Instant,
}

#[derive(Debug)]
struct State {
    places: Places,
    /// Places that are not done.
    open: usize,
    /// The caller has gone: what is not claimed is never written.
    gone: bool,
    /// Where units of this cell were put last: who must hear that the caller has gone.
    homes: Homes,
    /// Maintenance was announced when its deadline had passed: it waits longer, to the end.
    extended: bool,
    /// `None` until one of several commands is sent again.
    order: Option<Box<Order>>,
    /// Whether its caller can be asked to read.
    asked: Asked,
}

/// One place needs no list.
#[derive(Debug)]
enum Places {
    One(Place),
    Many(Box<[Place]>),
}

#[derive(Debug)]
enum Place {
    /// No server has seen it, or one has refused it. How it would fail if its deadline passed now.
    Queued(Note),
    /// A server may see it. What was noted before.
    Claimed(Note),
    Done(Outcome),
}

/// What is known of the last answer to a command; `None` before the first one.
type Note = Option<Box<Failure>>;

/// The settling half: the ticket of a unit. Dropping it settles its places as abandoned, so that
/// no defect can leave a caller waiting.
#[derive(Debug)]
pub(crate) struct Settler {
    cell: Arc<Cell>,
    first: u32,
    places: u32,
}

/// What a caller found when it gave up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// Where to look for what it leaves behind; the last place comes last.
    pub(crate) homes: Vec<Home>,
    /// Commands that were still open, claimed or not.
    pub(crate) commands: usize,
}

impl Patience {
    /// For a call that begins now.
    pub(crate) fn new(relax: &Arc<Relax>, now: Instant) -> Self {
        Self {
            relax: Arc::clone(relax),
            end: relax.end(now),
        }
    }
}

impl Cell {
    /// A cell with so many places, and the ticket for all of them. `slot` is that of its command,
    /// if it has only one.
    pub(crate) fn new(
        places: usize,
        slot: Option<Slot>,
        patience: Option<Patience>,
    ) -> (Arc<Cell>, Settler) {
        let list = match places {
            1 => Places::One(Place::Queued(None)),
            _ => Places::Many((0..places).map(|_| Place::Queued(None)).collect()),
        };
        let state = State {
            places: list,
            open: places,
            gone: false,
            homes: Homes::None,
            extended: false,
            order: None,
            asked: Asked::Never,
        };
        let cell = Arc::new(Cell {
            state: Mutex::new(state),
            done: Condvar::new(),
            slot,
            patience,
        });
        let count = u32::try_from(places).expect("a pipeline is shorter than four billion");
        let settler = Settler {
            cell: Arc::clone(&cell),
            first: 0,
            places: count,
        };
        (cell, settler)
    }

    /// Waits until every place is done. `false`: the deadline passed first.
    pub(crate) fn wait(&self, deadline: Option<Instant>, now: impl Fn() -> Instant) -> bool {
        let mut state = self.state.lock();
        while state.open > 0 {
            match deadline {
                None => self.done.wait(&mut state),
                Some(deadline) if now() >= deadline => return false,
                Some(deadline) => drop(self.done.wait_until(&mut state, deadline)),
            }
        }
        true
    }

    /// Until when its caller waits although its deadline has passed; `None`: no longer. Once this
    /// was said it stays, also if the maintenance ends meanwhile.
    pub(crate) fn extended(&self, now: Instant) -> Option<Instant> {
        self.extended_at(None, now)
    }

    /// The same, for a caller that waits for room at `home`.
    fn extended_at(&self, home: Option<Home>, now: Instant) -> Option<Instant> {
        let patience = self.patience.as_ref()?;
        let state = self.state.lock();
        let (known, mut homes) = (state.extended, state.homes.to_vec());
        drop(state);
        homes.extend(home);
        if !known {
            if !patience.relax.is_open(&homes, now) {
                return None;
            }
            self.state.lock().extended = true;
        }
        Some(patience.end)
    }

    /// Whether every place is done.
    pub(crate) fn is_done(&self) -> bool {
        self.state.lock().open == 0
    }

    /// The caller gives up: each open place ends now, as certain as it is. `None`: nothing was
    /// open.
    pub(crate) fn give_up(&self, why: Reason) -> Option<Gone> {
        let mut state = self.state.lock();
        if state.open == 0 {
            return None;
        }
        let commands = state.open;
        let mut unknown = Vec::new();
        for (at, place) in (0..).zip(state.places.as_mut()) {
            let (certainty, note) = match place {
                Place::Queued(note) => (Certainty::NotSent, note.take()),
                Place::Claimed(note) => (Certainty::Unknown, note.take()),
                Place::Done(_) => continue,
            };
            if certainty == Certainty::Unknown {
                unknown.push(at);
            }
            let mut failure = given_up(why, certainty, note);
            failure.slot = failure.slot.or(self.slot);
            *place = Place::Done(Err(failure));
        }
        if let Some(order) = &mut state.order {
            order.ended(unknown);
        }
        state.open = 0;
        state.gone = true;
        let homes = std::mem::replace(&mut state.homes, Homes::None).into_vec();
        drop(state);
        self.done.notify_all();
        Some(Gone { homes, commands })
    }

    /// The slot of its command, if it has only one.
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.slot
    }

    /// Where a unit of this cell was put last.
    pub(crate) fn home(&self) -> Option<Home> {
        self.state.lock().homes.to_vec().pop()
    }

    /// After giving up, says where the one command of this cell was.
    pub(crate) fn was_at(&self, node: &NodeAddr, connect_error: Option<Arc<str>>) {
        if let Places::One(Place::Done(Err(failure))) = &mut self.state.lock().places {
            failure.was_at(node, connect_error);
        }
    }

    /// The outcome of each place; all of them must be done.
    pub(crate) fn take(&self) -> Vec<Outcome> {
        let mut state = self.state.lock();
        debug_assert_eq!(state.open, 0, "outcomes are taken when all are there");
        match std::mem::replace(&mut state.places, Places::Many(Box::default())) {
            Places::One(place) => vec![place.into_outcome()],
            Places::Many(places) => places.into_iter().map(Place::into_outcome).collect(),
        }
    }

    /// In which order the commands ended, if one of several was sent again.
    pub(crate) fn take_order(&self) -> Option<Box<Order>> {
        self.state.lock().order.take()
    }

    /// The outcome of a cell with one place, which must be done.
    pub(crate) fn take_one(&self) -> Outcome {
        let mut state = self.state.lock();
        match std::mem::replace(&mut state.places, Places::Many(Box::default())) {
            Places::One(place) => place.into_outcome(),
            Places::Many(_) => abandoned(),
        }
    }
}

/// How a place ends whose caller gives up. What is known of its last answer is kept.
fn given_up(why: Reason, certainty: Certainty, note: Note) -> Box<Failure> {
    let Some(mut failure) = note else {
        let mut failure = Failure::new(why, certainty);
        failure.attempts = u32::from(certainty == Certainty::Unknown);
        return failure;
    };
    match certainty {
        // Claimed again since the note was written.
        Certainty::Unknown => {
            failure.attempts += 1;
            failure.certainty = Certainty::Unknown;
            failure.reason = why;
        }
        _ if why == Reason::Timeout => {}
        _ => failure.reason = why,
    }
    failure
}

/// A timeout while maintenance was announced says so.
fn name_maintenance(outcome: &mut Outcome) {
    if let Err(failure) = outcome {
        if failure.reason == Reason::Timeout {
            failure.reason = Reason::MaintenanceTimeout;
        }
    }
}

fn abandoned() -> Outcome {
    Err(Failure::new(Reason::Abandoned, Certainty::Unknown))
}

impl Place {
    fn into_outcome(self) -> Outcome {
        match self {
            Place::Done(outcome) => outcome,
            Place::Queued(_) | Place::Claimed(_) => abandoned(),
        }
    }
}

impl Places {
    fn as_mut(&mut self) -> &mut [Place] {
        match self {
            Places::One(place) => std::slice::from_mut(place),
            Places::Many(places) => places,
        }
    }
}

impl State {
    fn range(&mut self, first: u32, places: u32) -> &mut [Place] {
        let range = first as usize..(first + places) as usize;
        // Empty once the caller has taken the outcomes: late ends find nothing to do.
        self.places.as_mut().get_mut(range).unwrap_or_default()
    }
}

impl Settler {
    /// How many places it settles.
    pub(crate) fn places(&self) -> usize {
        self.places as usize
    }

    /// Ends its only place.
    pub(crate) fn settle(mut self, outcome: Outcome) {
        debug_assert_eq!(self.places, 1, "one outcome per place");
        self.end(std::iter::once(outcome));
    }

    /// Ends its places, in order.
    pub(crate) fn settle_run(mut self, outcomes: Vec<Outcome>) {
        debug_assert_eq!(
            self.places as usize,
            outcomes.len(),
            "one outcome per place"
        );
        self.end(outcomes.into_iter());
    }

    /// Notes where its unit is now.
    pub(crate) fn set_home(&self, home: Home) {
        self.cell.state.lock().homes.add(home);
    }

    /// Until when its caller waits for room at `home`, as things are at that time.
    pub(crate) fn room_until(
        &self,
        home: Home,
        deadline: Option<Instant>,
        now: Instant,
    ) -> Option<Instant> {
        let deadline = deadline?;
        if now < deadline {
            return Some(deadline);
        }
        let later = self.cell.extended_at(Some(home), now);
        Some(later.map_or(deadline, |later| later.max(deadline)))
    }

    fn end(&mut self, outcomes: impl Iterator<Item = Outcome>) {
        let (first, places) = (self.first, std::mem::take(&mut self.places));
        let mut state = self.cell.state.lock();
        let mut ended = 0;
        let (extended, in_order) = (state.extended, state.order.is_none());
        let mut ran = Vec::new();
        let range = state.range(first, places).iter_mut();
        for (at, (place, mut outcome)) in (first..).zip(range.zip(outcomes)) {
            if !matches!(place, Place::Done(_)) {
                if extended {
                    name_maintenance(&mut outcome);
                }
                if !in_order && may_have_run(&outcome) {
                    ran.push(at);
                }
                *place = Place::Done(outcome);
                ended += 1;
            }
        }
        if let Some(order) = &mut state.order {
            order.ended(ran);
        }
        state.open -= ended;
        let wake = ended > 0 && state.open == 0;
        drop(state);
        if wake {
            // Outside the lock: the caller must not wake up only to wait for it.
            self.cell.done.notify_all();
        }
    }
}

impl Ticket for Settler {
    fn split_front(&mut self, places: usize) -> Self {
        let places = places as u32;
        debug_assert!(places < self.places, "both halves hold something");
        let front = Settler {
            cell: Arc::clone(&self.cell),
            first: self.first,
            places,
        };
        self.first += places;
        self.places -= places;
        front
    }

    fn claim(&self) -> bool {
        let mut state = self.cell.state.lock();
        let gone = state.gone;
        if !gone {
            if let Some(order) = &mut state.order {
                order.claimed(self.first..self.first + self.places);
            }
            for place in state.range(self.first, self.places) {
                match place {
                    Place::Queued(note) => *place = Place::Claimed(note.take()),
                    _ => debug_assert!(false, "claimed once at a time"),
                }
            }
        }
        !gone
    }

    fn release(&self, known: Option<Box<Failure>>) -> bool {
        let mut state = self.cell.state.lock();
        let gone = state.gone;
        if !gone {
            if known.is_some() && matches!(state.places, Places::Many(_)) {
                let order = state.order.get_or_insert_default();
                (self.first..self.first + self.places).for_each(|place| order.again(place));
            }
            for place in state.range(self.first, self.places) {
                match place {
                    Place::Claimed(note) => {
                        *place = Place::Queued(known.clone().or_else(|| note.take()));
                    }
                    _ => debug_assert!(false, "only what was claimed is released"),
                }
            }
        }
        !gone
    }

    fn is_dead(&self) -> bool {
        self.cell.state.lock().gone
    }

    fn note(&self, failure: Box<Failure>) {
        let mut state = self.cell.state.lock();
        for place in state.range(self.first, self.places) {
            if let Place::Queued(note) | Place::Claimed(note) = place {
                *note = Some(failure.clone());
            }
        }
    }

    fn extended(&self, now: Instant) -> Option<Instant> {
        self.cell.extended(now)
    }
}

impl Drop for Settler {
    fn drop(&mut self) {
        if self.places > 0 {
            let places = self.places as usize;
            self.end(std::iter::repeat_with(abandoned).take(places));
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::cluster::NodeKey;
    use crate::proto::maintenance::{Notice, Work};
    use crate::proto::value::Value;
    use std::time::Duration;

    fn simple(places: usize) -> (Arc<Cell>, Settler) {
        Cell::new(places, None, None)
    }

    #[test]
    fn the_first_end_wins() {
        let (cell, settler) = simple(1);
        assert!(settler.claim());
        let gone = cell.give_up(Reason::Timeout).unwrap();
        assert_eq!(gone.commands, 1);
        settler.settle(Ok(Value::Ok));
        assert_eq!(cell.take_one().unwrap_err().certainty(), Certainty::Unknown);
        assert!(cell.give_up(Reason::Cancelled).is_none());
    }

    #[test]
    fn giving_up_before_the_claim_proves_that_nothing_is_sent() {
        let (cell, settler) = simple(1);
        settler.set_home(Home::Coordinator);
        let gone = cell.give_up(Reason::Cancelled).unwrap();
        assert_eq!(gone.homes, [Home::Coordinator]);
        assert!(!settler.claim());
        assert!(settler.is_dead());
        assert_eq!(cell.take_one().unwrap_err().certainty(), Certainty::NotSent);
    }

    #[test]
    fn what_is_known_of_a_released_command_is_told() {
        let refused = || Some(Failure::new(Reason::Timeout, Certainty::Refused));
        for (known, again, certainty) in [
            (None, false, Certainty::NotSent),
            (refused(), false, Certainty::Refused),
            (refused(), true, Certainty::Unknown),
        ] {
            let (cell, settler) = simple(1);
            assert!(settler.claim() && settler.release(known.clone()));
            // What was known stays known if nothing is sent the next time.
            assert!(settler.claim() && settler.release(None));
            assert!(!again || settler.claim());
            cell.give_up(Reason::Cancelled).unwrap();
            assert!(!settler.release(None), "the caller has gone");
            let failure = cell.take_one().unwrap_err();
            assert_eq!(failure.certainty(), certainty);
            assert_eq!(failure.reason(), Reason::Cancelled);
        }
    }

    #[test]
    fn who_gives_up_learns_where_the_command_was() {
        let slot = Slot::new(7);
        let (cell, settler) = Cell::new(1, slot, None);
        let (a, b) = (Home::Node(NodeKey::new(0)), Home::Node(NodeKey::new(1)));
        for home in [a, b, Home::Coordinator, a, a, b] {
            settler.set_home(home);
        }
        let gone = cell.give_up(Reason::Timeout).unwrap();
        assert_eq!(gone.homes, [Home::Coordinator, a, b]);
        let addr = NodeAddr::new("h", 1);
        cell.was_at(&addr, None);
        let failure = cell.take_one().unwrap_err();
        assert_eq!((failure.node(), failure.slot()), (Some(&addr), slot));
    }

    #[test]
    fn a_note_concerns_its_own_places() {
        let (cell, mut settler) = simple(3);
        let first = settler.split_front(1);
        first.note(Failure::new(Reason::SlotUncovered, Certainty::Refused));
        assert!(settler.claim());
        assert!(cell.give_up(Reason::Timeout).is_some());
        let reasons = cell.take().into_iter().map(|outcome| {
            let failure = outcome.unwrap_err();
            (failure.reason(), failure.certainty())
        });
        assert!(reasons.eq([
            (Reason::SlotUncovered, Certainty::Refused),
            (Reason::Timeout, Certainty::Unknown),
            (Reason::Timeout, Certainty::Unknown),
        ]));
        drop((first, settler));
    }

    #[test]
    fn a_dropped_ticket_settles_what_it_still_holds() {
        let (cell, mut settler) = simple(3);
        settler.split_front(1).settle(Ok(Value::Integer(1)));
        drop(settler);
        assert!(cell.is_done());
        let outcomes = cell.take();
        assert_eq!(outcomes[0], Ok(Value::Integer(1)));
        for outcome in &outcomes[1..] {
            assert_eq!(outcome.as_ref().unwrap_err().reason(), Reason::Abandoned);
        }
    }

    #[test]
    fn a_caller_waits_longer_only_where_maintenance_was_announced() {
        let relax = Arc::new(Relax::new(Duration::from_secs(10)));
        let begin = Instant::now();
        let end = begin + Duration::from_secs(10);
        let node = |key| Home::Node(NodeKey::new(key));
        let cell = |home| {
            let patience = Patience::new(&relax, begin);
            let (cell, settler) = Cell::new(1, None, Some(patience));
            settler.set_home(home);
            (cell, settler)
        };
        let (here, ticket) = cell(node(1));
        let (elsewhere, _ticket) = cell(node(2));
        let (between, _ticket) = cell(Home::Coordinator);
        let (impatient, _ticket) = simple(1);
        assert_eq!(here.extended(begin), None);
        let addr = NodeAddr::new("h", 1);
        relax.hear(
            NodeKey::new(1),
            &addr,
            &Notice::Begun(Work::Slots, 1),
            begin,
        );
        assert_eq!(here.extended(begin), Some(end));
        assert_eq!(elsewhere.extended(begin), None);
        assert_eq!(between.extended(begin), Some(end));
        assert_eq!(impatient.extended(begin), None);
        // What was granted stays.
        relax.hear(
            NodeKey::new(1),
            &addr,
            &Notice::SlotsMoved(1, vec![]),
            begin,
        );
        assert_eq!(cell(node(1)).0.extended(begin), None);
        assert_eq!(here.extended(begin), Some(end));
        ticket.settle(Err(Failure::new(Reason::Timeout, Certainty::NotSent)));
        let failure = here.take_one().unwrap_err();
        assert_eq!(failure.reason(), Reason::MaintenanceTimeout);
    }

    #[test]
    fn answered_places_survive_a_timeout_of_the_others() {
        let (cell, mut settler) = simple(2);
        settler.split_front(1).settle(Ok(Value::Ok));
        assert_eq!(cell.give_up(Reason::Timeout).unwrap().commands, 1);
        drop(settler);
        let outcomes = cell.take();
        assert_eq!(outcomes[0], Ok(Value::Ok));
        assert_eq!(
            outcomes[1].as_ref().unwrap_err().certainty(),
            Certainty::NotSent
        );
    }
}
