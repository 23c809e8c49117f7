//! What slots on the move do to the clients: failures, and latencies.

use std::thread;
use std::time::{Duration, Instant};

use crate::contender::{Answer, Contender, Session, Work};
use crate::histogram::Histogram;
use crate::local_cluster::LocalCluster;
use crate::mover::move_by_keys;
use crate::options::Options;
use crate::speed::{Choice, Sessions};

/// The slots below this one move back and forth.
const MOVING: u16 = 200;

/// What a client went through.
#[derive(Debug, Default)]
struct Seen {
    latencies: Histogram,
    calls: u64,
    failed: u64,
    first: Option<String>,
}

/// Runs each client at rest and while slots move, and prints what it saw.
pub(crate) fn run(
    options: &Options,
    cluster: &LocalCluster,
    sessions: &mut Sessions,
    keys: &[String],
) -> Answer {
    let length = options.length * 3;
    println!(
        "\n| while slots move | p99 at rest | p99 | ratio | max | failed | pipelines failed | why |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for &contender in &options.only {
        let Some(own) = sessions
            .get_mut(&contender)
            .filter(|_| contender != Contender::Bare)
        else {
            continue;
        };
        eprintln!("slots move: {}", contender.name());
        let rest = observe(&mut own[..16], 1, keys, length, || {});
        let until = Instant::now() + length;
        let moving = observe(&mut own[..16], 1, keys, length, || {
            move_by_keys(cluster, MOVING, until);
        });
        let until = Instant::now() + length;
        let pipelines = observe(&mut own[..4], 100, keys, length, || {
            move_by_keys(cluster, MOVING, until);
        });
        let p99 = |seen: &Seen| seen.latencies.quantile(0.99).as_secs_f64() * 1e3;
        println!(
            "| {} | {:.1} ms | {:.1} ms | {:.1} | {:.0} ms | {} of {} | {} of {} | {} |",
            contender.name(),
            p99(&rest),
            p99(&moving),
            p99(&moving) / p99(&rest),
            moving.latencies.max().as_secs_f64() * 1e3,
            moving.failed,
            moving.calls,
            pipelines.failed,
            pipelines.calls,
            moving.first.or(pipelines.first).unwrap_or_default(),
        );
    }
    Ok(())
}

/// Runs commands from all sessions for so long while `action` happens.
fn observe(
    sessions: &mut [Box<dyn Session>],
    batch: usize,
    keys: &[String],
    length: Duration,
    action: impl FnOnce(),
) -> Seen {
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, session) in sessions.iter_mut().enumerate() {
            running.push(scope.spawn(move || {
                let (mut choice, mut seen) = (Choice::new(keys, number), Seen::default());
                let end = Instant::now() + length;
                while Instant::now() < end {
                    seen.call(session.as_mut(), choice.next(batch));
                }
                seen
            }));
        }
        action();
        let mut all = Seen::default();
        for thread in running {
            match thread.join() {
                Ok(seen) => all.merge(seen),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

impl Seen {
    fn call(&mut self, session: &mut dyn Session, keys: &[&str]) {
        let start = Instant::now();
        let answer = session.run(Work { keys, value: None });
        self.latencies.record(start.elapsed());
        self.calls += 1;
        if let Err(error) = answer {
            self.failed += 1;
            self.first.get_or_insert_with(|| error.to_string());
        }
    }

    fn merge(&mut self, other: Seen) {
        self.latencies.merge(&other.latencies);
        self.calls += other.calls;
        self.failed += other.failed;
        self.first = self.first.take().or(other.first);
    }
}
