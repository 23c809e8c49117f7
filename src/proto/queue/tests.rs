//! The queue against a list that cannot be wrong, at random and over all short histories; and the
//! ways in which queues of other clients have lost, split or reordered commands.

use super::Queue;
use crate::proto::backoff::Random;
use crate::proto::testing::{
    Ledger, TestTicket, chain, for_each_seed, one, part, slot, slots as set,
};
use crate::proto::unit::{Body, Unit};

/// A command as the model sees it.
#[derive(Clone, Copy, Debug)]
struct Item {
    place: usize,
    slot: u16,
    commands: usize,
    bytes: usize,
}

/// The queue, and beside it the plain list of what must be in it.
struct Pair {
    ledger: Ledger,
    queue: Queue<TestTicket>,
    list: Vec<Item>,
    /// The places of each submission, which are cancelled together.
    submissions: Vec<std::ops::Range<usize>>,
    /// The last unit that was popped, with its items: it may come back.
    popped: Option<(Unit<TestTicket>, Vec<Item>)>,
}

/// A pop without a limit.
const ALL: usize = usize::MAX;

impl Pair {
    fn new() -> Self {
        Self {
            ledger: Ledger::new(),
            queue: Queue::new(),
            list: Vec::new(),
            submissions: Vec::new(),
            popped: None,
        }
    }

    fn push(&mut self, unit: Unit<TestTicket>) {
        self.submissions
            .push(self.ledger.len() - unit.places()..self.ledger.len());
        self.list.extend(items(&unit));
        self.queue.push(unit);
        self.check();
    }

    fn pop(&mut self, limit: usize) {
        self.settle_popped();
        let unit = self.queue.pop(limit);
        let Some(unit) = unit else {
            return assert!(self.list.is_empty(), "left behind: {:?}", self.list);
        };
        let got = items(&unit);
        let places = |items: &[Item]| items.iter().map(|item| item.place).collect::<Vec<_>>();
        let rest = self.list.split_off(got.len().min(self.list.len()));
        assert_eq!(places(&self.list), places(&got), "the oldest leave first");
        let bytes: usize = got.iter().map(|item| item.bytes).sum();
        assert!(bytes <= limit || got.len() == 1, "{bytes} bytes at once");
        self.list = rest;
        self.popped = Some((unit, got));
        self.check();
    }

    fn extract(&mut self, wanted: &[u16]) {
        let slots = set(wanted);
        let taken = self.queue.extract(&slots);
        self.compare_taken(taken, |item| wanted.contains(&item.slot));
    }

    fn extract_all(&mut self) {
        let taken = self.queue.extract_all();
        self.compare_taken(taken, |_| true);
        assert!(self.queue.is_empty());
    }

    fn compare_taken(&mut self, taken: Vec<Unit<TestTicket>>, wanted: impl Fn(&Item) -> bool) {
        let got: Vec<usize> = taken.iter().flat_map(|unit| unit.ticket.places()).collect();
        let (want, keep): (Vec<Item>, Vec<Item>) = self.list.iter().copied().partition(wanted);
        let want: Vec<usize> = want.iter().map(|item| item.place).collect();
        assert_eq!(got, want, "everything of the slots leaves, in order");
        self.list = keep;
        taken
            .into_iter()
            .for_each(|unit| self.ledger.discard(unit.ticket));
        self.check();
    }

    fn requeue(&mut self) {
        if let Some((unit, items)) = self.popped.take() {
            if !self.ledger.place(items[0].place).cancelled {
                self.list.splice(0..0, items);
            }
            self.queue.requeue(vec![unit]);
            self.check();
        }
    }

    /// The caller of a submission goes, wherever its units are.
    fn cancel(&mut self, submission: usize) {
        let places = self.submissions[submission].clone();
        let gone = |item: &Item| places.contains(&item.place);
        let dead = self.list.iter().filter(|item| gone(item));
        let dead: usize = dead.map(|item| item.commands).sum();
        self.list.retain(|item| !gone(item));
        self.ledger.cancel_all(places.clone());
        if dead > 0 {
            self.queue.note_dead(dead);
        }
        self.check();
    }

