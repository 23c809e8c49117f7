//! Moves slots back and forth while the threads run.

use std::time::Instant;

use crate::local_cluster::LocalCluster;

/// How many slots are open at the same time.
const AT_ONCE: u16 = 8;

/// Moves the slots below `moving` from the first primary to the second, key by key, then back, and
/// so on until `until`; in the end all are back. Returns the number of moves.
pub(crate) fn move_by_keys(cluster: &LocalCluster, moving: u16, until: Instant) -> u64 {
    let groups = usize::from(moving / AT_ONCE);
    let mut owners = vec![0; groups];
    let mut moves = 0;
    let mut shift = |group: usize, owner: &mut usize| {
        let first = AT_ONCE * group as u16;
        move_group(cluster, first..first + AT_ONCE, *owner, 1 - *owner);
        *owner = 1 - *owner;
        moves += u64::from(AT_ONCE);
    };
    for group in (0..groups).cycle() {
        if Instant::now() >= until {
            break;
        }
        shift(group, &mut owners[group]);
    }
    let away = owners
        .iter_mut()
        .enumerate()
        .filter(|(_, owner)| **owner == 1);
    away.for_each(|(group, owner)| shift(group, owner));
    moves
}

/// Opens some slots, moves their keys, and closes them again.
fn move_group(cluster: &LocalCluster, slots: std::ops::Range<u16>, from: usize, to: usize) {
    let open: Vec<_> = slots
        .map(|slot| cluster.begin_move(slot, from, to))
        .collect();
    for slot in &open {
        slot.migrate_all();
    }
    for slot in open {
        slot.finish();
    }
}

/// As [`move_by_keys`], by the server's own migration of all the slots at once.
pub(crate) fn move_atomically(cluster: &LocalCluster, moving: u16, until: Instant) -> u64 {
    let mut moves = 0;
    while Instant::now() < until {
        for (from, to) in [(0, 1), (1, 0)] {
            cluster.move_slot_atomic(0..=moving - 1, from, to);
            moves += u64::from(moving);
        }
    }
    moves
}
