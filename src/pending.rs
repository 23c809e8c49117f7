//! A command that was handed over and whose reply is not waited for yet.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::Registration;
use crate::client::Core;
use crate::convert::FromValue;
use crate::error::Result;
use crate::proto::outcome::{Certainty, Reason};
use crate::reply::Cell;
use crate::runtime::clock;

/// A command under way, made by [`Client::send`](crate::Client::send).
///
/// Dropping it does not stop the command; [`cancel`](Pending::cancel) does.
#[must_use = "wait for it, or drop it on purpose if the reply does not matter"]
pub struct Pending<T> {
    core: Arc<Core>,
    cell: Arc<Cell>,
    deadline: Option<Instant>,
    /// Keeps the command's cancel token informed.
    _registration: Option<Registration>,
    reply: PhantomData<fn() -> T>,
}

/// What a cancel found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancelled {
    /// No server sees the command, now or later; or one saw it and refused it.
    NotSent,
    /// It was written already: it may run. Its reply is dropped.
    Unknown,
    /// It had ended before.
    AlreadySettled,
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("done", &self.cell.is_done())
            .finish_non_exhaustive()
    }
}

impl<T: FromValue> Pending<T> {
    pub(crate) fn new(
        core: Arc<Core>,
        cell: Arc<Cell>,
        deadline: Option<Instant>,
        registration: Option<Registration>,
    ) -> Self {
        Self {
            core,
            cell,
            deadline,
            _registration: registration,
            reply: PhantomData,
        }
    }

    /// Waits for the reply until the command's own deadline.
    ///
    /// # Errors
    /// As [`Client::query`](crate::Client::query).
    pub fn wait(self) -> Result<T> {
        self.core.wait(&self.cell, self.deadline);
        T::from_value(self.cell.take_one()?)
    }

    /// Waits at most `timeout`, and no longer than the command's own deadline. Gives itself back
    /// if there is no reply by then; the command goes on.
    ///
    /// # Errors
    /// The outer error is the `Pending` itself, to be waited for again.
    pub fn wait_timeout(self, timeout: Duration) -> std::result::Result<Result<T>, Self> {
        let until = clock::now().checked_add(timeout);
        let until = match (until, self.deadline) {
            (Some(until), Some(deadline)) if until >= deadline => return Ok(self.wait()),
            (None, _) => return Ok(self.wait()),
            (until, _) => until,
        };
        if self.cell.wait(until, clock::now) {
            Ok(self.wait())
        } else {
            Err(self)
        }
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.cell.is_done()
    }

    /// Cancels the command, wherever it is.
    ///
    /// `NotSent` is a proof: no server will ever see the command (or one has seen it and refused
    /// it), however often it changed queues before.
    pub fn cancel(self) -> Cancelled {
        if !self.core.give_up(&self.cell, Reason::Cancelled) {
            return Cancelled::AlreadySettled;
        }
        match self.cell.take_one() {
            Err(failure) if failure.certainty() == Certainty::Unknown => Cancelled::Unknown,
            Err(_) => Cancelled::NotSent,
            Ok(_) => Cancelled::AlreadySettled,
        }
    }
}
