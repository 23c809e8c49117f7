//! How much a node has on its hands, and the bound on it.
//!
//! What counts is derived from where units are: on their way to the node, in its queue, on its
//! wire. There are no books that a unit could fall out of.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::clock;
use crate::sync::{Condvar, Mutex};

/// Commands and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) commands: usize,
    pub(crate) bytes: usize,
}

/// The load of a node, or of the coordinator.
#[derive(Debug)]
pub(crate) struct Load {
    limit: Amount,
    /// Pushed into the inbox, and not yet counted as queued or sent.
    coming: Counter,
    /// Of those, taken out since it was published what is queued. Only the owner of the queue
    /// uses this.
    taken: Counter,
    /// In the queue.
    queued: Counter,
    /// Written and not answered.
    sent: Counter,
    /// The most commands that ever waited at once.
    peak: AtomicUsize,
    /// Callers that wait for room.
    waiters: AtomicUsize,
    /// Nothing comes here any more.
    closed: AtomicBool,
    /// Guards nothing but the sleep of waiters.
    gate: Mutex<()>,
    room: Condvar,
}

#[derive(Debug, Default)]
struct Counter {
    commands: AtomicUsize,
    bytes: AtomicUsize,
}

impl Counter {
    fn get(&self) -> Amount {
        let commands = self.commands.load(Ordering::SeqCst);
        Amount {
            commands,
            bytes: self.bytes.load(Ordering::SeqCst),
        }
    }

    fn add(&self, more: Amount) {
        self.commands.fetch_add(more.commands, Ordering::SeqCst);
        self.bytes.fetch_add(more.bytes, Ordering::SeqCst);
    }

    fn subtract(&self, less: Amount) {
        self.commands.fetch_sub(less.commands, Ordering::SeqCst);
        self.bytes.fetch_sub(less.bytes, Ordering::SeqCst);
    }

    fn set(&self, amount: Amount) {
        self.commands.store(amount.commands, Ordering::SeqCst);
        self.bytes.store(amount.bytes, Ordering::SeqCst);
    }
}

/// Why a unit was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Not now.
    Full,
    /// Never: it is larger than the bound itself.
    TooLarge,
    /// The node ends; ask for the route again.
    Closed,
}

/// How soon a caller that waits for room notices that it was cancelled.
const LOOK_FOR_CANCEL: Duration = Duration::from_millis(20);

impl Load {
    pub(crate) fn new(limit: Amount) -> Self {
        Self {
            limit,
            coming: Counter::default(),
            taken: Counter::default(),
            queued: Counter::default(),
            sent: Counter::default(),
            peak: AtomicUsize::new(0),
            waiters: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            gate: Mutex::new(()),
            room: Condvar::new(),
        }
    }

    /// The bound.
    pub(crate) fn limit(&self) -> Amount {
        self.limit
    }

    /// Everything that is here.
    pub(crate) fn total(&self) -> Amount {
        let (coming, queued, sent) = (self.coming.get(), self.queued.get(), self.sent.get());
        Amount {
            commands: coming.commands + queued.commands + sent.commands,
            bytes: coming.bytes + queued.bytes + sent.bytes,
        }
    }

    /// Whether nothing else than this, which was admitted, waits to be written here.
    pub(crate) fn queues_only(&self, this: Amount) -> bool {
        !self.closed.load(Ordering::SeqCst) && self.waiting() == this.commands
    }

    /// Whether nothing is on the wire.
    pub(crate) fn sends_nothing(&self) -> bool {
        self.sent.get().commands == 0
    }

