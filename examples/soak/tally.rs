//! Counts of calls by kind and outcome, and the table of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reslot::Stats;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Single,
    Pipeline,
    Sequence,
    Window,
    Cancel,
    Transaction,
    Watch,
    Push,
    Pop,
}

/// All kinds, in the order of their numbers.
const KINDS: [Kind; 9] = [
    Kind::Single,
    Kind::Pipeline,
    Kind::Sequence,
    Kind::Window,
    Kind::Cancel,
    Kind::Transaction,
    Kind::Watch,
    Kind::Push,
    Kind::Pop,
];

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    ServerError,
    Unknown,
    /// It did not run.
    Absent,
    CancelledUnknown,
    CancelledAbsent,
}

const HEADINGS: [&str; 8] = [
    "kind",
    "ok",
    "server errors",
    "Unknown",
    "not run",
    "cancelled: Unknown",
    "cancelled: not run",
    "longest",
];

/// Counts of one kind.
#[derive(Debug, Default)]
struct Tally {
    outcomes: [AtomicU64; 6],
    longest: AtomicU64,
}

/// Counts of all kinds.
#[derive(Debug, Default)]
pub(crate) struct Tallies([Tally; KINDS.len()]);

impl Tallies {
    /// Counts the end of a command.
    pub(crate) fn count(&self, kind: Kind, outcome: Outcome) {
        self.0[kind as usize].outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Notes how long a call took.
    pub(crate) fn took(&self, kind: Kind, time: Duration) {
        let micros = time.as_micros() as u64;
        self.0[kind as usize]
            .longest
            .fetch_max(micros, Ordering::Relaxed);
    }

    /// The sum of one outcome over all kinds.
    pub(crate) fn total(&self, outcome: Outcome) -> u64 {
        let count = |tally: &Tally| tally.outcomes[outcome as usize].load(Ordering::Relaxed);
        self.0.iter().map(count).sum()
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        println!("{}", row(HEADINGS.map(str::to_owned)));
        for (kind, tally) in KINDS.into_iter().zip(&self.0) {
            let mut cells = [const { String::new() }; 8];
            cells[0] = format!("{kind:?}");
            for (cell, count) in cells[1..].iter_mut().zip(&tally.outcomes) {
                *cell = count.load(Ordering::Relaxed).to_string();
            }
            let longest = Duration::from_micros(tally.longest.load(Ordering::Relaxed));
            cells[7] = format!("{:.3} s", longest.as_secs_f64());
            println!("{}", row(cells));
        }
    }
}

fn row(cells: [String; 8]) -> String {
    let [kind, rest @ ..] = cells;
    let rest = rest.into_iter().zip(&HEADINGS[1..]);
    let rest: Vec<String> = rest
        .map(|(cell, heading)| format!("{cell:>width$}", width = heading.len().max(9)))
        .collect();
    format!("{kind:<12}{}", rest.join("  "))
}

/// What the client counted, in one line.
pub(crate) fn client_line(stats: &Stats) -> String {
    let refreshes: u64 = stats.refreshes.values().sum();
    format!(
        "MOVED {}, ASK {}, TRYAGAIN {}, not serving {}, refreshes {refreshes}, relocated {}, \
         parked {}, connects {}, redirects exhausted {}",
        stats.total(|node| node.moved),
        stats.total(|node| node.ask),
        stats.total(|node| node.tryagain),
        stats.total(|node| node.not_serving),
        stats.total(|node| node.relocated),
        stats.parked,
        stats.total(|node| node.connects),
        stats.redirects_exhausted
    )
}
