//! Threads that use a client until they are told to stop, and what became of their commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reslot::{Certainty, Client, Error, cmd};

/// Threads at work.
pub(super) struct Load<R> {
    running: Arc<AtomicBool>,
    threads: Vec<JoinHandle<R>>,
}

/// Whether to go on.
pub(super) struct Running(Arc<AtomicBool>);

impl Running {
    pub(super) fn goes_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<R: Send + 'static> Load<R> {
    /// Starts so many threads; each gets its number.
    pub(super) fn start<W>(threads: usize, worker: W) -> Self
    where
        W: Fn(usize, &Running) -> R + Send + Sync + 'static,
    {
        let running = Arc::new(AtomicBool::new(true));
        let worker = Arc::new(worker);
        let threads = (0..threads)
            .map(|number| {
                let (running, worker) = (Running(Arc::clone(&running)), Arc::clone(&worker));
                std::thread::spawn(move || worker(number, &running))
            })
            .collect();
        Self { running, threads }
    }

    /// Lets the threads finish what they are at.
    pub(super) fn stop(self) -> Vec<R> {
        self.running.store(false, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        threads.map(|thread| thread.join().unwrap()).collect()
    }
}

/// What became of the commands that counted one key up.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) acked: i64,
    /// They may have run.
    pub(super) unknown: i64,
    /// They did not run.
    pub(super) not_run: Vec<Error>,
    /// When commands succeeded.
    pub(super) successes: Vec<Instant>,
    /// The longest that one took.
    pub(super) slowest: Duration,
}

/// Counts a key up, one command at a time, until told to stop. A reply that is lower than the one
/// before, or higher than all attempts, is another command's. (An equal one is possible: a primary
/// that dies may take the last acknowledged write along.)
pub(super) fn count_up(client: &Client, key: &str, limit: Duration, running: &Running) -> Tally {
    let mut tally = Tally::default();
    let mut last = 0;
    while running.goes_on() {
        let begun = Instant::now();
        match client.query::<i64>(cmd("INCR").arg(key).timeout(limit)) {
            Ok(value) => {
                assert!(value >= last, "{key}: {value} after {last}");
                assert!(
                    value <= tally.acked + tally.unknown + 1,
                    "{key}: {value} after {tally:?}"
                );
                last = value;
                tally.acked += 1;
                tally.successes.push(Instant::now());
            }
            Err(error) if error.certainty() == Certainty::Unknown => tally.unknown += 1,
            Err(error) => tally.not_run.push(error),
        }
        tally.slowest = tally.slowest.max(begun.elapsed());
    }
    tally
}
