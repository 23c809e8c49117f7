//! Slots whose commands the coordinator holds back for a moment.
//!
//! A slot is held while it changes its owner, while it pauses after an answer such as CLUSTERDOWN,
//! or while nobody serves it. New commands for it come here; when the hold ends, everything goes
//! to the owner in the order in which it was handed over.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::nodes::NodeKey;
use crate::proto::slot::Slot;
use crate::proto::unit::{Ticket, Unit};

/// A held slot and its units, in four lists that are concatenated in this order.
#[derive(Debug)]
pub(crate) struct Hold<T> {
    /// Units that an ASK had sent to another node before the hold began: the oldest.
    asked: Vec<Unit<T>>,
    /// Units that the old owner answered with a redirect.
    returned: Vec<Unit<T>>,
    /// Units that waited in the old owner's queue.
    extracted: Vec<Unit<T>>,
    /// Units handed over since.
    parked: Vec<Unit<T>>,
    /// Nodes that were told to give the slot up, in this hold.
    pub(crate) drained: Vec<NodeKey>,
    /// How many of them still have something of it on the wire.
    pub(crate) draining: usize,
    /// Not to be released before.
    pub(crate) not_before: Option<Instant>,
}

/// Which list of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Asked,
    Returned,
    Extracted,
    Parked,
}

impl<T> Hold<T> {
    fn new() -> Self {
        Self {
            asked: Vec::new(),
            returned: Vec::new(),
            extracted: Vec::new(),
            parked: Vec::new(),
            drained: Vec::new(),
            draining: 0,
            not_before: None,
        }
    }

    fn list(&mut self, place: Place) -> &mut Vec<Unit<T>> {
        match place {
            Place::Asked => &mut self.asked,
            Place::Returned => &mut self.returned,
            Place::Extracted => &mut self.extracted,
            Place::Parked => &mut self.parked,
        }
    }

    pub(crate) fn push(&mut self, place: Place, unit: Unit<T>) {
        self.list(place).push(unit);
    }

    /// All units, oldest first.
    pub(crate) fn into_units(self) -> Vec<Unit<T>> {
        let mut units = self.asked;
        units.extend(self.returned);
        units.extend(self.extracted);
        units.extend(self.parked);
        units
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        let lists = [&self.asked, &self.returned, &self.extracted, &self.parked];
        lists.iter().map(|list| list.len()).sum()
    }

    fn forget_dead(&mut self)
    where
        T: Ticket,
    {
        for list in [
            &mut self.asked,
            &mut self.returned,
            &mut self.extracted,
            &mut self.parked,
        ] {
            list.retain(|unit| !unit.ticket.is_dead());
        }
    }

    /// Takes out what nobody waits for any more.
    fn expire(&mut self, now: Instant, expired: &mut Vec<Unit<T>>)
    where
        T: Ticket,
    {
        for list in [
            &mut self.asked,
            &mut self.returned,
            &mut self.extracted,
            &mut self.parked,
        ] {
            list.retain(|unit| !unit.ticket.is_dead());
            let mut at = 0;
            while at < list.len() {
                if list[at].is_expired(now) {
                    expired.push(list.remove(at));
                } else {
                    at += 1;
                }
            }
        }
    }
}

/// All held slots.
#[derive(Debug)]
pub(crate) struct Holds<T> {
    slots: HashMap<Slot, Hold<T>>,
    /// Slots that may have become free to go.
    check: BTreeSet<Slot>,
    /// When pauses end.
    timers: BTreeSet<(Instant, Slot)>,
}

impl<T: Ticket> Holds<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: HashMap::new(),
            check: BTreeSet::new(),
            timers: BTreeSet::new(),
        }
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Hold<T>> {
        self.slots.get_mut(&slot)
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        self.slots.contains_key(&slot)
    }

    /// The hold of a slot; a new one if it is free.
    pub(crate) fn hold(&mut self, slot: Slot) -> &mut Hold<T> {
        self.check.insert(slot);
        self.slots.entry(slot).or_insert_with(Hold::new)
    }

    /// Keeps a held slot back until then.
    pub(crate) fn pause(&mut self, slot: Slot, until: Instant) {
        if let Some(hold) = self.slots.get_mut(&slot) {
            hold.not_before = hold.not_before.max(Some(until));
            self.timers.insert((until, slot));
        }
    }

    /// Looks at a slot again at the next release.
    pub(crate) fn check_again(&mut self, slot: Slot) {
        self.check.insert(slot);
    }

    /// Takes out every slot that is free to go: nothing on the wire, no pause, and an owner.
    pub(crate) fn release(
        &mut self,
        now: Instant,
        owner: impl Fn(Slot) -> Option<NodeKey>,
    ) -> Vec<(Slot, NodeKey, Hold<T>)> {
        while let Some(&(until, slot)) = self.timers.first().filter(|&&(until, _)| until <= now) {
            self.timers.remove(&(until, slot));
            self.check.insert(slot);
        }
        let mut released = Vec::new();
        for slot in std::mem::take(&mut self.check) {
            let Some(hold) = self.slots.get(&slot) else {
                continue;
            };
            let paused = hold.not_before.is_some_and(|until| until > now);
            if let Some(to) = owner(slot).filter(|_| hold.draining == 0 && !paused) {
                released.extend(self.slots.remove(&slot).map(|hold| (slot, to, hold)));
            }
        }
        released
    }

    /// Whether something is free to go at `now`.
    pub(crate) fn wants_release(&self, now: Instant) -> bool {
        !self.check.is_empty() || self.timers.first().is_some_and(|&(until, _)| until <= now)
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|&(until, _)| until)
    }

    /// Takes out the units past their deadline; forgets those whose callers have gone.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Unit<T>> {
        let mut expired = Vec::new();
        self.slots
            .values_mut()
            .for_each(|hold| hold.expire(now, &mut expired));
        expired
    }

    /// Drops the units whose callers have gone.
    pub(crate) fn forget_dead(&mut self) {
        self.slots.values_mut().for_each(Hold::forget_dead);
    }

    /// Units that are held.
    pub(crate) fn len(&self) -> usize {
        self.slots.values().map(Hold::len).sum()
    }

    /// Held slots that have units, without an order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots
            .iter()
            .filter(|(_, hold)| !hold.is_empty())
            .map(|(&slot, _)| slot)
    }

    /// Everything that is held, for the end of the client.
    pub(crate) fn take_all(&mut self) -> Vec<Unit<T>> {
        self.check.clear();
        self.timers.clear();
        self.slots
            .drain()
            .flat_map(|(_, hold)| hold.into_units())
            .collect()
    }
}
