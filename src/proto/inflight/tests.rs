//! Replies against written units: any split, any cut, and what each leaves behind.

use std::collections::VecDeque;

use super::{BarrierId, Inflight};
use crate::proto::addr::NodeAddr;
use crate::proto::backoff::Random;
use crate::proto::outcome::{Certainty, Reason};
use crate::proto::redirect::Redirect;
use crate::proto::testing::wire::{Command, pipeline, single, transaction};
use crate::proto::testing::{Ledger, TestTicket, for_each_seed, slots};
use crate::proto::unit::{Body, Ticket, Unit};
use crate::proto::value::{ServerError, Value};
use crate::proto::verdict::{Answer, Reply};

impl Inflight<TestTicket> {
    /// The places on the wire, in order.
    pub(crate) fn places(&self) -> Vec<usize> {
        let units = self.entries.iter().map(|entry| &entry.unit);
        units.flat_map(|unit| unit.ticket.places()).collect()
    }
}

const ASKING: usize = 16;

fn inflight() -> Inflight<TestTicket> {
    Inflight::new(NodeAddr::new("node", 7000))
}

/// Puts a unit on the wire, as the outbox does; gives its length there.
fn write(inflight: &mut Inflight<TestTicket>, unit: Unit<TestTicket>) -> usize {
    assert!(unit.ticket.claim());
    let length = unit.bytes().len() + if unit.asking { ASKING } else { 0 };
    inflight.push(unit, length);
    length
}

fn number(place: usize) -> Value {
    Value::Integer(place as i64)
}

fn error(line: &str) -> Reply {
    Ok(Value::Error(ServerError::new(line)))
}

/// What a server answers to a unit whose every command works: each value names its place.
fn replies_to(unit: &Unit<TestTicket>) -> Vec<Reply> {
    let places = unit.ticket.places();
    let mut replies: Vec<Reply> = Vec::new();
    if unit.asking {
        replies.push(Ok(Value::Ok));
    }
    match &unit.body {
        Body::One(..) | Body::Part(..) => {
            replies.extend(places.iter().map(|&place| Ok(number(place))));
        }
        Body::Chain { members, .. } => {
            replies.push(Ok(Value::Ok));
            replies.extend((0..*members).map(|_| Ok(Value::Simple(b"QUEUED".to_vec()))));
            replies.push(Ok(Value::Array(vec![number(places[0])])));
        }
    }
    replies
}

/// Settles what was answered; every value must name the place that it ends.
fn settle(ledger: &Ledger, answers: Vec<Answer<TestTicket>>) {
    for answer in answers {
        let (ticket, outcomes) = match answer {
            Answer::Settled(ticket, outcome) => (ticket, vec![outcome]),
            Answer::Run(ticket, outcomes) => (ticket, outcomes),
            other => panic!("a reply that is no value: {other:?}"),
        };
        let places = ticket.places();
        assert_eq!(places.len(), outcomes.len());
        for (place, outcome) in places.into_iter().zip(outcomes) {
            let value = outcome.expect("every command works");
            let own = value == number(place) || value == Value::Array(vec![number(place)]);
            assert!(own, "{value:?} for place {place}");
        }
        ledger.discard(ticket);
    }
}

fn random_unit(ledger: &Ledger, random: &mut Random) -> Unit<TestTicket> {
    let command = |random: &mut Random| Command {
        write: random.below(2) == 0,
        ..Command::write(random.below(3) as u16, 0)
    };
    match random.below(4) {
        0 => single(ledger, &command(random)),
        1 => {
            let mut unit = single(ledger, &command(random));
            unit.asking = true;
            unit
        }
        2 => {
            let members = 1 + random.below(3);
            let mut unit = transaction(ledger, &vec![Command::write(1, 0); members]);
            unit.asking = random.below(2) == 0;
            unit
        }
        _ => {
            let length = 1 + random.below(5);
            let commands: Vec<_> = (0..length).map(|_| command(random)).collect();
            pipeline(ledger, &commands)
        }
    }
}

