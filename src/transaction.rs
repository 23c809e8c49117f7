//! Transactions: `MULTI … EXEC` as one piece.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::CancelToken;
use crate::client::Core;
use crate::cmd::Cmd;
use crate::convert::FromValue;
use crate::error::{Error, Result};
use crate::proto::addr::NodeAddr;
use crate::proto::slot::Slot;
use crate::proto::unit::{Body, Bytes, Target};
use crate::proto::value::{ServerError, Value};
use crate::request::{Request, Whole, cross_slot};
use crate::runtime::clock;
use crate::runtime::routes::Pick;

/// The commands of a transaction, collected by the closure of
/// [`Client::transaction`](crate::Client::transaction).
///
/// All keys must belong to one slot: give them a common hash tag. Commands without keys run on
/// the node of that slot.
pub struct Transaction {
    commands: Vec<Cmd>,
    timeout: Option<Option<Duration>>,
    cancel: Option<CancelToken>,
}

/// What its commands cannot have each for itself.
const WHOLE: Whole = Whole {
    timeout: "states a timeout, which a transaction has as a whole: use `Transaction::timeout`",
    cancel: "states a cancel token, which a transaction has as a whole: \
             use `Transaction::cancel_token`",
};

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transaction({} commands)", self.commands.len())
    }
}

impl Transaction {
    pub(crate) fn new() -> Self {
        Self {
            commands: Vec::new(),
            timeout: None,
            cancel: None,
        }
    }

    /// Adds a command. Nothing is sent before all of them are there and checked.
    ///
    /// All of them are waited for together and run on one node, so a command that states a
    /// timeout, a deadline, a cancel token or a node of its own is refused with
    /// [`Misuse::Refused`](crate::Misuse::Refused).
    pub fn add(&mut self, command: Cmd) -> &mut Self {
        self.commands.push(command);
        self
    }

    /// Waits this long for the outcome instead of the client's `response_timeout`; `None` waits
    /// for ever.
    pub fn timeout(&mut self, timeout: impl Into<Option<Duration>>) -> &mut Self {
        self.timeout = Some(timeout.into());
        self
    }

    /// Ends the call when the token is cancelled. Once its first byte was written the transaction
    /// runs to its end all the same, and the error says so.
    pub fn cancel_token(&mut self, token: &CancelToken) -> &mut Self {
        self.cancel = Some(token.clone());
        self
    }

    /// How many commands it has.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether it has no commands.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Sends it as one chain, waits, and reads the array of EXEC.
    pub(crate) fn execute<T: FromValue>(self, core: &Arc<Core>) -> Result<T> {
        if self.commands.is_empty() {
            return T::from_value(Value::Array(Vec::new()));
        }
        let timeout = self.timeout.unwrap_or(core.config.response_timeout);
        let deadline = timeout.and_then(|timeout| clock::now().checked_add(timeout));
        let cancel = self.cancel();
        let chain = Chain::new(&self.commands, core, deadline, cancel.as_slice(), None)?;
        let slot = chain.slot;
        core.permission
            .check(core, slot, deadline, cancel.as_slice())?;
        let cell = core.settle(chain.into_body(), &Pick::Primary, deadline, cancel);
        read(cell.take_one()?, slot, || core.last_node(&cell))
    }

    pub(crate) fn commands(&self) -> &[Cmd] {
        &self.commands
    }

    /// When its caller stops waiting by a time that was stated for it alone.
    pub(crate) fn own_deadline(&self, now: Instant) -> Option<Instant> {
        now.checked_add(self.timeout??)
    }

    /// Its own token.
    pub(crate) fn cancel(&self) -> Option<&CancelToken> {
        self.cancel.as_ref()
    }
}

/// Reads the replies to the commands of a transaction. If one of them is an error for which the
/// type has no room, the failure tells whose it is.
pub(crate) fn read<T: FromValue>(
    replies: Value,
    slot: Option<Slot>,
    node: impl FnOnce() -> Option<NodeAddr>,
) -> Result<T> {
    let members = errors(&replies);
    T::from_value(replies).map_err(|error| match error {
        Error::Server(mut failure) => {
            failure.members = members;
            failure.slot = slot;
            failure.node = node();
            failure.attempts = failure.attempts.max(1);
            Error::Server(failure)
        }
        other => other,
    })
}

/// The errors in a list, by index.
fn errors(replies: &Value) -> Vec<(usize, ServerError)> {
    let Value::Array(replies) = replies else {
        return Vec::new();
    };
    let error = |(index, reply): (usize, &Value)| match reply {
        Value::Error(error) => Some((index, error.clone())),
        _ => None,
    };
    replies.iter().enumerate().filter_map(error).collect()
}

/// A transaction that was checked and encoded.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) bytes: Vec<u8>,
    pub(crate) members: usize,
    pub(crate) slot: Option<Slot>,
    /// Some member may write.
    pub(crate) writes: bool,
}

impl Chain {
    /// Checks all commands before anything is encoded for sending: a chain is sent whole or not
    /// at all. `place` is where it runs, if that is settled: the node, and the slot of its keys.
    pub(crate) fn new(
        commands: &[Cmd],
        core: &Arc<Core>,
        deadline: Option<Instant>,
        cancels: &[&CancelToken],
        place: Option<(&NodeAddr, Slot)>,
    ) -> Result<Self> {
        let standalone = core.is_standalone();
        let (node, mut slot) = place.unzip();
        let mut writes = false;
        let mut bytes = MULTI.to_vec();
        for command in commands {
            WHOLE.check(command)?;
            let member = Request::member(command, core, deadline, cancels, node)?;
            writes |= !member.only_reads;
            if let Some(of_member) = member.slot {
                let first = *slot.get_or_insert(of_member);
                if first != of_member && !standalone {
                    return Err(cross_slot(command.encoded(), first, of_member));
                }
            }
            command.encoded().append_to(&mut bytes);
        }
        bytes.extend_from_slice(EXEC);
        Ok(Self {
            bytes,
            members: commands.len(),
            slot,
            writes,
        })
    }

    /// MULTI and EXEC, and nothing in between.
    pub(crate) fn empty(slot: Option<Slot>) -> Self {
        Self {
            bytes: [MULTI, EXEC].concat(),
            members: 0,
            slot,
            writes: false,
        }
    }

    pub(crate) fn into_body(self) -> Body {
        Body::Chain {
            bytes: Bytes::Own(self.bytes, 0),
            members: self.members,
            target: self.slot.map_or(Target::Any, Target::Slot),
        }
    }
}
