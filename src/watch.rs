//! Watched sessions: read, decide, and write only if nothing changed in between.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::blocking::ASKING;
use crate::client::Core;
use crate::cmd::Cmd;
use crate::convert::FromValue;
use crate::error::{Error, Misuse, Result};
use crate::proto::addr::NodeAddr;
use crate::proto::backoff::{Backoff, Random};
use crate::proto::outcome::{Certainty, Failure, Reason};
use crate::proto::redirect::{Redirect, certainty_of};
use crate::proto::resp::encode::Encoded;
use crate::proto::slot::Slot;
use crate::proto::unit::Target;
use crate::proto::value::{ServerError, Value};
use crate::proto::verdict::{Reply, may_have_run};
use crate::request::{Request, cross_slot};
use crate::runtime::clock;
use crate::runtime::dedicated::{Broken, Cut, Dedicated, Limits};
use crate::runtime::routes::Pick;
use crate::transaction::{self, Chain, Transaction};

/// The most runs of one session's closure.
const RUNS: u32 = 1000;

/// Pauses between runs, from the second conflict on.
const PAUSE: Backoff = Backoff {
    first: Duration::from_millis(1),
    most: Duration::from_millis(50),
};

/// A connection on which keys are watched, handed to the closure of
/// [`Client::watch`](crate::Client::watch).
pub struct Watched<'a> {
    core: &'a Arc<Core>,
    connection: Dedicated<'a>,
    addr: NodeAddr,
    slot: Slot,
    /// The slot is on its way here: each command needs an ASKING of its own.
    asking: bool,
    deadline: Option<Instant>,
    state: State,
}

/// How far a session is.
#[derive(Debug)]
enum State {
    /// The keys are watched. Exits: a transaction, or something that spoils the session.
    Watching,
    /// The transaction ended, or the session is spoiled for good: nothing more can be done.
    Over,
    /// The closure has to run again.
    Restart(Restart),
}

/// Why a session runs again. In each case nothing was written.
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

/// Runs sessions until one of them is through.
pub(crate) fn run<K: AsRef<[u8]>, R>(
    core: &Arc<Core>,
    keys: &[K],
    mut session: impl FnMut(&mut Watched<'_>) -> Result<R>,
) -> Result<R> {
    let slot = common_slot(core, keys)?;
    let timeout = core.config.response_timeout;
    let deadline = timeout.and_then(|timeout| clock::now().checked_add(timeout));
    let mut random = Random::new(clock::seed());
    let (mut next, mut redirects, mut is_contended) = (None, 0, false);
    let mut failure = Failure::new(Reason::WatchLost, Certainty::NotSent);
    failure.slot = Some(slot);
    let limits = Limits {
        deadline,
        cancel: None,
    };
    for run in 1..=RUNS {
        failure.attempts = run;
        let restart = match begin(core, keys, slot, next.take(), limits) {
            Ok(mut watched) => match session(&mut watched) {
                Ok(result) => {
                    watched.finish();
                    return Ok(result);
                }
                Err(error) => {
                    let reason = error.failure().map(Failure::reason);
                    is_contended = reason == Some(Reason::WatchLost);
                    failure.node = Some(watched.addr.clone());
                    match watched.finish() {
                        Some(restart) => restart,
                        None => return Err(error),
                    }
                }
            },
            Err(Begin::Failed(error)) => return Err(error),
            Err(Begin::Restart(restart)) => restart,
        };
        let mut pause = run > 1;
        if let Restart::Elsewhere(node, cause) = restart {
            failure.cause = Some(cause);
            redirects += u32::from(node.is_some());
            if redirects > core.config.max_redirects {
                failure.reason = Reason::TooManyRedirects;
                break;
            }
            pause |= node.is_none();
            next = node;
        }
        let pause = if pause {
            PAUSE.pause(run, &mut random)
        } else {
            Duration::ZERO
        };
        if let Err(broken) = core.pool.pause(pause, limits) {
            // That a watched key kept changing says more than that the time ran out over it.
            if !(is_contended && matches!(broken, Broken::Timeout)) {
                failure.reason = broken.reason();
            }
            break;
        }
    }
    failure.certainty = Certainty::Refused;
    Err(failure.into())
}

fn common_slot<K: AsRef<[u8]>>(core: &Core, keys: &[K]) -> Result<Slot> {
    let mut slots = keys.iter().map(|key| Slot::of_key(key.as_ref()));
    let first = slots
        .next()
        .ok_or_else(|| Misuse::Invalid("no key to watch".to_owned()))?;
    match slots.find(|&slot| slot != first) {
        Some(other) if !core.is_standalone() => {
            Err(cross_slot(&Encoded::new(b"WATCH"), first, other))
        }
        _ => Ok(first),
    }
}

/// Why a session did not begin.
enum Begin {
    Failed(Error),
    Restart(Restart),
}

fn begin<'a, K: AsRef<[u8]>>(
    core: &'a Arc<Core>,
    keys: &[K],
    slot: Slot,
    next: Option<(NodeAddr, bool)>,
    limits: Limits<'static>,
) -> std::result::Result<Watched<'a>, Begin> {
    let owner = || {
        let snapshot = core.routes.snapshot();
        let key = core
            .routes
            .route(&snapshot, Target::Slot(slot), &Pick::Primary)?;
        Some((
            snapshot
                .nodes
                .get(key.index())?
                .as_ref()?
                .wire
                .records
                .addr
                .clone(),
            false,
        ))
    };
    let (addr, asking) = next
        .or_else(owner)
        .ok_or(Begin::Restart(Restart::Conflict))?;
    let taken = core.pool.take(&addr, limits);
    let connection = taken.map_err(|broken| match broken {
        Broken::Closed => Begin::Failed(Failure::new(Reason::Closed, Certainty::NotSent).into()),
        // A deadline that has passed is met by the pause before the next run.
        _ => Begin::Restart(Restart::Conflict),
    })?;
    let mut watched = Watched {
        core,
        connection,
        addr,
        slot,
        asking,
        deadline: limits.deadline,
        state: State::Watching,
    };
    let mut watch = Encoded::new(b"WATCH");
    keys.iter().for_each(|key| watch.push(key.as_ref()));
    match watched.exchange(watch.as_bytes()) {
        Ok(Ok(_)) => Ok(watched),
        Ok(Err(error)) | Err(error) => match watched.finish() {
            Some(restart) => Err(Begin::Restart(restart)),
            None => Err(Begin::Failed(error)),
        },
    }
}

