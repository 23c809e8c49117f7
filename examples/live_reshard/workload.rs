//! The threads that run commands, and what they saw.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use reslot::{Certainty, Client, Error, FromValue, Result, cmd};

use crate::histogram::Histogram;
use crate::ledger::{Crash, Finding, Ledger, Reply};

/// What threads share during a phase.
#[derive(Debug, Default)]
pub(crate) struct Phase {
    /// Set when it is over.
    pub(crate) over: AtomicBool,
    /// Set right before a primary is killed.
    pub(crate) crash: OnceLock<Crash>,
}

/// What one thread, or all of them, saw in a phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Time from call to reply of single commands.
    pub(crate) singles: Histogram,
    /// Commands run singly.
    pub(crate) single_commands: u64,
    /// Time from call to reply of whole pipelines.
    pub(crate) pipelines: Histogram,
    /// Commands run in pipelines.
    pub(crate) piped_commands: u64,
    /// Commands that may have run, for which the crash is reason enough.
    pub(crate) uncertain: u64,
    /// Writes that died with their primary before its replica had them.
    pub(crate) lost_by_crash: u64,
    /// Commands that failed, and why the first ones did.
    pub(crate) failed: u64,
    /// What must not happen: texts of the first ones.
    pub(crate) faults: Vec<String>,
}

/// How many faults are reported in words.
const REPORTED: usize = 5;

impl Seen {
    /// Adds what another thread saw.
    pub(crate) fn merge(&mut self, other: &Seen) {
        self.singles.merge(&other.singles);
        self.single_commands += other.single_commands;
        self.pipelines.merge(&other.pipelines);
        self.piped_commands += other.piped_commands;
        self.uncertain += other.uncertain;
        self.lost_by_crash += other.lost_by_crash;
        self.failed += other.failed;
        let room = REPORTED.saturating_sub(self.faults.len());
        self.faults.extend(other.faults.iter().take(room).cloned());
    }

    /// Counts what must not happen.
    pub(crate) fn fault(&mut self, text: String) {
        self.failed += 1;
        if self.faults.len() < REPORTED {
            self.faults.push(text);
        }
    }

    /// Counts a finding about a key.
    pub(crate) fn finding(&mut self, finding: Finding, what: &str) {
        match finding {
            Finding::Right => {}
            Finding::LostByCrash => self.lost_by_crash += 1,
            Finding::Lost | Finding::Repeated => self.fault(format!("{finding:?}: {what}")),
        }
    }
}

/// One command on a key of the thread.
#[derive(Clone, Copy, Debug)]
struct Step {
    key: usize,
    write: bool,
}

/// A thread: its keys, and a generator for its choices.
#[derive(Debug)]
pub(crate) struct Worker {
    /// What it knows about its keys.
    pub(crate) ledger: Ledger,
    /// How many commands it sends at once.
    batch: usize,
    random: u64,
}

impl Worker {
    /// Sends `batch` commands at once; the same number makes the same choices.
    pub(crate) fn new(ledger: Ledger, batch: usize, number: usize) -> Self {
        let random = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self {
            ledger,
            batch,
            random,
        }
    }

    /// Runs commands until the phase is over.
    pub(crate) fn run(&mut self, client: &Client, phase: &Phase) -> Seen {
        let mut seen = Seen::default();
        self.ledger.settle();
        let mut steps = Vec::with_capacity(self.batch);
        while !phase.over.load(Ordering::Relaxed) {
            steps.clear();
            for _ in 0..self.batch {
                steps.push(self.choose());
            }
            let start = Instant::now();
            let results = self.send(client, &steps);
            let latency = start.elapsed();
            if self.batch == 1 {
                seen.singles.record(latency);
                seen.single_commands += 1;
            } else {
                seen.pipelines.record(latency);
                seen.piped_commands += steps.len() as u64;
            }
            match results {
                Ok(results) => {
                    self.note_uncertain(&steps, &results);
                    for (step, result) in steps.iter().zip(results) {
                        self.judge(*step, result, (start, phase), &mut seen);
                    }
                }
                Err(error) => seen.fault(format!("a whole pipeline failed: {error}")),
            }
        }
        seen
    }

    /// Half of the commands go to slots that move.
    fn choose(&mut self) -> Step {
        let (write, hot) = (self.next() % 2 == 0, self.next() % 2 == 0);
        let random = self.next() as usize;
        let moving = self.ledger.hot();
        let key = match moving.len() {
            count if hot && count > 0 => moving[random % count],
            _ => random % self.ledger.len(),
        };
        Step { key, write }
    }

    fn send(&self, client: &Client, steps: &[Step]) -> Result<Vec<Result<u64>>> {
        let command = |step: &Step| {
            let name = if step.write { "INCR" } else { "GET" };
            cmd(name).arg(self.ledger.key(step.key))
        };
        if let [step] = steps {
            return Ok(vec![client.query(command(step))]);
        }
        let mut pipeline = client.pipeline();
        for step in steps {
            pipeline.add(command(step));
        }
        let results = pipeline.execute()?;
        let numbers = results.into_iter().map(|each| u64::from_value(each?));
        Ok(numbers.collect())
    }

    /// A read that lost its connection is sent again, and then sees also what later writes of the
    /// same pipeline did that were lost with it. So all of those are noted first.
    fn note_uncertain(&mut self, steps: &[Step], results: &[Result<u64>]) {
        for (step, result) in steps.iter().zip(results) {
            let error = result.as_ref().err();
            let unknown = error.is_some_and(|error| error.certainty() == Certainty::Unknown);
            if step.write && unknown {
                self.ledger.uncertain(step.key);
            }
        }
    }

    /// Compares a result with what is possible; the call began when `asked`.
    fn judge(
        &mut self,
        step: Step,
        result: Result<u64>,
        (asked, phase): (Instant, &Phase),
        seen: &mut Seen,
    ) {
        let crash = phase.crash.get();
        match result {
            Ok(value) => {
                let reply = Reply {
                    value,
                    asked,
                    crash,
                };
                let finding = match step.write {
                    true => self.ledger.incremented(step.key, reply),
                    false => self.ledger.read(step.key, reply),
                };
                let key = self.ledger.key(step.key);
                seen.finding(finding, &format!("{step:?}: {key} is {value}"));
            }
            Err(error) => match crash {
                Some(crash) if step.write && is_due_to(&error, crash) => seen.uncertain += 1,
                _ => {
                    let key = self.ledger.key(step.key);
                    seen.fault(format!("{step:?}: {key}: {error}"));
                }
            },
        }
    }

    /// Xorshift.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 16
    }
}

/// A write that was on its way to the primary when it was killed, and nothing else: reads are
/// sent again, other nodes go on, and what waits for the new primary has time enough to wait (a
/// timeout counts as a failure in this phase, too).
fn is_due_to(error: &Error, crash: &Crash) -> bool {
    let lost = matches!(error, Error::MaybeExecuted(_)) && !error.is_timeout();
    lost && error
        .node()
        .is_some_and(|node| node.to_string() == crash.node)
}
