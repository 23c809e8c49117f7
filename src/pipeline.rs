//! Pipelines: many commands sent together, one result each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::CancelToken;
use crate::client::Core;
use crate::cmd::Cmd;
use crate::convert::FromValue;
use crate::error::{Error, Result};
use crate::proto::cluster::NodeKey;
use crate::proto::slot::Slot;
use crate::proto::unit::{Batch, Body, Ticket, Unit};
use crate::proto::value::Value;
use crate::reply::{Cell, Settler};
use crate::request::{Plan, Request, refused};
use crate::runtime::clock;
use crate::runtime::direct::Driven;
use crate::runtime::routes::{Pick, Snapshot};

/// Commands for any slots and nodes, sent together.
///
/// A pipeline is not a transaction: each command succeeds or fails for itself, and commands of
/// other callers may run in between. Commands of one slot execute in the order in which they were
/// added, also if the slot moves meanwhile, unless one of them fails or is answered TRYAGAIN. A
/// command that is redirected is sent again by itself; the others are not.
#[derive(Debug)]
pub struct Pipeline<'a> {
    core: &'a Arc<Core>,
    commands: Vec<Cmd>,
    timeout: Option<Option<Duration>>,
    cancel: Option<CancelToken>,
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(core: &'a Arc<Core>) -> Self {
        Self {
            core,
            commands: Vec::new(),
            timeout: None,
            cancel: None,
        }
    }

    /// Adds a command. What is wrong with it shows in its own result and concerns no other.
    pub fn add(&mut self, command: Cmd) -> &mut Self {
        self.commands.push(command);
        self
    }

    /// Waits this long for all replies instead of the client's `response_timeout`; `None` waits
    /// for ever. Deadlines of the single commands do not count in a pipeline.
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
        self.commands.len()
    }

    /// Whether it has no commands.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Sends all commands and waits for all results, in the order of the commands: for programs
    /// that look at each. At the deadline the results that are there are kept; each other one says
    /// what is certain about it.
    ///
    /// # Errors
    /// None as a whole at present: each result carries its own.
    pub fn execute(self) -> Result<Vec<Result<Value>>> {
        let timeout = self.timeout.unwrap_or(self.core.config.response_timeout);
        let deadline = timeout.and_then(|timeout| clock::now().checked_add(timeout));
        let mut results: Vec<Option<Result<Value>>> = Vec::new();
        results.resize_with(self.commands.len(), || None);
        let snapshot = self.core.routes.snapshot();
        let mut groups = Groups::new(self.core, &snapshot);
        for (index, command) in self.commands.iter().enumerate() {
            if let Err(error) = groups.add(index, command, deadline) {
                results[index] = Some(Err(error));
            }
        }
        drop(self.commands);
        groups.run(deadline, self.cancel.as_ref(), &mut results);
        Ok(results
            .into_iter()
            .map(|result| result.unwrap_or_else(lost))
            .collect())
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

fn lost() -> Result<Value> {
    Err(Error::from(crate::proto::outcome::Failure::new(
        crate::Reason::Abandoned,
        crate::Certainty::Unknown,
    )))
}

/// Whose result a place of the cell is, and where it was sent.
struct Place {
    /// The index in the pipeline.
    index: usize,
    slot: Option<Slot>,
    /// `None` is the coordinator, or a node that the command names.
    node: Option<NodeKey>,
}

/// Commands by the node that serves them, and those that name their node.
struct Groups<'a> {
    core: &'a Arc<Core>,
    snapshot: &'a Arc<Snapshot>,
    parts: Vec<Part>,
    /// Commands that name their node, which need not exist.
    pinned: Vec<(Pick, Batch, usize)>,
    commands: usize,
}

/// What goes to one node.
struct Part {
    key: Option<NodeKey>,
    batch: Batch,
    /// The index in the pipeline and the slot of each command.
    places: Vec<(usize, Option<Slot>)>,
}

impl<'a> Groups<'a> {
    fn new(core: &'a Arc<Core>, snapshot: &'a Arc<Snapshot>) -> Self {
        Self {
            core,
            snapshot,
            parts: Vec::new(),
            pinned: Vec::new(),
            commands: 0,
        }
    }

    /// Adds a command that passes all checks.
    fn add(&mut self, index: usize, command: &Cmd, deadline: Option<Instant>) -> Result<()> {
        let (facts, pick) = match Request::plan_of(command, self.core, deadline)? {
            Plan::Shared(facts, pick) => (facts, pick),
            Plan::Blocking(..) => {
                let why = "blocks and would hold up the rest of the pipeline: use `Client::query`";
                return Err(refused(command.encoded(), why));
            }
            Plan::FanOut(_) => {
                let why = "goes to every primary, which a pipeline cannot do: use `Client::query`";
                return Err(refused(command.encoded(), why));
            }
        };
        let bytes = command.encoded().as_bytes();
        self.commands += 1;
        if matches!(pick, Pick::Node(_)) {
            let mut batch = Batch::default();
            batch.push(bytes, facts);
            self.pinned.push((pick, batch, index));
            return Ok(());
        }
        let key = self.core.routes.route(self.snapshot, facts.target, &pick);
        let part = self.part(key);
        part.batch.push(bytes, facts);
        part.places.push((index, facts.target.slot()));
        Ok(())
    }

