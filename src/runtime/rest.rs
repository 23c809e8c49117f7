//! Where the reading thread sleeps while callers may read by themselves.
//!
//! Two ways to wake it, for two kinds of news:
//!
//! * [`wake`](Rest::wake) after putting something on the wire. It costs a look if the thread does
//!   not rest. Nothing is lost: the thread says that it rests *before* it looks at the wire, and
//!   both sides look under the same lock. So either it finds what was put there, or whoever put it
//!   there finds it resting.
//! * [`call`](Rest::call) for what the thread does not look at before it sleeps. It always leaves
//!   word.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::clock;
use crate::sync::modelled::{AtomicBool, AtomicU64, Condvar, Mutex};

/// The rest of one reading thread.
#[derive(Debug)]
pub(super) struct Rest {
    /// It sleeps, or is about to: whoever puts something on the wire must wake it, unless it will
    /// read the reply by itself.
    resting: AtomicBool,
    /// Exchanges of callers that read by themselves, so far.
    exchanges: AtomicU64,
    /// Somebody woke it.
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Rest {
    pub(super) fn new() -> Self {
        Self {
            resting: AtomicBool::new(false),
            exchanges: AtomicU64::new(0),
            woken: Mutex::new(false),
            wake: Condvar::new(),
        }
    }

    /// The reading thread sleeps until it is woken or no caller has read by itself for so long
    /// (`false`). It does not sleep if something is on the wire: `is_idle` looks, under the lock
    /// under which everybody else puts something there.
    pub(super) fn rest(&self, at_most: Duration, is_idle: impl FnOnce() -> bool) -> bool {
        self.resting.store(true, Ordering::SeqCst);
        // Whoever adds an entry after this look sees that the thread rests.
        let is_woken = !is_idle() || self.sleep(at_most);
        self.resting.store(false, Ordering::SeqCst);
        is_woken
    }

    fn sleep(&self, at_most: Duration) -> bool {
        let mut woken = self.woken.lock();
        let mut exchanges = None;
        while !*woken && exchanges != Some(self.exchanges.load(Ordering::Relaxed)) {
            exchanges = Some(self.exchanges.load(Ordering::Relaxed));
            let deadline = clock::now() + at_most;
            while !*woken && clock::now() < deadline {
                self.wake.wait_until(&mut woken, deadline);
            }
        }
        std::mem::take(&mut *woken)
    }

    /// Whether nobody may be reading.
    pub(super) fn is_resting(&self) -> bool {
        self.resting.load(Ordering::SeqCst)
    }

    /// A caller reads by itself.
    pub(super) fn count_exchange(&self) {
        self.exchanges.fetch_add(1, Ordering::Relaxed);
    }

    /// Wakes the thread if it rests.
    pub(super) fn wake(&self) {
        if self.is_resting() {
            self.call();
        }
    }

    /// Has the thread look around once, also if it is only about to rest.
    pub(super) fn call(&self) {
        *self.woken.lock() = true;
        self.wake.notify_one();
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_models;
