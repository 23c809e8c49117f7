//! All kinds of calls on a live cluster that is harassed, with every reply checked.
//!
//! cargo run --release --example soak -- --seconds 60 --seed 7
//!
//! Starts three primaries with a replica each. Threads run single commands, pipelines,
//! transactions, watched sessions, blocking commands, windows of sent commands, and cancel calls in
//! all ways;
//! meanwhile slots move, and primaries are replaced in good order, killed, and frozen. All choices
//! derive from the seed (what the threads and servers make of them does not). It ends with 1 if
//!
//! * a reply belongs to another command (values tell their key; `step.rs`),
//! * a list that one thread fills is not in order, lacks an acknowledged number, has one twice, or
//!   has one whose command was reported as not run, cancelled or not (`journal.rs`),
//! * a counter is less than acknowledged, or more than that and what is unknown (`counter.rs`),
//! * a bank's balances have another sum than at first (`bank.rs`),
//! * a blocking command lost or doubled an element (`queue.rs`),
//! * a call failed without a reason, or took longer than it may (`arena.rs`),
//! * in the end something does not work, waits, or is left over (`aftermath.rs`).
//!
//! # What is tolerated
//!
//! Replication is asynchronous: a server acknowledges a write before its replica has it. A replica
//! that takes over from a killed or frozen primary may lack such writes, and no client can prevent
//! that. Before each of these blows the harness notes the time and waits until the replica has all
//! that its primary had then. So tolerated losses are exactly those of writes
//!
//! * to slots of the struck primary,
//! * whose acknowledgement came after that time,
//! * whose call began before the kill had happened; or, where the primary was frozen, before the
//!   cluster was whole again, because it may take and acknowledge writes until it learns that it
//!   was replaced. If it was not replaced, no loss is tolerated.
//!
//! A failover in good order is no excuse for anything; one that the servers do not bring to its
//! end within three seconds, in which they pause their clients, is one for failures. An element
//! that was taken from a queue in such a time may come back. A blocking command whose end is
//! unknown may have taken one.
//!
//! A call may fail for one of these reasons only: it was cancelled; it was given little time; or it
//! concerns the slots of a primary that was killed or frozen during the call. Reads may
//! even then only time out.

mod aftermath;
mod arena;
mod bank;
mod blows;
mod chaos;
mod counter;
mod journal;
mod keys;
mod lists;
#[path = "../../tests/local_cluster/mod.rs"]
mod local_cluster;
mod mixed;
mod options;
mod queue;
mod random;
mod step;
mod tally;
mod tracing;

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use arena::{Arena, PATIENCE};
use chaos::Chaos;
use counter::Counter;
use journal::Journal;
use lists::Writer;
use local_cluster::{LocalCluster, ensure_server};
use options::{HELP, Options};
use queue::Queue;
use random::Random;
use reslot::{Client, Result};
use tally::{Kind, Outcome};

/// How often a line tells how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

/// How long the threads go on after the last blow.
const PEACE: Duration = Duration::from_secs(1);

/// What the threads know at the end.
#[derive(Debug, Default)]
struct Books {
    counters: Vec<Counter>,
    lists: Vec<Journal>,
    queues: Vec<Queue>,
}

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
    let cluster = LocalCluster::builder()
        .replicas(1)
        .full_coverage(options.seed % 2 == 0)
        .server(server)
        .start();
    let (kind, (major, minor, patch)) = (cluster.server_kind(), cluster.server_version());
    println!(
        "seed {}, {kind:?} {major}.{minor}.{patch}, 3 primaries, 3 replicas, {} threads, {} s",
        options.seed,
        options.threads,
        options.length.as_secs()
    );
    let sockets_before = aftermath::sockets();
    let client = Client::builder()
        .seeds((0..cluster.len()).map(|node| cluster.addr(node).to_string()))
        .response_timeout(PATIENCE)
        .connect()?;
    bank::open(&client)?;
    tracing::start(options.log);
    let arena = Arena::new(client.clone(), options.seed);
    let books = Mutex::default();
    let chaos = Chaos::new(&cluster, &arena, Random::new(options.seed, 0));
    let done = harass(&arena, chaos, options, &books);
    let mut books = books.into_inner().unwrap_or_else(PoisonError::into_inner);

    aftermath::works_again(&arena);
    mixed::check(&arena, &mut books.counters);
    books
        .lists
        .iter()
        .for_each(|list| lists::check(&arena, list));
    books.queues.iter().for_each(|queue| queue.check(&arena));
    let stats = aftermath::nothing_waits(&arena);
    aftermath::threads_are_as_many_as(&arena, cluster.len());
    aftermath::nothing_is_left(&arena, &client, sockets_before);

    arena.tallies.print();
    println!("{} losses were tolerated", arena.blows.excused());
    println!("the client: {}", tally::client_line(&stats));
    println!(
        "the cluster: {}",
        done.unwrap_or_else(|| "harassing it failed".into())
    );
    Ok(report(&arena))
}

