//! What the client counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::proto::addr::NodeAddr;
use crate::proto::cluster::Event;
use crate::proto::maintenance::Notice;
use crate::proto::outcome::{Certainty, Outcome, Reason};
use crate::proto::refresh::RefreshCause;

/// Counters of one node, as its threads keep them.
#[derive(Debug, Default)]
pub(crate) struct NodeCounters {
    pub(crate) sent: AtomicU64,
    pub(crate) succeeded: AtomicU64,
    pub(crate) server_errors: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) not_executed: AtomicU64,
    pub(crate) moved: AtomicU64,
    pub(crate) ask: AtomicU64,
    pub(crate) tryagain: AtomicU64,
    pub(crate) not_serving: AtomicU64,
    pub(crate) relocated: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
}

impl NodeCounters {
    /// Counts how a command ended.
    pub(crate) fn settled(&self, outcome: &Outcome) {
        let counter = match outcome {
            Ok(_) => &self.succeeded,
            Err(failure) if failure.reason() == Reason::Server => &self.server_errors,
            Err(failure) if failure.certainty() == Certainty::Unknown => &self.unknown,
            Err(_) => &self.not_executed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts how many commands ended. Most of a run succeeds, so that is counted in one go.
    pub(crate) fn settled_run(&self, outcomes: &[Outcome]) {
        let failed = outcomes.iter().filter(|outcome| outcome.is_err());
        let failures = failed.inspect(|outcome| self.settled(outcome)).count();
        let succeeded = (outcomes.len() - failures) as u64;
        self.succeeded.fetch_add(succeeded, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(
        &self,
        queued: usize,
        queued_peak: usize,
        in_flight: usize,
    ) -> NodeStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NodeStats {
            sent: get(&self.sent),
            succeeded: get(&self.succeeded),
            server_errors: get(&self.server_errors),
            unknown: get(&self.unknown),
            not_executed: get(&self.not_executed),
            moved: get(&self.moved),
            ask: get(&self.ask),
            tryagain: get(&self.tryagain),
            not_serving: get(&self.not_serving),
            relocated: get(&self.relocated),
            connects: get(&self.connects),
            bytes_in: get(&self.bytes_in),
            bytes_out: get(&self.bytes_out),
            queued,
            queued_peak,
            in_flight,
        }
    }
}

/// Counters of the coordinator.
#[derive(Debug, Default)]
pub(crate) struct ClientCounters {
    refreshes: [AtomicU64; RefreshCause::ALL.len()],
    pub(crate) topology_queries: AtomicU64,
    topology_failures: AtomicU64,
    pub(crate) maps: AtomicU64,
    pub(crate) parked: AtomicU64,
    pub(crate) redirects_exhausted: AtomicU64,
    pub(crate) parked_now: AtomicU64,
    announcements: AtomicU64,
    unreadable_announcements: AtomicU64,
    timed_out: AtomicU64,
    cancelled: AtomicU64,
}

impl ClientCounters {
    /// Counts how a command ended that the coordinator ends.
    pub(crate) fn settled(&self, outcome: &Outcome) {
        if matches!(outcome, Err(failure) if failure.reason() == Reason::TooManyRedirects) {
            self.redirects_exhausted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts commands whose callers have gone.
    pub(crate) fn given_up(&self, why: Reason, commands: usize) {
        let counter = match why {
            Reason::Timeout | Reason::MaintenanceTimeout => &self.timed_out,
            Reason::Cancelled => &self.cancelled,
            _ => return,
        };
        counter.fetch_add(commands as u64, Ordering::Relaxed);
    }

    pub(crate) fn refresh(&self, cause: RefreshCause) {
        let at = RefreshCause::ALL.iter().position(|&each| each == cause);
        if let Some(counter) = at.and_then(|at| self.refreshes.get(at)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts what is counted of the events of the coordinator.
    pub(crate) fn observe<T>(&self, event: &Event<T>) {
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        match event {
            Event::Topology { result: Err(_), .. } => {
                count(&self.topology_failures);
            }
            Event::Announced { notice, .. } => {
                count(&self.announcements);
                if matches!(notice, Notice::Unreadable(_)) {
                    count(&self.unreadable_announcements);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn snapshot(&self, nodes: BTreeMap<NodeAddr, NodeStats>) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let causes = RefreshCause::ALL
            .into_iter()
            .zip(self.refreshes.iter().map(get));
        Stats {
            nodes,
            refreshes: causes.filter(|&(_, count)| count > 0).collect(),
            topology_queries: get(&self.topology_queries),
            topology_failures: get(&self.topology_failures),
            maps: get(&self.maps),
            parked: get(&self.parked),
            parked_now: get(&self.parked_now),
            redirects_exhausted: get(&self.redirects_exhausted),
            announcements: get(&self.announcements),
            unreadable_announcements: get(&self.unreadable_announcements),
            timed_out: get(&self.timed_out),
            cancelled: get(&self.cancelled),
        }
    }
}

/// A snapshot of what a client has counted since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Each node that the client has threads for.
    pub nodes: BTreeMap<NodeAddr, NodeStats>,
    /// Topology refreshes by their cause.
    pub refreshes: BTreeMap<RefreshCause, u64>,
    /// Topology queries sent; a refresh asks several nodes if the first ones fail.
    pub topology_queries: u64,
    /// Topology queries without a usable answer.
    pub topology_failures: u64,
    /// Maps of the cluster that were taken over, changed or not.
    pub maps: u64,
    /// Units that waited with the coordinator because their slot was moving or not served.
    pub parked: u64,
    /// How many wait there now.
    pub parked_now: u64,
    /// Commands that used up their redirects.
    pub redirects_exhausted: u64,
    /// Announcements of maintenance, each copy counted.
    pub announcements: u64,
    /// Those of them that came in a shape that is not known.
    pub unreadable_announcements: u64,
    /// Commands whose caller gave up at its deadline, written or not. A transaction, a blocking
    /// command and a watched session count as one each.
    ///
    /// What was written stays on its way: its late reply counts in the numbers of its node as what
    /// it is, mostly as `succeeded`. What the client itself drops from a queue because its deadline
    /// has passed counts as `not_executed` there, and here only if its caller had gone before.
    pub timed_out: u64,
    /// The same for commands whose caller cancelled.
    pub cancelled: u64,
}

/// What happened at one node, on the connection that all callers share. What ran on a connection
/// of its own (commands that block, watched sessions) is not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// Commands written, repeated ones counted again. Of a transaction each line counts: `MULTI`,
    /// its commands and `EXEC`.
    pub sent: u64,
    /// Commands that ended with a reply other than an error. A transaction has one end.
    pub succeeded: u64,
    /// Commands that ended with an error of the server.
    pub server_errors: u64,
    /// Commands that ended without it being known whether they ran.
    pub unknown: u64,
    /// Commands that ended here without having run.
    pub not_executed: u64,
    /// MOVED replies.
    pub moved: u64,
    /// ASK replies.
    pub ask: u64,
    /// TRYAGAIN replies.
    pub tryagain: u64,
    /// CLUSTERDOWN, LOADING, MASTERDOWN and READONLY replies.
    pub not_serving: u64,
    /// Queued units that were taken out because their slot left the node.
    pub relocated: u64,
    /// Connections made.
    pub connects: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Commands that wait to be written, now.
    pub queued: usize,
    /// The most commands that waited at once.
    pub queued_peak: usize,
    /// Commands that wait for their replies, now.
    pub in_flight: usize,
}

impl Stats {
    /// The sum of one counter over all nodes: `stats.total(|node| node.moved)`.
    pub fn total(&self, counter: impl Fn(&NodeStats) -> u64) -> u64 {
        self.nodes.values().map(counter).sum()
    }
}
