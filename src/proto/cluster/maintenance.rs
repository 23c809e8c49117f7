//! What the coordinator does about announced maintenance: slots that moved are moved at once.

use std::time::Instant;

use super::{Cluster, Dial, NodeKey, Role, UNLISTED_LINGER};
use crate::proto::addr::NodeAddr;
use crate::proto::maintenance::{Delta, Notice};
use crate::proto::refresh::RefreshCause;
use crate::proto::slot::Slot;
use crate::proto::unit::Ticket;

impl<T: Ticket> Cluster<T> {
    /// A node announced something; all connections to all nodes may bring the same.
    pub(super) fn announced(&mut self, from: NodeKey, notice: &Notice, now: Instant) {
        match notice {
            // These concern the connection that brought them.
            Notice::Begun(..) | Notice::Moving(_) => {}
            Notice::Unreadable(_) => self.want_refresh(RefreshCause::Maintenance, Some(from)),
            Notice::Ended(..) => {
                if self.seen.is_new(notice, now) {
                    self.want_refresh(RefreshCause::Maintenance, Some(from));
                }
            }
            Notice::SlotsMoved(_, deltas) => {
                if self.seen.is_new(notice, now) {
                    self.slots_moved(from, deltas, now);
                }
            }
        }
    }

    /// Applies what fits the present map, and has all of it verified: first by a node that got
    /// slots, which knows best.
    fn slots_moved(&mut self, from: NodeKey, deltas: &[Delta], now: Instant) {
        let generation = self.gate.next_generation();
        let mut hint = None;
        for delta in deltas {
            let to = self.apply(delta, generation, now);
            hint = hint.or(to);
        }
        self.want_refresh(RefreshCause::Maintenance, hint.or(Some(from)));
    }

    /// Moves those slots that the source has, as far as is known; so a copy that comes late, or
    /// out of order, does nothing. Gives the node that has got slots.
    fn apply(&mut self, delta: &Delta, generation: u64, now: Instant) -> Option<NodeKey> {
        let source = self.nodes.find(&delta.from)?;
        if self.nodes.find(&delta.to) == Some(source) {
            return None;
        }
        let fits = |slot: &Slot| self.owner(*slot).is_none_or(|owner| owner == source);
        let fitting: Vec<Slot> = delta.slots.iter().filter(fits).collect();
        if fitting.is_empty() {
            return None;
        }
        let to = self.make_primary(&delta.to, now);
        for slot in fitting {
            *self.patched.get_or_insert_with(slot, u64::default) = generation;
            self.change_owner(slot, Some(to));
        }
        Some(to)
    }

    /// The node of this address as a primary with running threads, whatever it was before.
    fn make_primary(&mut self, addr: &NodeAddr, now: Instant) -> NodeKey {
        let key = self.nodes.get_or_create(addr);
        if let Some(node) = self.nodes.get_mut(key) {
            // The next map may not name it yet.
            node.linger_until = Some(now + UNLISTED_LINGER);
            if node.role != Role::Primary {
                node.role = Role::Primary;
                self.dirty = true;
            }
        }
        for replicas in self.replicas.values_mut() {
            replicas.retain(|&replica| replica != key);
        }
        self.spawn(key, Dial::Now);
        key
    }
}

#[cfg(test)]
mod tests;