fn report(arena: &Arena) -> ExitCode {
    let (seed, violations) = (arena.seed, arena.violations());
    if violations > 0 {
        let blows = arena.blows.describe(arena.start);
        blows.iter().for_each(|blow| println!("  {blow}"));
        println!("FAILED: {violations} violations with seed {seed}");
        return ExitCode::FAILURE;
    }
    println!("PASSED");
    ExitCode::SUCCESS
}

/// Runs all threads while the cluster is harassed; says what was done to it.
fn harass(
    arena: &Arena,
    chaos: Chaos<'_>,
    options: &Options,
    books: &Mutex<Books>,
) -> Option<String> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.threads)
            .map(|thread| work(scope, arena, thread, books))
            .collect();
        let until = arena.start + options.length;
        let chaos = scope.spawn(move || chaos.run(until));
        watch_over(arena, || chaos.is_finished());
        let peace = Instant::now() + PEACE;
        watch_over(arena, || Instant::now() >= peace);
        arena.end();
        watch_over(arena, || workers.iter().all(ScopedJoinHandle::is_finished));
        let done = chaos.join().ok();
        if done.is_none() {
            arena.violation("the cluster did not do what it was told to");
        }
        done
    })
}

/// Starts a thread that makes calls of the kind of its number.
fn work<'scope>(
    scope: &'scope Scope<'scope, '_>,
    arena: &'scope Arena,
    thread: usize,
    books: &'scope Mutex<Books>,
) -> ScopedJoinHandle<'scope, ()> {
    let random = Random::new(arena.seed, 1 + thread as u64);
    scope.spawn(move || {
        let (mut counters, mut lists, mut queues) = (Vec::new(), Vec::new(), Vec::new());
        match thread % 8 {
            0 => counters = mixed::run(arena, thread, Kind::Single, random),
            1 => counters = mixed::run(arena, thread, Kind::Pipeline, random),
            2 => lists = Writer::new(arena, thread, Kind::Sequence, random).run(),
            3 => lists = Writer::new(arena, thread, Kind::Window, random).run(),
            4 => lists = Writer::new(arena, thread, Kind::Cancel, random).run(),
            5 => bank::run(arena, Kind::Transaction, random),
            6 => bank::run(arena, Kind::Watch, random),
            _ => queues.push(queue::run(arena, thread, random)),
        }
        let mut books = books.lock().unwrap_or_else(PoisonError::into_inner);
        books.counters.append(&mut counters);
        books.lists.append(&mut lists);
        books.queues.append(&mut queues);
    })
}

/// Tells how far it is, until this has come. A call that does not end ends everything: its thread
/// cannot be waited for.
fn watch_over(arena: &Arena, has_come: impl Fn() -> bool) {
    let mut next = Instant::now() + PROGRESS;
    while !has_come() {
        std::thread::park_timeout(Duration::from_millis(100));
        let hanging = arena.hanging();
        if !hanging.is_empty() {
            hanging.iter().for_each(|call| arena.violation(call));
            report(arena);
            std::process::exit(1);
        }
        if Instant::now() >= next {
            next += PROGRESS;
            let count = |outcome| arena.tallies.total(outcome);
            println!(
                "{:>5.0} s: {} ok, {} Unknown, {} not run, {} cancelled; {}",
                arena.start.elapsed().as_secs_f64(),
                count(Outcome::Ok),
                count(Outcome::Unknown),
                count(Outcome::Absent),
                count(Outcome::CancelledUnknown) + count(Outcome::CancelledAbsent),
                tally::client_line(&arena.client.stats())
            );
        }
    }
}
