//! Growing, jittered pauses.

use std::time::Duration;

/// A small generator of pseudo-random numbers (SplitMix64): pauses need spread, not secrecy.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound as u64) as usize
    }
}

/// A schedule: the first pause, doubled each time up to the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// The pause after the first failure.
    pub(crate) first: Duration,
    /// No pause is longer.
    pub(crate) most: Duration,
}

impl Backoff {
    /// The pause after `failures` failures in a row (1 or more): at least half of the nominal one,
    /// at most all of it, so that many clients do not come back at the same moment.
    pub(crate) fn pause(&self, failures: u32, random: &mut Random) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let nominal = self.first.saturating_mul(1 << doublings).min(self.most);
        let half = nominal / 2;
        let spread = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        half + Duration::from_nanos(random.next_u64() % spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_within_their_bounds() {
        let mut random = Random::new(7);
        let backoff = Backoff {
            first: Duration::from_millis(10),
            most: Duration::from_millis(500),
        };
        for (failures, nominal) in [
            (1, 10),
            (2, 20),
            (3, 40),
            (6, 320),
            (7, 500),
            (4_000_000, 500),
        ] {
            for _ in 0..100 {
                let pause = backoff.pause(failures, &mut random);
                assert!(
                    pause >= Duration::from_millis(nominal) / 2,
                    "{failures}: {pause:?}"
                );
                assert!(
                    pause <= Duration::from_millis(nominal),
                    "{failures}: {pause:?}"
                );
            }
        }
    }
}