    /// Commands that wait to be written.
    pub(crate) fn waiting(&self) -> usize {
        self.coming.get().commands + self.queued.get().commands
    }

    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Admits a unit as a whole, or not at all. Several threads at once may overshoot the bound
    /// by what each of them brings.
    pub(crate) fn try_admit(&self, more: Amount) -> Result<(), NoRoom> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(NoRoom::Closed);
        }
        if more.commands > self.limit.commands {
            return Err(NoRoom::TooLarge);
        }
        let total = self.total();
        // A single unit over the limit of bytes is let in alone: it can be no smaller.
        let bytes_fit = total.bytes + more.bytes <= self.limit.bytes || total.commands == 0;
        if total.commands + more.commands > self.limit.commands || !bytes_fit {
            return Err(NoRoom::Full);
        }
        self.coming(more);
        Ok(())
    }

    /// Counts a unit in that may not be refused: it was admitted once.
    pub(crate) fn coming(&self, more: Amount) {
        self.coming.add(more);
    }

    /// Waits until a unit of this size may fit (`true`), or its caller has gone or has come to the
    /// end of its time (`false`). `end` tells when that is, as things are at some time.
    pub(crate) fn wait_for_room(
        &self,
        more: Amount,
        end: impl Fn(Instant) -> Option<Instant>,
        is_gone: impl Fn() -> bool,
    ) -> bool {
        let mut gate = self.gate.lock();
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            let total = self.total();
            let fits = total.commands + more.commands <= self.limit.commands
                && (total.bytes + more.bytes <= self.limit.bytes || total.commands == 0);
            if fits || self.closed.load(Ordering::SeqCst) {
                break true;
            }
            let now = clock::now();
            let end = end(now);
            if is_gone() || end.is_some_and(|end| end <= now) {
                break false;
            }
            // A cancel does not know of this wait, so it is looked for now and then.
            let look = now + LOOK_FOR_CANCEL;
            let until = end.map_or(look, |end| end.min(look));
            self.room.wait_until(&mut gate, until);
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// Units were taken out of the inbox. They count as coming until it is published where they
    /// are: what is counted nowhere for a moment would let others in over the bound.
    pub(crate) fn arrived(&self, amount: Amount) {
        self.taken.add(amount);
    }

    /// A unit that never was in the inbox counts elsewhere now.
    pub(crate) fn passed_on(&self, amount: Amount) {
        self.coming.subtract(amount);
    }

    /// Publishes what is queued, with all that has arrived so far.
    pub(crate) fn set_queued(&self, amount: Amount) {
        self.queued.set(amount);
        self.peak.fetch_max(amount.commands, Ordering::Relaxed);
        let taken = self.taken.get();
        self.taken.set(Amount::default());
        self.coming.subtract(taken);
        self.wake();
    }

    pub(crate) fn set_sent(&self, amount: Amount) {
        self.sent.set(amount);
        self.wake();
    }

    /// Nothing comes here any more: whoever waits looks for another way.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.gate.lock());
            self.room.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(commands: usize, bytes: usize) -> Amount {
        Amount { commands, bytes }
    }

    #[test]
    fn units_are_admitted_whole_or_not_at_all() {
        let load = Load::new(amount(3, 100));
        assert_eq!(load.try_admit(amount(5, 1)), Err(NoRoom::TooLarge));
        assert_eq!(load.try_admit(amount(2, 10)), Ok(()));
        assert_eq!(load.try_admit(amount(2, 10)), Err(NoRoom::Full));
        load.arrived(amount(2, 10));
        assert_eq!(
            load.try_admit(amount(2, 10)),
            Err(NoRoom::Full),
            "it is somewhere"
        );
        assert_eq!(load.total(), amount(2, 10));
        load.set_queued(amount(2, 10));
        assert_eq!(load.total(), amount(2, 10));
        load.set_queued(amount(0, 0));
        assert_eq!(
            load.try_admit(amount(1, 1000)),
            Ok(()),
            "alone it may be as large as it is"
        );
        assert_eq!(load.try_admit(amount(1, 1)), Err(NoRoom::Full));
    }

    #[test]
    fn whoever_waits_is_woken_by_room_and_by_the_end() {
        let load = Load::new(amount(1, 100));
        load.coming(amount(1, 1));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| load.wait_for_room(amount(1, 1), |_| None, || false));
            load.arrived(amount(1, 1));
            load.set_queued(amount(0, 0));
            assert!(waiter.join().unwrap());
            load.set_sent(amount(1, 1));
            let waiter = scope.spawn(|| load.wait_for_room(amount(1, 1), |_| None, || false));
            load.close();
            assert!(waiter.join().unwrap());
        });
        assert_eq!(load.try_admit(amount(1, 1)), Err(NoRoom::Closed));
    }
}