    fn settle_popped(&mut self) {
        if let Some((unit, _)) = self.popped.take() {
            self.ledger.discard(unit.ticket);
        }
    }

    /// The counters agree with the list.
    fn check(&self) {
        let commands: usize = self.list.iter().map(|item| item.commands).sum();
        let bytes: usize = self.list.iter().map(|item| item.bytes).sum();
        assert_eq!(self.queue.commands(), commands);
        assert!(self.queue.bytes() >= bytes);
    }

    /// Empties the queue: everything must have come out once.
    fn finish(mut self) {
        while !self.list.is_empty() {
            self.pop(ALL);
        }
        self.pop(ALL);
        self.settle_popped();
        assert_eq!((self.queue.commands(), self.queue.bytes()), (0, 0));
        self.ledger.check_all_settled_once();
    }
}

fn items(unit: &Unit<TestTicket>) -> Vec<Item> {
    let each = unit.ticket.places().into_iter().enumerate();
    let places = unit.places();
    let items = each.map(|(at, place)| Item {
        place,
        slot: unit.slot(at).expect("test commands have slots").number(),
        commands: unit.commands() / places,
        bytes: unit.bytes().len() / places,
    });
    items.collect()
}

/// Random operations, compared with the list after each of them.
#[test]
fn a_random_history_agrees_with_a_list() {
    for_each_seed(400, |seed| {
        let mut random = Random::new(seed);
        let mut pair = Pair::new();
        for _ in 0..60 {
            let number = random.below(4) as u16;
            match random.below(12) {
                0 | 1 => pair.push(one(&pair.ledger, number)),
                2 => pair.push(chain(&pair.ledger, number)),
                3 | 4 => {
                    let length = 1 + random.below(5);
                    let slots: Vec<u16> = (0..length).map(|_| random.below(4) as u16).collect();
                    pair.push(part(&pair.ledger, &slots));
                }
                5 | 6 => pair.pop([1, 4, 7, ALL][random.below(4)]),
                7 => pair.extract(&[number]),
                8 => pair.extract(&[number, (number + 1) % 4]),
                9 => pair.requeue(),
                10 if !pair.submissions.is_empty() => {
                    let submission = random.below(pair.submissions.len());
                    pair.cancel(submission);
                }
                11 if random.below(4) == 0 => pair.extract_all(),
                _ => pair.queue.sweep(),
            }
        }
        pair.finish();
    });
}

/// Every history of up to six steps over two slots.
#[test]
fn all_histories_of_six_steps() {
    const STEPS: u32 = 6;
    const KINDS: u32 = 7;
    for mut code in 0..KINDS.pow(STEPS) {
        let mut pair = Pair::new();
        for _ in 0..STEPS {
            match code % KINDS {
                0 => pair.push(one(&pair.ledger, 0)),
                1 => pair.push(part(&pair.ledger, &[0, 1, 0])),
                2 => pair.push(chain(&pair.ledger, 1)),
                3 => pair.pop(3),
                4 => pair.extract(&[0]),
                5 => pair.requeue(),
                _ => {
                    // The oldest that is still there.
                    let oldest = pair.list.first().map(|item| item.place);
                    let at = pair
                        .submissions
                        .iter()
                        .position(|places| oldest.is_some_and(|oldest| places.contains(&oldest)));
                    if let Some(at) = at {
                        pair.cancel(at);
                    }
                }
            }
            code /= KINDS;
        }
        pair.finish();
    }
}

fn places(units: &[Unit<TestTicket>]) -> Vec<usize> {
    units.iter().flat_map(|unit| unit.ticket.places()).collect()
}

