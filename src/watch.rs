//! Watched sessions: read, decide, and write only if nothing changed in between.

mod options;
mod sessions;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::blocking::ASKING;
use crate::cancel::CancelToken;
use crate::client::Core;
use crate::cmd::Cmd;
use crate::convert::FromValue;
use crate::error::{Error, Misuse, Result};
use crate::proto::addr::NodeAddr;
use crate::proto::outcome::{Certainty, Failure, Reason};
use crate::proto::redirect::{Author, Redirect, certainty_of};
use crate::proto::resp::encode::Encoded;
use crate::proto::slot::Slot;
use crate::proto::value::{ServerError, Value};
use crate::proto::verdict::{Reply, may_have_run};
use crate::reply::relax::Extension;
use crate::request::{Request, cross_slot};
use crate::runtime::clock;
use crate::runtime::dedicated::{Cut, Dedicated, Limits};
use crate::transaction::{self, Chain, Transaction};

pub use options::WatchOptions;
pub(crate) use sessions::run;

/// A connection on which keys are watched, handed to the closure of
/// [`Client::watch`](crate::Client::watch).
pub struct Watched<'a> {
    core: &'a Arc<Core>,
    connection: Dedicated<'a>,
    addr: NodeAddr,
    slot: Slot,
    /// The slot is on its way here: each command needs an ASKING of its own.
    asking: bool,
    /// What ends the session from outside.
    limits: Limits<'a>,
    cancel: Option<&'a CancelToken>,
    known: Known,
    state: State,
}

/// What is certain about the runs so far.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// A server answered that it did not run something.
    refused: bool,
    /// Something was written, or may have been.
    wrote: bool,
}

impl Known {
    fn certainty(self) -> Certainty {
        match self {
            Known { wrote: true, .. } => Certainty::Unknown,
            Known { refused: true, .. } => Certainty::Refused,
            Known { refused: false, .. } => Certainty::NotSent,
        }
    }
}

/// How far a session is.
#[derive(Debug)]
enum State {
    /// The keys are watched. Exits: a transaction, or something that spoils the session.
    Watching,
    /// The transaction was begun: nothing more can be done.
    Over,
    /// The session was ended from outside before its transaction.
    Ended(Reason),
    /// The closure has to run again.
    Restart(Restart),
}

/// How a session ended without success.
enum End {
    /// By what its closure returned.
    Own,
    /// By its deadline, a cancel or the end of the client, before its transaction.
    Outside(Reason),
    /// It is to run again.
    Again(Restart),
}

/// Why a session runs again. In each case nothing of its transaction has run.
#[derive(Clone, Debug)]
enum Restart {
    /// A watched key changed, or the connection was lost before EXEC was sent.
    Conflict,
    /// The slot is elsewhere: on this node, if the redirect names one, after ASKING or not. With
    /// the answer that said so.
    Elsewhere(Option<(NodeAddr, bool)>, ServerError),
}

impl fmt::Debug for Watched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({}, {:?})", self.addr, self.state)
    }
}

impl<'a> Watched<'a> {
    fn new(
        core: &'a Arc<Core>,
        connection: Dedicated<'a>,
        addr: NodeAddr,
        slot: Slot,
        asking: bool,
    ) -> Self {
        Self {
            core,
            connection,
            addr,
            slot,
            asking,
            limits: Limits::new(None, None, None),
            cancel: None,
            known: Known::default(),
            state: State::Watching,
        }
    }

