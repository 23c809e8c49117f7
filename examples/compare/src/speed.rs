//! Commands per second and CPU time per command on a cluster of three nodes: single ones from
//! several threads, pipelines, large values, commands without waiting for each, transactions.

use crate::contender::Contender;
use crate::keys::{Keys, Size};
use crate::measure::How;
use crate::options::Options;
use crate::rows::{ROW, Row, Sessions, compare};
use crate::table::Table;

/// The most threads of all rows.
pub(crate) const THREADS: usize = 64;

/// The parts that have rows here.
pub(crate) const PARTS: [&str; 4] = ["speed", "values", "send", "multi"];

const ROWS: [Row; 11] = [
    Row {
        what: "1 thread, one GET at a time",
        part: "speed",
        targets: &[(0.95, Contender::Bare), (1.0, Contender::RedisSync)],
        ..ROW
    },
    Row {
        what: "4 threads",
        part: "speed",
        threads: 4,
        ..ROW
    },
    Row {
        what: "16 threads",
        part: "speed",
        threads: 16,
        targets: &[(1.7, Contender::RedisSync), (1.5, Contender::Fred)],
        ..ROW
    },
    Row {
        what: "64 threads",
        part: "speed",
        threads: THREADS,
        targets: &[(2.0, Contender::RedisSync), (1.2, Contender::Fred)],
        ..ROW
    },
    Row {
        what: "pipeline of 100, 1 thread",
        part: "speed",
        batch: 100,
        targets: &[(0.95, Contender::Bare), (1.15, Contender::RedisSync)],
        ..ROW
    },
    Row {
        what: "pipeline of 1000, 1 thread",
        part: "speed",
        batch: 1000,
        targets: &[(0.95, Contender::Bare), (1.5, Contender::RedisSync)],
        ..ROW
    },
    Row {
        what: "pipeline of 100, 4 threads",
        part: "speed",
        threads: 4,
        batch: 100,
        targets: &[(1.0, Contender::Bare), (1.25, Contender::RedisSync)],
        ..ROW
    },
    Row {
        what: "values of 10 KiB, 1 thread",
        part: "values",
        size: Size::Medium,
        ..ROW
    },
    Row {
        what: "values of 1 MiB, 1 thread",
        part: "values",
        size: Size::Large,
        ..ROW
    },
    Row {
        what: "1000 sent, then all waited for, 1 thread ¹",
        part: "send",
        batch: 1000,
        how: How::Send,
        ..ROW
    },
    Row {
        what: "MULTI of 5 GETs, 1 thread ²",
        part: "multi",
        batch: 5,
        how: How::Transact,
        ..ROW
    },
];

/// Measures the rows that are wanted, and prints their tables.
pub(crate) fn run(options: &Options, sessions: &mut Sessions, keys: &Keys) -> Table {
    let wanted: Vec<&Row> = ROWS.iter().filter(|row| options.wants(row.part)).collect();
    let table = compare(options, "GET", &wanted, sessions, keys);
    println!();
    if options.wants("send") {
        println!(
            "¹ `bare` and `redis-sync` cannot: they run a pipeline of 1000. The async clients join \
             1000 futures."
        );
    }
    if options.wants("multi") {
        println!("² The GETs count, MULTI and EXEC do not.");
    }
    table
}
