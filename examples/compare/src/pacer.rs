//! Moves slots at a pace, as an operator does who wants nobody to notice.

use std::thread;
use std::time::{Duration, Instant};

use crate::keys::slot;
use crate::local_cluster::LocalCluster;

/// How many keys the first slots have.
#[derive(Debug)]
pub(crate) struct Population(Vec<usize>);

impl Population {
    /// Counts the keys in the slots below this one.
    pub(crate) fn count(keys: &[String], below: u16) -> Self {
        let mut counts = vec![0; usize::from(below)];
        for key in keys {
            if let Some(count) = counts.get_mut(usize::from(slot(key))) {
                *count += 1;
            }
        }
        Self(counts)
    }

    /// Keys of a slot, on average.
    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().sum::<usize>() as f64 / self.0.len() as f64
    }

    /// Moves the slots from the first primary to the second, one at a time and so many keys per
    /// second, then back, and so on until `until`; in the end all are back. Returns how many keys
    /// were moved until then.
    pub(crate) fn move_at_pace(&self, cluster: &LocalCluster, rate: u32, until: Instant) -> usize {
        let mut owners = vec![0; self.0.len()];
        let (mut moved, mut next) = (0, Instant::now());
        for at in (0..self.0.len()).cycle() {
            // Time that was lost is not made up for: that would be faster than the pace.
            next = next.max(Instant::now());
            if next >= until {
                break;
            }
            thread::sleep(next.saturating_duration_since(Instant::now()));
            shift(cluster, at, &mut owners[at]);
            moved += self.0[at];
            next += Duration::from_secs(1) * self.0[at] as u32 / rate;
        }
        for (at, owner) in owners.iter_mut().enumerate() {
            if *owner == 1 {
                shift(cluster, at, owner);
            }
        }
        moved
    }
}

fn shift(cluster: &LocalCluster, slot: usize, owner: &mut usize) {
    cluster.move_slot(slot as u16, *owner, 1 - *owner);
    *owner = 1 - *owner;
}
