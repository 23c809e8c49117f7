//! Models of the rest of the reading thread: nothing that is put on the wire stays unread.
//!
//! Nobody reads by the clock here: a wake-up that is lost shows as a deadlock.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test --release --lib loom_`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::thread;

use super::Rest;
use crate::sync::modelled::{AtomicBool, Condvar, Mutex};

/// Longer than any model runs.
const LONG: Duration = Duration::from_secs(3600);

/// A node, as far as its reading thread and its callers see it.
struct Node {
    rest: Rest,
    /// Whoever holds it is the only one who reads.
    side: Mutex<()>,
    wire: Mutex<Wire>,
    /// Somebody was answered.
    answered: Condvar,
    shut: AtomicBool,
}

#[derive(Default)]
struct Wire {
    /// Callers whose commands are on the wire.
    open: Vec<usize>,
    done: [bool; 2],
}

impl Wire {
    /// All replies come.
    fn answer(&mut self) {
        for caller in self.open.drain(..) {
            self.done[caller] = true;
        }
    }
}

/// How a caller has its command done.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// By the write loop.
    Queued,
    /// It writes by itself if the wire is idle, and reads its reply.
    Direct,
    /// The same, but the reply does not come within its slice.
    Impatient,
}

impl Node {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rest: Rest::new(),
            side: Mutex::new(()),
            wire: Mutex::new(Wire::default()),
            answered: Condvar::new(),
            shut: AtomicBool::new(false),
        })
    }

    /// The reading thread.
    fn read(&self) {
        loop {
            let side = self.side.lock();
            if self.shut.load(Ordering::SeqCst) {
                return;
            }
            self.digest();
            drop(side);
            self.rest.rest(LONG, || self.wire.lock().open.is_empty());
        }
    }

    fn digest(&self) {
        let mut wire = self.wire.lock();
        wire.answer();
        drop(wire);
        self.answered.notify_all();
    }

    /// A caller that waits until its command is answered.
    fn call(&self, caller: usize, manner: Manner) {
        let mut wire = self.wire.lock();
        let is_idle = wire.open.is_empty();
        wire.open.push(caller);
        drop(wire);
        match manner {
            Manner::Direct | Manner::Impatient if is_idle => self.read_own(caller, manner),
            _ => self.rest.wake(),
        }
        let mut wire = self.wire.lock();
        while !wire.done[caller] {
            self.answered.wait(&mut wire);
        }
    }

    fn read_own(&self, caller: usize, manner: Manner) {
        let Some(side) = self.side.try_lock() else {
            return;
        };
        self.rest.count_exchange();
        let is_silent = matches!(manner, Manner::Impatient) && !self.wire.lock().done[caller];
        if !is_silent {
            self.digest();
        }
        drop(side);
        if is_silent || !self.wire.lock().open.is_empty() {
            self.rest.wake();
        }
    }

    /// The connection is closed.
    fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
        self.rest.call();
    }
}

/// Tries every order in which no more than so many threads are interrupted.
fn exchange(callers: &[Manner], preemptions: usize) {
    let callers = callers.to_vec();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let node = Node::new();
        let spawn = |run: Box<dyn FnOnce(&Node)>| {
            let node = Arc::clone(&node);
            thread::spawn(move || run(&node))
        };
        let reader = spawn(Box::new(Node::read));
        let callers: Vec<_> = (0..)
            .zip(callers.clone())
            .map(|(caller, manner)| spawn(Box::new(move |node| node.call(caller, manner))))
            .collect();
        for caller in callers {
            caller.join().expect("it was answered");
        }
        node.shut();
        reader.join().expect("it only reads");
    });
}

#[test]
fn one_caller_is_answered() {
    for manner in [Manner::Queued, Manner::Direct, Manner::Impatient] {
        exchange(&[manner], 4);
    }
}

#[test]
fn two_callers_are_answered() {
    use Manner::{Direct, Impatient, Queued};
    for callers in [
        [Queued, Queued],
        [Direct, Queued],
        [Direct, Direct],
        [Impatient, Direct],
        [Impatient, Queued],
    ] {
        exchange(&callers, 2);
    }
}

/// The connection may end at any moment, also while the thread is about to rest.
#[test]
fn the_end_of_a_connection_is_noticed() {
    loom::model(|| {
        let node = Node::new();
        let reader = thread::spawn({
            let node = Arc::clone(&node);
            move || node.read()
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
                node.read();
            }
        });
        node.shut();
        reader.join().expect("it only reads");
    });
}
