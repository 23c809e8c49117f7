//! Where the reading thread sleeps while callers may read by themselves.
//!
//! Two ways to wake it, for two kinds of news:
//!
//! * [`wake`](Rest::wake) by whoever finds that somebody has to read and no caller can. It costs a
//!   look if the thread does not rest. Nothing is lost: the thread says that it rests *before* it
//!   looks whether it has to read, and both sides look under the same lock. So either it finds
//!   that, or whoever has found it finds the thread resting.
//! * [`call`](Rest::call) for what the thread does not look at before it sleeps. It always leaves
//!   word.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::clock;
use crate::sync::modelled::{AtomicBool, AtomicU64, Condvar, Mutex};

/// The rest of one reading thread.
#[derive(Debug)]
pub(super) struct Rest {
    /// It sleeps, or is about to: it must be woken when it has to read.
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
    /// (`false`). It does not sleep if it has to read: whether it `may_sleep` it looks under the
    /// lock under which everybody else finds that.
    pub(super) fn rest(&self, at_most: Duration, may_sleep: impl FnOnce() -> bool) -> bool {
        self.resting.store(true, Ordering::SeqCst);
        // Whoever finds after this look that it has to read sees that the thread rests.
        let is_woken = !may_sleep() || self.sleep(at_most);
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