/// Replies reach their commands in order, in whatever pieces they arrive.
#[test]
fn every_split_of_the_replies_reaches_the_right_commands() {
    for_each_seed(300, |seed| {
        let mut random = Random::new(seed);
        let ledger = Ledger::new();
        let mut list = inflight();
        let mut replies = Vec::new();
        let mut commands = 0;
        for _ in 0..8 {
            let unit = random_unit(&ledger, &mut random);
            replies.extend(replies_to(&unit));
            commands += unit.commands();
            write(&mut list, unit);
        }
        assert_eq!(list.commands(), commands);
        let mut replies = VecDeque::from(replies);
        while !replies.is_empty() {
            let count = 1 + random.below(replies.len().min(5));
            let mut piece: VecDeque<Reply> = replies.drain(..count).collect();
            let mut answers = Vec::new();
            list.accept(&mut piece, &mut answers).expect("in step");
            settle(&ledger, answers);
        }
        assert!(list.is_empty());
        assert_eq!((list.commands(), list.bytes()), (0, 0));
        assert_eq!(list.answered() as usize, commands);
        ledger.check_all_settled_once();
    });
}

/// A reply that nobody asked for ends the connection instead of reaching a stranger.
#[test]
fn a_reply_too_many_is_a_fault() {
    let ledger = Ledger::new();
    let mut list = inflight();
    write(&mut list, single(&ledger, &Command::read(1, 0)));
    let mut answers = Vec::new();
    let mut replies = VecDeque::from([Ok(number(0)), Ok(number(1))]);
    assert!(list.accept(&mut replies, &mut answers).is_err());
    settle(&ledger, answers);
    ledger.check_all_settled_once();
}

/// T030: whatever ASKING is answered, the command's own reply decides.
#[test]
fn the_reply_of_asking_is_eaten() {
    for asked in [Ok(Value::Ok), error("LOADING data"), error("NOPERM asking")] {
        let ledger = Ledger::new();
        let mut list = inflight();
        let mut unit = single(&ledger, &Command::write(1, 0));
        unit.asking = true;
        write(&mut list, unit);
        let mut answers = Vec::new();
        list.accept(&mut VecDeque::from([asked]), &mut answers)
            .expect("in step");
        assert!(answers.is_empty() && list.commands() == 1);
        list.accept(&mut VecDeque::from([Ok(number(0))]), &mut answers)
            .expect("in step");
        settle(&ledger, answers);
        ledger.check_all_settled_once();
    }
}

/// T081: a redirect in the middle of a part takes its own command out and nothing else, however
/// the replies are cut.
#[test]
fn a_redirect_within_a_part_concerns_one_command() {
    for cut in 0..=5 {
        let ledger = Ledger::new();
        let mut list = inflight();
        let commands: Vec<_> = [1, 1, 7, 1, 1].map(|slot| Command::write(slot, 0)).into();
        write(&mut list, pipeline(&ledger, &commands));
        let mut replies: VecDeque<Reply> = (0..5).map(|place| Ok(number(place))).collect();
        replies[2] = error("MOVED 7 other:7001");
        let mut rest = replies.split_off(cut);
        let mut answers = Vec::new();
        list.accept(&mut replies, &mut answers).expect("in step");
        list.accept(&mut rest, &mut answers).expect("in step");
        let mut moved = Vec::new();
        answers.retain_mut(|answer| {
            let redirected = matches!(answer, Answer::Redirected(..));
            if redirected {
                moved.push(std::mem::replace(answer, Answer::Confused));
            }
            !redirected
        });
        settle(&ledger, answers);
        assert_eq!(moved.len(), 1);
        for answer in moved {
            let Answer::Redirected(unit, redirect) = answer else {
                unreachable!("filtered above")
            };
            assert_eq!(unit.ticket.places(), [2]);
            assert_eq!(unit.bytes(), b"C 2 7 0 w\n");
            assert_eq!((unit.attempts(), unit.asking), (1, false));
            assert!(matches!(redirect, Redirect::Moved(..)));
            assert!(!ledger.place(2).claimed, "it can be cancelled again");
            ledger.discard(unit.ticket);
        }
        ledger.check_all_settled_once();
    }
}

/// Neighbours that were answered together are settled together: one wake-up for a whole part.
#[test]
fn neighbours_of_a_part_end_at_once() {
    let ledger = Ledger::new();
    let mut list = inflight();
    write(
        &mut list,
        pipeline(&ledger, &vec![Command::write(1, 0); 100]),
    );
    let mut replies: VecDeque<Reply> = (0..100).map(|place| Ok(number(place))).collect();
    replies[50] = error("ERR no such thing");
    let mut answers = Vec::new();
    list.accept(&mut replies, &mut answers).expect("in step");
    let [Answer::Run(ticket, outcomes)] = &answers[..] else {
        panic!("one run: {answers:?}")
    };
    assert_eq!((ticket.places().len(), outcomes.len()), (100, 100));
    let failure = outcomes[50].as_ref().expect_err("its own error");
    assert_eq!(failure.certainty(), Certainty::Unknown);
    for answer in answers {
        if let Answer::Run(ticket, _) = answer {
            ledger.discard(ticket);
        }
    }
}

