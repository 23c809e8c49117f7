//! Pipelines: many commands sent together, one result each.

mod groups;
mod late;

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::CancelToken;
use crate::client::Core;
use crate::cmd::Cmd;
use crate::convert::FromValue;
use crate::error::Result;
use crate::proto::value::Value;
use crate::request::{Request, Whole};
use crate::runtime::clock;
use groups::Groups;

/// Commands for any slots and nodes, sent together.
///
/// A pipeline is not a transaction: each command succeeds or fails for itself, and commands of
/// other callers may run in between. Commands of one slot execute in the order in which they were
/// added, also if the slot moves meanwhile, unless one of them fails or is answered TRYAGAIN. A
/// command that is redirected is sent again by itself; the others are not. If one ran late because
/// of that, [`execute_with_report`](Pipeline::execute_with_report) tells.
///
/// Commands that block (`BLPOP`, `XREAD BLOCK`, `WAIT`, …) and those that go to every primary
/// (`DBSIZE`, `KEYS`, `FLUSHALL`, `SCRIPT LOAD`, …) are refused with
/// [`Misuse::Refused`](crate::Misuse::Refused) as their results: use
/// [`Client::query`](crate::Client::query).
///
/// Commands that name a node by [`Route::Node`](crate::Route::Node) belong to no slot: they are
/// sent after the others, in no order with them. A command that the client does not know, such as
/// one of a module, is asked about once, and the pipeline waits for that answer before anything is
/// sent.
#[derive(Debug)]
pub struct Pipeline<'a> {
    core: &'a Arc<Core>,
    groups: Groups<'a>,
    /// A command whose keys only a server can tell, and all that were added since: what is behind
    /// it must not get in front of it.
    unknown: Vec<Cmd>,
    timeout: Option<Option<Duration>>,
    cancel: Option<CancelToken>,
}

/// What its commands cannot have each for itself.
const WHOLE: Whole = Whole {
    timeout: "states a timeout, which a pipeline has as a whole: use `Pipeline::timeout`",
    cancel: "states a cancel token, which a pipeline has as a whole: use `Pipeline::cancel_token`",
};

impl<'a> Pipeline<'a> {
    pub(crate) fn new(core: &'a Arc<Core>) -> Self {
        Self {
            core,
            groups: Groups::new(core),
            unknown: Vec::new(),
            timeout: None,
            cancel: None,
        }
    }

    /// Adds a command. What is wrong with it shows in its own result and concerns no other: also
    /// that it states a timeout, a deadline or a cancel token, which a pipeline has as a whole.
    pub fn add(&mut self, command: Cmd) -> &mut Self {
        if !self.unknown.is_empty() {
            self.unknown.push(command);
            return self;
        }
        // At once, so that its buffer is free for the next one.
        if let Some((facts, pick)) = Request::short_plan(&command) {
            self.groups.add_shared(&command, facts, &pick);
            return self;
        }
        let plan = WHOLE
            .check(&command)
            .and_then(|()| Request::plan_now(&command, self.core));
        match plan {
            Ok(None) => self.unknown.push(command),
            Ok(Some(plan)) => self.groups.add(&command, Ok(plan)),
            Err(error) => self.groups.add(&command, Err(error)),
        }
        self
    }

    /// Waits this long for all replies instead of the client's `response_timeout`; `None` waits
    /// for ever.
    pub fn timeout(&mut self, timeout: impl Into<Option<Duration>>) -> &mut Self {
        self.timeout = Some(timeout.into());
        self
    }

    /// Ends the call when the token is cancelled. Results that are there are kept; each other one
    /// says whether its command may run.
    pub fn cancel_token(&mut self, token: &CancelToken) -> &mut Self {
        self.cancel = Some(token.clone());
        self
    }

    /// How many commands it has.
    pub fn len(&self) -> usize {
        self.groups.len() + self.unknown.len()
    }

    /// Whether it has no commands.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends all commands and waits for all results, in the order of the commands: for programs
    /// that look at each. At the deadline the results that are there are kept; each other one says
    /// what is certain about it.
    ///
    /// # Errors
    /// None as a whole at present: each result carries its own.
    pub fn execute(self) -> Result<Vec<Result<Value>>> {
        Ok(self.execute_with_report()?.results)
    }

    /// As [`execute`](Pipeline::execute), and tells which commands ran out of order.
    ///
    /// # Errors
    /// None as a whole at present: each result carries its own.
    pub fn execute_with_report(mut self) -> Result<Report> {
        let timeout = self.timeout.unwrap_or(self.core.config.response_timeout);
        let deadline = timeout.and_then(|timeout| clock::now().checked_add(timeout));
        for command in std::mem::take(&mut self.unknown) {
            let plan = WHOLE.check(&command);
            let cancel = self.cancel.as_ref();
            let plan = plan.and_then(|()| Request::plan_of(&command, self.core, deadline, cancel));
            self.groups.add(&command, plan);
        }
        let (results, reordered) = self.groups.run(deadline, self.cancel.as_ref());
        Ok(Report { results, reordered })
    }

    /// Like [`execute`](Pipeline::execute), but all or nothing for the reader: reads all replies as
    /// `T`, which is a tuple, a `Vec`, or whatever else can be made of a list.
    ///
    /// # Errors
    /// The error of the first command that failed. The others have ended as well, and what they
    /// did stays done.
    pub fn query<T: FromValue>(self) -> Result<T> {
        let values: Result<Vec<Value>> = self.execute()?.into_iter().collect();
        T::from_value(Value::Array(values?))
    }
}

/// What [`Pipeline::execute_with_report`] gives.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// One result per command, in the order of the commands.
    pub results: Vec<Result<Value>>,
    /// The commands, by index, that ran after a later one of their slot, or may have: a server
    /// refused them for the moment or sent them elsewhere, and ran later ones meanwhile. Empty in
    /// almost all cases. See [`Builder::strict_order`](crate::Builder::strict_order).
    pub reordered: Vec<usize>,
}
