//! How fast one shared client is on a local cluster of three primaries, which this starts.
//!
//! cargo run --release --example throughput            # medians of 5 rounds, one second each
//! cargo run --release --example throughput -- 9       # of 9 rounds
//!
//! Servers and client share the machine: all numbers are for this machine only. Values have 64
//! bytes; keys are chosen at random from 100,000.

#[path = "../tests/local_cluster/mod.rs"]
mod local_cluster;

use std::error::Error;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use local_cluster::{LocalCluster, ensure_server};
use reslot::{Client, Result, Value, cmd};

const KEYS: u64 = 100_000;
const VALUE: [u8; 64] = [b'x'; 64];
const ROUND: Duration = Duration::from_secs(1);

/// What is measured: threads, and commands that each sends at once.
const WORK: [(usize, u64); 7] = [
    (1, 1),
    (16, 1),
    (64, 1),
    (1, 100),
    (4, 100),
    (1, 1000),
    (4, 1000),
];

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let rounds: usize = match std::env::args().nth(1) {
        Some(rounds) => rounds.parse()?,
        None => 5,
    };
    let cluster = LocalCluster::builder().server(&ensure_server()?).start();
    let client = Client::connect(&cluster.url())?;
    load(&client)?;
    let mut rates = vec![Vec::new(); WORK.len()];
    for round in 1..=rounds.max(1) {
        eprintln!("round {round} of {rounds}");
        for (&(threads, batch), rates) in WORK.iter().zip(&mut rates) {
            rates.push(measure(&client, threads, batch)?);
        }
    }
    let cores = thread::available_parallelism()?;
    println!("GET of 64 bytes, {cores} cores, medians of {rounds} rounds\n");
    println!("| threads | commands at once | commands/s |\n|---|---|---|");
    for ((threads, batch), mut rates) in WORK.into_iter().zip(rates) {
        rates.sort_by(f64::total_cmp);
        println!("| {threads} | {batch} | {:.0} |", rates[rates.len() / 2]);
    }
    Ok(client.close(Duration::from_secs(1))?)
}

fn load(client: &Client) -> Result<()> {
    for first in (0..KEYS).step_by(1000) {
        let mut pipeline = client.pipeline();
        for number in first..first + 1000 {
            pipeline.add(cmd("SET").arg((key(number), VALUE)));
        }
        pipeline.query::<Vec<()>>()?;
    }
    Ok(())
}

/// Commands per second of all threads together.
fn measure(client: &Client, threads: usize, batch: u64) -> Result<f64> {
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        let run = |thread: usize| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                run_thread(client, batch, thread as u64)
            })
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        let rates = running.into_iter().map(|thread| match thread.join() {
            Ok(rate) => rate,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        rates.sum()
    })
}

fn run_thread(client: &Client, batch: u64, thread: u64) -> Result<f64> {
    let mut random = (thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        cmd("GET").arg(key((random >> 16) % KEYS))
    };
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < ROUND {
        if batch == 1 {
            client.query::<Value>(next())?;
        } else {
            let mut pipeline = client.pipeline();
            for _ in 0..batch {
                pipeline.add(next());
            }
            for result in pipeline.execute()? {
                result?;
            }
        }
        count += batch;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

fn key(number: u64) -> String {
    format!("key:{number}")
}
