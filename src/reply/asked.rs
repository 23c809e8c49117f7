//! Callers that wait can be asked to read from a connection.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::{Cell, Settler};

/// A connection that somebody has to read from.
pub(crate) trait Source: Send + Sync {
    /// Reads until what the mark says is answered, unless somebody else reads, or `is_over` says
    /// that the caller has no more time for it. Then somebody else is found, if need be.
    fn read(self: Arc<Self>, mark: u64, is_over: &dyn Fn() -> bool);
}

/// The wish that a caller reads. Whoever takes one has to answer it by reading: nobody else does
/// meanwhile.
pub(crate) struct Invitation {
    source: Arc<dyn Source>,
    mark: u64,
}

impl Invitation {
    pub(crate) fn new(source: Arc<dyn Source>, mark: u64) -> Self {
        Self { source, mark }
    }

    /// Reads, or sees to it that somebody else does.
    pub(crate) fn answer(self, is_over: &dyn Fn() -> bool) {
        self.source.read(self.mark, is_over);
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invitation(until {})", self.mark)
    }
}

/// Whether a caller can be asked to read.
#[derive(Debug)]
pub(super) enum Asked {
    /// It cannot: it does not wait, or has no time.
    Never,
    /// It waits, or is about to.
    Ready,
    /// It was asked, and will notice.
    Yes(Invitation),
}

impl Asked {
    /// The invitation, if there is one. The caller is not ready any more.
    pub(super) fn take(&mut self) -> Option<Invitation> {
        match std::mem::replace(self, Asked::Never) {
            Asked::Yes(invitation) => Some(invitation),
            Asked::Never | Asked::Ready => None,
        }
    }
}

impl Cell {
    /// Its caller is about to wait, and can be asked to read.
    pub(crate) fn get_ready(&self) {
        self.state.lock().asked = Asked::Ready;
    }

    /// Waits until every place is done or `limit` has passed (`None`), or until its caller is asked
    /// to read, which it must do.
    pub(crate) fn wait_to_read(
        &self,
        limit: Option<Instant>,
        now: impl Fn() -> Instant,
    ) -> Option<Invitation> {
        let mut state = self.state.lock();
        loop {
            let asked = state.asked.take();
            if asked.is_some() || state.open == 0 {
                return asked;
            }
            state.asked = Asked::Ready;
            match limit {
                None => self.done.wait(&mut state),
                Some(limit) if now() >= limit => {
                    state.asked = Asked::Never;
                    return None;
                }
                Some(limit) => drop(self.done.wait_until(&mut state, limit)),
            }
        }
    }

    /// Wakes its caller, which was asked to read.
    pub(crate) fn wake(&self) {
        self.done.notify_all();
    }
}

impl Settler {
    /// Asks its caller to read, if that waits. Its cell is to be woken then, outside of all locks.
    pub(crate) fn ask(&self, invite: impl FnOnce() -> Invitation) -> Option<Arc<Cell>> {
        let mut state = self.cell.state.lock();
        let is_ready = matches!(state.asked, Asked::Ready) && state.open > 0;
        is_ready.then(|| {
            state.asked = Asked::Yes(invite());
            Arc::clone(&self.cell)
        })
    }
}