/// T067: a redirect of a member does not end the chain: all of its replies belong to it.
#[test]
fn a_chain_is_judged_after_its_last_reply() {
    let ledger = Ledger::new();
    let mut list = inflight();
    write(
        &mut list,
        transaction(&ledger, &[Command::write(1, 0), Command::write(1, 1)]),
    );
    write(&mut list, single(&ledger, &Command::read(2, 0)));
    let mut answers = Vec::new();
    for reply in [
        Ok(Value::Ok),
        error("MOVED 1 b:1"),
        Ok(Value::Simple(b"QUEUED".to_vec())),
    ] {
        list.accept(&mut VecDeque::from([reply]), &mut answers)
            .expect("in step");
        assert!(answers.is_empty(), "not before EXEC: {answers:?}");
    }
    let mut replies = VecDeque::from([error("EXECABORT because"), Ok(number(1))]);
    list.accept(&mut replies, &mut answers).expect("in step");
    let Answer::Redirected(unit, Redirect::Moved(..)) = answers.remove(0) else {
        panic!("the chain is sent elsewhere as a whole")
    };
    assert_eq!(unit.commands(), 4);
    ledger.discard(unit.ticket);
    settle(&ledger, answers);
    ledger.check_all_settled_once();
}

/// T140: a caller that has gone leaves a tombstone that eats the reply.
#[test]
fn a_late_reply_is_eaten_by_its_own_tombstone() {
    let ledger = Ledger::new();
    let mut list = inflight();
    let units = [
        single(&ledger, &Command::write(1, 0)),
        transaction(&ledger, &[Command::write(1, 0)]),
        single(&ledger, &Command::write(1, 0)),
    ];
    let replies: Vec<Reply> = units.iter().flat_map(replies_to).collect();
    for unit in units {
        write(&mut list, unit);
    }
    ledger.cancel(0);
    ledger.cancel(1);
    assert_eq!(list.dead(), 4);
    assert_eq!(list.commands(), 5, "they hold their place in the stream");
    let mut answers = Vec::new();
    list.accept(&mut replies.into(), &mut answers)
        .expect("in step");
    settle(&ledger, answers);
    assert_eq!((list.dead(), list.commands()), (0, 0));
    ledger.check_all_settled_once();
}

/// A redirect for a caller that has gone is not followed, but teaches.
#[test]
fn a_tombstone_learns_from_a_redirect() {
    let ledger = Ledger::new();
    let mut list = inflight();
    write(&mut list, single(&ledger, &Command::write(1, 0)));
    ledger.cancel(0);
    let mut answers = Vec::new();
    list.accept(&mut VecDeque::from([error("MOVED 1 b:1")]), &mut answers)
        .expect("in step");
    assert!(matches!(
        &answers[..],
        [Answer::Learned(Redirect::Moved(..))]
    ));
    ledger.check_all_settled_once();
}

fn answer_next(list: &mut Inflight<TestTicket>, ledger: &Ledger, place: usize) {
    let mut answers = Vec::new();
    list.accept(&mut VecDeque::from([Ok(number(place))]), &mut answers)
        .expect("in step");
    settle(ledger, answers);
}

/// A barrier opens precisely when the last unit of its slots has left.
#[test]
fn a_barrier_waits_for_the_last_unit_of_its_slots_and_no_longer() {
    let ledger = Ledger::new();
    let mut list = inflight();
    for slot in [1, 2, 1, 3] {
        write(&mut list, single(&ledger, &Command::write(slot, 0)));
    }
    list.add_barrier(BarrierId(1), slots(&[1]));
    list.add_barrier(BarrierId(2), slots(&[2, 3]));
    list.add_barrier(BarrierId(3), slots(&[9]));
    // Written after the question: not part of it.
    write(&mut list, single(&ledger, &Command::write(1, 0)));
    let mut opened = vec![list.cleared()];
    for place in 0..5 {
        answer_next(&mut list, &ledger, place);
        opened.push(list.cleared());
    }
    let ids = |ids: &[u64]| ids.iter().map(|&id| BarrierId(id)).collect::<Vec<_>>();
    let wanted = [&[3][..], &[], &[], &[1], &[2], &[]].map(ids);
    assert_eq!(opened, wanted);
}

