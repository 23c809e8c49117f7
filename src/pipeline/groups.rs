//! The commands of a pipeline, grouped by the nodes that they go to.

use std::sync::Arc;
use std::time::Instant;

use super::late::Late;
use crate::cancel::CancelToken;
use crate::client::Core;
use crate::cmd::Cmd;
use crate::error::{Error, Result};
use crate::proto::cluster::NodeKey;
use crate::proto::outcome::{Failure, Outcome};
use crate::proto::slot::Slot;
use crate::proto::unit::{Batch, Body, Facts, Target, Ticket, Unit};
use crate::proto::value::Value;
use crate::reply::order::{Ran, may_have_run};
use crate::reply::{Cell, Home, Settler};
use crate::request::{Plan, refused};
use crate::runtime::direct::Driven;
use crate::runtime::routes::{Pick, Snapshot, Submitted};

/// How often parts are divided by new routes. To divide a large pipeline takes longer than the
/// routes may stay the same while slots move; then each slot looks for its own way.
const ROUNDS: usize = 3;

/// Commands that a part has room for at first.
const ROOM: usize = 32;

/// Commands by the node that serves them, and those that name their node.
#[derive(Debug)]
pub(super) struct Groups<'a> {
    core: &'a Arc<Core>,
    /// By these routes they are grouped.
    snapshot: Arc<Snapshot>,
    /// Other routes than those that grouped them first.
    has_changed: bool,
    parts: Vec<Part>,
    /// Commands that name their node, which need not exist.
    pinned: Vec<(Pick, Batch)>,
    /// For each command of the pipeline where its result comes from.
    origins: Vec<Origin>,
}

/// What goes to one node: the coordinator, if it is `None`.
#[derive(Debug)]
struct Part {
    key: Option<NodeKey>,
    batch: Batch,
}

/// Where the result of a command comes from.
#[derive(Debug)]
enum Origin {
    /// From the command at this place of a part.
    Part(u32, u32),
    /// From one that names its node.
    Pinned(u32),
    /// It cannot be sent.
    Wrong(Box<Error>),
}

/// Commands that were sent together.
struct Sent {
    /// As far as it is known.
    node: Option<NodeKey>,
    batch: Arc<Batch>,
    /// The place of the first one in the cell.
    first: usize,
}

/// All that was sent, in the order of the places of the cell.
#[derive(Default)]
struct Handed {
    sent: Vec<Sent>,
    /// How many of those are parts; the others name their node.
    parts: usize,
}

impl Handed {
    /// Where a command was sent, and as which one of its batch; `None` if it was not.
    fn find(&self, origin: &Origin) -> Option<(&Sent, usize)> {
        match *origin {
            Origin::Part(part, at) => Some((&self.sent[part as usize], at as usize)),
            Origin::Pinned(at) => Some((&self.sent[self.parts + at as usize], 0)),
            Origin::Wrong(_) => None,
        }
    }
}

impl Sent {
    fn slot(&self, at: usize) -> Option<Slot> {
        self.batch.facts(at).target.slot()
    }
}

impl<'a> Groups<'a> {
    pub(super) fn new(core: &'a Arc<Core>) -> Self {
        Self {
            core,
            snapshot: core.routes.snapshot(),
            has_changed: false,
            parts: Vec::new(),
            pinned: Vec::new(),
            origins: Vec::new(),
        }
    }

    /// How many commands it has.
    pub(super) fn len(&self) -> usize {
        self.origins.len()
    }

    /// Adds a command as it is planned, or what is wrong with it.
    pub(super) fn add(&mut self, command: &Cmd, plan: Result<Plan>) {
        match plan.and_then(|plan| shared(command, plan)) {
            Ok((facts, pick @ Pick::Node(_))) => {
                let mut batch = Batch::with_room(1);
                batch.push(command.encoded().as_bytes(), facts);
                self.origins.push(Origin::Pinned(self.pinned.len() as u32));
                self.pinned.push((pick, batch));
            }
            Ok((facts, pick)) => self.add_shared(command, facts, &pick),
            Err(error) => self.origins.push(Origin::Wrong(Box::new(error))),
        }
    }

