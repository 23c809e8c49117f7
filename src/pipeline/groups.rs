//! The commands of a pipeline, grouped by the nodes that they go to.

use std::sync::Arc;
use std::time::Instant;

use super::late::Late;
use crate::cancel::CancelToken;
use crate::client::Core;
use crate::cmd::Cmd;
use crate::error::{Error, Result};
use crate::proto::cluster::NodeKey;
use crate::proto::outcome::Failure;
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

/// Whose result a place of the cell is: the index in the pipeline, and the slot.
type Place = (usize, Option<Slot>);

/// Places of the cell that were sent to one node: to the coordinator, or one that the command
/// names, if it is `None`.
#[derive(Debug)]
struct Sent {
    node: Option<NodeKey>,
    places: Vec<Place>,
}

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
    pinned: Vec<(Pick, Batch, usize)>,
}

/// What goes to one node.
#[derive(Debug)]
struct Part {
    key: Option<NodeKey>,
    batch: Batch,
    places: Vec<Place>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(core: &'a Arc<Core>) -> Self {
        Self {
            core,
            snapshot: core.routes.snapshot(),
            has_changed: false,
            parts: Vec::new(),
            pinned: Vec::new(),
        }
    }

    /// Adds a command, if it can be sent in a pipeline.
    pub(super) fn add(&mut self, index: usize, command: &Cmd, plan: Plan) -> Result<()> {
        let (facts, pick) = match plan {
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
        if matches!(pick, Pick::Node(_)) {
            let mut batch = Batch::with_room(1);
            batch.push(command.encoded().as_bytes(), facts);
            self.pinned.push((pick, batch, index));
        } else {
            self.add_shared(index, command, facts, &pick);
        }
        Ok(())
    }

    /// Adds a command that names no node.
    pub(super) fn add_shared(&mut self, index: usize, command: &Cmd, facts: Facts, pick: &Pick) {
        let key = self.core.routes.route(&self.snapshot, facts.target, pick);
        let part = self.part(key);
        part.batch.push(command.encoded().as_bytes(), facts);
        part.places.push((index, facts.target.slot()));
    }

    /// How many commands it has.
    fn len(&self) -> usize {
        let parts = self.parts.iter().map(|part| part.places.len());
        parts.sum::<usize>() + self.pinned.len()
    }

    /// The part of a node. There are few, so the search is cheaper than any index.
    fn part(&mut self, key: Option<NodeKey>) -> &mut Part {
        let at = self.parts.iter().position(|part| part.key == key);
        let at = at.unwrap_or_else(|| {
            let (batch, places) = (Batch::with_room(ROOM), Vec::with_capacity(ROOM));
            self.parts.push(Part { key, batch, places });
            self.parts.len() - 1
        });
        &mut self.parts[at]
    }

    /// Hands the groups over, waits, and puts each result where it belongs. Gives the indices of
    /// commands that ran after a later one.
    pub(super) fn run(
        mut self,
        deadline: Option<Instant>,
        cancel: Option<&CancelToken>,
        results: &mut [Option<Result<Value>>],
    ) -> Vec<usize> {
        let commands = self.len();
        if commands == 0 {
            return Vec::new();
        }
        let core = self.core;
        let (cell, settler) = core.cell(commands, None);
        let _registration = cancel.map(|token| token.register(core, &cell));
        let sent = self.hand_over((&cell, settler), deadline);
        core.wait(&cell, deadline);
        let outcomes = cell.take();
        let places = || {
            sent.iter().flat_map(|sent| {
                let node = sent.node;
                sent.places
                    .iter()
                    .map(move |&(index, slot)| (index, slot, node))
            })
        };
        let reordered = cell.take_order().map_or_else(Vec::new, |ended| {
            let ran = places()
                .zip(&outcomes)
                .map(|((index, slot, _), outcome)| Ran {
                    index,
                    slot,
                    may_have_run: may_have_run(outcome),
                });
            ended.overtaken(&ran.collect::<Vec<_>>())
        });
        for ((index, slot, node), outcome) in places().zip(outcomes) {
            let result = outcome.map_err(|failure| self.explain(failure, slot, node));
            results[index] = Some(result);
        }
        reordered
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

    /// Hands everything over and tells what the places of the cell are, in order.
    fn hand_over(
        &mut self,
        (cell, settler): (&Cell, Settler),
        deadline: Option<Instant>,
    ) -> Vec<Sent> {
        let core = self.core;
        let mut sent = Vec::with_capacity(self.parts.len() + self.pinned.len());
        let mut rest = Some(settler);
        let mut unit = |batch: Batch| {
            let places = batch.len();
            let body = Body::Part(Arc::new(batch), 0..places);
            Unit::new(take_front(&mut rest, places), body, deadline)
        };
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in std::mem::take(&mut self.parts) {
            let (node, places) = (part.key, part.places);
            sent.push(Sent { node, places });
            parts.push((part.key, unit(part.batch)));
        }
        let mut pinned = Vec::with_capacity(self.pinned.len());
        for (pick, batch, index) in std::mem::take(&mut self.pinned) {
            let node = core.routes.route(&self.snapshot, Target::Node, &pick);
            let places = vec![(index, None)];
            sent.push(Sent { node, places });
            pinned.push((pick, unit(batch)));
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
        sent
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
