//! A hundred nodes and a hundred threads.

use tokio::runtime::Runtime;

use crate::child;
use crate::contender::{Answer, Contender};
use crate::keys::Keys;
use crate::options::Options;
use crate::rows::{ROW, Row, Sessions, compare};
use crate::usage;

const NODES: usize = 100;
const THREADS: usize = 100;

/// The most threads of the other row.
const FEW: usize = 4;

/// Files that a process needs besides the sockets of its clients.
const OTHER_FILES: usize = 2000;

const ROWS: [Row; 2] = [
    Row {
        what: "100 threads, one GET at a time",
        threads: THREADS,
        ..ROW
    },
    Row {
        what: "pipeline of 1000, 4 threads",
        threads: FEW,
        batch: 1000,
        ..ROW
    },
];

/// Measures the clients in turn, and prints medians.
pub(crate) fn run(options: &Options, runtime: &Runtime, keys: &Keys) -> Answer {
    let (_cluster, nodes) = child::start_fake(NODES)?;
    let mut sessions = Sessions::new();
    for &contender in &options.only {
        let threads = threads(contender);
        match contender.open(&nodes, threads, runtime) {
            Ok(own) => drop(sessions.insert(contender, own)),
            Err(error) => eprintln!("{}: 100 nodes: {error}", contender.name()),
        }
    }
    let rows: Vec<&Row> = ROWS.iter().collect();
    compare(options, "GET, 100 nodes ¹", &rows, &mut sessions, keys);
    println!(
        "\n¹ Not real ones: one thread of another process answers for all of them, and is soon the \
         limit. A client with connections per thread would need {NODES} × {THREADS}: \
         `redis-sync` is left out where threads are many, and `bare` if too few files may be open."
    );
    Ok(())
}

/// With how many threads a client takes part. The server has as many sockets as all clients.
fn threads(contender: Contender) -> usize {
    let enough = usage::open_files() >= NODES * THREADS + OTHER_FILES;
    match contender {
        Contender::RedisSync => FEW,
        Contender::Bare if !enough => FEW,
        _ => THREADS,
    }
}
