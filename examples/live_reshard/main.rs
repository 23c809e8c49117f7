//! Load on a live cluster while its slots move and one of its primaries is killed.
//!
//! cargo run --release --example live_reshard
//!
//! Starts a cluster of three primaries with a replica each (and installs the server if there is
//! none), loads 100,000 keys, and has 16 threads increment and read them: at rest, while slots move
//! back and forth, and while a primary is killed. Every key is a counter of one thread, so every
//! reply can be checked: see `ledger.rs`. Ends with 1 if a command failed, a write was lost, or a
//! write ran twice. In the phase of the crash these are no failures, but counted in columns of
//! their own:
//!
//! * `unknown`: writes that were on their way to the primary when it was killed and whose
//!   connection was lost: nobody can know whether they ran. Their error must say so, and the key
//!   must then have one of the possible values. A timeout is a failure in this phase, too.
//! * `by crash`: keys whose last writes were acknowledged within a second before the crash by the
//!   killed primary, and which its replica did not have: replication is asynchronous.

mod histogram;
mod ledger;
#[path = "../../tests/local_cluster/mod.rs"]
mod local_cluster;
mod mover;
mod options;
mod table;
mod workload;

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ledger::{Crash, Ledger, Reply};
use local_cluster::{LocalCluster, ensure_server};
use options::{HELP, Options};
use reslot::{Client, Result, cmd};
use table::Row;
use workload::{Phase, Seen, Worker};

/// The slots below this one move, and half of the commands go to them.
const MOVING: u16 = 200;

/// How long a command may take: longer than a replica needs to take over (some 3 s), so that
/// nothing has to fail while it does.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many commands set up and verification send at once.
const BATCH: usize = 1_000;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(&error),
    };
    let server = match &options.server {
        Some(server) => Ok(server.clone()),
        None => ensure_server(),
    };
    match server {
        Ok(server) => run(&options, &server).unwrap_or_else(|error| fail(&error.to_string())),
        Err(error) => fail(&error),
    }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn run(options: &Options, server: &str) -> Result<ExitCode> {
    let cluster = LocalCluster::builder().replicas(1).server(server).start();
    let client = Client::builder()
        .seeds((0..cluster.len()).map(|node| cluster.addr(node).to_string()))
        .response_timeout(PATIENCE)
        .connect()?;
    let (kind, version) = (cluster.server_kind(), cluster.server_version());
    let (major, minor, patch) = version;
    println!("{kind:?} {major}.{minor}.{patch}, 3 primaries, 3 replicas");
    let mut workers = workers(options);
    load(&client, &workers)?;
    println!("{} keys loaded, {} threads", options.keys, options.threads);

    let mut show = Show {
        client: &client,
        workers: &mut workers,
        rows: Vec::new(),
    };
    show.phase("at rest", |_| {
        wait_until(Instant::now() + options.phase);
        0
    });
    show.phase("slots move", |_| {
        mover::move_by_keys(&cluster, MOVING, Instant::now() + options.phase)
    });
    if cluster.supports_atomic_migration() {
        show.phase("atomic moves", |_| {
            mover::move_atomically(&cluster, MOVING, Instant::now() + options.phase)
        });
    }
    let mut after_moves = verify(&client, show.workers, None)?;
    let mut crash = None;
    show.phase("primary killed", |phase| {
        crash = Some(kill(&cluster, phase, options.phase));
        0
    });
    table::print(&show.rows, options.pipeline);

    let mut total = Seen::default();
    show.rows.iter().for_each(|row| total.merge(&row.seen));
    total.merge(&after_moves);
    after_moves = verify(&client, &mut workers, crash.as_ref())?;
    total.merge(&after_moves);
    client.close(Duration::from_secs(5))?;
    Ok(report(options, &total))
}

fn report(options: &Options, total: &Seen) -> ExitCode {
    println!("all {} keys read back", options.keys);
    println!(
        "{} writes ended as unknown because of the crash",
        total.uncertain
    );
    println!(
        "{} keys were set back by the crash of their primary",
        total.lost_by_crash
    );
    println!(
        "{} commands failed, or acknowledged writes lost or repeated",
        total.failed
    );
    for fault in &total.faults {
        println!("  {fault}");
    }
    println!(
        "{}",
        if total.failed == 0 {
            "PASSED"
        } else {
            "FAILED"
        }
    );
    ExitCode::from(u8::from(total.failed > 0))
}