fn discard(ledger: &Ledger, units: Vec<Unit<TestTicket>>) {
    units
        .into_iter()
        .for_each(|unit| ledger.discard(unit.ticket));
}

/// T101: a walk that stops early leaves commands behind for ever.
#[test]
fn full_loss_takes_everything_in_order() {
    let ledger = Ledger::new();
    let mut queue = Queue::new();
    for number in [3, 1, 4, 1, 5] {
        queue.push(one(&ledger, number));
    }
    let all = queue.extract_all();
    assert_eq!(places(&all), [0, 1, 2, 3, 4]);
    assert!(queue.is_empty() && queue.commands() == 0);
    discard(&ledger, all);
}

/// T102: a partial loss takes the slot and nothing else.
#[test]
fn partial_loss_keeps_the_order_of_both_halves() {
    let ledger = Ledger::new();
    let mut queue = Queue::new();
    for number in [1, 2, 1, 3] {
        queue.push(one(&ledger, number));
    }
    let moved = queue.extract(&set(&[1]));
    assert_eq!(places(&moved), [0, 2]);
    let rest = queue.extract_all();
    assert_eq!(places(&rest), [1, 3]);
    discard(&ledger, moved);
    discard(&ledger, rest);
}

/// T107 and T110: what stands before a chain, and of which slot, does not matter; it moves whole.
#[test]
fn a_chain_is_never_split_and_no_neighbour_holds_it_back() {
    let ledger = Ledger::new();
    let mut queue = Queue::new();
    queue.push(chain(&ledger, 5));
    queue.push(chain(&ledger, 1));
    queue.push(one(&ledger, 1));
    assert_eq!(queue.commands(), 9);
    let front = queue.pop(1).expect("a chain is larger than the limit");
    assert_eq!(front.commands(), 4, "a byte limit does not split a chain");
    let moved = queue.extract(&set(&[1]));
    assert_eq!(places(&moved), [1, 2]);
    assert!(matches!(moved[0].body, Body::Chain { members: 2, .. }));
    discard(&ledger, moved);
    ledger.discard(front.ticket);
}

/// T111: commands without a slot stay when slots leave, and leave when the node ends.
#[test]
fn commands_without_a_slot_stay_until_the_node_ends() {
    use crate::proto::testing::one_with;
    use crate::proto::unit::{Facts, Target};
    let ledger = Ledger::new();
    let mut queue = Queue::new();
    for target in [Target::Any, Target::Node, Target::Slot(slot(7))] {
        let repeatable = false;
        queue.push(one_with(&ledger, Facts::new(target, repeatable)));
    }
    let moved = queue.extract(&set(&[7]));
    assert_eq!(places(&moved), [2]);
    let rest = queue.extract_all();
    assert_eq!(places(&rest), [0, 1]);
    discard(&ledger, moved);
    discard(&ledger, rest);
}

/// The prefix belongs to one send to one node: a unit that moves is plain again.
#[test]
fn an_extracted_unit_forgets_its_asking() {
    let ledger = Ledger::new();
    let mut queue = Queue::new();
    let mut unit = one(&ledger, 1);
    unit.asking = true;
    queue.push(unit);
    let mut unit = one(&ledger, 2);
    unit.asking = true;
    queue.push(unit);
    let moved = queue.extract(&set(&[1]));
    assert!(!moved[0].asking);
    let kept = queue.pop(ALL).expect("the other stays");
    assert!(kept.asking, "what stays keeps it");
    ledger.discard(kept.ticket);
    discard(&ledger, moved);
}

/// T126: what was admitted once may always come back, whatever its number.
#[test]
fn returning_units_know_no_bound_but_count() {
    let ledger = Ledger::new();
    let mut queue = Queue::new();
    queue.push(one(&ledger, 1));
    let back: Vec<_> = (0..1000).map(|_| one(&ledger, 2)).collect();
    queue.requeue(back);
    assert_eq!(queue.commands(), 1001);
    let first = queue.pop(ALL).expect("many");
    assert_eq!(first.ticket.places(), [1], "the returned ones are older");
    ledger.discard(first.ticket);
    let rest = queue.extract_all();
    discard(&ledger, rest);
}

