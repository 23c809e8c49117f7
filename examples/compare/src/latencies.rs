//! Latencies, all of them: quantiles are exact, to the nanosecond.

use std::time::Duration;

/// What was measured.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    all: Vec<Duration>,
}

impl Latencies {
    /// Adds one.
    pub(crate) fn record(&mut self, latency: Duration) {
        self.all.push(latency);
    }

    /// Adds all that another one has.
    pub(crate) fn merge(&mut self, other: Latencies) {
        self.all.extend(other.all);
    }

    /// The latency that this share of all (0.99 for 99 %) did not exceed.
    pub(crate) fn quantile(&mut self, share: f64) -> Duration {
        let rank = (self.all.len() as f64 * share).ceil() as usize;
        match rank.checked_sub(1) {
            Some(at) => *self.all.select_nth_unstable(at).1,
            None => Duration::ZERO,
        }
    }

    /// The longest.
    pub(crate) fn max(&self) -> Duration {
        self.all.iter().max().copied().unwrap_or_default()
    }
}
