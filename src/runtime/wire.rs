//! The connection of a node, as its threads and callers share it.
//!
//! There are three locks, always taken in this order: the reading side, the drive, the state in
//! the records. Whoever holds the reading side reads the socket; whoever holds the drive writes
//! it. That is the node's own two threads, or a caller that found the node idle.

use super::drive::Drive;
use super::read_side::{Progress, ReadSide};
use super::records::Records;
use crate::sync::Mutex;

/// Everything that the threads of a node share.
pub(crate) struct Wire {
    pub(crate) records: Records,
    /// The right to read the socket. Held while a read blocks.
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

    /// Reads once what came while nobody read and nobody waits; `true` if that was the end. If
    /// somebody reads at this moment, that does as well.
    pub(super) fn read_unasked(&self) -> bool {
        let side = self.read.try_lock();
        side.is_some_and(|mut side| side.read(&self.records) == Progress::End)
    }
}
