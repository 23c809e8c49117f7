//! What the two threads of a node share, and what they tell each other.

use std::time::Instant;

use super::load::{Amount, Load};
use super::transport::WriteHalf;
use crate::proto::addr::NodeAddr;
use crate::proto::inflight::{BarrierId, Inflight};
use crate::proto::outcome::Reason;
use crate::proto::slot::SlotSet;
use crate::proto::unit::Unit;
use crate::reply::Settler;
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
    /// From the reading thread: a connection is ready.
    Connected {
        generation: u64,
        write: Box<dyn WriteHalf>,
    },
    /// From the reading thread: nothing more will be read from this connection.
    Lost { generation: u64 },
    /// From the reading thread: everything that was written is answered.
    Idle,
    /// From the reading thread: its last message.
    ReaderEnded,
    /// End, at the latest at `limit`: wait for what is on the wire, give back what is queued.
    End { limit: Instant, why: Reason },
}

/// What both threads of a node share.
pub(crate) struct Wire {
    pub(crate) addr: NodeAddr,
    pub(crate) load: Load,
    pub(crate) stats: NodeCounters,
    /// Written by both threads, for a few instructions per batch of units or replies. Nothing that
    /// blocks may be done under it; sends to the coordinator are allowed and sometimes necessary.
    pub(crate) state: Mutex<WireState>,
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

pub(crate) fn amount(unit: &Unit<Settler>) -> Amount {
    Amount {
        commands: unit.commands(),
        bytes: unit.bytes().len(),
    }
}