/// A barrier holds for a part until the last command of the part that is still unanswered.
#[test]
fn a_barrier_waits_for_a_part_that_touches_its_slots() {
    let ledger = Ledger::new();
    let mut list = inflight();
    let commands: Vec<_> = [2, 1, 2].map(|slot| Command::write(slot, 0)).into();
    write(&mut list, pipeline(&ledger, &commands));
    list.add_barrier(BarrierId(1), slots(&[1]));
    answer_next(&mut list, &ledger, 0);
    assert!(list.cleared().is_empty());
    answer_next(&mut list, &ledger, 1);
    answer_next(&mut list, &ledger, 2);
    assert_eq!(list.cleared(), [BarrierId(1)]);
}

/// Whoever has gone does not care about order: neither before nor after the question.
#[test]
fn tombstones_hold_no_barrier() {
    let ledger = Ledger::new();
    let mut list = inflight();
    for _ in 0..3 {
        write(&mut list, single(&ledger, &Command::write(1, 0)));
    }
    ledger.cancel(2);
    list.add_barrier(BarrierId(1), slots(&[1]));
    answer_next(&mut list, &ledger, 0);
    assert!(list.cleared().is_empty(), "the second is waited for");
    ledger.cancel(1);
    assert!(list.cleared().is_empty(), "nobody has looked yet");
    list.recheck_barriers();
    assert_eq!(list.cleared(), [BarrierId(1)]);
    answer_next(&mut list, &ledger, 1);
    answer_next(&mut list, &ledger, 2);
    ledger.check_all_settled_once();
}

/// The end of a connection opens every barrier, and the next connection starts afresh.
#[test]
fn a_lost_connection_opens_all_barriers() {
    let ledger = Ledger::new();
    let mut list = inflight();
    write(&mut list, single(&ledger, &Command::write(1, 0)));
    list.add_barrier(BarrierId(1), slots(&[1]));
    let left = list.lose(u64::MAX, Reason::ConnectionLost, true);
    assert_eq!(list.cleared(), [BarrierId(1)]);
    assert_eq!((list.commands(), list.bytes()), (0, 0));
    for (ticket, _) in left.settled {
        ledger.discard(ticket);
    }
    write(&mut list, single(&ledger, &Command::write(1, 0)));
    list.add_barrier(BarrierId(2), slots(&[1]));
    assert!(list.cleared().is_empty());
    answer_next(&mut list, &ledger, 1);
    assert_eq!(list.cleared(), [BarrierId(2)]);
}

/// What must become of a place when the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    Retried,
    Unknown,
    Dropped,
}

/// The stream of a test: units with, for each of their replies, what it belongs to.
struct Stream {
    ledger: Ledger,
    list: Inflight<TestTicket>,
    /// For each place the offset behind its last byte, and whether it may run twice.
    places: Vec<(usize, bool)>,
    /// For each reply the offset that must be written before, and the place that it ends.
    replies: Vec<(usize, Option<usize>, Reply)>,
    length: usize,
}

impl Stream {
    fn new() -> Self {
        let ledger = Ledger::new();
        let units = vec![
            single(&ledger, &Command::write(1, 0)),
            asking_first(single(&ledger, &Command::read(1, 0))),
            pipeline(
                &ledger,
                &[
                    Command::read(1, 0),
                    Command::write(2, 0),
                    Command::write(1, 0),
                    Command::read(2, 0),
                ],
            ),
            asking_first(transaction(
                &ledger,
                &[Command::write(1, 0), Command::write(1, 1)],
            )),
            asking_first(single(&ledger, &Command::write(1, 0))),
            single(&ledger, &Command::read(2, 0)),
        ];
        let mut stream = Self {
            ledger,
            list: inflight(),
            places: vec![(0, false); 9],
            replies: Vec::new(),
            length: 0,
        };
        units.into_iter().for_each(|unit| stream.write(unit));
        stream
    }

    fn write(&mut self, unit: Unit<TestTicket>) {
        let begin = self.length + if unit.asking { ASKING } else { 0 };
        let text = String::from_utf8(unit.bytes().to_vec()).expect("ASCII");
        let replies = replies_to(&unit);
        let prefix = usize::from(unit.asking);
        let places = unit.ticket.places();
        let chain = matches!(unit.body, Body::Chain { .. });
        let mut ends = Vec::new();
        for line in text.split_inclusive('\n') {
            ends.push(ends.last().copied().unwrap_or(begin) + line.len());
        }
        for (at, reply) in replies.into_iter().enumerate() {
            let line = at.checked_sub(prefix);
            let needed = line.map_or(begin, |line| ends[line]);
            let ended = match line {
                None => None,
                Some(line) if chain => (line + 1 == ends.len()).then_some(places[0]),
                Some(line) => Some(places[line]),
            };
            self.replies.push((needed, ended, reply));
        }
        for (at, &place) in places.iter().enumerate() {
            let end = if chain {
                ends[ends.len() - 1]
            } else {
                ends[at]
            };
            self.places[place] = (end, unit.facts(at).repeatable);
        }
        self.length += write(&mut self.list, unit);
        assert_eq!(self.length, ends[ends.len() - 1]);
    }
}

