//! At most one topology refresh at a time, at most so often, and none that is older than the
//! event it is to answer.

use std::time::{Duration, Instant};

/// Why a refresh is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefreshCause {
    /// The client starts.
    Start,
    /// A MOVED reply.
    Moved,
    /// An ASK reply that names a node the map does not know.
    UnknownNode,
    /// A node answered CLUSTERDOWN, LOADING, MASTERDOWN or READONLY.
    NotServing,
    /// A command for a slot without owner.
    Uncovered,
    /// A connection was lost or could not be made.
    ConnectionLost,
    /// Commands timed out on a node.
    Timeout,
    /// A redirect that does not fit its command.
    Confused,
    /// The server announced a migration.
    Maintenance,
    /// Nothing: the periodic check.
    Periodic,
}

impl RefreshCause {
    /// All causes, in the order of their counters.
    pub const ALL: [RefreshCause; 10] = [
        RefreshCause::Start,
        RefreshCause::Moved,
        RefreshCause::UnknownNode,
        RefreshCause::NotServing,
        RefreshCause::Uncovered,
        RefreshCause::ConnectionLost,
        RefreshCause::Timeout,
        RefreshCause::Confused,
        RefreshCause::Maintenance,
        RefreshCause::Periodic,
    ];

    /// Whether commands may be waiting for the result.
    fn is_urgent(self) -> bool {
        matches!(
            self,
            RefreshCause::NotServing
                | RefreshCause::Uncovered
                | RefreshCause::ConnectionLost
                | RefreshCause::Timeout
        )
    }
}

/// While commands wait for a new map, refreshes are never further apart than this.
const URGENT_INTERVAL: Duration = Duration::from_secs(1);

/// Decides when a refresh starts.
///
/// Each request has a generation. A refresh answers the requests that were made before it was
/// sent; a later request stays open, and another refresh follows.
#[derive(Debug)]
pub(crate) struct RefreshGate {
    /// The smallest distance between the starts of two refreshes.
    least: Duration,
    /// The largest distance that unchanged results lead to.
    most: Duration,
    /// The present distance, `least..=most`.
    interval: Duration,
    /// Requests and refreshes so far: the clock of generations.
    generation: u64,
    /// What is wanted: the last cause, with the generation of the last request.
    wanted: Option<(RefreshCause, u64)>,
    /// The refresh that runs: the generation at which its query was sent.
    running: Option<u64>,
    last_start: Option<Instant>,
}

impl RefreshGate {
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self {
            least,
            most: most.max(least),
            interval: least,
            generation: 0,
            wanted: None,
            running: None,
            last_start: None,
        }
    }

    /// The time of an event, to be compared with the time at which a refresh was sent.
    pub(crate) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// Asks for a refresh that is newer than this moment.
    pub(crate) fn request(&mut self, cause: RefreshCause) {
        let generation = self.next_generation();
        self.wanted = Some((cause, generation));
    }

    /// When the next refresh may start; `None` if none is wanted or one runs.
    pub(crate) fn due(&self) -> Option<Instant> {
        let (cause, _) = self.wanted.filter(|_| self.running.is_none())?;
        let interval = if cause.is_urgent() {
            self.interval.min(URGENT_INTERVAL.max(self.least))
        } else {
            self.interval
        };
        self.last_start.map(|start| start + interval)
    }

    /// Starts a refresh if one is wanted, none runs and the last one is long enough ago.
    pub(crate) fn start(&mut self, now: Instant) -> Option<RefreshCause> {
        let (cause, _) = self.wanted.filter(|_| self.running.is_none())?;
        if self.due().is_some_and(|due| now < due) {
            return None;
        }
        if self.last_start.is_some_and(|start| now > start + self.most) {
            self.interval = self.least;
        }
        self.last_start = Some(now);
        self.sent();
        Some(cause)
    }

    /// The query of the running refresh is sent, for the first time or to the next node.
    pub(crate) fn sent(&mut self) {
        let generation = self.next_generation();
        self.running = Some(generation);
    }

    /// The generation at which the running query was sent.
    pub(crate) fn sent_at(&self) -> Option<u64> {
        self.running
    }

    /// The running refresh brought a map.
    pub(crate) fn finish(&mut self, changed: bool) {
        let sent = self.running.take();
        self.wanted = self
            .wanted
            .filter(|&(_, asked)| sent.is_some_and(|sent| asked > sent));
        self.interval = if changed {
            self.least
        } else {
            (self.interval * 2).min(self.most)
        };
    }

    /// The running refresh failed at every node: what was wanted stays wanted.
    pub(crate) fn fail(&mut self) {
        self.running = None;
        self.interval = (self.interval * 2).min(self.most);
    }
}

#[cfg(test)]
mod tests;
