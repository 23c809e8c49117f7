//! Commands that block: on a connection of their own, driven by the calling thread.
//!
//! A command whose slot moves, or whose node is demoted while it waits, is sent again with the time
//! that is left. The server always learns of a time no longer than the caller's patience, so that
//! it does not hand out an element that nobody takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Core;
use crate::error::Result;
use crate::proto::addr::NodeAddr;
use crate::proto::backoff::{Backoff, Random};
use crate::proto::command::Blocking;
use crate::proto::outcome::{Certainty, Failure, Outcome, Reason};
use crate::proto::redirect::{Endpoint, Redirect};
use crate::proto::slot::Slot;
use crate::proto::unit::{Facts, Target};
use crate::proto::value::{ServerError, Value};
use crate::proto::verdict::Reply;
use crate::reply::relax::Extension;
use crate::request::Request;
use crate::runtime::clock;
use crate::runtime::dedicated::{Broken, Cut, Limits};
use crate::runtime::routes::Pick;

/// Pauses before a command that was refused for the moment is sent again.
const PAUSE: Backoff = Backoff {
    first: Duration::from_millis(5),
    most: Duration::from_millis(250),
};

/// How much sooner than the caller the server is to end: servers look at the time of blocked
/// clients about ten times a second.
const SLACK: Duration = Duration::from_millis(200);

/// What a server kept waiting for so long had arrived: trouble and redirects after it are new
/// ones, and not part of a loop. A command that blocks for ever may outlive many moves of its slot.
const SETTLED: Duration = Duration::from_secs(1);

/// `ASKING` as a command.
pub(crate) const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// Runs a blocking command.
pub(crate) fn run(
    core: &Arc<Core>,
    request: Request,
    facts: Facts,
    pick: &Pick,
    time: Blocking,
) -> Result<Value> {
    let mut call = Call::new(core, request, facts, pick.clone(), time);
    call.run().map_err(|failure| {
        core.count_given_up(failure.reason(), 1);
        failure.into()
    })
}

/// A blocking command on its way through the cluster.
struct Call<'a> {
    core: &'a Arc<Core>,
    request: Request,
    facts: Facts,
    pick: Pick,
    /// When the command itself is to end with nil; `None`: when something happens.
    block_until: Option<Instant>,
    /// When the caller ends, whatever the server says.
    patience: Option<Instant>,
    /// Until when trouble is waited out, if the caller states no patience: a short time to block
    /// is no short time for the cluster.
    trouble_until: Option<Instant>,
    /// Makes all of these but `block_until` longer where maintenance is announced.
    extension: Option<Extension>,
    /// The server is told a shorter time than the command says, because the caller waits less.
    is_cut_short: bool,
    /// A redirect names the next node.
    next: Option<(NodeAddr, bool)>,
    redirects: u32,
    attempts: u32,
    pauses: u32,
    cause: Option<ServerError>,
    node: Option<NodeAddr>,
    /// Why the last attempt found no connection.
    connect_error: Option<Arc<str>>,
    /// A connection was lost after it was sent: that attempt may have run.
    was_lost: bool,
    random: Random,
}

/// How one attempt ended.
enum Attempt {
    Done(Value),
    Failed(Box<Failure>),
    /// Try again at once.
    Again,
    /// Try again after a pause.
    Later,
}

impl<'a> Call<'a> {
    fn new(
        core: &'a Arc<Core>,
        request: Request,
        facts: Facts,
        pick: Pick,
        time: Blocking,
    ) -> Self {
        let now = clock::now();
        let own = match time {
            Blocking::Forever => None,
            Blocking::For(time) => now.checked_add(time),
        };
        let patience = request.deadline.filter(|_| request.has_own_deadline);
        // The server's nil is to be here when the caller's patience ends.
        let before = patience.map(|end| {
            let slack = end.saturating_duration_since(now) / 2;
            end.checked_sub(slack.min(SLACK)).unwrap_or(end)
        });
        let block_until = [own, before].into_iter().flatten().min();
        let margin = core.config.response_timeout;
        let margin = margin.and_then(|margin| now.checked_add(margin));
        let trouble_until = block_until
            .zip(margin)
            .map(|(until, margin)| until.max(margin));
        let base = if patience.is_some() { None } else { own };
        let extension = core.extension(base.unwrap_or(now));
        let is_cut_short = before.is_some_and(|before| own.is_none_or(|own| before < own));
        Self {
            core,
            facts,
            pick,
            block_until,
            patience,
            trouble_until,
            extension,
            is_cut_short,
            next: None,
            redirects: 0,
            attempts: 0,
            pauses: 0,
            cause: None,
            node: None,
            connect_error: None,
            was_lost: false,
            random: Random::new(clock::seed()),
            request,
        }
    }

