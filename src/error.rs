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
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// The reply is fine but is not of the type that was asked for. The command ran.
    #[error("cannot read the reply as {wanted}: {reply}{}", if_null(.reply))]
    Conversion {
        /// The type asked for.
        wanted: &'static str,
        /// What came instead: its kind, with the size of strings and lists; numbers, booleans and
        /// short simple strings in full. Never stored data.
        reply: Box<str>,
    },
    /// The server answered with an error.
    #[error(transparent)]
    Server(Box<Failure>),
    /// The cluster could not take the command in time, and it did not run.
    #[error(transparent)]
    Unavailable(Box<Failure>),
    /// The command was written and no reply came: it may have run.
    #[error(transparent)]
    MaybeExecuted(Box<Failure>),
    /// The caller cancelled, and [`certainty`](Error::certainty) tells whether the command may run
    /// all the same; or watched keys changed, and it did not run.
    #[error(transparent)]
    Cancelled(Box<Failure>),
    /// The client was closed; [`certainty`](Error::certainty) tells whether the command may have
    /// run.
    #[error(transparent)]
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
    #[error(
        "{command}: keys of slots {} and {} in one command or transaction; give all of them a \
         common hash tag, as in {{user:1}}name and {{user:1}}mail, or send single commands in a \
         pipeline", .slots.0, .slots.1
    )]
    CrossSlot {
        /// The command whose key does not fit.
        command: String,
        /// The slot of an earlier key, and that of the one that does not fit.
        slots: (Slot, Slot),
    },
    /// A setting, URL or argument that cannot be used; the text says which and why.
    #[error("{0}")]
    Invalid(String),
    /// A command that cannot be run this way; the text says why and what to use instead.
    #[error("{command}: {why}")]
    Refused {
        /// The command's name, with its subcommand.
        command: String,
        /// Why, and what to do instead.
        why: &'static str,
    },
}

/// A result with this crate's [`Error`], unless another one is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do about a null that the type has no room for.
fn if_null(reply: &str) -> &'static str {
    match reply {
        "null" => "; use Option for what may be missing",
        _ => "",
    }
}

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

    /// The failure itself, or the error that has none.
    pub(crate) fn into_failure(self) -> Result<Box<Failure>, Error> {
        match self {
            Error::Server(failure)
            | Error::Unavailable(failure)
            | Error::MaybeExecuted(failure)
            | Error::Cancelled(failure)
            | Error::Closed(failure) => Ok(failure),
            Error::Misuse(_) | Error::Conversion { .. } | Error::Connect(_) => Err(self),
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

    /// Whether a deadline passed. `false` for a watched session whose keys kept changing until its
    /// time ran out: its reason is [`Reason::WatchLost`].
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
    fn the_source_is_the_servers_error_and_nothing_twice() {
        let mut failure = Failure::new(Reason::Timeout, Certainty::Refused);
        let cause = ServerError::new("TRYAGAIN later");
        failure.cause = Some(cause.clone());
        let error = Error::from(failure);
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("TRYAGAIN later"));
        let misuse = Error::from(Misuse::Invalid("no".into()));
        assert!(std::error::Error::source(&misuse).is_none());
        assert_eq!(misuse.to_string(), "no");
    }

    #[test]
    fn keys_of_two_slots_are_told_with_their_command_and_a_remedy() {
        let slots = (Slot::of_key(b"foo"), Slot::of_key(b"bar"));
        let command = "MGET".to_owned();
        let text = Error::from(Misuse::CrossSlot { command, slots }).to_string();
        assert_eq!(
            text,
            "MGET: keys of slots 12182 and 5061 in one command or transaction; give all of them a \
             common hash tag, as in {user:1}name and {user:1}mail, or send single commands in a \
             pipeline"
        );
    }

    #[test]
    fn a_result_is_no_larger_than_a_value() {
        assert!(size_of::<Result<crate::Value>>() <= 40);
        assert_eq!(size_of::<crate::proto::outcome::Outcome>(), 32);
    }
}
