//! What the coordinator does about each answer that says "not here" or "not now".

use std::time::Instant;

use super::holds::Place;
use super::{Cluster, Effect, NodeKey, PAUSE, REDIRECT_PAUSE, Role, Target, UNLISTED_LINGER};
use crate::proto::addr::NodeAddr;
use crate::proto::outcome::Reason;
use crate::proto::redirect::{Endpoint, Redirect};
use crate::proto::refresh::RefreshCause;
use crate::proto::slot::Slot;
use crate::proto::unit::{Ticket, Unit};

impl<T: Ticket> Cluster<T> {
    /// A command did not run at `from`. Decides where it goes; learning comes first, so that the
    /// map is right even if the command goes nowhere.
    pub(super) fn redirected(
        &mut self,
        from: NodeKey,
        generation: u64,
        mut unit: Unit<T>,
        redirect: Redirect,
        now: Instant,
    ) {
        let to_itself = self.names_sender(from, &redirect);
        if !to_itself {
            self.learned(from, &redirect, now);
        }
        let addr = self.nodes.get(from).map(|node| node.addr.clone());
        if !self.settings.follow_redirects {
            return self.surface(unit, Reason::Server, addr.as_ref());
        }
        if unit.is_expired(now) {
            return self.fail(unit, Reason::Timeout, addr.as_ref());
        }
        if matches!(redirect, Redirect::Moved(..) | Redirect::Ask(..)) {
            let trail = unit.trail_mut();
            trail.redirects += 1;
            trail.after_ask = matches!(redirect, Redirect::Ask(..));
            if trail.redirects > self.settings.max_redirects {
                return self.surface(unit, Reason::TooManyRedirects, addr.as_ref());
            }
        }
        match redirect {
            Redirect::Moved(slot, _) if to_itself => {
                self.moved_to_itself(from, generation, slot, unit, now)
            }
            Redirect::Moved(slot, Endpoint::Unknown) | Redirect::Ask(slot, Endpoint::Unknown) => {
                self.pause_slot(from, slot, unit, now);
            }
            Redirect::Moved(slot, _) => self.moved(from, generation, slot, unit, now),
            Redirect::Ask(slot, endpoint) => self.ask(from, slot, &endpoint, unit, now),
            Redirect::TryAgain if self.settings.strict_order => {
                self.surface(unit, Reason::Server, addr.as_ref());
            }
            Redirect::TryAgain => self.try_again(unit, now),
            Redirect::ClusterDown
            | Redirect::Loading
            | Redirect::MasterDown
            | Redirect::ReadOnly
            | Redirect::Unblocked => self.not_serving(from, unit, now),
        }
    }

    /// Takes from a redirect what it says about the cluster.
    pub(super) fn learned(&mut self, from: NodeKey, redirect: &Redirect, now: Instant) {
        match redirect {
            Redirect::Moved(_, Endpoint::Unknown) => {
                self.want_refresh(RefreshCause::Moved, Some(from));
            }
            Redirect::Moved(slot, endpoint) => {
                let Some(to) = self.resolve(from, endpoint, now) else {
                    return;
                };
                if to != from {
                    let generation = self.gate.next_generation();
                    *self.patched.get_or_insert_with(*slot, u64::default) = generation;
                    self.change_owner(*slot, Some(to));
                }
                self.want_refresh(RefreshCause::Moved, Some(to));
            }
            Redirect::Ask(_, endpoint) => {
                let known =
                    endpoint_addr(self, from, endpoint).and_then(|addr| self.nodes.find(&addr));
                if known.is_none() {
                    self.want_refresh(RefreshCause::UnknownNode, Some(from));
                }
            }
            Redirect::TryAgain => {}
            Redirect::ClusterDown
            | Redirect::Loading
            | Redirect::MasterDown
            | Redirect::ReadOnly
            | Redirect::Unblocked => self.want_refresh(RefreshCause::NotServing, None),
        }
    }

    fn names_sender(&self, from: NodeKey, redirect: &Redirect) -> bool {
        let Redirect::Moved(_, endpoint) = redirect else {
            return false;
        };
        let addr = endpoint_addr(self, from, endpoint);
        addr.is_some_and(|addr| self.nodes.find(&addr) == Some(from))
    }

    /// The node that a redirect names, with its threads running.
    fn resolve(&mut self, from: NodeKey, endpoint: &Endpoint, now: Instant) -> Option<NodeKey> {
        let addr = endpoint_addr(self, from, endpoint)?;
        let key = self.nodes.get_or_create(&addr);
        if let Some(node) = self.nodes.get_mut(key) {
            node.linger_until = Some(now + UNLISTED_LINGER);
        }
        self.spawn(key, super::Dial::Now);
        Some(key)
    }

    /// The map was patched when the answer was learned from; if that moved the slot, the unit is
    /// the oldest of what the move collects.
    fn moved(
        &mut self,
        from: NodeKey,
        generation: u64,
        slot: Slot,
        mut unit: Unit<T>,
        now: Instant,
    ) {
        if self.is_replica(from) {
            // Its connection lost READONLY, or it copies another primary now.
            self.effects.push(Effect::Replace(from, generation));
        }
        let redirects = unit.trail_mut().redirects;
        if redirects >= 2 {
            let pause = REDIRECT_PAUSE.pause(redirects - 1, &mut self.random);
            self.hold_back(slot);
            self.holds.pause(slot, now + pause);
        }
        self.put_back(from, slot, unit, now);
    }

