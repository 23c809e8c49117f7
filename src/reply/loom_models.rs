//! Models of the reply cell: every order in which its steps can meet.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib loom_`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use loom::thread;

use super::{Cell, Settler};
use crate::proto::outcome::{Certainty, Failure, Outcome, Reason};
use crate::proto::unit::Ticket;
use crate::proto::value::Value;

/// What becomes of the command, seen from its node.
#[derive(Clone, Copy, Debug)]
enum Path {
    /// It ends before it is written.
    Refuse,
    /// The ticket is lost in a queue.
    Drop,
    /// Written and answered.
    Answer,
    /// Written, and the ticket is lost.
    DropWritten,
    /// Claimed, but its connection ends before it is written; then written and answered.
    Unwritten,
    /// Written, refused by the server; then written again and answered.
    Redirect,
    /// A read: written, its connection is lost; then written again and answered.
    Repeat,
    /// The same, but the ticket is lost before it is written again.
    DropRefused,
}

const PATHS: [Path; 8] = [
    Path::Refuse,
    Path::Drop,
    Path::Answer,
    Path::DropWritten,
    Path::Unwritten,
    Path::Redirect,
    Path::Repeat,
    Path::DropRefused,
];

/// What happened outside of the cell, in the order in which it did: no step of the model.
#[derive(Debug, Default)]
struct Wire {
    /// How often it was written.
    writes: AtomicU32,
    /// How often a written command was released with the proof that it did not run.
    refusals: AtomicU32,
}