    /// The part of a node. There are few, so the search is cheaper than any index.
    fn part(&mut self, key: Option<NodeKey>) -> &mut Part {
        let at = self.parts.iter().position(|part| part.key == key);
        let at = at.unwrap_or_else(|| {
            let (batch, places) = (Batch::default(), Vec::new());
            self.parts.push(Part { key, batch, places });
            self.parts.len() - 1
        });
        &mut self.parts[at]
    }

    /// Hands the groups over, waits, and puts each result where it belongs.
    fn run(
        self,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
        results: &mut [Option<Result<Value>>],
    ) {
        if self.commands == 0 {
            return;
        }
        let (core, snapshot) = (self.core, self.snapshot);
        let (cell, settler) = core.cell(self.commands, None);
        let _registration = cancel.map(|token| token.register(core, &cell));
        let order = self.hand_over(core, snapshot, (&cell, settler), deadline);
        core.wait(&cell, deadline);
        for (place, outcome) in order.into_iter().zip(cell.take()) {
            let result = outcome.map_err(|mut failure| {
                // Who gives up on a whole pipeline does not know where each command was.
                failure.slot = failure.slot.or(place.slot);
                let node = place.node.and_then(|key| snapshot.addr(key));
                failure.node = failure.node.take().or(node);
                Error::from(failure)
            });
            results[place.index] = Some(result);
        }
    }

    /// Hands everything over and tells what each place of the cell is.
    fn hand_over(
        self,
        core: &Core,
        seen: &Arc<Snapshot>,
        (cell, settler): (&Cell, Settler),
        deadline: Option<Instant>,
    ) -> Vec<Place> {
        let mut order = Vec::with_capacity(self.commands);
        let mut rest = Some(settler);
        let mut unit = |batch: Batch| {
            let places = batch.len();
            let body = Body::Part(Arc::new(batch), 0..places);
            Unit::new(take_front(&mut rest, places), body, deadline)
        };
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in self.parts {
            let places = part.places.into_iter().map(|(index, slot)| Place {
                index,
                slot,
                node: part.key,
            });
            order.extend(places);
            parts.push((part.key, unit(part.batch)));
        }
        for (pick, batch, index) in self.pinned {
            order.push(Place {
                index,
                slot: None,
                node: None,
            });
            core.routes
                .submit(unit(batch), &pick, core.config.when_full);
        }
        match core
            .routes
            .submit_parts(seen, parts, core.may_drive(deadline))
        {
            Ok(submitted) => {
                // All nodes work at the same time: first everything is written, then read.
                submitted.driven.iter().for_each(Driven::write);
                submitted
                    .late
                    .into_iter()
                    .for_each(|unit| squeeze_in(core, unit));
                let is_over = || core.is_over(cell, deadline);
                let driven = submitted.driven.iter();
                driven.for_each(|driven| driven.read(is_over));
            }
            // The routes changed since: each command looks for its own way, in order.
            Err(parts) => parts.into_iter().for_each(|unit| {
                unit.divide(
                    |target| target,
                    |_, piece| {
                        core.routes
                            .submit(piece, &Pick::Primary, core.config.when_full)
                    },
                );
            }),
        }
        order
    }
}

/// A ticket for the next so many places.
fn take_front(rest: &mut Option<Settler>, places: usize) -> Settler {
    let mut settler = rest
        .take()
        .expect("a cell has as many places as its pipeline has commands");
    if settler.places() == places {
        return settler;
    }
    let front = settler.split_front(places);
    *rest = Some(settler);
    front
}

/// Hands over a part that did not fit at once, piece by piece as room comes free.
fn squeeze_in(core: &Core, mut unit: Unit<Settler>) {
    let commands = (core.config.queue_commands / 4).max(1);
    let bytes = (core.config.queue_bytes / 4).max(1);
    loop {
        let fits = unit.places_within(bytes).clamp(1, commands);
        let (piece, rest) = if fits < unit.places() {
            let front = unit.split_front(fits);
            (front, Some(unit))
        } else {
            (unit, None)
        };
        // The owner may have changed while this waited: each slot looks for its own way.
        piece.divide(
            |target| target,
            |_, piece| {
                core.routes
                    .submit(piece, &Pick::Primary, core.config.when_full)
            },
        );
        let Some(rest) = rest else { return };
        unit = rest;
    }
}