    /// The address leads somewhere else now: a new connection may reach the right server. All of
    /// the slot waits for it.
    fn moved_to_itself(
        &mut self,
        from: NodeKey,
        generation: u64,
        slot: Slot,
        mut unit: Unit<T>,
        now: Instant,
    ) {
        self.want_refresh(RefreshCause::Moved, None);
        self.effects.push(Effect::Replace(from, generation));
        self.collect(slot, Some(from), None);
        let redirects = unit.trail_mut().redirects;
        if redirects >= 2 {
            let pause = REDIRECT_PAUSE.pause(redirects - 1, &mut self.random);
            self.holds.pause(slot, now + pause);
        }
        self.put_back(from, slot, unit, now);
    }

    /// Into the hold of its slot if there is one, else straight to the owner.
    fn put_back(&mut self, from: NodeKey, slot: Slot, unit: Unit<T>, now: Instant) {
        if unit.slot(0).is_none() {
            // A command without known keys that the server finds keys in: it goes where it was
            // told to, once.
            return match self.owner(slot) {
                Some(owner) => self.send(owner, unit),
                None => self.delay(unit, now + PAUSE.first),
            };
        }
        let place = self.place_of(slot, Some(from), Place::Returned);
        if self.holds.contains(slot) && place != Place::Returned {
            // Also if the slot is on its way to that very node: what waits there is younger.
            self.drain(slot, from);
        }
        match self.holds.get_mut(slot) {
            Some(hold) => {
                hold.push(place, unit);
                self.watch_deadlines(now);
            }
            None => self.dispatch(unit, now),
        }
    }

    fn ask(
        &mut self,
        from: NodeKey,
        slot: Slot,
        endpoint: &Endpoint,
        mut unit: Unit<T>,
        now: Instant,
    ) {
        if self.holds.contains(slot) {
            // The slot is on its way; whoever owns it in the end will tell.
            return self.put_back(from, slot, unit, now);
        }
        let Some(to) = self.resolve(from, endpoint, now) else {
            return self.pause_slot(from, slot, unit, now);
        };
        let follows = unit.slot(0).is_none() || self.follow_ask(slot, from, to);
        if !follows {
            // Everything starts again at the owner. Nodes that do not agree need time.
            self.hold_back(slot);
            let redirects = unit.trail_mut().redirects;
            if redirects >= 3 {
                let pause = REDIRECT_PAUSE.pause(redirects - 2, &mut self.random);
                self.holds.pause(slot, now + pause);
            }
            return self.put_back(from, slot, unit, now);
        }
        // At once, however often it was redirected before: the owner would only say ASK again.
        // What goes round in circles pauses above, or at its MOVED.
        unit.asking = true;
        self.send(to, unit);
    }

    /// Notes that ASK leads from one node to the next. `false`: it led elsewhere before, and what
    /// is there still is older than what would be sent to `to`.
    fn follow_ask(&mut self, slot: Slot, from: NodeKey, to: NodeKey) -> bool {
        let nodes = self.asked.get_or_insert_with(slot, Vec::new);
        let hop = nodes.iter().position(|&node| node == from);
        let next = hop.map_or(0, |hop| hop + 1);
        match nodes.get(next) {
            Some(&node) => node == to,
            None if nodes.contains(&to) => false,
            None => {
                nodes.push(to);
                // Replicas answer nil for keys that have left: reads go to the primary meanwhile.
                self.dirty |= self.settings.replica_reads;
                true
            }
        }
    }

    /// Each attempt starts again at the owner, after a pause. An ASK that led here is no step of
    /// a loop.
    fn try_again(&mut self, mut unit: Unit<T>, now: Instant) {
        let trail = unit.trail_mut();
        trail.pauses += 1;
        if std::mem::take(&mut trail.after_ask) {
            trail.redirects -= 1;
        }
        let pauses = trail.pauses;
        let pause = PAUSE.pause(pauses, &mut self.random);
        self.delay(unit, now + pause);
        self.watch_deadlines(now);
    }

    fn not_serving(&mut self, from: NodeKey, unit: Unit<T>, now: Instant) {
        if self.is_replica(from) {
            self.avoid(from, now);
            return self.dispatch(unit, now);
        }
        match unit.facts(0).target {
            Target::Slot(slot) => self.pause_slot(from, slot, unit, now),
            Target::Any | Target::Node => {
                let mut unit = unit;
                unit.trail_mut().pauses += 1;
                let pauses = unit.trail_mut().pauses;
                let pause = PAUSE.pause(pauses, &mut self.random);
                self.delay(unit, now + pause);
            }
        }
    }

    pub(super) fn is_replica(&self, key: NodeKey) -> bool {
        let node = self.nodes.get(key);
        node.is_some_and(|node| node.role == Role::Replica)
    }

    /// Keeps a whole slot back for a while: what was refused must not be overtaken.
    fn pause_slot(&mut self, from: NodeKey, slot: Slot, mut unit: Unit<T>, now: Instant) {
        unit.trail_mut().pauses += 1;
        let pauses = unit.trail_mut().pauses;
        let pause = PAUSE.pause(pauses, &mut self.random);
        self.hold_back(slot);
        self.holds.pause(slot, now + pause);
        self.put_back(from, slot, unit, now);
    }

    /// Holds a slot because of what its owner cannot do now. If it is held already, its new owner
    /// has nothing of it yet.
    fn hold_back(&mut self, slot: Slot) {
        if !self.holds.contains(slot) {
            self.collect(slot, self.owner(slot), None);
        }
    }

    /// Ends a unit by the answer that it got.
    fn surface(&mut self, unit: Unit<T>, reason: Reason, node: Option<&NodeAddr>) {
        let failure = unit.failure(reason, node);
        self.effects.push(Effect::Settle(unit.ticket, Err(failure)));
    }
}

fn endpoint_addr<T>(cluster: &Cluster<T>, from: NodeKey, endpoint: &Endpoint) -> Option<NodeAddr> {
    endpoint.resolve(&cluster.nodes.get(from)?.addr)
}
