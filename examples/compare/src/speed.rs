//! Commands per second: single ones from several threads, and pipelines.

use std::collections::HashMap;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::contender::{Answer, Contender, Failure, Session, Work};
use crate::options::Options;

/// The clients' connections, by client: one session per thread.
pub(crate) type Sessions = HashMap<Contender, Vec<Box<dyn Session>>>;

/// One line of the table.
struct Row {
    what: &'static str,
    threads: usize,
    batch: usize,
    /// What reslot must reach: so many times the speed of another client.
    targets: &'static [(f64, Contender)],
}

/// The most threads of all rows.
pub(crate) const THREADS: usize = 64;

const ROWS: [Row; 6] = [
    Row {
        what: "1 thread, one GET at a time",
        threads: 1,
        batch: 1,
        targets: &[(0.95, Contender::Bare), (1.0, Contender::RedisSync)],
    },
    Row {
        what: "16 threads",
        threads: 16,
        batch: 1,
        targets: &[(1.7, Contender::RedisSync), (1.5, Contender::Fred)],
    },
    Row {
        what: "64 threads",
        threads: THREADS,
        batch: 1,
        targets: &[(2.0, Contender::RedisSync), (1.2, Contender::Fred)],
    },
    Row {
        what: "pipeline of 100, 1 thread",
        threads: 1,
        batch: 100,
        targets: &[(0.95, Contender::Bare), (1.15, Contender::RedisSync)],
    },
    Row {
        what: "pipeline of 1000, 1 thread",
        threads: 1,
        batch: 1000,
        targets: &[(0.95, Contender::Bare), (1.5, Contender::RedisSync)],
    },
    Row {
        what: "pipeline of 100, 4 threads",
        threads: 4,
        batch: 100,
        targets: &[(1.0, Contender::Bare), (1.25, Contender::RedisSync)],
    },
];

/// Measures everything in turn, and prints medians.
pub(crate) fn run(options: &Options, sessions: &mut Sessions, keys: &[String]) -> Answer {
    let mut rates: HashMap<(usize, Contender), Vec<f64>> = HashMap::new();
    for round in 1..=options.rounds {
        eprintln!("speed: round {round} of {}", options.rounds);
        for (at, row) in ROWS.iter().enumerate() {
            for &contender in &options.only {
                let Some(own) = sessions.get_mut(&contender) else {
                    continue;
                };
                let load = Load {
                    batch: row.batch,
                    value: None,
                    length: options.length,
                };
                let rate = measure(&mut own[..row.threads], load, keys)
                    .map_err(|error| format!("{}: {}: {error}", contender.name(), row.what))?;
                rates.entry((at, contender)).or_default().push(rate);
            }
        }
    }
    let median = |at, contender| rates.get(&(at, contender)).map(|rates| median(rates));
    print!("\n| GET, commands/s |");
    options
        .only
        .iter()
        .for_each(|contender| print!(" {} |", contender.name()));
    print!(
        " targets |\n|---|{}---|\n",
        "---|".repeat(options.only.len())
    );
    for (at, row) in ROWS.iter().enumerate() {
        print!("| {} |", row.what);
        for &contender in &options.only {
            print!(" {:.0} |", median(at, contender).unwrap_or(f64::NAN));
        }
        let judge = |&(target, other): &(f64, Contender)| {
            let ratio = median(at, Contender::Reslot)? / median(at, other)?;
            let verdict = if ratio >= target { "pass" } else { "miss" };
            Some(format!(
                "{ratio:.2} × {} (≥ {target}: {verdict})",
                other.name()
            ))
        };
        let judged: Vec<String> = row.targets.iter().filter_map(judge).collect();
        println!(" {} |", judged.join(", "));
    }
    Ok(())
}

/// The middle value.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What each thread runs.
#[derive(Clone, Copy)]
pub(crate) struct Load<'a> {
    /// Commands at once.
    pub(crate) batch: usize,
    /// What is written; nothing for reads.
    pub(crate) value: Option<&'a [u8]>,
    /// How long.
    pub(crate) length: Duration,
}

/// Commands per second of all sessions together, each on a thread of its own.
pub(crate) fn measure(
    sessions: &mut [Box<dyn Session>],
    load: Load<'_>,
    keys: &[String],
) -> Result<f64, Failure> {
    let start = Barrier::new(sessions.len());
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, session) in sessions.iter_mut().enumerate() {
            let start = &start;
            running.push(scope.spawn(move || {
                let mut choice = Choice::new(keys, number);
                start.wait();
                let (begin, mut count) = (Instant::now(), 0);
                while begin.elapsed() < load.length {
                    session.run(Work {
                        keys: choice.next(load.batch),
                        value: load.value,
                    })?;
                    count += load.batch;
                }
                Ok(count as f64 / begin.elapsed().as_secs_f64())
            }));
        }
        let rates = running.into_iter().map(|thread| match thread.join() {
            Ok(rate) => rate,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        rates.sum()
    })
}

/// Keys chosen at random.
pub(crate) struct Choice<'a> {
    keys: &'a [String],
    random: u64,
    chosen: Vec<&'a str>,
}

impl<'a> Choice<'a> {
    /// The same number makes the same choices.
    pub(crate) fn new(keys: &'a [String], number: usize) -> Self {
        let random = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let chosen = Vec::new();
        Self {
            keys,
            random,
            chosen,
        }
    }

    /// So many keys.
    pub(crate) fn next(&mut self, count: usize) -> &[&'a str] {
        self.chosen.clear();
        for _ in 0..count {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let at = (self.random >> 16) as usize % self.keys.len();
            self.chosen.push(&self.keys[at]);
        }
        &self.chosen
    }
}
