//! Models of the seat and of the rest of the reading thread: nothing that is put on the wire stays
//! unread.
//!
//! Nobody reads by the clock here: a wake-up that is lost shows as a deadlock.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib loom_`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use loom::thread;

use super::super::rest::Rest;
use super::{Next, Seat};
use crate::proto::value::Value;
use crate::reply::asked::{Invitation, Source};
use crate::reply::{Cell, Settler};
use crate::sync::modelled::{AtomicBool, Mutex};

/// Longer than any model runs.
const LONG: Duration = Duration::from_secs(3600);

/// A node, as far as its reading thread and its callers see it.
struct Node {
    rest: Rest,
    /// Held while somebody reads.
    side: Mutex<()>,
    wire: Mutex<Wire>,
    shut: AtomicBool,
}

struct Wire {
    seat: Seat,
    /// Commands that wait for replies.
    open: VecDeque<Settler>,
    /// How many had replies.
    gone: u64,
}

/// How a caller has its command done.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// By the write loop; it does not wait where it can be asked to read.
    Unasked,
    /// By the write loop; it reads if it is asked to.
    Queued,
    /// The same, but when it is asked it has no time.
    Hurried,
    /// It writes by itself if the wire is idle, and reads its reply.
    Direct,
    /// The same, but the reply does not come within its slice.
    Impatient,
}

impl Node {
    fn new() -> Arc<Self> {
        let (seat, open) = (Seat::Free, VecDeque::new());
        Arc::new(Self {
            rest: Rest::new(),
            side: Mutex::new(()),
            wire: Mutex::new(Wire {
                seat,
                open,
                gone: 0,
            }),
            shut: AtomicBool::new(false),
        })
    }

    /// The reading thread.
    fn run(self: &Arc<Self>) {
        while !self.shut.load(Ordering::SeqCst) {
            if self.wire.lock().seat.take() {
                self.read_while_needed();
            }
            self.rest.rest(LONG, || {
                let wire = self.wire.lock();
                wire.seat.lets_thread_rest(wire.open.is_empty())
            });
        }
    }

    fn read_while_needed(self: &Arc<Self>) {
        loop {
            self.read_once();
            let goes_on = !self.wire.lock().open.is_empty();
            if self.leave() || !goes_on || !self.wire.lock().seat.take() {
                return;
            }
        }
    }

    /// The oldest command is answered.
    fn read_once(&self) {
        let _side = self.side.try_lock().expect("nobody else reads");
        let mut wire = self.wire.lock();
        let oldest = wire.open.pop_front();
        wire.gone += u64::from(oldest.is_some());
        drop(wire);
        if let Some(settler) = oldest {
            settler.settle(Ok(Value::Ok));
        }
    }

    fn leave(self: &Arc<Self>) -> bool {
        self.wire.lock().seat.leave();
        self.find_reader()
    }

    fn find_reader(self: &Arc<Self>) -> bool {
        let mut wire = self.wire.lock();
        let Wire { seat, open, gone } = &mut *wire;
        let next = seat.fill(open.is_empty(), || {
            (*gone + 1..).zip(open.iter()).find_map(|(mark, settler)| {
                let source = || Arc::clone(self) as Arc<dyn Source>;
                settler.ask(|| Invitation::new(source(), mark))
            })
        });
        drop(wire);
        match next {
            Next::Nobody => false,
            Next::Caller(cell) => {
                cell.wake();
                true
            }
            Next::Thread => {
                self.rest.wake();
                false
            }
        }
    }

    /// A caller that waits until its command is answered.
    fn call(self: &Arc<Self>, manner: Manner) {
        let (cell, settler) = Cell::new(1, None, None);
        if !matches!(manner, Manner::Unasked) {
            cell.get_ready();
        }
        let mut wire = self.wire.lock();
        let is_idle = wire.open.is_empty();
        wire.open.push_back(settler);
        let mark = wire.gone + wire.open.len() as u64;
        drop(wire);
        match manner {
            Manner::Direct if is_idle => Arc::clone(self).read(mark, &|| false),
            Manner::Impatient if is_idle => self.wait_in_vain(),
            _ => drop(self.find_reader()),
        }
        let now = Instant::now();
        let limit = match manner {
            Manner::Unasked => return assert!(cell.wait(None, || now)),
            Manner::Hurried => Some(now),
            _ => None,
        };
        while let Some(asked) = cell.wait_to_read(limit, || now) {
            asked.answer(&|| limit.is_some());
        }
        assert!(cell.wait(None, || now));
    }

    /// Reads nothing within a slice.
    fn wait_in_vain(&self) {
        if self.wire.lock().seat.take() {
            self.wire.lock().seat.leave();
            self.rest.wake();
        }
    }

    /// The connection is closed.
    fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
        self.rest.call();
    }
}

impl Source for Node {
    fn read(self: Arc<Self>, mark: u64, is_over: &dyn Fn() -> bool) {
        if !self.wire.lock().seat.take() {
            return;
        }
        self.rest.count_exchange();
        while self.wire.lock().gone < mark && !is_over() {
            self.read_once();
        }
        self.leave();
    }
}

/// Tries every order in which no more than so many threads are interrupted.
fn exchange(callers: &[Manner], preemptions: usize) {
    let callers = callers.to_vec();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let node = Node::new();
        let spawn = |run: Box<dyn FnOnce(&Arc<Node>)>| {
            let node = Arc::clone(&node);
            thread::spawn(move || run(&node))
        };
        let reader = spawn(Box::new(Node::run));
        let callers = callers.clone().into_iter();
        let callers: Vec<_> = callers
            .map(|manner| spawn(Box::new(move |node| node.call(manner))))
            .collect();
        for caller in callers {
            caller.join().expect("it was answered");
        }
        node.shut();
        reader.join().expect("it only reads");
    });
}

const MANNERS: [Manner; 5] = [
    Manner::Unasked,
    Manner::Queued,
    Manner::Hurried,
    Manner::Direct,
    Manner::Impatient,
];

#[test]
fn one_caller_is_answered() {
    for manner in MANNERS {
        exchange(&[manner], 3);
    }
}

#[test]
fn two_callers_are_answered() {
    for (at, first) in MANNERS.into_iter().enumerate() {
        for second in &MANNERS[at..] {
            exchange(&[first, *second], 2);
        }
    }
}

/// The connection may end at any moment, also while the thread is about to rest.
#[test]
fn the_end_of_a_connection_is_noticed() {
    loom::model(|| {
        let node = Node::new();
        let reader = thread::spawn({
            let node = Arc::clone(&node);
            move || node.run()
        });
        node.shut();
        reader.join().expect("it only reads");
    });
}

/// Time that runs out while somebody wakes the thread loses nothing either: what it finds when it
/// comes back is what it is told, or the same at its next rest.
#[test]
fn a_wake_up_at_the_last_moment_is_kept() {
    loom::model(|| {
        let node = Node::new();
        let reader = thread::spawn({
            let node = Arc::clone(&node);
            move || {
                node.rest.rest(Duration::ZERO, || true);
                node.run();
            }
        });
        node.shut();
        reader.join().expect("it only reads");
    });
}