    /// Runs a command on the watched connection, to look at what the transaction depends on.
    ///
    /// What it writes is written at once, not with the transaction, and whatever becomes of that.
    /// When the closure runs again, the command runs again, too: a write may so be repeated many
    /// times. Put into the transaction what is to be written once.
    ///
    /// A timeout, a deadline or a cancel token of the command counts beside those of the session;
    /// when it ends the command, the session is over.
    ///
    /// # Errors
    /// As [`Client::query`](crate::Client::query). Return the error from the closure: if it is one
    /// that another run can mend (the slot moved, the connection was lost), the closure runs
    /// again. [`Misuse::CrossSlot`] if its keys are not in the slot of the watched ones,
    /// [`Misuse::Refused`] if it is to go to another node than this one.
    pub fn query<T: FromValue>(&mut self, command: Cmd) -> Result<T> {
        self.check_state_of(command.name())?;
        let now = clock::now();
        let (deadline, cancel) = (command.own_deadline(now), command.cancel());
        let extension = deadline.and_then(|_| self.core.extension(now));
        let limits = self.narrowed(deadline, cancel, extension.as_ref());
        let cancels: Vec<_> = self.cancel.into_iter().chain(cancel).collect();
        let node = Some(&self.addr);
        let member = Request::member(&command, self.core, limits.deadline(), &cancels, node);
        let member = self.asked(member, limits)?;
        self.check_slot(command.encoded(), member.slot)?;
        self.check_limits(limits)?;
        let reply = self.exchange(command.encoded().as_bytes(), member.author, limits);
        let reply = reply.and_then(|reply| reply);
        self.known.wrote |= may_have_run_by(&reply) && !member.only_reads;
        T::from_value(reply?)
    }

    /// Runs a transaction that takes effect only if no watched key has changed since the session
    /// began. It ends the session. Its own timeout and cancel token count beside those of the
    /// session.
    ///
    /// # Errors
    /// As [`Client::transaction`](crate::Client::transaction). Return the error from the closure:
    /// after a conflict the closure runs again.
    pub fn transaction<T: FromValue>(
        &mut self,
        collect: impl FnOnce(&mut Transaction),
    ) -> Result<T> {
        let mut transaction = Transaction::new();
        collect(&mut transaction);
        self.check_state_of("EXEC")?;
        let now = clock::now();
        let (deadline, cancel) = (transaction.own_deadline(now), transaction.cancel());
        let extension = deadline.and_then(|_| self.core.extension(now));
        let limits = self.narrowed(deadline, cancel, extension.as_ref());
        let cancels: Vec<_> = self.cancel.into_iter().chain(cancel).collect();
        let (commands, place) = (transaction.commands(), Some((&self.addr, self.slot)));
        let chain = Chain::new(commands, self.core, limits.deadline(), &cancels, place);
        let chain = self.asked(chain, limits)?;
        self.check_limits(limits)?;
        self.state = State::Over;
        let replies = self.execute(&chain, limits);
        self.known.wrote |= may_have_run_by(&replies) && chain.writes;
        transaction::read(replies?, self.slot.into(), || Some(self.addr.clone()))
    }

    fn execute(&mut self, chain: &Chain, limits: Limits<'_>) -> Result<Value> {
        if self.connection.is_closed() {
            // What would be written now could not run; but nobody could tell afterwards.
            self.state = State::Restart(Restart::Conflict);
            let lost = self.failure(Reason::WatchLost, self.known.certainty(), None);
            return Err(lost.into());
        }
        let mut replies = self.send(&chain.bytes, chain.members + 2, limits)?;
        match replies.pop() {
            Some(Ok(Value::Null)) => {
                self.known.refused = true;
                self.state = State::Restart(Restart::Conflict);
                Err(self
                    .failure(Reason::WatchLost, Certainty::Refused, None)
                    .into())
            }
            Some(Ok(Value::Error(exec))) => {
                let prefix = 1 + usize::from(self.asking);
                Err(self.refused(exec, replies, prefix))
            }
            Some(Ok(value)) => Ok(value),
            limit @ (Some(Err(_)) | None) => Err(self.limited(limit)),
        }
    }

