//! Compares reslot with other clients and with raw sockets, on one local cluster.
//!
//! cargo run --release --manifest-path examples/compare/Cargo.toml
//!
//! Speeds are measured in one process, in alternating rounds, against three primaries on this
//! machine: only the ratios mean anything elsewhere. What could be hidden by another client (memory
//! and idle CPU time) is measured in processes of their own. `--help` lists parts and options.

mod bare;
mod bulk;
mod child;
mod choice;
mod contender;
mod fake;
mod fred_client;
mod growth;
mod hundred;
mod idle;
mod join;
mod keys;
mod latencies;
#[path = "../../../tests/local_cluster/mod.rs"]
mod local_cluster;
mod measure;
mod memory;
#[path = "../../live_reshard/mover.rs"]
#[allow(dead_code, reason = "atomic moves are not compared")]
mod mover;
mod moving;
mod options;
mod pacer;
mod plot;
mod redis_async;
mod redis_sync;
mod reslot_client;
mod rows;
mod speed;
mod table;
mod usage;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Runtime;

use contender::{Answer, Failure};
use keys::{Keys, Size};
use local_cluster::{LocalCluster, ensure_server};
use moving::Scene;
use options::{HELP, Options};
use rows::Sessions;
use speed::THREADS;

/// Between connecting and measuring.
const SETTLE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let answer = child::run(&args).unwrap_or_else(|| match Options::parse(args.into_iter()) {
        Ok(Some(options)) => run(&options),
        Ok(None) => {
            println!("{HELP}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    });
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Answer {
    let server = match &options.server {
        Some(server) => server.clone(),
        None => ensure_server()?,
    };
    let cluster = LocalCluster::builder().server(&server).start();
    let nodes: Vec<SocketAddr> = (0..cluster.len()).map(|node| cluster.addr(node)).collect();
    let runtime = Runtime::new()?;
    let keys = Keys::new();
    keys.load(&nodes)?;
    run_shared(options, &nodes, &runtime, &keys)?;
    if options.wants("bulk") && options.wants("moving") {
        // The benchmark leaves keys, so many in one slot that it hardly moves.
        for node in 0..cluster.len() {
            cluster.command(node, &["FLUSHALL"]);
        }
        keys.load(&nodes)?;
    }
    if options.wants("moving") {
        let scene = Scene {
            cluster: &cluster,
            nodes: &nodes,
            runtime: &runtime,
            keys: keys.of(Size::Small),
        };
        moving::run(options, &scene)?;
    }
    if options.wants("hundred") {
        hundred::run(options, &runtime, &keys)?;
    }
    if options.wants("memory") {
        memory::run(options, &server)?;
    }
    if options.wants("idle") {
        idle::run(options, &nodes)?;
    }
    if options.wants("growth") {
        growth::run(options, &nodes, &runtime, &keys)?;
    }
    Ok(())
}

/// The parts that use the same connections.
fn run_shared(options: &Options, nodes: &[SocketAddr], runtime: &Runtime, keys: &Keys) -> Answer {
    let speeds = speed::PARTS.iter().any(|part| options.wants(part));
    if !speeds && !options.wants("bulk") {
        return Ok(());
    }
    let mut sessions = Sessions::new();
    for &contender in &options.only {
        let own = contender.open(nodes, THREADS, runtime);
        let named = |error: Failure| format!("{}: {error}", contender.name());
        sessions.insert(contender, own.map_err(named)?);
    }
    // Clients that have just connected may have more to do.
    std::thread::sleep(SETTLE);
    if speeds {
        let table = speed::run(options, &mut sessions, keys);
        if let Some(path) = &options.svg {
            std::fs::write(path, plot::draw(&table))?;
        }
    }
    if options.wants("bulk") {
        bulk::run(options, &mut sessions, keys.of(Size::Small), nodes)?;
    }
    Ok(())
}
