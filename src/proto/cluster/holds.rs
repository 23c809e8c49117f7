//! Slots whose commands the coordinator holds back for a moment.
//!
//! A slot is held while it changes its owner, while it pauses after an answer such as CLUSTERDOWN,
//! or while nobody serves it. New commands for it come here; when the hold ends, everything goes
//! to the owner in the order in which it was handed over.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::nodes::NodeKey;
use crate::proto::slot::map::SlotMap;
use crate::proto::slot::{Slot, SlotSet};
use crate::proto::unit::{Ticket, Unit};

/// A held slot and its units.
#[derive(Debug)]
pub(crate) struct Hold<T> {
    /// `None`: nothing, as for nearly all slots if many are held at once.
    waiting: Option<Box<Waiting<T>>>,
    /// Nodes that were told to give the slot up, in this hold.
    drained: Drained,
    /// How many of them still have something of it on the wire.
    draining: u32,
    /// Not to be released before.
    pub(crate) not_before: Option<Instant>,
}

/// The units of a held slot.
#[derive(Debug)]
struct Waiting<T> {
    /// Those of each place, in the order of the places.
    lists: BTreeMap<Place, Vec<Unit<T>>>,
    /// Commands and bytes of all of them.
    amount: (usize, usize),
}

/// Where the units of a hold come from, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// ASK had sent them to another node.
    Asked {
        /// How many ASK lie behind that node: who has gone further is older.
        hops: Reverse<usize>,
        /// They waited there; otherwise they were on the wire.
        queued: bool,
    },
    /// They were on the wire of the old owner.
    Returned,
    /// They waited in the old owner's queue.
    Extracted,
    /// They were handed over since.
    Parked,
}

/// Some nodes; hardly ever more than one.
#[derive(Debug, Default)]
struct Drained {
    first: Option<NodeKey>,
    others: Vec<NodeKey>,
}

impl Drained {
    fn contains(&self, node: NodeKey) -> bool {
        self.first == Some(node) || self.others.contains(&node)
    }

    fn add(&mut self, node: NodeKey) {
        match self.first {
            None => self.first = Some(node),
            Some(_) => self.others.push(node),
        }
    }
}

impl<T> Hold<T> {
    fn new() -> Self {
        Self {
            waiting: None,
            drained: Drained::default(),
            draining: 0,
            not_before: None,
        }
    }

    pub(crate) fn push(&mut self, place: Place, unit: Unit<T>) {
        let waiting = self.waiting.get_or_insert_with(|| Box::new(Waiting::new()));
        waiting.push(place, unit);
    }

    /// All units, oldest first.
    fn into_units(self) -> Vec<Unit<T>> {
        self.waiting.map_or_else(Vec::new, |waiting| {
            waiting.lists.into_values().flatten().collect()
        })
    }

    /// A node is to give the slot up. `false`: it was told before.
    pub(crate) fn drain(&mut self, node: NodeKey) -> bool {
        let is_new = !self.drained.contains(node);
        if is_new {
            self.drained.add(node);
            self.draining += 1;
        }
        is_new
    }

    /// A node that was told to give the slot up has nothing more of it on the wire.
    pub(crate) fn cleared(&mut self) {
        self.draining -= 1;
    }

    fn amount(&self) -> (usize, usize) {
        let waiting = self.waiting.as_ref();
        waiting.map_or((0, 0), |waiting| waiting.amount)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.amount().0 == 0
    }
}

impl<T> Waiting<T> {
    fn new() -> Self {
        Self {
            lists: BTreeMap::new(),
            amount: (0, 0),
        }
    }

    fn push(&mut self, place: Place, unit: Unit<T>) {
        self.amount.0 += unit.commands();
        self.amount.1 += unit.bytes().len();
        self.lists.entry(place).or_default().push(unit);
    }

    fn recount(&mut self) {
        let units = || self.lists.values().flatten();
        let commands = units().map(Unit::commands).sum();
        self.amount = (commands, units().map(|unit| unit.bytes().len()).sum());
    }
}

impl<T: Ticket> Waiting<T> {
    fn forget_dead(&mut self) {
        for list in self.lists.values_mut() {
            list.retain(|unit| !unit.ticket.is_dead());
        }
        self.recount();
    }

