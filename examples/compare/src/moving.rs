//! What slots on the move do to the clients: failures, and latencies.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::choice::Choice;
use crate::contender::{Answer, Contender, Failure, Session, Work};
use crate::latencies::Latencies;
use crate::local_cluster::LocalCluster;
use crate::mover::move_by_keys;
use crate::options::Options;
use crate::pacer::Population;
use crate::table::{median, verdict};

/// The slots below this one move back and forth.
const MOVING: u16 = 200;

/// Keys per second of the paced moves.
const PACE: u32 = 500;

/// Threads with single commands.
const SINGLE: usize = 16;

/// Threads with pipelines, and commands of one.
const PIPELINED: usize = 4;
const BATCH: usize = 100;

/// So many times the latency at rest is allowed to reslot: at a pace, at full speed.
const TARGETS: [f64; 2] = [1.2, 2.0];

/// What moves, and who looks on.
pub(crate) struct Scene<'a> {
    pub(crate) cluster: &'a LocalCluster,
    pub(crate) nodes: &'a [SocketAddr],
    pub(crate) runtime: &'a Runtime,
    pub(crate) keys: &'a [String],
}

/// What a client went through.
#[derive(Debug, Default)]
struct Seen {
    latencies: Latencies,
    calls: u64,
    failed: u64,
    first: Option<String>,
}

/// What all rounds of one client gave.
#[derive(Debug, Default)]
struct Record {
    /// Microseconds at rest, of each round.
    rest: Vec<f64>,
    /// The same while slots move: at a pace, at full speed.
    moving: [Vec<f64>; 2],
    /// How many keys per second were moved.
    rates: [Vec<f64>; 2],
    longest: Duration,
    /// Calls that failed while slots moved, and all: single ones, pipelines.
    calls: [(u64, u64); 2],
    first: Option<String>,
}

/// Runs each client at rest and while slots move, round by round, and prints what it saw.
pub(crate) fn run(options: &Options, scene: &Scene<'_>) -> Answer {
    let population = Population::count(scene.keys, MOVING);
    let wanted = |who: &Contender| *who != Contender::Bare;
    let clients = options.only.iter().copied().filter(wanted);
    let mut records: Vec<_> = clients.map(|who| (who, Record::default())).collect();
    for round in 1..=options.rounds {
        for (contender, record) in &mut records {
            let name = contender.name();
            eprintln!("slots move: round {round} of {}: {name}", options.rounds);
            record.round(*contender, scene, &population, options.length * 3)?;
        }
    }
    println!(
        "\n| while slots move ¹ | p99 at rest | p99, {PACE} keys/s | × rest \
         | p99, full speed \
         | × rest | longest | keys/s | GETs failed | pipelines failed | why |"
    );
    println!("|{}", "---|".repeat(11));
    for (contender, record) in &records {
        record.print(*contender);
    }
    println!(
        "\n¹ {SINGLE} threads of single GETs; pipelines are {PIPELINED} threads of {BATCH}, at \
         full speed. Latencies in µs. `keys/s` is what was reached, at the pace and at full speed."
    );
    Ok(())
}

impl Record {
    /// One round. The client is new, so that it does not suffer from what broke before.
    fn round(
        &mut self,
        contender: Contender,
        scene: &Scene<'_>,
        population: &Population,
        length: Duration,
    ) -> Answer {
        let connect = || -> Result<_, Failure> {
            let sessions = contender.open(scene.nodes, SINGLE, scene.runtime);
            Ok(sessions.map_err(|error| format!("{}: {error}", contender.name()))?)
        };
        let mut sessions = connect()?;
        let mut rest = observe(&mut sessions, 1, scene.keys, length, |_| ());
        self.rest.push(rest.p99());

        let seconds = length.as_secs_f64();
        let mut paced = observe(&mut sessions, 1, scene.keys, length, |until| {
            let moved = population.move_at_pace(scene.cluster, PACE, until);
            self.rates[0].push(moved as f64 / seconds);
        });
        self.moving[0].push(paced.p99());

        let mut full = observe(&mut sessions, 1, scene.keys, length, |until| {
            let begin = Instant::now();
            let slots = move_by_keys(scene.cluster, MOVING, until);
            let moved = slots as f64 * population.mean();
            self.rates[1].push(moved / begin.elapsed().as_secs_f64());
        });
        self.moving[1].push(full.p99());

        let own = &mut sessions[..PIPELINED];
        let pipelines = observe(own, BATCH, scene.keys, length, |until| {
            move_by_keys(scene.cluster, MOVING, until);
        });
        for (at, seen) in [(0, &paced), (0, &full), (1, &pipelines)] {
            self.calls[at].0 += seen.failed;
            self.calls[at].1 += seen.calls;
        }
        self.longest = self.longest.max(paced.latencies.max());
        self.longest = self.longest.max(full.latencies.max());
        let firsts = [rest.first, paced.first, full.first, pipelines.first];
        let first = firsts.into_iter().flatten().next();
        self.first = self.first.take().or(first);
        Ok(())
    }

    fn print(&self, contender: Contender) {
        let judge = |text: String, pass: bool, target: String| match contender {
            Contender::Reslot => format!("{text} ({target}: {})", verdict(pass)),
            _ => text,
        };
        let rest = median(&self.rest);
        print!("| {} | {rest:.0} |", contender.name());
        for (moving, target) in self.moving.iter().zip(TARGETS) {
            let p99 = median(moving);
            let ratio = p99 / rest;
            let text = judge(
                format!("{ratio:.2}"),
                ratio <= target,
                format!("≤ {target}"),
            );
            print!(" {p99:.0} | {text} |");
        }
        let [paced, full] = [median(&self.rates[0]), median(&self.rates[1])];
        print!(" {} | {paced:.0}, {full:.0} |", self.longest.as_micros());
        for (failed, calls) in self.calls {
            let text = judge(format!("{failed} of {calls}"), failed == 0, "0".into());
            print!(" {text} |");
        }
        println!(" {} |", self.first.as_deref().unwrap_or_default());
    }
}

/// Runs commands from all sessions for so long while `action` happens, which is told the end.
fn observe(
    sessions: &mut [Box<dyn Session>],
    batch: usize,
    keys: &[String],
    length: Duration,
    action: impl FnOnce(Instant),
) -> Seen {
    let end = Instant::now() + length;
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, session) in sessions.iter_mut().enumerate() {
            running.push(scope.spawn(move || {
                let (mut choice, mut seen) = (Choice::new(keys, number), Seen::default());
                while Instant::now() < end {
                    seen.call(session.as_mut(), choice.next(batch));
                }
                seen
            }));
        }
        action(end);
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
        self.latencies.merge(other.latencies);
        self.calls += other.calls;
        self.failed += other.failed;
        self.first = self.first.take().or(other.first);
    }

    /// In microseconds.
    fn p99(&mut self) -> f64 {
        self.latencies.quantile(0.99).as_secs_f64() * 1e6
    }
}
