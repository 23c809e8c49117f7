//! Handing slots over: moves, and the routes that are published together with them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Instant;

use super::holds::{Hold, Place};
use super::nodes::Node;
use super::{AVOID, Barrier, Cluster, NodeKey, Role};
use crate::proto::addr::NodeAddr;
use crate::proto::inflight::BarrierId;
use crate::proto::slot::{Slot, SlotSet};
use crate::proto::unit::{Ticket, Unit};

/// What one step of the coordinator changes, to be carried out in the order of the fields while no
/// caller can route.
#[derive(Debug)]
pub(crate) struct Commit<T> {
    /// Slots that a node takes over, with their units, oldest first.
    pub(crate) take_overs: Vec<(NodeKey, SlotSet, Vec<Unit<T>>)>,
    /// What callers see from now on; `None` if that does not change.
    pub(crate) view: Option<View>,
    /// Slots that a node is to give up. Whatever callers sent it before is in its inbox already.
    pub(crate) give_ups: Vec<(NodeKey, BarrierId, SlotSet)>,
    /// Nodes that are to pass on what others can run as well: commands without keys, and if so
    /// marked reads.
    pub(crate) release: Vec<(NodeKey, bool)>,
    /// Nodes that nothing is sent to any more: they end.
    pub(crate) retire: Vec<NodeKey>,
}

/// The routes that callers see.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// For each slot the node that serves it; `None`: its units go to the coordinator.
    pub(crate) slots: Vec<Option<NodeKey>>,
    /// All primaries of the map.
    pub(crate) primaries: Vec<NodeKey>,
    /// Where commands without keys go: those of them that answer, all if none does.
    pub(crate) usable: Vec<NodeKey>,
    /// The replicas of each primary that has any.
    pub(crate) replicas: Vec<(NodeKey, Vec<NodeKey>)>,
    /// Slots whose reads must go to the primary.
    pub(crate) primary_only: Option<SlotSet>,
    /// Every node by its address, for commands that name their node.
    pub(crate) addrs: Vec<(NodeAddr, NodeKey)>,
    /// A single server: keys of several slots are fine.
    pub(crate) standalone: bool,
}

impl<T: Ticket> Cluster<T> {
    /// Whether [`commit`](Self::commit) has something to do.
    pub(crate) fn wants_commit(&self, now: Instant) -> bool {
        self.dirty || self.holds.wants_release(now)
    }

    /// Releases the slots that are free to go and closes the books for what is published.
    pub(crate) fn commit(&mut self, now: Instant) -> Commit<T> {
        let owners = &self.owners;
        let released = self.holds.release(now, |slot| owners[slot.index()]);
        let mut moves: BTreeMap<NodeKey, (SlotSet, Vec<Unit<T>>)> = BTreeMap::new();
        let mut released = released.into_iter().peekable();
        while let Some(&(_, to, _)) = released.peek() {
            let (slots, units) = moves
                .entry(to)
                .or_insert_with(|| (SlotSet::new(), Vec::new()));
            // Neighbours mostly go together.
            while let Some((slot, _, held)) = released.next_if(|&(_, next, _)| next == to) {
                slots.insert(slot);
                units.extend(held);
                self.asked.remove(slot);
                self.set_route(slot, Some(to));
            }
        }
        self.reap(now);
        let nodes = self.nodes.iter_mut();
        let giving_up = nodes.filter_map(|(key, node)| Some((key, node.giving_up.take()?)));
        let giving_up: Vec<_> = giving_up.collect();
        let give_ups = giving_up
            .into_iter()
            .map(|(node, slots)| (node, self.add_barrier(node, slots.clone(), now), slots))
            .collect();
        let retire = self.start_retiring(now);
        let view = std::mem::take(&mut self.dirty).then(|| self.view());
        let take_overs = moves
            .into_iter()
            .map(|(to, (slots, units))| (to, slots, units))
            .collect();
        let mut release: Vec<_> = std::mem::take(&mut self.releasing).into_iter().collect();
        // A node that ends has nothing queued any more.
        release.retain(|&(node, _)| self.is_spawned(node));
        Commit {
            take_overs,
            view,
            give_ups,
            release,
            retire,
        }
    }

    fn view(&self) -> View {
        let replicas = if self.settings.replica_reads {
            self.usable_replicas()
        } else {
            Vec::new()
        };
        let migrating: SlotSet = self.asked.iter().map(|(slot, _)| slot).collect();
        View {
            slots: self.routes.clone(),
            primaries: self.primaries(|_| true),
            usable: self.usable_primaries(),
            replicas,
            primary_only: Some(migrating).filter(|slots| !slots.is_empty()),
            addrs: self
                .nodes
                .names()
                .filter(|(_, key)| self.is_spawned(*key))
                .collect(),
            standalone: self.standalone,
        }
    }

    fn primaries(&self, wanted: impl Fn(&Node) -> bool) -> Vec<NodeKey> {
        let nodes = self.nodes.iter();
        let listed = nodes.filter(|(_, node)| node.role == Role::Primary && node.spawned);
        let wanted = listed.filter(|(_, node)| wanted(node));
        wanted.map(|(key, _)| key).collect()
    }

    /// The primaries that answer; all if none does.
    pub(super) fn usable_primaries(&self) -> Vec<NodeKey> {
        let usable = self.primaries(Node::is_usable);
        if usable.is_empty() {
            return self.primaries(|_| true);
        }
        usable
    }

    /// Keeps what other nodes can run as well away from a node for a while: it did not serve.
    pub(super) fn avoid(&mut self, key: NodeKey, now: Instant) {
        if let Some(node) = self.nodes.get_mut(key) {
            self.dirty |= node.avoid_until.is_none();
            node.avoid_until = Some(now + AVOID);
        }
    }

