//! The connection of a node, as its threads and callers share it.
//!
//! There are three locks, always taken in this order: the reading side, the drive, the state in
//! the records. Whoever holds the reading side reads the socket; whoever holds the drive writes
//! it. That is the node's own two threads, or a caller.

use super::drive::Drive;
use super::read_side::ReadSide;
use super::records::Records;
use crate::sync::Mutex;

/// Everything that the threads of a node share.
pub(crate) struct Wire {
    pub(crate) records: Records,
    /// What is read from the socket. Held while a read blocks, by whoever has the seat.
    pub(super) read: Mutex<ReadSide>,
    /// The right to write the socket, with the queue. Held for at most a write slice.
    pub(super) drive: Mutex<Drive>,
}

impl Wire {
    pub(super) fn new(records: Records) -> Self {
        let read = Mutex::new(ReadSide::default());
        Self {
            records,
            read,
            drive: Mutex::new(Drive::new()),
        }
    }
}