impl Wire {
    fn write(&self) {
        self.writes.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a caller that gave up may be told this.
    fn check(&self, certainty: Certainty, path: Path) {
        let writes = self.writes.load(Ordering::SeqCst);
        let refusals = self.refusals.load(Ordering::SeqCst);
        match certainty {
            Certainty::NotSent => assert_eq!(writes, 0, "{path:?}: it was written"),
            Certainty::Refused => assert_eq!(writes, refusals, "{path:?}: it may have run"),
            Certainty::Unknown => {}
        }
    }
}

fn known(certainty: Certainty) -> Option<Box<Failure>> {
    let mut failure = Failure::new(Reason::Timeout, certainty);
    failure.attempts = 1;
    Some(failure)
}

/// Takes a command along its path. `false`: its caller has gone.
fn walk(ticket: Settler, path: Path, wire: &Wire) -> bool {
    match path {
        Path::Refuse => {
            let failure = Failure::new(Reason::Closed, Certainty::NotSent);
            ticket.settle(Err(failure));
            return true;
        }
        Path::Drop => return true,
        Path::Answer | Path::DropWritten => {}
        Path::Unwritten => {
            if !ticket.claim() || !ticket.release(None) {
                return false;
            }
        }
        Path::Redirect | Path::Repeat | Path::DropRefused => {
            if !ticket.claim() {
                return false;
            }
            wire.write();
            let certainty = match path {
                Path::Repeat => Certainty::Unknown,
                _ => Certainty::Refused,
            };
            if !ticket.release(known(certainty)) {
                return false;
            }
            if certainty == Certainty::Refused {
                wire.refusals.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    if matches!(path, Path::DropRefused) {
        return true;
    }
    if !ticket.claim() {
        return false;
    }
    wire.write();
    if !matches!(path, Path::DropWritten) {
        ticket.settle(Ok(Value::Ok));
    }
    true
}

/// How it ends if nobody gives up.
fn own_end(path: Path) -> Outcome {
    match path {
        Path::Refuse => Err(Failure::new(Reason::Closed, Certainty::NotSent)),
        Path::Drop | Path::DropWritten | Path::DropRefused => {
            Err(Failure::new(Reason::Abandoned, Certainty::Unknown))
        }
        _ => Ok(Value::Ok),
    }
}

/// A command on its path, perhaps a token that is cancelled, and a caller that waits, or whose
/// deadline passes at any moment.
fn one_command(path: Path, cancels: bool, expires: bool) {
    let (cell, ticket) = Cell::new(1, None, None);
    let wire = Arc::new(Wire::default());
    let node = thread::spawn({
        let wire = Arc::clone(&wire);
        move || walk(ticket, path, &wire)
    });
    let token = cancels.then(|| {
        let cell = Arc::clone(&cell);
        thread::spawn(move || cell.give_up(Reason::Cancelled).is_some())
    });
    let expired = expires && cell.give_up(Reason::Timeout).is_some();
    assert!(cell.wait(None, || unreachable!("there is no deadline")));
    let outcome = cell.take_one();
    let went_on = node.join().expect("it only walks");
    let cancelled = token.is_some_and(|token| token.join().expect("it only cancels"));

    assert!(!(expired && cancelled), "{path:?}: ended twice");
    if !expired && !cancelled {
        assert!(went_on, "{path:?}: nobody gave up");
        return assert_eq!(outcome, own_end(path));
    }
    let failure = outcome.expect_err("somebody gave up");
    let why = if expired {
        Reason::Timeout
    } else {
        Reason::Cancelled
    };
    assert_eq!(failure.reason(), why, "{path:?}");
    wire.check(failure.certainty(), path);
}

#[test]
fn one_command_ends_once_and_truthfully() {
    for path in PATHS {
        for (cancels, expires) in [(false, false), (true, false), (false, true), (true, true)] {
            loom::model(move || one_command(path, cancels, expires));
        }
    }
}

/// A pipeline of two commands, each on its own path.
fn two_commands(paths: [Path; 2], cancels: bool) {
    let (cell, mut rest) = Cell::new(2, None, None);
    let front = rest.split_front(1);
    let wires = [Arc::new(Wire::default()), Arc::new(Wire::default())];
    let nodes = [(front, 0), (rest, 1)].map(|(ticket, at): (Settler, usize)| {
        let wire = Arc::clone(&wires[at]);
        thread::spawn(move || walk(ticket, paths[at], &wire))
    });
    let cancelled = cancels && cell.give_up(Reason::Cancelled).is_some();
    assert!(cell.wait(None, || unreachable!("there is no deadline")));
    let outcomes = cell.take();
    for node in nodes {
        let went_on = node.join().expect("it only walks");
        assert!(went_on || cancelled, "nobody gave up");
    }
    assert_eq!(outcomes.len(), 2);
    let mut given_up = 0;
    for (at, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Err(failure) if failure.reason() == Reason::Cancelled => {
                given_up += 1;
                wires[at].check(failure.certainty(), paths[at]);
            }
            outcome => assert_eq!(outcome, own_end(paths[at])),
        }
    }
    assert_eq!(given_up > 0, cancelled, "who gives up ends something");
}

#[test]
fn a_pipeline_ends_place_by_place() {
    use Path::{Answer, Drop, DropWritten, Redirect, Refuse};
    for paths in [
        [Answer, Answer],
        [Answer, Drop],
        [DropWritten, Refuse],
        [Redirect, Answer],
    ] {
        for cancels in [false, true] {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(3);
            model.check(move || two_commands(paths, cancels));
        }
    }
}

/// Of several callers that wait for one command, each wakes; only one can end it.
#[test]
fn everybody_wakes() {
    loom::model(|| {
        let (cell, ticket) = Cell::new(1, None, None);
        let waiting = thread::spawn({
            let cell = Arc::clone(&cell);
            move || cell.wait(None, || unreachable!("there is no deadline"))
        });
        let node = thread::spawn(move || walk(ticket, Path::Answer, &Wire::default()));
        let gave_up = cell.give_up(Reason::Cancelled).is_some();
        assert!(cell.give_up(Reason::Timeout).is_none(), "it has ended");
        assert!(waiting.join().expect("it only waits"));
        node.join().expect("it only walks");
        assert_eq!(cell.take_one().is_err(), gave_up);
    });
}