    fn run(&mut self) -> Outcome {
        loop {
            match self.attempt() {
                Attempt::Done(value) => return Ok(value),
                Attempt::Failed(failure) => return Err(failure),
                Attempt::Again => {}
                Attempt::Later => self.pause()?,
            }
        }
    }

    fn slot(&self) -> Option<Slot> {
        self.facts.target.slot()
    }

    /// When an attempt is given up: some time after the server should have answered.
    fn limits(&self) -> Limits<'_> {
        let margin = self.core.config.response_timeout;
        let answer = self
            .block_until
            .zip(margin)
            .and_then(|(until, margin)| until.checked_add(margin));
        self.limits_by(self.patience.or(answer))
    }

    fn limits_by(&self, deadline: Option<Instant>) -> Limits<'_> {
        let cancel = self.request.cancel.as_ref();
        let cancel = cancel.map(|token| token.signal());
        Limits::new(deadline, cancel, self.extension.as_ref())
    }

    fn attempt(&mut self) -> Attempt {
        if let Some(ended) = self.is_over() {
            return ended;
        }
        let Some((addr, asking)) = self.next.take().or_else(|| Some((self.owner()?, false))) else {
            return match self.facts.target {
                Target::Node => Attempt::Failed(self.failure(Reason::NodeGone)),
                _ => Attempt::Later,
            };
        };
        self.node = Some(addr.clone());
        let pool = &self.core.pool;
        let mut connection = match pool.take(&addr, self.limits()) {
            Ok(connection) => connection,
            Err(Broken::Lost(error)) => {
                self.connect_error = Some(error.to_string().into());
                return Attempt::Later;
            }
            Err(broken) => return Attempt::Failed(self.failure(broken.reason())),
        };
        self.connect_error = None;
        let mut bytes = if asking { ASKING.to_vec() } else { Vec::new() };
        self.encode(&mut bytes);
        let begun = clock::now();
        let replies = connection.exchange(&bytes, 1 + usize::from(asking), self.limits());
        // What was not written whole does not run, and no server has said anything about it.
        let was_sent = replies.as_ref().map_or_else(|cut| cut.was_sent, |_| true);
        self.attempts += u32::from(was_sent);
        if clock::now() >= begun + SETTLED {
            (self.redirects, self.pauses) = (0, 0);
        }
        match replies {
            Ok(replies) => {
                let unblocked = |error: &ServerError| error.code() == "UNBLOCKED";
                if matches!(replies.last(), Some(Ok(Value::Error(error))) if unblocked(error)) {
                    // The server closes this connection.
                    connection.discard();
                }
                self.judge(&addr, replies)
            }
            Err(cut) => self.cut(cut),
        }
    }

    /// The command with the time that is left.
    fn encode(&self, bytes: &mut Vec<u8>) {
        let command = &self.request.encoded;
        match (self.request.time_arg, self.block_until) {
            (Some(arg), Some(until)) => {
                let left = until.saturating_duration_since(clock::now());
                arg.replace(command, left).append_to(bytes);
            }
            _ => command.append_to(bytes),
        }
    }

    /// The end that the time has brought before anything is sent again.
    fn is_over(&mut self) -> Option<Attempt> {
        let limits = self.limits_by(self.patience);
        if let Err(broken) = self.core.pool.check(limits, self.node.as_ref()) {
            return Some(Attempt::Failed(self.failure(broken.reason())));
        }
        let now = clock::now();
        if self.attempts > 0 && self.block_until.is_some_and(|until| until <= now) {
            // It waited as long as it was to, on several nodes together.
            return Some(if self.is_cut_short {
                Attempt::Failed(self.failure(Reason::Timeout))
            } else {
                Attempt::Done(Value::Null)
            });
        }
        None
    }

    fn owner(&self) -> Option<NodeAddr> {
        let snapshot = self.core.routes.snapshot();
        if let Pick::Node(addr) = &self.pick {
            let known = snapshot.view.addrs.iter().any(|(name, _)| name == addr);
            return known.then(|| addr.clone());
        }
        let key = self
            .core
            .routes
            .route(&snapshot, self.facts.target, &Pick::Primary)?;
        let node = snapshot.nodes.get(key.index())?.as_ref()?;
        Some(node.wire.records.addr.clone())
    }

    fn judge(&mut self, from: &NodeAddr, mut replies: Vec<Reply>) -> Attempt {
        let error = match replies.pop() {
            Some(Ok(Value::Error(error))) => error,
            Some(Ok(Value::Null)) if self.is_cut_short => {
                return Attempt::Failed(self.failure(Reason::Timeout));
            }
            Some(Ok(value)) => return Attempt::Done(value),
            limit @ (Some(Err(_)) | None) => {
                let mut failure = self.failure(Reason::ReplyLimit);
                failure.certainty = Certainty::Unknown;
                failure.detail = limit
                    .and_then(Reply::err)
                    .map(|limit| limit.to_string().into());
                return Attempt::Failed(failure);
            }
        };
        let redirect = self.facts.author.redirect_in(&error);
        let redirect = redirect.filter(|_| self.facts.target != Target::Node);
        let redirect = redirect.filter(|redirect| {
            redirect
                .slot()
                .is_none_or(|named| self.slot().is_none_or(|own| own == named))
        });
        self.cause = Some(error);
        let Some(redirect) = redirect else {
            return Attempt::Failed(self.server_failure());
        };
        self.core.learn(from, &redirect);
        if !self.core.config.follow_redirects {
            return Attempt::Failed(self.server_failure());
        }
        self.follow(from, &redirect)
    }

    fn follow(&mut self, from: &NodeAddr, redirect: &Redirect) -> Attempt {
        let (Redirect::Moved(_, endpoint) | Redirect::Ask(_, endpoint)) = redirect else {
            return Attempt::Later;
        };
        self.redirects += 1;
        if self.redirects > self.core.config.max_redirects {
            return Attempt::Failed(self.failure(Reason::TooManyRedirects));
        }
        let asking = matches!(redirect, Redirect::Ask(..));
        self.next = match endpoint {
            Endpoint::Unknown => None,
            endpoint => endpoint.resolve(from).map(|addr| (addr, asking)),
        };
        // The first hop is free; two nodes that do not agree get time to do so.
        if self.next.is_some() && self.redirects < 2 {
            Attempt::Again
        } else {
            Attempt::Later
        }
    }

    fn cut(&mut self, cut: Cut) -> Attempt {
        if let Broken::Lost(error) = &cut.why {
            log::debug!("a connection of a blocking command was lost: {error}");
        }
        let reason = cut.why.reason();
        let lost = reason == Reason::ConnectionLost;
        self.was_lost |= lost && cut.was_sent;
        if lost && (!cut.was_sent || (self.facts.repeatable && self.core.config.retry_reads)) {
            return Attempt::Later;
        }
        let mut failure = self.failure(reason);
        if cut.was_sent {
            failure.certainty = Certainty::Unknown;
        }
        Attempt::Failed(failure)
    }

    fn pause(&mut self) -> Result<(), Box<Failure>> {
        self.pauses += 1;
        let pause = PAUSE.pause(self.pauses, &mut self.random);
        let no_answer_by = self.core.config.response_timeout;
        let limits = self.limits_by(self.patience.or(self.trouble_until));
        let reason = match self.core.pool.pause(pause, limits) {
            Ok(()) => {
                // A command for ever has no time of its own, but trouble must end some time.
                let tries = no_answer_by.map_or(u32::MAX, |limit| {
                    u32::try_from(limit.as_millis() / 125)
                        .unwrap_or(u32::MAX)
                        .max(8)
                });
                if self.pauses < tries {
                    return Ok(());
                }
                Reason::Timeout
            }
            Err(broken) => broken.reason(),
        };
        Err(self.failure(reason))
    }

    /// How it fails when it certainly does not run any more.
    fn failure(&self, reason: Reason) -> Box<Failure> {
        let sent = self.attempts > 0;
        let certainty = match (self.was_lost, sent) {
            (true, _) => Certainty::Unknown,
            (false, true) => Certainty::Refused,
            (false, false) => Certainty::NotSent,
        };
        let mut failure = Failure::new(reason, certainty);
        failure.node = self.node.clone();
        failure.slot = self.slot();
        failure.attempts = self.attempts;
        failure.cause = self.cause.clone();
        failure.connect_error = self.connect_error.clone();
        failure
    }

    fn server_failure(&self) -> Box<Failure> {
        let mut failure = self.failure(Reason::Server);
        let cause = self.cause.as_ref();
        failure.certainty = cause.map_or(Certainty::Unknown, |error| {
            self.facts.author.certainty_by(error)
        });
        failure
    }
}
