//! The report: one line per phase and kind of work.

use std::time::Duration;

use reslot::Stats;

use crate::histogram::Histogram;
use crate::workload::Seen;

/// What happened in a phase.
#[derive(Debug)]
pub(crate) struct Row {
    /// What the servers did.
    pub(crate) phase: &'static str,
    /// How long it took.
    pub(crate) length: Duration,
    /// How many slots were moved.
    pub(crate) moves: u64,
    /// What the threads saw.
    pub(crate) seen: Seen,
    /// What the client had counted before and after.
    pub(crate) stats: (Stats, Stats),
}

const HEADINGS: [&str; 13] = [
    "phase",
    "work",
    "ops/s",
    "p50",
    "p99",
    "max",
    "moves",
    "MOVED",
    "ASK",
    "refreshes",
    "unknown",
    "by crash",
    "errors",
];

/// Prints the rows as a table.
pub(crate) fn print(rows: &[Row], batch: usize) {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    for row in rows {
        lines.extend(row.lines(batch));
    }
    let widths: Vec<usize> = (0..HEADINGS.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max())
        .map(|width| width.unwrap_or(0))
        .collect();
    for line in &lines {
        for (column, (text, &width)) in line.iter().zip(&widths).enumerate() {
            match column {
                0 | 1 => print!("{text:<width$}  "),
                _ => print!("{text:>width$}  "),
            }
        }
        println!();
    }
}

impl Row {
    fn lines(&self, batch: usize) -> [[String; 13]; 2] {
        let (before, after) = &self.stats;
        let delta = |count: fn(&Stats) -> u64| count(after).saturating_sub(count(before));
        let seen = &self.seen;
        let [rate, p50, p99, max] = self.figures(seen.single_commands, &seen.singles);
        let first = [
            self.phase.to_owned(),
            "single commands".to_owned(),
            rate,
            p50,
            p99,
            max,
            self.moves.to_string(),
            delta(|stats| stats.total(|node| node.moved)).to_string(),
            delta(|stats| stats.total(|node| node.ask)).to_string(),
            delta(|stats| stats.refreshes.values().sum()).to_string(),
            seen.uncertain.to_string(),
            seen.lost_by_crash.to_string(),
            seen.failed.to_string(),
        ];
        let mut second = [const { String::new() }; 13];
        second[1] = format!("pipelines of {batch}");
        let figures = self.figures(seen.piped_commands, &seen.pipelines);
        second[2..6].clone_from_slice(&figures);
        [first, second]
    }

    fn figures(&self, commands: u64, latencies: &Histogram) -> [String; 4] {
        let rate = commands as f64 / self.length.as_secs_f64();
        let quantile = |share| duration(latencies.quantile(share));
        [
            format!("{rate:.0}"),
            quantile(0.5),
            quantile(0.99),
            duration(latencies.max()),
        ]
    }
}

fn duration(time: Duration) -> String {
    match time.as_micros() {
        micros @ 0..1_000 => format!("{micros} µs"),
        micros @ 1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        micros => format!("{:.2} s", micros as f64 / 1e6),
    }
}
