//! What all threads share: the client, what was done to the cluster, and the judge of all results.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reslot::{Certainty, Client, Error, Failure, Reason, Result};

use crate::blows::{Blows, Span};
use crate::tally::{Kind, Outcome, Tallies};

/// The `response_timeout` of the client.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How much longer than it may a call takes at most: the machine may be busy.
pub(crate) const MARGIN: Duration = Duration::from_secs(3);

/// How many violations are printed.
const PRINTED: u64 = 20;

/// What the threads share.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) client: Client,
    pub(crate) seed: u64,
    pub(crate) start: Instant,
    pub(crate) blows: Blows,
    pub(crate) tallies: Tallies,
    over: AtomicBool,
    violations: AtomicU64,
    calls: Mutex<Calls>,
}

/// Calls under way.
#[derive(Debug, Default)]
struct Calls {
    next: u64,
    open: HashMap<u64, (Kind, Instant, Duration)>,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is under way.
    Open,
    /// It was acknowledged.
    Ran,
    /// It may have run.
    Unknown,
    /// It did not run.
    Absent,
}

/// What may be wrong with a call without a reason in the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuse {
    /// It had little time.
    pub(crate) short: bool,
    /// It may be cancelled.
    pub(crate) cancel: bool,
    /// It only reads, and so is repeated after a lost connection.
    pub(crate) read: bool,
    /// The error that the server is to answer.
    pub(crate) code: Option<&'static str>,
}

impl Arena {
    pub(crate) fn new(client: Client, seed: u64) -> Self {
        Self {
            client,
            seed,
            start: Instant::now(),
            blows: Blows::default(),
            tallies: Tallies::default(),
            over: AtomicBool::new(false),
            violations: AtomicU64::new(0),
            calls: Mutex::default(),
        }
    }

    /// Has the threads end.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether the threads are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Notes something that must not happen.
    pub(crate) fn violation(&self, text: &str) {
        let count = self.violations.fetch_add(1, Ordering::Relaxed);
        if count < PRINTED {
            let (seed, at) = (self.seed, self.start.elapsed().as_secs_f64());
            eprintln!("VIOLATION (seed {seed}, at {at:.3} s): {text}");
        }
    }

    /// How many violations there were.
    pub(crate) fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }

    /// Makes a call that must end within this time (and a margin).
    pub(crate) fn timed<R>(
        &self,
        kind: Kind,
        limit: Duration,
        call: impl FnOnce() -> R,
    ) -> (R, Span) {
        let asked = Instant::now();
        let id = {
            let mut calls = self.calls();
            calls.next += 1;
            let id = calls.next;
            calls.open.insert(id, (kind, asked, limit));
            id
        };
        let result = call();
        let told = Instant::now();
        self.calls().open.remove(&id);
        let taken = told - asked;
        self.tallies.took(kind, taken);
        if taken > limit + MARGIN {
            self.violation(&format!(
                "{kind:?}: a call of {limit:?} took {taken:?}, from {}",
                self.clock(asked)
            ));
        }
        (result, Span { asked, told })
    }

    /// Calls that should have ended long ago.
    pub(crate) fn hanging(&self) -> Vec<String> {
        let calls = self.calls();
        let late = calls.open.values().filter(|(_, asked, limit)| {
            let longest = *limit + 2 * MARGIN;
            asked.elapsed() > longest
        });
        late.map(|(kind, asked, limit)| {
            let since = asked.elapsed();
            format!("{kind:?}: a call of {limit:?} has not ended after {since:?}")
        })
        .collect()
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since the start, for reports.
    pub(crate) fn clock(&self, time: Instant) -> String {
        let since = time.saturating_duration_since(self.start);
        format!("{:.3} s", since.as_secs_f64())
    }

    /// Judges how a command ended: counts it, and complains if its error has no reason.
    pub(crate) fn fate<T>(
        &self,
        kind: Kind,
        span: Span,
        slot: Option<u16>,
        excuse: Excuse,
        result: &Result<T>,
    ) -> Fate {
        let error = match result {
            Ok(_) => {
                self.tallies.count(kind, Outcome::Ok);
                return Fate::Ran;
            }
            Err(error) => error,
        };
        let cancelled = matches!(error, Error::Cancelled(_));
        let may_have_run = error.certainty() == Certainty::Unknown;
        let outcome = match (error, may_have_run) {
            (Error::Server(_), _) => Outcome::ServerError,
            (_, true) if cancelled => Outcome::CancelledUnknown,
            (_, false) if cancelled => Outcome::CancelledAbsent,
            (_, true) => Outcome::Unknown,
            (_, false) => Outcome::Absent,
        };
        self.tallies.count(kind, outcome);
        let fine = error
            .failure()
            .is_some_and(|failure| self.has_reason(span, slot, excuse, failure));
        if !fine {
            self.violation(&format!(
                "{kind:?}: from {} to {}, slot {slot:?}: no reason for: {error}",
                self.clock(span.asked),
                self.clock(span.told)
            ));
        }
        if may_have_run {
            Fate::Unknown
        } else {
            Fate::Absent
        }
    }

    fn has_reason(&self, span: Span, slot: Option<u16>, excuse: Excuse, failure: &Failure) -> bool {
        let explained = || self.blows.explain(slot, span);
        match failure.reason() {
            Reason::Cancelled => excuse.cancel,
            Reason::Server => {
                let code = failure.server_error().map(|cause| cause.code());
                code.is_some() && code == excuse.code
            }
            Reason::Timeout => excuse.short || explained(),
            Reason::ConnectionLost => !excuse.read && explained(),
            Reason::TooManyRedirects | Reason::SlotUncovered | Reason::WatchLost => explained(),
            _ => false,
        }
    }
}
