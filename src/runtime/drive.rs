//! The writing side of a node: its queue, and the present connection to write to.

use std::sync::atomic::Ordering;

use super::clock;
use super::load::Amount;
use super::records::{Records, amount};
use super::transport::{Look, WriteHalf, is_slice};
use crate::proto::cluster::Event;
use crate::proto::outbox::Outbox;
use crate::proto::unit::Unit;
use crate::reply::{Home, Settler};

/// Whoever holds this is the only one who writes.
pub(crate) struct Drive {
    pub(super) outbox: Outbox<Settler>,
    /// The present connection, while it may be written to.
    pub(super) write: Option<Box<dyn WriteHalf>>,
    /// The number of the present connection.
    pub(super) generation: u64,
}

impl Drive {
    pub(super) fn new() -> Self {
        Self {
            outbox: Outbox::new(),
            write: None,
            generation: 0,
        }
    }

    /// Whether there is something to write and somewhere to write it to.
    pub(super) fn can_write(&self) -> bool {
        self.write.is_some() && (self.outbox.has_staged() || self.outbox.can_stage())
    }

    /// Puts what is queued on the wire, as far as it is to go with the next write. `false`: first
    /// what has come is to be read.
    pub(super) fn stage(&mut self, records: &Records) -> bool {
        if self.outbox.has_staged() {
            return true;
        }
        match self.look(records) {
            Look::Quiet => self.put_on_wire(records),
            Look::Closed => {}
            Look::Bytes => return false,
        }
        true
    }

    fn put_on_wire(&mut self, records: &Records) {
        let mut expired = Vec::new();
        let mut state = records.state.lock();
        let before = state.inflight.commands();
        self.outbox
            .stage(&mut state.inflight, clock::now(), &mut expired);
        let staged = state.inflight.commands() - before;
        records.load.set_sent(state.sent());
        drop(state);
        records
            .stats
            .sent
            .fetch_add(staged as u64, Ordering::Relaxed);
        for (ticket, outcome) in expired {
            records.settle(ticket, outcome);
        }
    }

    /// Publishes what is queued.
    pub(super) fn publish(&self, records: &Records) {
        records.load.set_queued(Amount {
            commands: self.outbox.waiting(),
            bytes: self.outbox.waiting_bytes(),
        });
    }

    /// What a look at the connection finds before anything is put on the wire. While nobody reads,
    /// nobody else notices that the server has closed it; what is written then would be lost
    /// without need. Bytes that nobody waits for may hide the end.
    fn look(&mut self, records: &Records) -> Look {
        let Some(write) = &self.write else {
            return Look::Closed;
        };
        if !records.rest.is_resting() {
            return Look::Quiet;
        }
        match write.look() {
            Look::Closed => {
                self.shut(records);
                Look::Closed
            }
            Look::Bytes if records.state.lock().inflight.is_empty() => Look::Bytes,
            // A caller is about to read what it waits for.
            Look::Bytes | Look::Quiet => Look::Quiet,
        }
    }

    /// Writes once; at most for a write slice.
    pub(super) fn write(&mut self, records: &Records) {
        let (Some(write), Some(bytes)) = (&mut self.write, self.outbox.next_bytes()) else {
            return;
        };
        match write.write(bytes) {
            Ok(count) if count > 0 => {
                records
                    .stats
                    .bytes_out
                    .fetch_add(count as u64, Ordering::Relaxed);
                self.outbox.wrote(count);
            }
            Err(error) if is_slice(&error) => {}
            Ok(_) | Err(_) => self.shut(records),
        }
    }

    /// Ends the present connection; the reading thread will notice and say so.
    pub(super) fn shut(&mut self, records: &Records) {
        if let Some(write) = self.write.take() {
            write.shutdown();
            // It may be about to rest, without another look at the connection.
            records.rest.call();
        }
    }

    /// Puts a unit on the wire if nothing at all is before it, and gives the mark that its last
    /// reply passes. No change of its slot may be on its way here: the caller holds the routes.
    pub(super) fn stage_alone(
        &mut self,
        records: &Records,
        unit: Unit<Settler>,
    ) -> Result<u64, Unit<Settler>> {
        let idle = self.outbox.is_connected()
            && self.outbox.is_idle()
            && records.load.holds_only(amount(&unit))
            && self.look(records) == Look::Quiet;
        if !idle {
            return Err(unit);
        }
        let admitted = amount(&unit);
        let mut strays = Vec::new();
        self.outbox.submit(unit, &mut strays);
        if !strays.is_empty() {
            // The node takes the slot over, but does not know yet.
            strays
                .iter()
                .for_each(|unit| unit.ticket.set_home(Home::Coordinator));
            records.report(Event::Strays {
                from: records.key,
                units: strays,
            });
        }
        self.put_on_wire(records);
        if self.outbox.waiting() > 0 {
            // Not all of it fits into one write. It must not be counted nowhere.
            self.publish(records);
        }
        records.load.passed_on(admitted);
        Ok(records.state.lock().inflight.mark())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::addr::NodeAddr;
    use crate::proto::cluster::NodeKey;
    use crate::proto::limits::WRITE_BYTES;
    use crate::proto::slot::Slot;
    use crate::proto::unit::{Batch, Body, Facts, Target};
    use crate::reply::Cell;
    use crate::runtime::transport::memory::pair;
    use crossbeam_channel::unbounded;
    use std::sync::Arc;

    #[test]
    fn what_does_not_fit_into_one_write_still_counts() {
        let limit = Amount {
            commands: 100,
            bytes: 100 * WRITE_BYTES,
        };
        let (inbox, _messages) = unbounded();
        let (events, _reported) = unbounded();
        let addr = NodeAddr::new("h", 1);
        let records = Records::new(NodeKey::new(0), addr, limit, None, inbox, events);
        let (connection, _server) = pair(1024);
        let mut drive = Drive::new();
        drive.outbox.connect();
        drive.write = Some(connection.write);
        let mut batch = Batch::default();
        let target = Target::Slot(Slot::of_key(b"k"));
        let facts = Facts {
            target,
            repeatable: false,
        };
        (0..8).for_each(|_| batch.push(&vec![b'x'; WRITE_BYTES / 3], facts));
        let (_cell, settler) = Cell::new(8, None, None);
        let unit = Unit::new(settler, Body::Part(Arc::new(batch), 0..8), None);
        let admitted = amount(&unit);
        records.load.try_admit(admitted).unwrap();
        assert!(drive.stage_alone(&records, unit).is_ok());
        assert!(drive.outbox.waiting() > 0, "too small a unit for this test");
        assert_eq!(records.load.total(), admitted);
    }
}
