//! One session after the other, until one is through.

use std::sync::Arc;
use std::time::Duration;

use super::{End, Known, Restart, WatchOptions, Watched};
use crate::cancel::CancelToken;
use crate::client::Core;
use crate::error::{Error, Misuse, Result};
use crate::proto::addr::NodeAddr;
use crate::proto::backoff::{Backoff, Random};
use crate::proto::outcome::{Certainty, Failure, Reason};
use crate::proto::redirect::Author;
use crate::proto::resp::encode::Encoded;
use crate::proto::slot::Slot;
use crate::proto::unit::Target;
use crate::request::cross_slot;
use crate::runtime::clock;
use crate::runtime::dedicated::{Broken, Limits};
use crate::runtime::routes::Pick;

/// The most runs of one session's closure.
const RUNS: u32 = 1000;

/// Pauses between runs, from the second conflict on.
const PAUSE: Backoff = Backoff {
    first: Duration::from_millis(1),
    most: Duration::from_millis(50),
};

/// Runs sessions until one of them is through.
pub(crate) fn run<K: AsRef<[u8]>, R>(
    core: &Arc<Core>,
    keys: &[K],
    options: &WatchOptions,
    session: impl FnMut(&mut Watched<'_>) -> Result<R>,
) -> Result<R> {
    let result = run_all(core, keys, options, session);
    if let Some(failure) = result.as_ref().err().and_then(Error::failure) {
        core.count_given_up(failure.reason(), 1);
    }
    result
}

fn run_all<K: AsRef<[u8]>, R>(
    core: &Arc<Core>,
    keys: &[K],
    options: &WatchOptions,
    mut session: impl FnMut(&mut Watched<'_>) -> Result<R>,
) -> Result<R> {
    let slot = common_slot(core, keys)?;
    let now = clock::now();
    let timeout = options.timeout.unwrap_or(core.config.response_timeout);
    let deadline = timeout.and_then(|timeout| now.checked_add(timeout));
    let cancel = options.cancel.as_ref();
    core.permission
        .check(core, Some(slot), deadline, cancel.as_slice())?;
    let extension = core.extension(now);
    let limits = Limits::new(
        deadline,
        cancel.map(CancelToken::signal),
        extension.as_ref(),
    );
    let mut sessions = Sessions::new(core, slot, limits);
    sessions.cancel = cancel;
    let mut watch = Encoded::new(b"WATCH");
    keys.iter().for_each(|key| watch.push(key.as_ref()));
    let mut runs = 0;
    for attempt in 1.. {
        if let Err(broken) = core.pool.pause(sessions.pause, sessions.limits) {
            // That a watched key kept changing says more than that the time ran out over it.
            if !(sessions.is_contended && matches!(broken, Broken::Timeout)) {
                sessions.failure.reason = broken.reason();
            }
            break;
        }
        let (end, error) = match sessions.begin(&watch) {
            Ok(mut watched) => {
                runs += 1;
                match session(&mut watched) {
                    Ok(result) => {
                        watched.finish();
                        return Ok(result);
                    }
                    Err(error) => {
                        let reason = error.failure().map(Failure::reason);
                        sessions.is_contended = reason == Some(Reason::WatchLost);
                        (sessions.end(watched), error)
                    }
                }
            }
            Err(ended) => ended,
        };
        match end {
            End::Again(restart) => {
                if runs == RUNS || !sessions.again(attempt, restart) {
                    break;
                }
            }
            // What the closure made of it is its own business.
            End::Outside(reason) if error.failure().map(Failure::reason) == Some(reason) => {
                sessions.failure.reason = reason;
                break;
            }
            End::Outside(_) | End::Own => return Err(sessions.raise(error)),
        }
    }
    Err(sessions.fail())
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

/// What the runs of one closure have in common.
struct Sessions<'a> {
    core: &'a Arc<Core>,
    slot: Slot,
    limits: Limits<'a>,
    cancel: Option<&'a CancelToken>,
    /// Before the next run.
    pause: Duration,
    /// A redirect names the node of the next run.
    next: Option<(NodeAddr, bool)>,
    redirects: u32,
    /// The last run ended because a watched key had changed.
    is_contended: bool,
    /// What is certain about all runs so far.
    known: Known,
    /// How it fails if no run is through.
    failure: Box<Failure>,
    random: Random,
}

impl<'a> Sessions<'a> {
    fn new(core: &'a Arc<Core>, slot: Slot, limits: Limits<'a>) -> Self {
        let mut failure = Failure::new(Reason::WatchLost, Certainty::NotSent);
        failure.slot = Some(slot);
        Self {
            core,
            slot,
            limits,
            cancel: None,
            pause: Duration::ZERO,
            next: None,
            redirects: 0,
            is_contended: false,
            known: Known::default(),
            failure,
            random: Random::new(clock::seed()),
        }
    }

    fn begin(&mut self, watch: &Encoded) -> std::result::Result<Watched<'a>, (End, Error)> {
        let unsent = |end, reason| (end, Failure::new(reason, Certainty::NotSent).into());
        let again = || unsent(End::Again(Restart::Conflict), Reason::WatchLost);
        let next = self.next.take().or_else(|| Some((self.owner()?, false)));
        let Some((addr, asking)) = next else {
            self.is_contended = false;
            return Err(again());
        };
        self.failure.node = Some(addr.clone());
        let taken = self.core.pool.take(&addr, self.limits);
        // That a node cannot be reached says more than that a watched key had changed before.
        self.is_contended &= !matches!(taken, Err(Broken::Lost(_)));
        let connection = taken.map_err(|broken| match broken {
            Broken::Closed => unsent(End::Outside(Reason::Closed), Reason::Closed),
            // Whatever else has ended it is met by the pause before the next run.
            Broken::Lost(error) => {
                self.failure.connect_error = Some(error.to_string().into());
                again()
            }
            _ => again(),
        })?;
        self.failure.connect_error = None;
        let mut watched = Watched::new(self.core, connection, addr, self.slot, asking);
        (watched.limits, watched.cancel) = (self.limits, self.cancel);
        watched.known = self.known;
        self.failure.attempts += 1;
        match watched.exchange(watch.as_bytes(), Author::Server, self.limits) {
            Ok(Ok(_)) => Ok(watched),
            Ok(Err(error)) | Err(error) => Err((self.end(watched), error)),
        }
    }

    fn owner(&self) -> Option<NodeAddr> {
        let routes = &self.core.routes;
        let snapshot = routes.snapshot();
        let key = routes.route(&snapshot, Target::Slot(self.slot), &Pick::Primary)?;
        snapshot.addr(key)
    }

    fn end(&mut self, watched: Watched<'_>) -> End {
        let (end, known) = watched.finish();
        self.known = known;
        end
    }

    /// Prepares the next run; `false`: there is to be none.
    fn again(&mut self, attempt: u32, restart: Restart) -> bool {
        let mut pause = attempt > 1;
        if let Restart::Elsewhere(node, cause) = restart {
            self.failure.cause = Some(cause);
            self.redirects += u32::from(node.is_some());
            if self.redirects > self.core.config.max_redirects {
                self.failure.reason = Reason::TooManyRedirects;
                return false;
            }
            pause |= node.is_none();
            self.next = node;
        }
        self.pause = if pause {
            PAUSE.pause(attempt, &mut self.random)
        } else {
            Duration::ZERO
        };
        true
    }

    fn fail(mut self) -> Error {
        self.failure.certainty = self.known.certainty();
        if self.failure.certainty == Certainty::NotSent {
            self.failure.attempts = 0;
        }
        self.failure.into()
    }

    /// What its closure returned says what is certain about one call. Who calls `watch` hears of
    /// the session as a whole.
    fn raise(&self, error: Error) -> Error {
        match error.into_failure() {
            Ok(mut failure) if self.known.wrote => {
                failure.certainty = Certainty::Unknown;
                failure.attempts = failure.attempts.max(1);
                failure.into()
            }
            Ok(failure) => failure.into(),
            Err(error) => error,
        }
    }
}
