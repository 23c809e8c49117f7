//! What of a pipeline is handed over piece by piece, as room comes free.

use std::collections::VecDeque;
use std::time::Duration;

use crate::client::Core;
use crate::proto::cluster::NodeKey;
use crate::proto::unit::Unit;
use crate::reply::Settler;
use crate::runtime::routes::Pick;

/// How long one lane is waited for before the others are looked at again.
const TURN: Duration = Duration::from_millis(5);

/// Units that wait for room. A node that stays full keeps nothing from the others.
#[derive(Debug, Default)]
pub(super) struct Late {
    lanes: Vec<Lane>,
}

/// What waits for one node. All of a slot is in one lane, so it keeps its order also if the slot
/// moves meanwhile.
#[derive(Debug)]
struct Lane {
    pick: Pick,
    key: Option<NodeKey>,
    units: VecDeque<Unit<Settler>>,
}

impl Late {
    /// Adds a unit behind those that are for the same node.
    pub(super) fn add(&mut self, pick: Pick, key: Option<NodeKey>, unit: Unit<Settler>) {
        let mut lanes = self.lanes.iter_mut();
        match lanes.find(|lane| (&lane.pick, lane.key) == (&pick, key)) {
            Some(lane) => lane.units.push_back(unit),
            None => self.lanes.push(Lane {
                pick,
                key,
                units: VecDeque::from([unit]),
            }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Hands everything over, from each lane a piece in turn.
    pub(super) fn hand_over(mut self, core: &Core) {
        while !self.is_empty() {
            let mut moved = false;
            for lane in &mut self.lanes {
                moved |= lane.advance(core, Some(Duration::ZERO));
            }
            self.lanes.retain(|lane| !lane.units.is_empty());
            let patience = (self.lanes.len() > 1).then_some(TURN);
            if let (false, Some(lane)) = (moved, self.lanes.first_mut()) {
                lane.advance(core, patience);
                self.lanes.rotate_left(1);
            }
        }
    }
}

impl Lane {
    /// Hands a piece over, if there is room for it: `true`.
    fn advance(&mut self, core: &Core, patience: Option<Duration>) -> bool {
        let Some(mut unit) = self.units.pop_front() else {
            return false;
        };
        let places = front(core, &unit);
        if places < unit.places() {
            let piece = unit.split_front(places);
            self.units.push_front(unit);
            unit = piece;
        }
        let when_full = core.config.when_full;
        let back = core.routes.offer(unit, &self.pick, when_full, patience);
        let moved = back.is_none();
        back.into_iter()
            .for_each(|unit| self.units.push_front(unit));
        moved
    }
}

/// How many of its commands make a piece that finds room soon, and whose owner is one: that may
/// have changed while it waited.
fn front(core: &Core, unit: &Unit<Settler>) -> usize {
    let commands = (core.config.queue_commands / 4).max(1);
    let bytes = (core.config.queue_bytes / 4).max(1);
    let fits = unit.places_within(bytes).clamp(1, commands);
    let target = unit.facts(0).target;
    (1..fits)
        .find(|&at| unit.facts(at).target != target)
        .unwrap_or(fits)
}