    /// A node cannot be reached. What waits there and others can run as well is not to wait: with
    /// the next commit, when nobody sends it such commands any more, it passes them on.
    pub(super) fn release_from(&mut self, key: NodeKey) {
        let Some(node) = self.nodes.get(key) else {
            return;
        };
        // Where it serves slots itself, or is about to, their order would be lost.
        let serves = self.owners.contains(&Some(key)) || self.routes.contains(&Some(key));
        let reads = node.role == Role::Replica && !serves;
        if reads || !self.primaries(Node::is_usable).is_empty() {
            self.releasing.insert(key, reads);
            self.dirty = true;
        }
    }

    fn usable_replicas(&self) -> Vec<(NodeKey, Vec<NodeKey>)> {
        let usable = |key: &NodeKey| {
            let node = self.nodes.get(*key);
            node.is_some_and(|node| node.spawned && node.is_usable())
        };
        let shards = self.replicas.iter().map(|(&primary, replicas)| {
            (
                primary,
                replicas.iter().copied().filter(usable).collect::<Vec<_>>(),
            )
        });
        shards
            .filter(|(_, replicas)| !replicas.is_empty())
            .collect()
    }

    pub(super) fn is_spawned(&self, key: NodeKey) -> bool {
        self.nodes.get(key).is_some_and(|node| node.spawned)
    }

    pub(super) fn set_route(&mut self, slot: Slot, to: Option<NodeKey>) {
        if self.routes[slot.index()] != to {
            self.routes[slot.index()] = to;
            self.dirty = true;
        }
    }

    /// Holds a slot: from the next commit on its units come here.
    pub(super) fn hold(&mut self, slot: Slot) -> &mut Hold<T> {
        self.set_route(slot, None);
        self.holds.hold(slot)
    }

    /// Holds a slot and has everything of it brought here: what its present owner has, and what
    /// ASK sent elsewhere, but for what is at `to` already.
    pub(super) fn collect(&mut self, slot: Slot, from: Option<NodeKey>, to: Option<NodeKey>) {
        self.hold(slot);
        let asked = self.asked.get(slot).cloned().unwrap_or_default();
        for node in from
            .into_iter()
            .chain(asked.into_iter().filter(|&node| Some(node) != to))
        {
            self.drain(slot, node);
        }
    }

    /// Has a node give up a held slot.
    pub(super) fn drain(&mut self, slot: Slot, node: NodeKey) {
        let Some(at) = self.nodes.get_mut(node).filter(|node| node.spawned) else {
            return;
        };
        if self.holds.hold(slot).drain(node) {
            at.giving_up.get_or_insert_with(SlotSet::new).insert(slot);
            self.dirty = true;
        }
    }

    /// Changes the owner of a slot. A slot that moves already just gets another destination.
    pub(super) fn change_owner(&mut self, slot: Slot, to: Option<NodeKey>) {
        let from = std::mem::replace(&mut self.owners[slot.index()], to);
        if from == to {
            return;
        }
        let held = self.holds.contains(slot);
        if from.is_none() && !held {
            // Nobody served it, so there is nothing to collect.
            return self.set_route(slot, to);
        }
        self.collect(slot, from.filter(|_| !held), to);
        self.holds.check_again(slot);
    }

    fn add_barrier(&mut self, node: NodeKey, slots: SlotSet, now: Instant) -> BarrierId {
        let id = BarrierId(self.next_barrier);
        self.next_barrier += 1;
        let limit = Some(now + self.settings.drain_limit);
        self.barriers.insert(id, Barrier { node, slots, limit });
        id
    }

    /// Barriers whose nodes kept silent for too long. Their connections are closed, which settles
    /// what is on the wire, and so the barriers open.
    pub(super) fn late_barriers(&mut self, now: Instant) -> Vec<NodeKey> {
        let mut late = Vec::new();
        for barrier in self.barriers.values_mut() {
            if barrier.limit.is_some_and(|limit| limit <= now) {
                barrier.limit = None;
                late.push(barrier.node);
            }
        }
        late.sort();
        late.dedup();
        late
    }

    /// A node gave up what it had queued.
    pub(super) fn extracted(&mut self, id: BarrierId, units: Vec<Unit<T>>, now: Instant) {
        let from = self.barriers.get(&id).map(|barrier| barrier.node);
        for unit in units {
            self.divide_by_slot(unit, |cluster, piece| {
                let Some(slot) = piece.slot(0) else {
                    return cluster.dispatch(piece, now);
                };
                let place = cluster.place_of(slot, from, Place::Extracted);
                match cluster.holds.get_mut(slot) {
                    Some(hold) => hold.push(place, piece),
                    None => cluster.dispatch(piece, now),
                }
            });
        }
        self.watch_deadlines(now);
    }

    /// Where in a hold a unit from this node goes.
    pub(super) fn place_of(&self, slot: Slot, from: Option<NodeKey>, usual: Place) -> Place {
        let asked = self.asked.get(slot);
        let hop = asked.and_then(|nodes| nodes.iter().position(|&node| Some(node) == from));
        match hop {
            Some(hop) => Place::Asked {
                hops: Reverse(hop),
                queued: usual == Place::Extracted,
            },
            None => usual,
        }
    }

    pub(super) fn cleared(&mut self, id: BarrierId) {
        let Some(barrier) = self.barriers.remove(&id) else {
            return;
        };
        for slot in barrier.slots.iter() {
            if let Some(hold) = self.holds.get_mut(slot) {
                hold.cleared();
                self.holds.check_again(slot);
            }
        }
    }
}