    /// A transaction that failed. Only if nothing ran, and nothing but the place was wrong, it is
    /// another run's business.
    fn refused(&mut self, exec: ServerError, replies: Vec<Reply>, prefix: usize) -> Error {
        let multi = match replies.get(prefix - 1) {
            Some(Ok(Value::Error(error))) => Some(error.clone()),
            _ => None,
        };
        // If MULTI itself failed, the members ran one by one, each for itself.
        let ran = match multi {
            Some(_) => replies.iter().skip(prefix).any(may_have_run),
            None => certainty_of(&exec) != Certainty::Refused,
        };
        let errors: Vec<(usize, ServerError)> = replies
            .into_iter()
            .enumerate()
            .skip(prefix)
            .filter_map(|(at, reply)| match reply {
                Ok(Value::Error(error)) => Some((at - prefix, error)),
                _ => None,
            })
            .collect();
        let mut all: Vec<&ServerError> = errors.iter().map(|(_, error)| error).collect();
        if exec.code() != "EXECABORT" {
            all.push(&exec);
        }
        let mut blamed = all.iter().filter(|error| self.redirect_of(error).is_none());
        let blamed = blamed.next().map(|&error| error.clone());
        if let (false, None, Some(&first)) = (ran, &blamed, all.first()) {
            self.elsewhere(first.clone());
        }
        let certainty = if ran {
            Certainty::Unknown
        } else {
            Certainty::Refused
        };
        let cause = multi.or(blamed).unwrap_or(exec);
        let mut failure = self.failure(Reason::Server, certainty, Some(cause));
        failure.members = errors;
        failure.into()
    }

    /// One command and its reply. The outer error ended the exchange, the inner one is the
    /// server's.
    fn exchange(
        &mut self,
        command: &[u8],
        author: Author,
        limits: Limits<'_>,
    ) -> Result<Result<Value>> {
        let mut replies = self.send(command, 1, limits)?;
        match replies.pop() {
            Some(Ok(Value::Error(error))) => {
                let certainty = author.certainty_by(&error);
                if author.redirect_in(&error).is_some() {
                    self.elsewhere(error.clone());
                }
                Ok(Err(self
                    .failure(Reason::Server, certainty, Some(error))
                    .into()))
            }
            Some(Ok(value)) => Ok(Ok(value)),
            limit @ (Some(Err(_)) | None) => Err(self.limited(limit)),
        }
    }

    /// Sends what so many replies answer, behind ASKING where the slot is on its way here: then one
    /// reply more comes in front of them.
    fn send(&mut self, bytes: &[u8], replies: usize, limits: Limits<'_>) -> Result<Vec<Reply>> {
        let prefix = if self.asking { ASKING } else { b"" };
        let bytes = [prefix, bytes].concat();
        let count = replies + usize::from(self.asking);
        let replies = self.connection.exchange(&bytes, count, limits);
        replies.map_err(|cut| self.cut(&cut))
    }

    /// Its reply was too large to be kept.
    fn limited(&self, reply: Option<Reply>) -> Error {
        let mut failure = self.failure(Reason::ReplyLimit, Certainty::Unknown, None);
        failure.detail = reply
            .and_then(Reply::err)
            .map(|limit| limit.to_string().into());
        failure.into()
    }

    /// The redirect in an error, if it concerns this slot.
    fn redirect_of(&self, error: &ServerError) -> Option<Redirect> {
        let redirect = Redirect::parse(error)?;
        let fits = redirect.slot().is_none_or(|named| named == self.slot);
        fits.then_some(redirect)
    }

    /// If this is a redirect, the session runs again where it leads.
    fn elsewhere(&mut self, error: ServerError) {
        let Some(redirect) = self.redirect_of(&error) else {
            return;
        };
        self.core.learn(&self.addr, &redirect);
        self.known.refused = true;
        if !self.core.config.follow_redirects {
            return;
        }
        let (endpoint, asking) = match &redirect {
            Redirect::Moved(_, endpoint) => (Some(endpoint), false),
            Redirect::Ask(_, endpoint) => (Some(endpoint), true),
            _ => (None, false),
        };
        let addr = endpoint.and_then(|endpoint| endpoint.resolve(&self.addr));
        let addr = addr.map(|addr| (addr, asking));
        self.state = State::Restart(Restart::Elsewhere(addr, error));
    }

