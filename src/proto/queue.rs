//! What waits to be written to one node, in order.
//!
//! Units of one slot leave in the order in which they came, whatever is taken out in between.

mod line;

use super::slot::SlotSet;
use super::unit::{Target, Ticket, Unit};
use line::Line;

/// A queue of so few units is walked for each caller that goes.
const SHORT: usize = 256;

/// A queue of units. Its bound is kept at admission, not here: what was admitted once may always
/// come back.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    units: Line<T>,
    /// Commands in `units`, dead ones included.
    commands: usize,
    /// Bytes in `units`, dead ones included.
    bytes: usize,
    /// Callers that told us they have gone, whose units were not met yet.
    dead_hint: usize,
}

impl<T: Ticket> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            units: Line::new(),
            commands: 0,
            bytes: 0,
            dead_hint: 0,
        }
    }

    /// Commands that wait, without those whose callers have gone.
    pub(crate) fn commands(&self) -> usize {
        self.commands.saturating_sub(self.dead_hint)
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Adds a unit behind all others; one whose caller has gone is dropped.
    pub(crate) fn push(&mut self, unit: Unit<T>) {
        if !unit.ticket.is_dead() {
            self.count_in(&unit);
            self.units.push_back(unit);
        }
        self.check();
    }

    /// Puts units back in front of all others, keeping their order: they were taken from here.
    pub(crate) fn requeue(&mut self, units: Vec<Unit<T>>) {
        for unit in units.into_iter().rev() {
            if !unit.ticket.is_dead() {
                self.count_in(&unit);
                self.units.push_front(unit);
            }
        }
        self.check();
    }

    /// Takes the oldest unit whose caller still waits; of a large part only a front of at most
    /// `limit` bytes.
    pub(crate) fn pop(&mut self, limit: usize) -> Option<Unit<T>> {
        loop {
            let front = self.units.front_mut()?;
            // A part whose caller has gone leaves whole, not piece by piece.
            let alive = !front.ticket.is_dead();
            if let Some(piece) = alive.then(|| front.split_bytes(limit)).flatten() {
                self.count_out(&piece);
                return Some(piece);
            }
            let unit = self.units.pop_front()?;
            self.count_out(&unit);
            if !unit.ticket.is_dead() {
                return Some(unit);
            }
            self.dead_hint = self.dead_hint.saturating_sub(unit.commands());
        }
    }

    /// Takes everything of these slots, oldest first; chains whole, parts divided. A unit that
    /// was to be asked for at its node is plain again: the prefix belongs to one send.
    pub(crate) fn extract(&mut self, slots: &SlotSet) -> Vec<Unit<T>> {
        self.take(|target| target.slot().is_some_and(|slot| slots.contains(slot)))
    }

    /// Takes what other nodes can run as well: commands without keys, and with `reads` those with
    /// keys, too. What was addressed to this node stays.
    pub(crate) fn extract_free(&mut self, reads: bool) -> Vec<Unit<T>> {
        self.take(|target| match target {
            Target::Any => true,
            Target::Slot(_) => reads,
            Target::Node => false,
        })
    }

    /// Takes everything.
    pub(crate) fn extract_all(&mut self) -> Vec<Unit<T>> {
        self.take(|_| true)
    }

    fn take(&mut self, wanted: impl Fn(Target) -> bool) -> Vec<Unit<T>> {
        let mut taken = self.units.take(wanted);
        taken.iter().for_each(|unit| self.count_out(unit));
        taken.retain_mut(|unit| {
            unit.asking = false;
            let is_dead = unit.ticket.is_dead();
            if is_dead {
                self.dead_hint = self.dead_hint.saturating_sub(unit.commands());
            }
            !is_dead
        });
        self.check();
        taken
    }

    /// Notes that the caller of a unit with so many commands has gone, and removes dead units once
    /// they are worth the walk: each removal is paid for by the calls that led to it.
    pub(crate) fn note_dead(&mut self, commands: usize) {
        self.dead_hint += commands;
        if self.units.len() <= SHORT || self.dead_hint * 4 >= self.commands {
            self.sweep();
        }
    }

    /// Removes all units whose callers have gone.
    pub(crate) fn sweep(&mut self) {
        self.units.retain(|unit| !unit.ticket.is_dead());
        self.recount();
        self.check();
    }

    fn count_in(&mut self, unit: &Unit<T>) {
        self.commands += unit.commands();
        self.bytes += unit.bytes().len();
    }

    fn count_out(&mut self, unit: &Unit<T>) {
        self.commands -= unit.commands();
        self.bytes -= unit.bytes().len();
    }

    fn recount(&mut self) {
        self.dead_hint = 0;
        self.commands = self.units.iter().map(Unit::commands).sum();
        self.bytes = self.units.iter().map(|unit| unit.bytes().len()).sum();
    }

    fn check(&self) {
        // Walking the queue on each call would hide every growth fault behind the check itself.
        if cfg!(debug_assertions) && self.units.len() <= 64 {
            let walked: usize = self.units.iter().map(Unit::commands).sum();
            let bytes: usize = self.units.iter().map(|unit| unit.bytes().len()).sum();
            assert_eq!(
                (walked, bytes),
                (self.commands, self.bytes),
                "counters agree with the queue"
            );
        }
    }
}

#[cfg(test)]
mod tests;
