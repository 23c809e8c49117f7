//! The one error type, grouped by who must act.

use crate::proto::addr::NodeAddr;
use crate::proto::outcome::{Certainty, Failure, Reason};
use crate::proto::slot::Slot;
use crate::proto::value::ServerError;

/// Everything that can go wrong, grouped by who must act.
///
/// [`certainty`](Error::certainty) tells for each error whether the command may have run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call is wrong and nothing was sent: change the program.
    #[error("{0}")]
    Misuse(#[from] Misuse),
    /// The reply is fine but is not of the type that was asked for. The command ran.
    #[error("cannot read the reply as {wanted}: {reply}")]
    Conversion {
        /// The type asked for.
        wanted: &'static str,
        /// What came instead: its kind, or the value where it is short.
        reply: Box<str>,
    },
    /// The server answered with an error.
    #[error("{0}")]
    Server(Box<Failure>),
    /// The cluster could not take the command in time, and it did not run.
    #[error("{0}")]
    Unavailable(Box<Failure>),
    /// The command was written and no reply came: it may have run.
    #[error("{0}")]
    MaybeExecuted(Box<Failure>),
    /// The caller cancelled, or a watched key changed; it did not run.
    #[error("{0}")]
    Cancelled(Box<Failure>),
    /// The client was closed.
    #[error("{0}")]
    Closed(Box<Failure>),
    /// No seed led to a usable cluster; each seed's reason.
    #[error("cannot connect: {}", .0.join("; "))]
    Connect(Vec<String>),
}

/// What is wrong with a call. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The keys of one command or transaction belong to several slots.
    /// Give them a common hash tag, or send several commands.
    #[error("keys of slots {0} and {1} in one command or transaction")]
    CrossSlot(Slot, Slot),
    /// A setting, URL or argument that cannot be used; the text says which and why.
    #[error("{0}")]
    Invalid(String),
    /// A command that cannot be run this way; the text says why and what to use instead.
    #[error("{command}: {why}")]
    Refused {
        /// The command's name.
        command: String,
        /// Why, and what to do instead.
        why: &'static str,
    },
}

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the command may have run. Errors that concern no command say `NotSent`.
    pub fn certainty(&self) -> Certainty {
        match self.failure() {
            Some(failure) => failure.certainty(),
            None if matches!(self, Error::Conversion { .. }) => Certainty::Unknown,
            None => Certainty::NotSent,
        }
    }

    /// Why the command failed, with all that is known; `None` for errors that concern no sent
    /// command.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Error::Server(failure)
            | Error::Unavailable(failure)
            | Error::MaybeExecuted(failure)
            | Error::Cancelled(failure)
            | Error::Closed(failure) => Some(failure),
            Error::Misuse(_) | Error::Conversion { .. } | Error::Connect(_) => None,
        }
    }

    /// The server's error line: the reply itself, or the last redirect that was followed.
    pub fn server_error(&self) -> Option<&ServerError> {
        self.failure().and_then(Failure::server_error)
    }

    /// The code of the server's error, such as `WRONGTYPE`.
    pub fn code(&self) -> Option<&str> {
        self.server_error().map(ServerError::code)
    }

    /// The node that the command was last sent to, or queued for.
    pub fn node(&self) -> Option<&NodeAddr> {
        self.failure().and_then(Failure::node)
    }

    /// The slot of the command's keys.
    pub fn slot(&self) -> Option<Slot> {
        self.failure().and_then(Failure::slot)
    }

    /// How often the command was sent.
    pub fn attempts(&self) -> u32 {
        self.failure().map_or(0, Failure::attempts)
    }

    /// Whether a deadline passed.
    pub fn is_timeout(&self) -> bool {
        let reason = self.failure().map(Failure::reason);
        matches!(reason, Some(Reason::Timeout | Reason::MaintenanceTimeout))
    }
}

impl From<Box<Failure>> for Error {
    fn from(failure: Box<Failure>) -> Self {
        match failure.reason() {
            Reason::Closed => Error::Closed(failure),
            Reason::Server | Reason::ReplyLimit => Error::Server(failure),
            Reason::Cancelled | Reason::WatchLost => Error::Cancelled(failure),
            _ if failure.certainty() == Certainty::Unknown => Error::MaybeExecuted(failure),
            _ => Error::Unavailable(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_no_larger_than_a_value() {
        assert!(size_of::<Result<crate::Value>>() <= 40);
        assert_eq!(size_of::<crate::proto::outcome::Outcome>(), 32);
    }
}