    /// The connection failed, or the time is up. Before EXEC was written nothing of the
    /// transaction has run.
    fn cut(&mut self, cut: &Cut) -> Error {
        let reason = cut.why.reason();
        let in_transaction = matches!(self.state, State::Over);
        let may_have_run = cut.was_sent && in_transaction;
        self.state = match reason {
            Reason::ConnectionLost if !may_have_run => State::Restart(Restart::Conflict),
            _ if in_transaction => State::Over,
            _ => State::Ended(reason),
        };
        let certainty = match (cut.was_sent, in_transaction) {
            (true, _) => Certainty::Unknown,
            (false, true) => self.known.certainty(),
            (false, false) => Certainty::NotSent,
        };
        self.failure(reason, certainty, None).into()
    }

    /// The limits of a part of the session that may have some of its own.
    fn narrowed<'b>(
        &self,
        deadline: Option<Instant>,
        cancel: Option<&'b CancelToken>,
        extension: Option<&'b Extension>,
    ) -> Limits<'b>
    where
        'a: 'b,
    {
        let limits: Limits<'b> = self.limits;
        limits.narrowed(deadline, cancel.map(CancelToken::signal), extension)
    }

    /// What came of asking a server about commands. If that ended from outside, so does the
    /// session.
    fn asked<T>(&mut self, result: Result<T>, limits: Limits<'_>) -> Result<T> {
        if result
            .as_ref()
            .is_err_and(|error| error.failure().is_some())
        {
            self.check_limits(limits)?;
        }
        result
    }

    /// Nothing is sent that was cancelled before, or is late already.
    fn check_limits(&mut self, limits: Limits<'_>) -> Result<()> {
        let was_sent = false;
        let checked = self.core.pool.check(limits, Some(&self.addr));
        checked.map_err(|why| self.cut(&Cut { why, was_sent }))
    }

    fn check_state_of(&self, command: &str) -> Result<()> {
        match self.state {
            State::Watching => Ok(()),
            State::Over | State::Ended(_) | State::Restart(_) => Err(Misuse::Refused {
                command: command.to_owned(),
                why: "the watched session is over: return from its closure",
            }
            .into()),
        }
    }

    fn check_slot(&self, command: &Encoded, slot: Option<Slot>) -> Result<()> {
        match slot {
            Some(slot) if slot != self.slot && !self.core.is_standalone() => {
                Err(cross_slot(command, self.slot, slot))
            }
            _ => Ok(()),
        }
    }

    fn failure(
        &self,
        reason: Reason,
        certainty: Certainty,
        cause: Option<ServerError>,
    ) -> Box<Failure> {
        let mut failure = Failure::new(reason, certainty);
        failure.node = Some(self.addr.clone());
        failure.slot = Some(self.slot);
        failure.attempts = u32::from(certainty != Certainty::NotSent);
        failure.cause = cause;
        failure
    }

    /// Ends the session: keys that are still watched are let go.
    fn finish(mut self) -> (End, Known) {
        let end = match std::mem::replace(&mut self.state, State::Over) {
            State::Watching => {
                let unwatch = Encoded::new(b"UNWATCH");
                // If this fails the connection is not used again, which lets go as well.
                self.connection
                    .exchange(unwatch.as_bytes(), 1, self.limits)
                    .ok();
                End::Own
            }
            State::Over => End::Own,
            State::Ended(reason) => End::Outside(reason),
            State::Restart(restart) => End::Again(restart),
        };
        if !matches!(end, End::Own) {
            // Keys may still be watched on it.
            self.connection.discard();
        }
        (end, self.known)
    }
}

/// What was refused, or never sent, has written nothing.
fn may_have_run_by<T>(reply: &Result<T>) -> bool {
    let error = reply.as_ref().err();
    error.is_none_or(|error| error.certainty() == Certainty::Unknown)
}