    /// Adds a command that names no node.
    pub(super) fn add_shared(&mut self, command: &Cmd, facts: Facts, pick: &Pick) {
        let key = self.core.routes.route(&self.snapshot, facts.target, pick);
        // There are few, so the search is cheaper than any index.
        let part = self.parts.iter().position(|part| part.key == key);
        let part = part.unwrap_or_else(|| {
            let batch = Batch::with_room(ROOM);
            self.parts.push(Part { key, batch });
            self.parts.len() - 1
        });
        let batch = &mut self.parts[part].batch;
        // Neither is as long as a pipeline, which is shorter than four billion.
        let origin = Origin::Part(part as u32, batch.len() as u32);
        batch.push(command.encoded().as_bytes(), facts);
        self.origins.push(origin);
    }

    /// Hands the groups over, waits, and gives the result of each command, and the indices of those
    /// that ran after a later one.
    pub(super) fn run(
        mut self,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
    ) -> (Vec<Result<Value>>, Vec<usize>) {
        let parts = self.parts.iter().map(|part| part.batch.len());
        let commands = parts.sum::<usize>() + self.pinned.len();
        if commands == 0 {
            return (self.results(&Handed::default(), Vec::new()), Vec::new());
        }
        let core = self.core;
        let (cell, settler) = core.cell(commands, None);
        let _registration = cancel.map(|token| token.register(core, &cell));
        let handed = self.hand_over((&cell, settler), deadline);
        core.wait(&cell, deadline);
        let outcomes = cell.take();
        let reordered = cell.take_order().map_or_else(Vec::new, |order| {
            order.overtaken(&self.ran(&handed, &outcomes))
        });
        (self.results(&handed, outcomes), reordered)
    }

    /// What is known of each command that was sent, by place.
    #[cold]
    fn ran(&self, handed: &Handed, outcomes: &[Outcome]) -> Vec<Ran> {
        let commands = self.origins.iter().enumerate();
        let mut ran: Vec<(usize, Ran)> = commands
            .filter_map(|(index, origin)| {
                let (sent, at) = handed.find(origin)?;
                let place = sent.first + at;
                let ran = Ran {
                    index,
                    slot: sent.slot(at),
                    may_have_run: may_have_run(&outcomes[place]),
                };
                Some((place, ran))
            })
            .collect();
        ran.sort_unstable_by_key(|&(place, _)| place);
        ran.into_iter().map(|(_, ran)| ran).collect()
    }

    /// The result of each command. `outcomes` are by place.
    fn results(&mut self, handed: &Handed, mut outcomes: Vec<Outcome>) -> Vec<Result<Value>> {
        let origins = std::mem::take(&mut self.origins).into_iter();
        let results = origins.map(|origin| {
            let Some((sent, at)) = handed.find(&origin) else {
                return match origin {
                    Origin::Wrong(error) => Err(*error),
                    Origin::Part(..) | Origin::Pinned(_) => unreachable!("all of them were sent"),
                };
            };
            // Each is taken once.
            let outcome = std::mem::replace(&mut outcomes[sent.first + at], Ok(Value::Null));
            outcome.map_err(|failure| self.explain(failure, sent.slot(at), sent.node))
        });
        results.collect()
    }

    /// Who gives up on a whole pipeline does not know where each command was.
    #[cold]
    fn explain(
        &self,
        mut failure: Box<Failure>,
        slot: Option<Slot>,
        node: Option<NodeKey>,
    ) -> Error {
        failure.slot = failure.slot.or(slot);
        let node = match self.has_changed {
            false => node,
            true => slot.and_then(|slot| self.snapshot.owner(slot)),
        };
        let waited = failure.is_given_up().then_some(Home::Coordinator);
        let home = node.map(Home::Node).or(waited);
        let node = home.and_then(|home| self.snapshot.blamed(home, slot));
        if let (None, Some(node)) = (&failure.node, node) {
            let records = &node.wire.records;
            failure.was_at(&records.addr, records.connect_error());
        }
        Error::from(failure)
    }

