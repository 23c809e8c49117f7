//! Direct exchange: a caller that finds its nodes idle writes by itself, and reads its own replies.
//!
//! It saves two hops between threads. The caller takes the same locks and leaves the same records
//! as the threads of the node, so whatever happens to the unit afterwards (redirect, timeout,
//! cancel, lost connection) is the same. What it cannot finish at once it leaves to them: bytes
//! that the kernel does not take, and replies that do not come within a read slice.
//!
//! A large part of a pipeline is written by its caller also behind what others have on the wire,
//! and so is everything where callers are few; it is read by whoever reads.

use std::sync::Arc;

use super::node::NodeHandle;
use super::records::NodeMessage;
use crate::proto::unit::Unit;
use crate::reply::{Home, Settler};

/// A node whose connection this thread has written to.
pub(crate) struct Driven {
    node: Arc<NodeHandle>,
    /// Passed when the unit is answered.
    mark: u64,
}

/// Puts an admitted unit on the wire of a node that is free for it; else it comes back. The routes
/// must be held until this returns: no change of its slot may be on its way to the node.
pub(super) fn stage(node: &Arc<NodeHandle>, unit: Unit<Settler>) -> Result<Driven, Unit<Settler>> {
    let Some(mut drive) = node.wire.drive.try_lock() else {
        return Err(unit);
    };
    unit.ticket.set_home(Home::Node(node.key));
    let mark = drive.stage_at_once(&node.wire.records, unit)?;
    Ok(Driven {
        node: Arc::clone(node),
        mark,
    })
}

impl Driven {
    /// Writes what was staged, unless the write loop did meanwhile.
    pub(crate) fn write(&self) {
        let wire = &self.node.wire;
        let mut drive = wire.drive.lock();
        drive.write(&wire.records);
        let rest = drive.can_write();
        drop(drive);
        if rest {
            wire.records.tell(NodeMessage::GoOn);
        }
    }

    /// Leaves the reading to others: this caller has to wait for something else.
    pub(crate) fn leave(&self) {
        self.node.wire.find_reader();
    }

    /// Reads until the unit is answered, unless somebody else reads. Gives up after a read slice
    /// without anything, and when `is_over` says that its caller has no more time for it.
    pub(crate) fn read(&self, is_over: impl Fn() -> bool) {
        self.node.wire.read_until(self.mark, &is_over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::addr::NodeAddr;
    use crate::proto::cluster::NodeKey;
    use crate::proto::resp::decode::{DecodeLimits, Decoder};
    use crate::proto::unit::{Body, Bytes, Facts, Target};
    use crate::proto::value::Value;
    use crate::reply::Cell;
    use crate::runtime::load::Amount;
    use crate::runtime::records::Records;
    use crate::runtime::transport::Connection;
    use crate::runtime::transport::memory::pair;
    use crate::runtime::wire::Wire;
    use crossbeam_channel::unbounded;
    use std::time::Duration;

    /// A connected node without threads, and the server's end.
    fn wire() -> (Arc<Wire>, Connection) {
        let limit = Amount {
            commands: 10,
            bytes: 1000,
        };
        // Nobody listens to what is told.
        let ((inbox, _), (events, _)) = (unbounded(), unbounded());
        let addr = NodeAddr::new("h", 1);
        let records = Records::new(NodeKey::new(0), addr, limit, None, inbox, events);
        let wire = Arc::new(Wire::new(records));
        let (connection, server) = pair(1024);
        let decoder = Decoder::new(DecodeLimits::default());
        wire.read.lock().open(connection.read, decoder, 1).unwrap();
        let mut drive = wire.drive.lock();
        drive.outbox.connect();
        drive.write = Some(connection.write);
        drop(drive);
        (wire, server)
    }

    fn ping() -> (Arc<Cell>, Unit<Settler>) {
        let facts = Facts::new(Target::Any, false);
        let (cell, settler) = Cell::new(1, None, None);
        let body = Body::One(Bytes::Own(b"*1\r\n$4\r\nPING\r\n".to_vec(), 0), facts);
        (cell, Unit::new(settler, body, None))
    }

    #[test]
    fn nothing_is_written_behind_an_end_that_something_unread_hides() {
        for closes in [false, true] {
            let (wire, mut server) = wire();
            assert!(server.write.write(b">1\r\n+news\r\n").is_ok());
            if closes {
                server.write.shutdown();
            }
            std::thread::scope(|scope| {
                let records = &wire.records;
                scope.spawn(|| records.rest(Duration::from_secs(20)));
                while !records.rest.is_resting() {
                    std::thread::yield_now();
                }
                let (_cell, unit) = ping();
                let mut drive = wire.drive.lock();
                let unit = drive.stage_at_once(records, unit).unwrap_err();
                drive.outbox.submit(unit, &mut Vec::new());
                assert!(!drive.stage(records), "what has come is to be read first");
                assert!(!wire.read_unasked(), "that was not the end yet");
                assert!(drive.stage(records));
                assert_eq!(drive.write.is_none(), closes);
                assert_eq!(records.state.lock().inflight.is_empty(), closes);
                records.rest.call();
            });
        }
    }

    #[test]
    fn an_end_is_not_left_to_a_caller_who_may_not_come() {
        let (wire, server) = wire();
        let mut side = wire.read.lock();
        assert!(!side.is_left_to_callers(), "nobody was here");
        side.was_solo = true;
        assert!(side.is_left_to_callers());
        server.write.shutdown();
        assert!(!side.is_left_to_callers());
    }

    #[test]
    fn one_reads_until_it_leaves_or_ends() {
        let (wire, _server) = wire();
        let reading = wire.take_seat().unwrap();
        for _ in 0..3 {
            assert!(wire.take_seat().is_none());
        }
        assert!(!reading.leave(), "nothing is on the wire");
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _reading = wire.take_seat().unwrap();
            std::panic::resume_unwind(Box::new("a defect"));
        }));
        assert!(ended.is_err());
        assert!(wire.take_seat().is_some());
    }

    #[test]
    fn the_reading_thread_hears_of_an_end_that_a_caller_has_read() {
        let (wire, mut server) = wire();
        let (cell, unit) = ping();
        let mut state = wire.records.state.lock();
        state.inflight.push(unit, 14);
        let mark = state.inflight.mark();
        drop(state);
        // The reply, and with it something that is no reply.
        assert!(server.write.write(b"+OK\r\n?\r\n").is_ok());
        wire.read_until(mark, &|| false);
        assert_eq!(cell.take_one(), Ok(Value::Ok));
        // The thread was about to rest when this happened.
        assert!(wire.records.rest(Duration::from_secs(20)), "nobody woke it");
    }
}