    /// Takes out what nobody waits for any more.
    fn expire(&mut self, now: Instant, expired: &mut Vec<Unit<T>>) {
        self.forget_dead();
        for list in self.lists.values_mut() {
            let units = std::mem::take(list).into_iter();
            let (late, kept): (Vec<_>, _) = units.partition(|unit| unit.is_expired(now));
            *list = kept;
            expired.extend(late);
        }
        self.recount();
    }
}

/// All held slots.
#[derive(Debug)]
pub(crate) struct Holds<T> {
    slots: SlotMap<Hold<T>>,
    /// Slots that may have become free to go.
    check: SlotSet,
    /// When pauses end.
    timers: BTreeSet<(Instant, Slot)>,
}

impl<T: Ticket> Holds<T> {
    pub(crate) fn new() -> Self {
        Self {
            slots: SlotMap::new(),
            check: SlotSet::new(),
            timers: BTreeSet::new(),
        }
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Hold<T>> {
        self.slots.get_mut(slot)
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        self.slots.contains(slot)
    }

    /// Whether a node was told to give up a slot, in the present hold of it.
    pub(crate) fn was_drained(&self, slot: Slot, node: NodeKey) -> bool {
        let hold = self.slots.get(slot);
        hold.is_some_and(|hold| hold.drained.contains(node))
    }

    /// The hold of a slot; a new one if it is free.
    pub(crate) fn hold(&mut self, slot: Slot) -> &mut Hold<T> {
        self.slots.get_or_insert_with(slot, || {
            self.check.insert(slot);
            Hold::new()
        })
    }

    /// Keeps a held slot back until then.
    pub(crate) fn pause(&mut self, slot: Slot, until: Instant) {
        if let Some(hold) = self.slots.get_mut(slot) {
            hold.not_before = hold.not_before.max(Some(until));
            self.timers.insert((until, slot));
        }
    }

    /// Looks at a slot again at the next release.
    pub(crate) fn check_again(&mut self, slot: Slot) {
        self.check.insert(slot);
    }

    /// Takes out every slot that is free to go (nothing on the wire, no pause, and an owner), with
    /// its units, oldest first.
    pub(crate) fn release(
        &mut self,
        now: Instant,
        owner: impl Fn(Slot) -> Option<NodeKey>,
    ) -> Vec<(Slot, NodeKey, Vec<Unit<T>>)> {
        while let Some(&(until, slot)) = self.timers.first().filter(|&&(until, _)| until <= now) {
            self.timers.remove(&(until, slot));
            self.check.insert(slot);
        }
        let mut released = Vec::new();
        for slot in std::mem::replace(&mut self.check, SlotSet::new()).iter() {
            let Some(hold) = self.slots.get(slot) else {
                continue;
            };
            let paused = hold.not_before.is_some_and(|until| until > now);
            if let Some(to) = owner(slot).filter(|_| hold.draining == 0 && !paused) {
                let hold = self.slots.remove(slot);
                released.extend(hold.map(|hold| (slot, to, hold.into_units())));
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
        self.all_waiting()
            .for_each(|waiting| waiting.expire(now, &mut expired));
        expired
    }

    /// Drops the units whose callers have gone.
    pub(crate) fn forget_dead(&mut self) {
        self.all_waiting().for_each(Waiting::forget_dead);
    }

    fn all_waiting(&mut self) -> impl Iterator<Item = &mut Waiting<T>> {
        let holds = self.slots.values_mut();
        holds.filter_map(|hold| hold.waiting.as_deref_mut())
    }

    /// Commands and bytes that are held.
    pub(crate) fn amount(&self) -> (usize, usize) {
        let amounts = self.slots.iter().map(|(_, hold)| hold.amount());
        amounts.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }

    /// Held slots that have units, without an order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots
            .iter()
            .filter(|(_, hold)| !hold.is_empty())
            .map(|(slot, _)| slot)
    }

    /// Everything that is held, for the end of the client.
    pub(crate) fn take_all(&mut self) -> Vec<Unit<T>> {
        self.check = SlotSet::new();
        self.timers.clear();
        self.slots.drain().flat_map(Hold::into_units).collect()
    }
}
