//! How the connection of a node is read, whoever does it.

use std::sync::Arc;

use super::read_side::Progress;
use super::records::WireState;
use super::seat::Next;
use super::wire::Wire;
use crate::reply::Cell;
use crate::reply::asked::{Invitation, Source};

/// So many of the oldest units are looked at for a caller who can read.
const LOOK_AT: usize = 4;

/// The seat of a node, taken. Whatever ends it, a panic included, somebody else reads then.
pub(super) struct Reading<'a> {
    wire: &'a Arc<Wire>,
    is_over: bool,
}

impl Reading<'_> {
    /// Gives the right to read back and finds the next one; whether that is a caller.
    pub(super) fn leave(mut self) -> bool {
        self.is_over = true;
        let mut state = self.wire.records.state.lock();
        state.seat.leave();
        let next = self.wire.fill_seat(&mut state);
        drop(state);
        self.wire.wake(next)
    }
}

/// Without further ado the right to read goes to the reading thread.
impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.wire.records.state.lock().seat.leave();
            self.wire.records.rest.wake();
        }
    }
}

impl Wire {
    /// Takes the right to read; `None`: somebody else has it, and will find the next one.
    pub(super) fn take_seat(self: &Arc<Self>) -> Option<Reading<'_>> {
        let is_taken = self.records.state.lock().seat.take();
        // Made only if it is taken: its end gives the seat back.
        is_taken.then(|| Reading {
            wire: self,
            is_over: false,
        })
    }

    /// Finds somebody to read what is on the wire, if nobody does.
    pub(super) fn find_reader(self: &Arc<Self>) {
        let next = self.fill_seat(&mut self.records.state.lock());
        self.wake(next);
    }

    fn fill_seat(self: &Arc<Self>, state: &mut WireState) -> Next<Arc<Cell>> {
        let WireState { seat, inflight, .. } = state;
        seat.fill(inflight.is_empty(), || {
            let mut oldest = inflight.tickets().take(LOOK_AT);
            oldest.find_map(|(mark, ticket)| {
                let source = || Arc::clone(self) as Arc<dyn Source>;
                ticket.ask(|| Invitation::new(source(), mark))
            })
        })
    }

    /// Whether it was a caller. Outside of the lock: whoever wakes up wants it.
    fn wake(&self, next: Next<Arc<Cell>>) -> bool {
        match next {
            Next::Nobody => false,
            Next::Caller(cell) => {
                cell.wake();
                true
            }
            Next::Thread => {
                self.records.rest.wake();
                false
            }
        }
    }

    /// Reads until what the mark says is answered, unless somebody else reads. Gives up after a
    /// read slice without anything, and when `is_over` says that the caller has no more time.
    pub(super) fn read_until(self: &Arc<Self>, mark: u64, is_over: &dyn Fn() -> bool) {
        let Some(reading) = self.take_seat() else {
            return;
        };
        self.records.rest.count_exchange();
        let mut side = self.read.lock();
        let mut progress = Progress::Bytes;
        while progress == Progress::Bytes && !self.is_answered(mark) && !is_over() {
            progress = side.read(&self.records);
        }
        drop(side);
        if progress == Progress::Bytes {
            reading.leave();
            return;
        }
        // The node is slow, or gone: no caller is to be woken in vain.
        drop(reading);
        if progress == Progress::End {
            // All may be answered, so the thread would not look by itself before it rests.
            self.records.rest.call();
        }
    }

    fn is_answered(&self, mark: u64) -> bool {
        self.records.state.lock().inflight.has_passed(mark)
    }

    /// Reads once what came while nobody read and nobody waits; `true` if that was the end. If
    /// somebody reads at this moment, that does as well.
    pub(super) fn read_unasked(self: &Arc<Self>) -> bool {
        let Some(reading) = self.take_seat() else {
            return false;
        };
        let progress = self.read.lock().read(&self.records);
        reading.leave();
        progress == Progress::End
    }
}

impl Source for Wire {
    fn read(self: Arc<Self>, mark: u64, is_over: &dyn Fn() -> bool) {
        self.read_until(mark, is_over);
    }
}