    /// Hands everything over and tells what the places of the cell are.
    fn hand_over(
        &mut self,
        (cell, settler): (&Cell, Settler),
        deadline: Option<Instant>,
    ) -> Handed {
        let core = self.core;
        let mut sent = Vec::with_capacity(self.parts.len() + self.pinned.len());
        let (mut rest, mut first) = (Some(settler), 0);
        let mut unit = |node, batch: Batch| {
            let places = batch.len();
            let batch = Arc::new(batch);
            let body = Body::Part(Arc::clone(&batch), 0..places);
            sent.push(Sent { node, batch, first });
            first += places;
            Unit::new(take_front(&mut rest, places), body, deadline)
        };
        let parts = std::mem::take(&mut self.parts).into_iter();
        let parts: Vec<_> = parts
            .map(|part| (part.key, unit(part.key, part.batch)))
            .collect();
        let count = parts.len();
        let mut pinned = Vec::with_capacity(self.pinned.len());
        for (pick, batch) in std::mem::take(&mut self.pinned) {
            let node = core.routes.route(&self.snapshot, Target::Node, &pick);
            pinned.push((pick, unit(node, batch)));
        }
        let (submitted, snapshot) = self.submit(parts, core.may_drive(deadline));
        if let Some(snapshot) = snapshot {
            (self.snapshot, self.has_changed) = (snapshot, true);
        }
        // All nodes work at the same time: first everything is written, then read.
        submitted.driven.iter().for_each(Driven::write);
        let mut late = Late::default();
        for (key, unit) in submitted.late {
            late.add(Pick::Primary, key, unit);
        }
        for (pick, unit) in pinned {
            late.add(pick, None, unit);
        }
        if !late.is_empty() {
            // Waiting for room may take long; replies must not wait for that.
            submitted.driven.iter().for_each(Driven::leave);
        }
        late.hand_over(core);
        let is_over = || core.is_over(cell, deadline);
        let driven = submitted.driven.iter();
        driven.for_each(|driven| driven.read(is_over));
        Handed { sent, parts: count }
    }

    /// Puts the parts where they belong. If the routes have changed since they were made, the new
    /// ones, which are returned, divide them again.
    fn submit(
        &self,
        mut parts: Vec<(Option<NodeKey>, Unit<Settler>)>,
        direct: bool,
    ) -> (Submitted, Option<Arc<Snapshot>>) {
        let routes = &self.core.routes;
        let mut changed = None;
        for _ in 0..ROUNDS {
            let seen = changed.as_ref().unwrap_or(&self.snapshot);
            let units = match routes.submit_parts(seen, parts, direct) {
                Ok(submitted) => return (submitted, changed),
                Err(units) => units,
            };
            let snapshot = routes.snapshot();
            parts = Vec::with_capacity(units.len());
            for unit in units {
                unit.divide(
                    |target| routes.route(&snapshot, target, &Pick::Primary),
                    |key, piece| parts.push((key, piece)),
                );
            }
            changed = Some(snapshot);
        }
        let (driven, late) = (Vec::new(), parts);
        (Submitted { driven, late }, changed)
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

/// How a command is sent in a pipeline, if it can be.
fn shared(command: &Cmd, plan: Plan) -> Result<(Facts, Pick)> {
    let why = match plan {
        Plan::Shared(facts, pick) => return Ok((facts, pick)),
        Plan::Blocking(..) => {
            "blocks and would hold up the rest of the pipeline: use `Client::query`"
        }
        Plan::FanOut(_) => "goes to every primary, which a pipeline cannot do: use `Client::query`",
    };
    Err(refused(command.encoded(), why))
}
