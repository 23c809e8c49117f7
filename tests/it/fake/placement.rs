//! Keys follow their slots: to new owners, and to replicas.

use super::keys::slot_of;
use super::shared::State;

/// Brings all keys to the owners of their slots and copies them to replicas, and forgets motions
/// that are over. Keys of slots that nobody owns stay where they are.
pub(super) fn settle(state: &mut State) {
    for node in 0..state.nodes.len() {
        forget_motions(state, node);
        hand_over(state, node);
    }
    for replica in 0..state.nodes.len() {
        if let Some(primary) = state.topology.primary_of(replica) {
            copy(state, primary, replica);
        }
    }
}

fn forget_motions(state: &mut State, node: usize) {
    let topology = &state.topology;
    let own = &mut state.nodes[node];
    own.migrating
        .retain(|&slot, _| topology.owner(slot) == Some(node));
    own.importing
        .retain(|&slot, &mut source| topology.owner(slot) == Some(source));
}

/// Takes the keys of foreign slots from a node and gives them to the owners.
fn hand_over(state: &mut State, node: usize) {
    let topology = &state.topology;
    let primary = topology.primary_of(node);
    let own = &mut state.nodes[node];
    let importing = &own.importing;
    let stays = |slot| {
        let owner = topology.owner(slot);
        owner.is_none() || owner == Some(node) || owner == primary || importing.contains_key(&slot)
    };
    for (key, data) in own.store.take(|key| !stays(slot_of(key))) {
        let owner = topology.owner(slot_of(&key));
        // A replica may come after the owner has got the key already.
        if let Some(owner) = owner.filter(|&owner| !state.nodes[owner].store.contains(&key)) {
            state.nodes[owner].store.put(&key, Some(data));
        }
    }
}

fn copy(state: &mut State, primary: usize, replica: usize) {
    for key in state.nodes[primary].store.keys() {
        let data = state.nodes[primary].store.data(&key).cloned();
        state.nodes[replica].store.put(&key, data);
    }
}
