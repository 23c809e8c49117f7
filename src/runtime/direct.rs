//! Direct exchange: a caller that finds its nodes idle writes by itself, and reads its own replies.
//!
//! It saves two hops between threads. The caller takes the same locks and leaves the same records
//! as the threads of the node, so whatever happens to the unit afterwards (redirect, timeout,
//! cancel, lost connection) is the same. What it cannot finish at once it leaves to them: bytes
//! that the kernel does not take, and replies that do not come within a read slice.

use std::sync::Arc;

use super::node::NodeHandle;
use super::read_side::Progress;
use super::records::NodeMessage;
use super::wire::Wire;
use crate::proto::unit::Unit;
use crate::reply::{Home, Settler};

/// A node whose connection this thread has written to.
pub(crate) struct Driven {
    node: Arc<NodeHandle>,
    /// Passed when the unit is answered.
    mark: u64,
}

/// Puts an admitted unit on the wire of an idle node; it comes back if the node has other work. The
/// routes must be held until this returns: no change of its slot may be on its way to the node.
pub(super) fn stage(node: &Arc<NodeHandle>, unit: Unit<Settler>) -> Result<Driven, Unit<Settler>> {
    let Some(mut drive) = node.wire.drive.try_lock() else {
        return Err(unit);
    };
    unit.ticket.set_home(Home::Node(node.key));
    let mark = drive.stage_alone(&node.wire.records, unit)?;
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

    /// Reads until the unit is answered, unless the reading thread does. Gives up after a read
    /// slice without anything, and when `is_over` says that its caller has no more time for it.
    pub(crate) fn read(&self, is_over: impl Fn() -> bool) {
        let wire = &self.node.wire;
        let Some(mut side) = wire.read.try_lock() else {
            return;
        };
        wire.records.rest.count_exchange();
        let mut progress = Progress::Bytes;
        while progress == Progress::Bytes && !is_answered(wire, self.mark) && !is_over() {
            progress = side.read(&wire.records);
        }
        drop(side);
        if progress != Progress::Bytes || !wire.records.state.lock().inflight.is_empty() {
            wire.records.rest.wake();
        }
    }
}

fn is_answered(wire: &Wire, mark: u64) -> bool {
    wire.records.state.lock().inflight.has_passed(mark)
}
