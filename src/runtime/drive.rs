//! The writing side of a node: its queue, and the present connection to write to.

use std::sync::atomic::Ordering;

use super::clock;
use super::load::Amount;
use super::records::{Records, amount};
use super::transport::{Look, WriteHalf, is_slice};
use crate::proto::outbox::Outbox;
use crate::proto::unit::Unit;
use crate::reply::Settler;

/// A caller writes a part of so many commands by itself, also behind others that are on the wire.
/// Less than that is better written by the write loop, together with what comes meanwhile.
const LARGE_PART: usize = 16;

/// Where no more commands than this are on the wire at once, callers write each command by
/// themselves, also behind others: what the write loop could gather is not worth its being woken.
const FEW: usize = 4;

/// So many writes in a row have to find it so. Among many callers, too, the wire is nearly empty
/// now and then, and then the write loop is about to gather what they send next.
const CALM: u32 = 64;

/// Whoever holds this is the only one who writes.
pub(crate) struct Drive {
    pub(super) outbox: Outbox<Settler>,
    /// The present connection, while it may be written to.
    pub(super) write: Option<Box<dyn WriteHalf>>,
    /// The number of the present connection.
    pub(super) generation: u64,
    /// Writes since more than a few commands were on the wire.
    calm: u32,
}

impl Drive {
    pub(super) fn new() -> Self {
        Self {
            outbox: Outbox::new(),
            write: None,
            generation: 0,
            calm: 0,
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
        let on_wire = state.inflight.commands();
        let staged = on_wire - before;
        records.load.set_sent(state.sent());
        drop(state);
        self.calm = match on_wire <= FEW {
            true => self.calm.saturating_add(u32::from(staged > 0)),
            false => 0,
        };
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
        if !records.rest.is_resting() || !records.load.sends_nothing() {
            // The thread reads, or a caller is about to read what it waits for.
            return Look::Quiet;
        }
        let look = write.look();
        if look == Look::Closed {
            self.shut(records);
        }
        look
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

    /// Puts a unit on the wire if nothing is to be written before it, and it is not better left to
    /// the write loop; gives the mark that its last reply passes. The caller holds the routes, so
    /// that none of its slots can leave the node meanwhile.
    pub(super) fn stage_at_once(
        &mut self,
        records: &Records,
        unit: Unit<Settler>,
    ) -> Result<u64, Unit<Settler>> {
        let admitted = amount(&unit);
        let is_next = self.outbox.is_free_for(&unit)
            && records.load.queues_only(admitted)
            && (unit.places() >= LARGE_PART || self.calm >= CALM || records.load.sends_nothing())
            && self.look(records) == Look::Quiet;
        if !is_next {
            return Err(unit);
        }
        let mut strays = Vec::new();
        self.outbox.submit(unit, &mut strays);
        debug_assert!(strays.is_empty(), "none of its slots was given away");
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
    use crate::proto::value::Value;
    use crate::reply::Cell;
    use crate::runtime::transport::memory::pair;
    use crate::runtime::transport::{Connection, ReadHalf};
    use crossbeam_channel::unbounded;
    use std::collections::VecDeque;
    use std::sync::Arc;

    const ROOM: Amount = Amount {
        commands: 1000,
        bytes: 100 * WRITE_BYTES,
    };

    /// What a node knows, and its writing side, connected to a server that reads nothing: the other
    /// halves of the connection.
    fn node() -> (Records, Drive, (Box<dyn ReadHalf>, Connection)) {
        let ((inbox, _), (events, _)) = (unbounded(), unbounded());
        let addr = NodeAddr::new("h", 1);
        let records = Records::new(NodeKey::new(0), addr, ROOM, None, inbox, events);
        let (connection, server) = pair(1024);
        let mut drive = Drive::new();
        drive.outbox.connect();
        drive.write = Some(connection.write);
        (records, drive, (connection.read, server))
    }

    /// Commands of one slot, and the cell that they end in.
    fn part(records: &Records, commands: usize, bytes: usize) -> (Arc<Cell>, Unit<Settler>) {
        let mut batch = Batch::with_room(commands);
        let facts = Facts::new(Target::Slot(Slot::of_key(b"k")), false);
        (0..commands).for_each(|_| batch.push(&vec![b'x'; bytes], facts));
        let (cell, settler) = Cell::new(commands, None, None);
        let body = Body::Part(Arc::new(batch), 0..commands);
        let unit = Unit::new(settler, body, None);
        records.load.try_admit(amount(&unit)).unwrap();
        (cell, unit)
    }

    #[test]
    fn what_does_not_fit_into_one_write_still_counts() {
        let (records, mut drive, _server) = node();
        let (_cell, unit) = part(&records, 8, WRITE_BYTES / 3);
        let admitted = amount(&unit);
        assert!(drive.stage_at_once(&records, unit).is_ok());
        assert!(drive.outbox.waiting() > 0, "too small a unit for this test");
        assert_eq!(records.load.total(), admitted);
    }

    /// The slot comes back to the node: published, but its write loop has not looked yet.
    #[test]
    fn a_unit_waits_behind_the_news_that_its_slot_is_back() {
        let (records, mut drive, _server) = node();
        let slots = [Slot::of_key(b"k")].into_iter().collect();
        drive.outbox.give_up(&slots);
        let (_first, unit) = part(&records, 1, 1);
        let first = drive.stage_at_once(&records, unit).unwrap_err();
        drive.outbox.take_over(&slots, Vec::new());
        // The first one is on its way to the write loop.
        let (_second, unit) = part(&records, 1, 1);
        let second = drive.stage_at_once(&records, unit).unwrap_err();
        drop((first, second));
    }

    #[test]
    fn only_a_large_part_goes_behind_what_is_on_the_wire_and_nothing_before_what_waits() {
        let (records, mut drive, _server) = node();
        let (_first, unit) = part(&records, 1, 1);
        let first = drive.stage_at_once(&records, unit).unwrap();
        let (_behind, unit) = part(&records, LARGE_PART, 1);
        let unit = drive.stage_at_once(&records, unit).unwrap_err();
        drive.write(&records);
        assert!(drive.stage_at_once(&records, unit).unwrap() > first);
        drive.write(&records);
        let (_small, unit) = part(&records, LARGE_PART - 1, 1);
        let small = drive.stage_at_once(&records, unit).unwrap_err();
        // It is on its way to the write loop.
        let (_large, unit) = part(&records, LARGE_PART, 1);
        let large = drive.stage_at_once(&records, unit).unwrap_err();
        drop((small, large));
    }

    /// The oldest command is answered.
    fn answer(records: &Records) {
        let mut state = records.state.lock();
        let mut replies = VecDeque::from([Ok(Value::Null)]);
        let mut answers = Vec::new();
        state.inflight.accept(&mut replies, &mut answers).unwrap();
        records.load.set_sent(state.sent());
    }

    #[test]
    fn a_small_unit_goes_behind_others_where_there_were_few_for_a_while() {
        let (records, mut drive, _server) = node();
        let mut stage = || {
            let (_cell, unit) = part(&records, 1, 1);
            let amount = amount(&unit);
            let staged = drive.stage_at_once(&records, unit);
            drive.write(&records);
            if staged.is_err() {
                // As if the write loop had taken it.
                records.load.passed_on(amount);
            }
            staged.is_ok()
        };
        for _ in 0..2 {
            for _ in 1..CALM {
                assert!(stage(), "nothing is on the wire");
                assert!(!stage(), "it was not calm for long enough");
                answer(&records);
            }
            for _ in 0..=FEW {
                assert!(stage());
            }
            assert!(!stage(), "there were many just now");
            (0..=FEW).for_each(|_| answer(&records));
        }
    }
}
