//! How a command ended, and what is certain about whether it ran.

use std::sync::Arc;

use super::addr::NodeAddr;
use super::slot::Slot;
use super::value::{ServerError, Value};

/// What is certain about a command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// No server saw it. It may be repeated.
    NotSent,
    /// A server answered that it did not run it. It may be repeated.
    Refused,
    /// It may have run. Repeating a write may apply it twice.
    ///
    /// A server's error is of this kind, too, unless its code proves that the command did not run.
    /// Most such errors changed nothing, as `WRONGTYPE` for a plain command, but a script's error,
    /// of the same code, may come after its writes.
    Unknown,
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The deadline passed.
    Timeout,
    /// The deadline passed while the server had announced maintenance.
    MaintenanceTimeout,
    /// The caller cancelled.
    Cancelled,
    /// The node's queue is full and the caller did not want to wait, or the unit can never fit.
    QueueFull,
    /// The connection was lost after the command was written.
    ConnectionLost,
    /// The redirect budget is used up.
    TooManyRedirects,
    /// No node serves the slot.
    SlotUncovered,
    /// The node that the command was addressed to is not part of the cluster (any more).
    NodeGone,
    /// The client was closed.
    Closed,
    /// The server answered with an error.
    Server,
    /// The reply exceeds a limit on its size or nesting.
    ReplyLimit,
    /// A transaction did not run because a watched key changed or its connection was lost.
    WatchLost,
    /// A defect of this library: the command was dropped inside it.
    Abandoned,
}

/// A failed command: why, how certain, where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(crate) reason: Reason,
    pub(crate) certainty: Certainty,
    pub(crate) node: Option<NodeAddr>,
    pub(crate) slot: Option<Slot>,
    pub(crate) attempts: u32,
    pub(crate) cause: Option<ServerError>,
    pub(crate) members: Vec<(usize, ServerError)>,
    pub(crate) hops: Vec<NodeAddr>,
    /// What is to be said in place of the reason.
    pub(crate) detail: Option<Box<str>>,
    pub(crate) connect_error: Option<Arc<str>>,
}

/// How a command ended.
pub(crate) type Outcome = Result<Value, Box<Failure>>;

impl Failure {
    pub(crate) fn new(reason: Reason, certainty: Certainty) -> Box<Self> {
        Box::new(Self {
            reason,
            certainty,
            node: None,
            slot: None,
            attempts: 0,
            cause: None,
            members: Vec::new(),
            hops: Vec::new(),
            detail: None,
            connect_error: None,
        })
    }

    /// Why it failed.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Whether it may have run.
    pub fn certainty(&self) -> Certainty {
        self.certainty
    }

    /// The node that it was last sent to, or queued for.
    pub fn node(&self) -> Option<&NodeAddr> {
        self.node.as_ref()
    }

    /// The slot of its keys.
    pub fn slot(&self) -> Option<Slot> {
        self.slot
    }

    /// How often it was sent.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The server's error: the reply itself, or the last redirect that was followed.
    pub fn server_error(&self) -> Option<&ServerError> {
        self.cause.as_ref()
    }

    /// Why the node could not be reached, if the call waited for a connection to it when it ended:
    /// the last attempt's error, of the operating system or of the server.
    pub fn connect_error(&self) -> Option<&str> {
        self.connect_error.as_deref()
    }

    /// Errors of single commands of a transaction, by index.
    pub fn members(&self) -> &[(usize, ServerError)] {
        &self.members
    }

    /// Whether its caller gave up.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(
            self.reason,
            Reason::Timeout | Reason::MaintenanceTimeout | Reason::Cancelled
        )
    }

    /// It was at this node when it ended. If its caller gave up, that the node is out of reach may
    /// be why.
    pub(crate) fn was_at(&mut self, node: &NodeAddr, connect_error: Option<Arc<str>>) {
        if connect_error.is_some() && self.is_given_up() {
            self.node = Some(node.clone());
            self.connect_error = connect_error;
        }
        self.node.get_or_insert_with(|| node.clone());
    }

    /// The index of the command of a transaction whose error is the cause.
    fn blamed(&self) -> Option<usize> {
        let mut members = self.members.iter();
        let blamed = members.find(|(_, error)| Some(error) == self.cause.as_ref());
        blamed.map(|(index, _)| *index)
    }

    /// The nodes that redirected it, in order.
    pub fn hops(&self) -> &[NodeAddr] {
        &self.hops
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.cause, &self.detail) {
            (Some(cause), _) if self.reason == Reason::Server => write!(f, "{cause}")?,
            (_, Some(detail)) => f.write_str(detail)?,
            (Some(cause), None) => write!(f, "{} (last answer: {cause})", self.reason)?,
            (None, None) => write!(f, "{}", self.reason)?,
        }
        if let Some(index) = self.blamed() {
            write!(f, "; at index {index} of the transaction")?;
        }
        // What the server says speaks for itself, unless it proves something.
        if self.reason != Reason::Server || self.certainty != Certainty::Unknown {
            write!(f, "; {}", self.certainty)?;
        }
        if let Some(node) = &self.node {
            write!(f, "; node {node}")?;
        }
        if let Some(error) = &self.connect_error {
            write!(f, " (cannot connect: {error})")?;
        }
        if let Some(slot) = self.slot {
            write!(f, "; slot {slot}")?;
        }
        if self.attempts > 1 {
            write!(f, "; sent {} times", self.attempts)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {
    /// The server's error, if there is one.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reason::Timeout => "deadline passed",
            Reason::MaintenanceTimeout => "deadline passed during announced maintenance",
            Reason::Cancelled => "cancelled",
            Reason::QueueFull => "queue of the node is full",
            Reason::ConnectionLost => "connection lost",
            Reason::TooManyRedirects => "too many redirects",
            Reason::SlotUncovered => "no node serves the slot",
            Reason::NodeGone => {
                "node is not part of the cluster: take the address from Client::primaries()"
            }
            Reason::Closed => "client is closed",
            Reason::Server => "server error",
            Reason::ReplyLimit => "reply exceeds a limit",
            Reason::WatchLost => "watched key changed or its connection was lost",
            Reason::Abandoned => "command was dropped by a defect of the client",
        })
    }
}

impl std::fmt::Display for Certainty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Certainty::NotSent => "not sent",
            Certainty::Refused => "not executed",
            Certainty::Unknown => "may have run",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(line: &str, certainty: Certainty) -> Box<Failure> {
        let mut failure = Failure::new(Reason::Server, certainty);
        failure.cause = Some(ServerError::new(line));
        failure.node = Some(NodeAddr::new("h", 1));
        failure
    }

    #[test]
    fn an_answer_says_something_of_certainty_only_where_it_proves_something() {
        let wrong = server("WRONGTYPE Operation against", Certainty::Unknown);
        assert_eq!(wrong.to_string(), "WRONGTYPE Operation against; node h:1");
        let refused = server("NOPERM no", Certainty::Refused);
        assert_eq!(refused.to_string(), "NOPERM no; not executed; node h:1");
        let lost = Failure::new(Reason::ConnectionLost, Certainty::Unknown);
        assert_eq!(lost.to_string(), "connection lost; may have run");
    }

    #[test]
    fn the_command_of_a_transaction_that_failed_is_told() {
        let mut failure = server("ERR b", Certainty::Unknown);
        failure.members = vec![
            (1, ServerError::new("ERR a")),
            (4, ServerError::new("ERR b")),
        ];
        assert_eq!(
            failure.to_string(),
            "ERR b; at index 4 of the transaction; node h:1"
        );
    }
}