fn asking_first(mut unit: Unit<TestTicket>) -> Unit<TestTicket> {
    unit.asking = true;
    unit
}

/// T072, T074, T091, T092, T147: the connection ends at every byte, after every number of replies
/// that is possible by then. What was not written to its last byte is sent again, reads are if
/// wanted, and everything else may have run.
#[test]
fn a_cut_at_every_byte_leaves_each_command_one_fate() {
    let stream = Stream::new();
    let length = stream.length;
    let needed: Vec<usize> = stream.replies.iter().map(|&(needed, ..)| needed).collect();
    finish(stream, 0, false, |_| Fate::Retried);
    for written in 0..=length {
        // A server cannot answer what it has not received.
        let most = needed.iter().filter(|&&needed| needed <= written).count();
        for answered in 0..=most {
            for retry_reads in [true, false] {
                cut(written, answered, retry_reads, None);
            }
            cut(written, answered, true, Some(4));
            cut(written, answered, true, Some(7));
        }
    }
}

fn cut(written: usize, answered: usize, retry_reads: bool, cancelled: Option<usize>) {
    let mut stream = Stream::new();
    let replies: Vec<_> = stream.replies.drain(..answered).collect();
    let mut done = Vec::new();
    let mut answers = Vec::new();
    for (_, ended, reply) in replies {
        done.extend(ended);
        stream
            .list
            .accept(&mut VecDeque::from([reply]), &mut answers)
            .expect("in step");
    }
    settle(&stream.ledger, answers);
    if let Some(place) = cancelled {
        // Callers go with all of their places: 2 to 5 are one pipeline.
        let all = if place == 4 { 2..6 } else { place..place + 1 };
        stream.ledger.cancel_all(all);
    }
    let places = stream.places.clone();
    let dead = |place: usize| match cancelled {
        Some(4) => (2..6).contains(&place),
        other => other == Some(place),
    };
    finish(stream, written, retry_reads, |place| {
        let (end, repeatable) = places[place];
        if done.contains(&place) {
            Fate::Answered
        } else if dead(place) {
            Fate::Dropped
        } else if end <= written && !(retry_reads && repeatable) {
            Fate::Unknown
        } else {
            Fate::Retried
        }
    });
}

/// Ends the connection and compares the fate of each place.
fn finish(mut stream: Stream, written: usize, retry_reads: bool, wanted: impl Fn(usize) -> Fate) {
    let why = Reason::ConnectionLost;
    let left = stream.list.lose(written as u64, why, retry_reads);
    let ledger = &stream.ledger;
    let retried: Vec<usize> = left
        .retry
        .iter()
        .flat_map(|unit| unit.ticket.places())
        .collect();
    let unknown: Vec<usize> = left
        .settled
        .iter()
        .flat_map(|(ticket, _)| ticket.places())
        .collect();
    let of = |fate| {
        (0..ledger.len())
            .filter(|&place| wanted(place) == fate)
            .collect::<Vec<_>>()
    };
    assert_eq!(retried, of(Fate::Retried), "in the order written");
    assert_eq!(unknown, of(Fate::Unknown));
    for unit in left.retry {
        for place in unit.ticket.places() {
            let sent = stream.places[place].0 <= written;
            let known = ledger.place(place);
            assert!(!known.claimed, "it can be cancelled again");
            assert_eq!(known.may_have_run, sent, "who cancels it hears that");
            let certainty = unit.failure(Reason::Closed, None).certainty();
            assert_eq!(certainty == Certainty::Unknown, sent, "a read may have run");
        }
        ledger.discard(unit.ticket);
    }
    for (ticket, outcome) in left.settled {
        let failure = outcome.expect_err("its connection was lost");
        assert_eq!(failure.certainty(), Certainty::Unknown);
        assert_eq!(failure.reason(), Reason::ConnectionLost);
        assert_eq!(failure.attempts(), 1);
        assert!(failure.node().is_some() && failure.slot().is_some());
        ledger.discard(ticket);
    }
    ledger.check_all_settled_once();
}
