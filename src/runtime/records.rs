//! What the threads of a node know together, and what they tell each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::load::{Amount, Load};
use super::rest::Rest;
use super::seat::Seat;
use super::transport::WriteHalf;
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::{Event, NodeKey};
use crate::proto::inflight::{BarrierId, Inflight};
use crate::proto::outcome::{Outcome, Reason};
use crate::proto::slot::SlotSet;
use crate::proto::unit::Unit;
use crate::reply::Settler;
use crate::reply::relax::Relax;
use crate::stats::NodeCounters;
use crate::sync::Mutex;

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
    /// Why there is no connection; `None` while there is one, and before the first attempt. Held
    /// for a look only.
    connect_error: Mutex<Option<Arc<str>>>,
    /// Where announcements of maintenance are noted; `None` if they are not asked for.
    pub(crate) relax: Option<Arc<Relax>>,
    /// Taken for a few instructions per batch of units or replies. Nothing that blocks may be done
    /// under it; sends to the coordinator are allowed and sometimes necessary.
    pub(crate) state: Mutex<WireState>,
    /// Where the reading thread sleeps when nothing is on the wire.
    pub(super) rest: Rest,
    inbox: Sender<NodeMessage>,
    events: Sender<Event<Settler>>,
}

/// What is on the wire.
pub(crate) struct WireState {
    pub(crate) inflight: Inflight<Settler>,
    /// The write loop waits until everything is answered.
    pub(crate) tell_when_idle: bool,
    /// Who reads.
    pub(crate) seat: Seat,
}

impl WireState {
    pub(crate) fn sent(&self) -> Amount {
        Amount {
            commands: self.inflight.commands(),
            bytes: self.inflight.bytes(),
        }
    }
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
            connect_error: Mutex::new(None),
            relax,
            state: Mutex::new(WireState {
                inflight: Inflight::new(addr.clone()),
                tell_when_idle: false,
                seat: Seat::Free,
            }),
            rest: Rest::new(),
            inbox,
            events,
            addr,
        }
    }

    /// Notes how an attempt to connect ended.
    pub(super) fn set_connect_error(&self, error: Option<Arc<str>>) {
        *self.connect_error.lock() = error;
    }

    pub(crate) fn connect_error(&self) -> Option<Arc<str>> {
        self.connect_error.lock().clone()
    }

    /// The reading thread sleeps until it is woken, somebody has to read, or no caller has read
    /// by itself for so long (`false`).
    pub(super) fn rest(&self, at_most: Duration) -> bool {
        self.rest.rest(at_most, || {
            let state = self.state.lock();
            state.seat.lets_thread_rest(state.inflight.is_empty())
        })
    }

    pub(crate) fn tell(&self, message: NodeMessage) {
        // Who tells what concerns units ends before the write loop; other news may come too late.
        self.inbox.send(message).ok();
    }

    /// Ends a command, and counts how.
    pub(super) fn settle(&self, ticket: Settler, outcome: Outcome) {
        self.stats.settled(&outcome);
        ticket.settle(outcome);
    }

    /// Tells of the barriers that have opened.
    pub(super) fn report_cleared(&self, state: &mut WireState) {
        for id in state.inflight.cleared() {
            self.report(Event::Cleared { id });
        }
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
