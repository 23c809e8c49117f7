//! What the threads of a node know together, and what they tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::load::{Amount, Load};
use super::transport::WriteHalf;
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::{Event, NodeKey};
use crate::proto::inflight::{BarrierId, Inflight};
use crate::proto::outcome::Reason;
use crate::proto::slot::SlotSet;
use crate::proto::unit::Unit;
use crate::reply::Settler;
use crate::reply::relax::Relax;
use crate::stats::NodeCounters;
use crate::sync::{Condvar, Mutex};

/// What the write loop is told.
pub(crate) enum NodeMessage {
    /// Queue a unit.
    Submit(Unit<Settler>),
    /// Take over slots, with their units.
    TakeOver(SlotSet, Vec<Unit<Settler>>),
    /// Give up slots: hand over what is queued, then tell when nothing of them is on the wire.
    GiveUp(BarrierId, SlotSet),
    /// The caller of so many commands has gone.
    Gone { commands: usize, timed_out: bool },
    /// Replace this connection, without hurting what is on it.
    Replace(u64),
    /// The same by a later time: the reading thread has the next connection already.
    Leave { generation: u64, by: Instant },
    /// The connection does not answer: close it.
    Break,
    /// A caller that drove the connection could not write everything: go on.
    GoOn,
    /// From the reading thread: a connection is ready.
    Connected {
        generation: u64,
        write: Box<dyn WriteHalf>,
    },
    /// From the reading thread: nothing more will be read from this connection.
    Lost { generation: u64 },
    /// Everything that was written is answered.
    Idle,
    /// Pass on what other nodes can run as well: commands without keys, and `reads`.
    Release { reads: bool },
    /// From the reading thread: its last message.
    ReaderEnded,
    /// End, at the latest at `limit`: wait for what is on the wire, give back what is queued.
    End { limit: Instant, why: Reason },
}

/// What both threads of a node, and callers that drive it, write down.
pub(crate) struct Records {
    pub(crate) key: NodeKey,
    pub(crate) addr: NodeAddr,
    pub(crate) load: Load,
    pub(crate) stats: NodeCounters,
    /// Where announcements of maintenance are noted; `None` if they are not asked for.
    pub(crate) relax: Option<Arc<Relax>>,
    /// Taken for a few instructions per batch of units or replies. Nothing that blocks may be done
    /// under it; sends to the coordinator are allowed and sometimes necessary.
    pub(crate) state: Mutex<WireState>,
    rest: Rest,
    inbox: Sender<NodeMessage>,
    events: Sender<Event<Settler>>,
}

/// What is on the wire.
pub(crate) struct WireState {
    pub(crate) inflight: Inflight<Settler>,
    /// The write loop waits until everything is answered.
    pub(crate) tell_when_idle: bool,
}

impl WireState {
    pub(crate) fn sent(&self) -> Amount {
        Amount {
            commands: self.inflight.commands(),
            bytes: self.inflight.bytes(),
        }
    }
}

/// Where the reading thread sleeps while callers may read by themselves.
#[derive(Default)]
struct Rest {
    /// It sleeps, or is about to: whoever puts something on the wire must wake it, unless it will
    /// read the reply by itself.
    resting: AtomicBool,
    /// Exchanges of callers that read by themselves, so far.
    exchanges: AtomicU64,
    /// Somebody woke it.
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Records {
    pub(super) fn new(
        key: NodeKey,
        addr: NodeAddr,
        limit: Amount,
        relax: Option<Arc<Relax>>,
        inbox: Sender<NodeMessage>,
        events: Sender<Event<Settler>>,
    ) -> Self {
        Self {
            key,
            load: Load::new(limit),
            stats: NodeCounters::default(),
            relax,
            state: Mutex::new(WireState {
                inflight: Inflight::new(addr.clone()),
                tell_when_idle: false,
            }),
            rest: Rest::default(),
            inbox,
            events,
            addr,
        }
    }

    /// The reading thread sleeps until it is woken, something is on the wire, or no caller has read
    /// by itself for so long (`false`).
    pub(super) fn rest(&self, at_most: Duration) -> bool {
        self.rest.resting.store(true, Ordering::SeqCst);
        // Whoever adds an entry after this look sees that the thread rests.
        let mut is_woken = !self.state.lock().inflight.is_empty();
        if !is_woken {
            let mut woken = self.rest.woken.lock();
            let mut exchanges = None;
            while !*woken && exchanges != Some(self.rest.exchanges.load(Ordering::Relaxed)) {
                exchanges = Some(self.rest.exchanges.load(Ordering::Relaxed));
                let deadline = super::clock::now() + at_most;
                while !*woken && super::clock::now() < deadline {
                    self.rest.wake.wait_until(&mut woken, deadline);
                }
            }
            is_woken = std::mem::take(&mut *woken);
        }
        self.rest.resting.store(false, Ordering::SeqCst);
        is_woken
    }

    /// Whether nobody may be reading.
    pub(super) fn is_reader_resting(&self) -> bool {
        self.rest.resting.load(Ordering::SeqCst)
    }

    /// A caller reads by itself.
    pub(super) fn count_exchange(&self) {
        self.rest.exchanges.fetch_add(1, Ordering::Relaxed);
    }

    /// Wakes the reading thread if it rests.
    pub(super) fn wake_reader(&self) {
        if self.rest.resting.load(Ordering::SeqCst) {
            self.call_reader();
        }
    }

    /// Has the reading thread look around once, also if it is only about to rest.
    pub(super) fn call_reader(&self) {
        *self.rest.woken.lock() = true;
        self.rest.wake.notify_one();
    }

    pub(super) fn tell(&self, message: NodeMessage) {
        // The write loop ends after everybody who tells it something.
        self.inbox.send(message).ok();
    }

    pub(super) fn report(&self, event: Event<Settler>) {
        // Without a coordinator nobody waits for what is dropped here.
        drop(self.events.send(event));
    }
}

pub(crate) fn amount(unit: &Unit<Settler>) -> Amount {
    Amount {
        commands: unit.commands(),
        bytes: unit.bytes().len(),
    }
}