/// Half of the threads run single commands, the others pipelines. Each has keys of its own.
fn workers(options: &Options) -> Vec<Worker> {
    let worker = |number: usize| {
        let keys = (number..options.keys).step_by(options.threads);
        let ledger = Ledger::new(keys.map(|key| format!("key:{key}")), MOVING);
        let batch = if number % 2 == 0 { 1 } else { options.pipeline };
        Worker::new(ledger, batch, number)
    };
    (0..options.threads).map(worker).collect()
}

fn load(client: &Client, workers: &[Worker]) -> Result<()> {
    for worker in workers {
        let numbers: Vec<usize> = (0..worker.ledger.len()).collect();
        for batch in numbers.chunks(BATCH) {
            let mut pipeline = client.pipeline();
            for &number in batch {
                pipeline.add(cmd("SET").arg(worker.ledger.key(number)).arg(0));
            }
            pipeline.query::<Vec<()>>()?;
        }
    }
    Ok(())
}

/// Reads all keys back.
fn verify(client: &Client, workers: &mut [Worker], crash: Option<&Crash>) -> Result<Seen> {
    let mut seen = Seen::default();
    for worker in workers {
        let numbers: Vec<usize> = (0..worker.ledger.len()).collect();
        for batch in numbers.chunks(BATCH) {
            let mut pipeline = client.pipeline();
            for &number in batch {
                pipeline.add(cmd("GET").arg(worker.ledger.key(number)));
            }
            let asked = Instant::now();
            let values: Vec<Option<u64>> = pipeline.query()?;
            for (&number, value) in batch.iter().zip(values) {
                let what = format!("at the end {} is {value:?}", worker.ledger.key(number));
                let reply = Reply {
                    value: value.unwrap_or(0),
                    asked,
                    crash,
                };
                let finding = worker.ledger.read(number, reply);
                seen.finding(finding, &what);
            }
        }
    }
    Ok(seen)
}

/// Kills the first primary two seconds after the beginning; ends two seconds after its replica
/// took over.
fn kill(cluster: &LocalCluster, phase: &Phase, length: Duration) -> Crash {
    let start = Instant::now();
    wait_until(start + Duration::from_secs(2));
    let members = cluster.members(1).unwrap_or_default();
    let port = cluster.addr(0).port();
    let own = members.into_iter().find(|member| member.port == port);
    let crash = Crash {
        at: Instant::now(),
        slots: own.map(|member| member.slots).unwrap_or_default(),
        node: cluster.addr(0).to_string(),
    };
    phase.crash.get_or_init(|| crash.clone());
    cluster.kill(0);
    cluster.wait_promoted(3);
    println!(
        "the killed primary was replaced after {:.1?}",
        crash.at.elapsed()
    );
    wait_until((start + length).max(Instant::now() + Duration::from_secs(2)));
    crash
}

fn wait_until(end: Instant) {
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

/// Ends a phase when dropped, so that the threads end also after a panic.
struct Over<'a>(&'a Phase);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Runs phases.
struct Show<'a> {
    client: &'a Client,
    workers: &'a mut [Worker],
    rows: Vec<Row>,
}

impl Show<'_> {
    /// Runs all threads while `action` happens, which gives the number of slots that it moved.
    fn phase(&mut self, name: &'static str, action: impl FnOnce(&Phase) -> u64) {
        println!("phase: {name}");
        let (client, phase) = (self.client, Phase::default());
        let (before, start) = (client.stats(), Instant::now());
        let mut seen = Seen::default();
        let moves = thread::scope(|scope| {
            let run = |worker| scope.spawn(|| Worker::run(worker, client, &phase));
            let threads: Vec<_> = self.workers.iter_mut().map(run).collect();
            let over = Over(&phase);
            let moves = action(&phase);
            drop(over);
            for thread in threads {
                match thread.join() {
                    Ok(own) => seen.merge(&own),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            moves
        });
        self.rows.push(Row {
            phase: name,
            length: start.elapsed(),
            moves,
            seen,
            stats: (before, client.stats()),
        });
    }
}
