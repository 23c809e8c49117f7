//! A token that ends calls from another thread.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::client::Core;
use crate::proto::outcome::Reason;
use crate::reply::Cell;
use crate::sync::Mutex;

/// Ends calls from another thread: singles, pipelines, transactions, watched sessions and blocking
/// commands.
///
/// It is cheap to clone; all clones are one token. Each call that it was given to ends at once
/// with [`Error::Cancelled`](crate::Error::Cancelled), whose certainty says whether the command
/// may run, or, for pipelines, with such a result for each command that had not ended. A call that
/// gets a cancelled token is not sent at all.
#[derive(Clone)]
pub struct CancelToken {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Disconnected by the cancel: for threads that wait in other ways than on a cell.
    cancelled: Receiver<()>,
}

struct State {
    /// Dropped by the cancel.
    keep: Option<Sender<()>>,
    /// Calls under way. Whoever registers one takes it out again.
    calls: HashMap<u64, (Weak<Core>, Weak<Cell>)>,
    next: u64,
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("cancelled", &self.is_cancelled())
            .finish()
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        let (keep, cancelled) = bounded(0);
        let state = State {
            keep: Some(keep),
            calls: HashMap::new(),
            next: 0,
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                cancelled,
            }),
        }
    }

    /// Ends all calls that have this token, now and from now on.
    pub fn cancel(&self) {
        let calls = {
            let mut state = self.inner.state.lock();
            state.keep = None;
            std::mem::take(&mut state.calls)
        };
        for (core, cell) in calls.into_values() {
            if let (Some(core), Some(cell)) = (core.upgrade(), cell.upgrade()) {
                core.give_up(&cell, Reason::Cancelled);
            }
        }
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.inner.state.lock().keep.is_none()
    }

    /// Disconnected once it is cancelled.
    pub(crate) fn signal(&self) -> &Receiver<()> {
        &self.inner.cancelled
    }

    /// Has a cell given up by a cancel, as long as the registration lives. A token that is
    /// cancelled already gives it up at once.
    pub(crate) fn register(&self, core: &Arc<Core>, cell: &Arc<Cell>) -> Registration {
        let mut state = self.inner.state.lock();
        let id = state.next;
        if state.keep.is_some() {
            state.next += 1;
            state
                .calls
                .insert(id, (Arc::downgrade(core), Arc::downgrade(cell)));
        } else {
            drop(state);
            core.give_up(cell, Reason::Cancelled);
        }
        Registration {
            token: self.clone(),
            id,
        }
    }
}

/// Takes a call out of its token when the call has ended.
#[derive(Debug)]
pub(crate) struct Registration {
    token: CancelToken,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.token.inner.state.lock().calls.remove(&self.id);
    }
}