/// T130 and T131: a cancel finds its command wherever it is, also between two queues.
#[test]
fn a_cancel_between_extraction_and_insertion_is_not_lost() {
    let ledger = Ledger::new();
    let (mut from, mut to) = (Queue::new(), Queue::new());
    from.push(one(&ledger, 1));
    from.push(one(&ledger, 1));
    let moved = from.extract(&set(&[1]));
    ledger.cancel(0);
    moved.into_iter().for_each(|unit| to.push(unit));
    assert_eq!(to.commands(), 1);
    ledger.cancel(1);
    to.note_dead(1);
    assert!(to.pop(ALL).is_none());
    ledger.check_all_settled_once();
}

/// T136: three moved commands, cancelled in the order 2, 3, 1.
#[test]
fn counters_are_right_at_each_step_of_cancels_in_any_order() {
    let ledger = Ledger::new();
    let mut queue = Queue::new();
    for _ in 0..3 {
        queue.push(one(&ledger, 1));
    }
    for (left, place) in [(2, 1), (1, 2), (0, 0)] {
        ledger.cancel(place);
        queue.note_dead(1);
        assert_eq!(queue.commands(), left);
    }
    assert!(queue.pop(ALL).is_none());
    ledger.check_all_settled_once();
}

/// In a long queue dead units stay for a while, and do not count meanwhile.
#[test]
fn counters_are_right_while_dead_units_stay() {
    let ledger = Ledger::new();
    let mut queue = Queue::new();
    let length = 2 * super::SHORT;
    for _ in 0..length {
        queue.push(one(&ledger, 1));
    }
    let dead = length / 8;
    for place in 0..dead {
        ledger.cancel(place);
        queue.note_dead(1);
        assert_eq!(queue.commands(), length - place - 1);
    }
    assert!(queue.bytes() > 2 * (length - dead), "they are still there");
    let first = queue.pop(ALL).expect("one that lives");
    assert_eq!(first.ticket.places(), [dead]);
    assert_eq!(queue.commands(), length - dead - 1);
    ledger.discard(first.ticket);
    let rest = queue.extract_all();
    assert_eq!(rest.len(), length - dead - 1);
    discard(&ledger, rest);
    ledger.check_all_settled_once();
}

/// A large part whose caller has gone is not handed out piece by piece.
#[test]
fn a_dead_part_is_dropped_as_a_whole() {
    let ledger = Ledger::new();
    let mut queue = Queue::new();
    for _ in 0..8 {
        queue.push(one(&ledger, 1));
    }
    queue.requeue(vec![part(&ledger, &[1, 1, 1])]);
    ledger.cancel_all(8..11);
    let next = queue.pop(1).expect("eight wait");
    assert_eq!(next.ticket.places(), [0]);
    assert_eq!(queue.commands(), 7);
    ledger.discard(next.ticket);
    let rest = queue.extract_all();
    discard(&ledger, rest);
}

/// A front of a large part leaves, the rest stays in front of everything else.
#[test]
fn the_rest_of_a_large_part_keeps_its_place() {
    let ledger = Ledger::new();
    let mut queue = Queue::new();
    queue.push(part(&ledger, &[1, 2, 3]));
    queue.push(one(&ledger, 1));
    let front = queue.pop(4).expect("two commands fit");
    assert_eq!(front.ticket.places(), [0, 1]);
    assert_eq!((queue.commands(), queue.bytes()), (2, 4));
    let rest = queue.pop(1).expect("at least one command, fit or not");
    assert_eq!(rest.ticket.places(), [2]);
    let last = queue.pop(1).expect("the last");
    assert_eq!(last.ticket.places(), [3]);
    discard(&ledger, vec![front, rest, last]);
}
