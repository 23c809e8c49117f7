//! Latencies in buckets that grow with the value: any quantile to within about 3 %.

use std::time::Duration;

/// Buckets per doubling, as a power of two.
const STEPS: u32 = 5;

/// How often each latency occurred.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// The first 32 buckets hold one nanosecond each, then every doubling has 32.
    counts: Vec<u64>,
    total: u64,
    max: Duration,
}

impl Histogram {
    /// Counts one latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        let at = bucket(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
        self.max = self.max.max(latency);
    }

    /// Adds all that another one counted.
    pub(crate) fn merge(&mut self, other: &Histogram) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// The latency that this share of all (0.99 for 99 %) did not exceed.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut left = (self.total as f64 * share).ceil() as u64;
        for (at, &count) in self.counts.iter().enumerate() {
            if count >= left {
                return Duration::from_nanos(upper_end(at)).min(self.max);
            }
            left -= count;
        }
        self.max
    }

    /// The longest latency, exact.
    pub(crate) fn max(&self) -> Duration {
        self.max
    }
}

fn bucket(nanos: u64) -> usize {
    let doublings = (u64::BITS - nanos.leading_zeros()).saturating_sub(STEPS + 1);
    let step = nanos >> doublings;
    (u64::from(doublings << STEPS) + step) as usize
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let doublings = (bucket >> STEPS).saturating_sub(1);
    let step = (bucket - (doublings << STEPS)) as u64;
    let end = u128::from(step + 1) << doublings;
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}
