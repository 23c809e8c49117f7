//! The commands of a pipeline, grouped by the nodes that they go to.

use std::sync::Arc;
use std::time::Instant;

use super::late::Late;
use crate::cancel::CancelToken;
use crate::client::Core;
use crate::cmd::Cmd;
use crate::error::{Error, Result};
use crate::proto::cluster::NodeKey;
use crate::proto::outcome::Outcome;
use crate::proto::slot::Slot;
use crate::proto::unit::{Batch, Body, Target, Ticket, Unit};
use crate::proto::value::Value;
use crate::reply::order::{Ran, may_have_run};
use crate::reply::{Cell, Home, Settler};
use crate::request::{Plan, refused};
use crate::runtime::direct::Driven;
use crate::runtime::routes::{Pick, Snapshot, Submitted};

/// How often parts are divided by new routes. To divide a large pipeline takes longer than the
/// routes may stay the same while slots move; then each slot looks for its own way.
const ROUNDS: usize = 3;

/// Whose result a place of the cell is, and where it was sent.
#[derive(Debug)]
struct Place {
    /// The index in the pipeline.
    index: usize,
    slot: Option<Slot>,
    /// `None` is the coordinator, or a node that the command names.
    node: Option<NodeKey>,
}

impl Place {
    fn ran(&self, outcome: &Outcome) -> Ran {
        Ran {
            index: self.index,
            slot: self.slot,
            may_have_run: may_have_run(outcome),
        }
    }
}

/// Commands by the node that serves them, and those that name their node.
#[derive(Debug)]
pub(super) struct Groups<'a> {
    core: &'a Arc<Core>,
    /// By these routes they are grouped.
    snapshot: Arc<Snapshot>,
    parts: Vec<Part>,
    /// Commands that name their node, which need not exist.
    pinned: Vec<(Pick, Batch, usize)>,
}

/// What goes to one node.
#[derive(Debug)]
struct Part {
    key: Option<NodeKey>,
    batch: Batch,
    /// The index in the pipeline and the slot of each command.
    places: Vec<(usize, Option<Slot>)>,
}

impl<'a> Groups<'a> {
    pub(super) fn new(core: &'a Arc<Core>) -> Self {
        Self {
            core,
            snapshot: core.routes.snapshot(),
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
        let bytes = command.encoded().as_bytes();
        if matches!(pick, Pick::Node(_)) {
            let mut batch = Batch::default();
            batch.push(bytes, facts);
            self.pinned.push((pick, batch, index));
            return Ok(());
        }
        let key = self.core.routes.route(&self.snapshot, facts.target, &pick);
        let part = self.part(key);
        part.batch.push(bytes, facts);
        part.places.push((index, facts.target.slot()));
        Ok(())
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
            let (batch, places) = (Batch::default(), Vec::new());
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
        let order = self.hand_over((&cell, settler), deadline);
        core.wait(&cell, deadline);
        let outcomes = cell.take();
        let reordered = cell.take_order().map_or_else(Vec::new, |ended| {
            let ran = order.iter().zip(&outcomes);
            let ran = ran.map(|(place, outcome)| place.ran(outcome));
            ended.overtaken(&ran.collect::<Vec<_>>())
        });
        for (place, outcome) in order.into_iter().zip(outcomes) {
            let result = outcome.map_err(|mut failure| {
                // Who gives up on a whole pipeline does not know where each command was.
                failure.slot = failure.slot.or(place.slot);
                let waited = failure.is_given_up().then_some(Home::Coordinator);
                let home = place.node.map(Home::Node).or(waited);
                let node = home.and_then(|home| self.snapshot.blamed(home, place.slot));
                if let (None, Some(node)) = (&failure.node, node) {
                    let records = &node.wire.records;
                    failure.was_at(&records.addr, records.connect_error());
                }
                Error::from(failure)
            });
            results[place.index] = Some(result);
        }
        reordered
    }

    /// Hands everything over and tells what each place of the cell is.
    fn hand_over(
        &mut self,
        (cell, settler): (&Cell, Settler),
        deadline: Option<Instant>,
    ) -> Vec<Place> {
        let core = self.core;
        let mut order = Vec::with_capacity(self.len());
        let mut rest = Some(settler);
        let mut unit = |batch: Batch| {
            let places = batch.len();
            let body = Body::Part(Arc::new(batch), 0..places);
            Unit::new(take_front(&mut rest, places), body, deadline)
        };
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in std::mem::take(&mut self.parts) {
            let places = part.places.into_iter().map(|(index, slot)| Place {
                index,
                slot,
                node: part.key,
            });
            order.extend(places);
            parts.push((part.key, unit(part.batch)));
        }
        let mut pinned = Vec::with_capacity(self.pinned.len());
        for (pick, batch, index) in std::mem::take(&mut self.pinned) {
            order.push(Place {
                index,
                slot: None,
                node: core.routes.route(&self.snapshot, Target::Node, &pick),
            });
            pinned.push((pick, unit(batch)));
        }
        let (submitted, snapshot) = self.submit(parts, core.may_drive(deadline));
        if let Some(snapshot) = snapshot {
            order.iter_mut().for_each(|place| {
                place.node = place.slot.and_then(|slot| snapshot.owner(slot));
            });
            self.snapshot = snapshot;
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
        order
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