impl Watched<'_> {
    /// Runs a command on the watched connection, to look at what the transaction depends on. What
    /// it writes is written at once, not with the transaction.
    ///
    /// # Errors
    /// As [`Client::query`](crate::Client::query). Return the error from the closure: if it is one
    /// that another run can mend (the slot moved, the connection was lost), the closure runs
    /// again.
    pub fn query<T: FromValue>(&mut self, command: Cmd) -> Result<T> {
        self.check_state(&command)?;
        let slot = Request::slot_in_chain(&command, self.core)?;
        self.check_slot(command.encoded(), slot)?;
        T::from_value(self.exchange(command.encoded().as_bytes())??)
    }

    /// Runs a transaction that takes effect only if no watched key has changed since the session
    /// began. It ends the session.
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
        let chain = Chain::new(transaction.commands(), self.core)?;
        self.check_slot(&Encoded::new(b"MULTI"), chain.slot)?;
        self.state = State::Over;
        let replies = self.execute(&chain)?;
        transaction::read(replies, self.slot.into(), || Some(self.addr.clone()))
    }

    fn execute(&mut self, chain: &Chain) -> Result<Value> {
        let mut bytes = if self.asking {
            ASKING.to_vec()
        } else {
            Vec::new()
        };
        bytes.extend_from_slice(&chain.bytes);
        if self.connection.is_closed() {
            // What would be written now could not run; but nobody could tell afterwards.
            self.state = State::Restart(Restart::Conflict);
            let lost = self.failure(Reason::WatchLost, Certainty::NotSent, None);
            return Err(lost.into());
        }
        let count = chain.members + 2 + usize::from(self.asking);
        let mut replies = match self.connection.exchange(&bytes, count, self.limits()) {
            Ok(replies) => replies,
            Err(cut) => return Err(self.cut(&cut)),
        };
        match replies.pop() {
            Some(Ok(Value::Null)) => {
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
            Some(Err(_)) | None => Err(self
                .failure(Reason::ReplyLimit, Certainty::Unknown, None)
                .into()),
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
    fn exchange(&mut self, command: &[u8]) -> Result<Result<Value>> {
        let mut bytes = if self.asking {
            ASKING.to_vec()
        } else {
            Vec::new()
        };
        bytes.extend_from_slice(command);
        let count = 1 + usize::from(self.asking);
        let mut replies = match self.connection.exchange(&bytes, count, self.limits()) {
            Ok(replies) => replies,
            Err(cut) => return Err(self.cut(&cut)),
        };
        match replies.pop() {
            Some(Ok(Value::Error(error))) => {
                self.elsewhere(error.clone());
                let certainty = certainty_of(&error);
                Ok(Err(self
                    .failure(Reason::Server, certainty, Some(error))
                    .into()))
            }
            Some(Ok(value)) => Ok(Ok(value)),
            Some(Err(_)) | None => Err(self
                .failure(Reason::ReplyLimit, Certainty::Unknown, None)
                .into()),
        }
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

    /// The connection failed. Before EXEC was written nothing of the session counts.
    fn cut(&mut self, cut: &Cut) -> Error {
        let reason = cut.why.reason();
        let in_transaction = matches!(self.state, State::Over);
        let may_have_run = cut.was_sent && in_transaction;
        self.state = match reason {
            Reason::ConnectionLost if !may_have_run => State::Restart(Restart::Conflict),
            _ => State::Over,
        };
        let certainty = if cut.was_sent {
            Certainty::Unknown
        } else {
            Certainty::NotSent
        };
        self.failure(reason, certainty, None).into()
    }

    fn limits(&self) -> Limits<'static> {
        Limits {
            deadline: self.deadline,
            cancel: None,
        }
    }

    fn check_state(&self, command: &Cmd) -> Result<()> {
        self.check_state_of(command.name())
    }

    fn check_state_of(&self, command: &str) -> Result<()> {
        match self.state {
            State::Watching => Ok(()),
            State::Over | State::Restart(_) => Err(Misuse::Refused {
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
        failure.attempts = 1;
        failure.cause = cause;
        failure
    }

    /// Ends the session: keys that are still watched are let go. Tells whether it is to run again.
    fn finish(mut self) -> Option<Restart> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Watching => {
                let unwatch = Encoded::new(b"UNWATCH");
                // If this fails the connection is not used again, which lets go as well.
                self.connection
                    .exchange(unwatch.as_bytes(), 1, self.limits())
                    .ok();
                None
            }
            State::Over => None,
            State::Restart(restart) => {
                // Keys may still be watched on it.
                self.connection.discard();
                Some(restart)
            }
        }
    }
}
