//! Compares reslot with other clients and with raw sockets, on one local cluster.
//!
//! cargo run --release --manifest-path examples/compare/Cargo.toml
//!
//! All clients run in one process, in alternating rounds, against three primaries on this machine:
//! only the ratios mean anything elsewhere. `--help` lists the options.

mod bare;
mod bulk;
mod contender;
#[path = "../../live_reshard/histogram.rs"]
mod histogram;
#[path = "../../../tests/local_cluster/mod.rs"]
mod local_cluster;
#[path = "../../live_reshard/mover.rs"]
#[allow(dead_code, reason = "atomic moves are not compared")]
mod mover;
mod moving;
mod options;
mod speed;

use std::net::SocketAddr;
use std::process::ExitCode;

use contender::{Answer, Work};
use local_cluster::{LocalCluster, ensure_server};
use options::{HELP, Options};
use speed::{Sessions, THREADS};

/// How many keys there are.
const KEYS: usize = 100_000;

const VALUE: [u8; 64] = [b'x'; 64];

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(&error),
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(error: &str) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

fn run(options: &Options) -> Answer {
    let server = match &options.server {
        Some(server) => server.clone(),
        None => ensure_server()?,
    };
    let cluster = LocalCluster::builder().server(&server).start();
    let nodes: Vec<SocketAddr> = (0..cluster.len()).map(|node| cluster.addr(node)).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let keys: Vec<String> = (0..KEYS).map(|key| format!("key:{key}")).collect();
    let mut sessions = Sessions::new();
    for &contender in &options.only {
        let own = contender.open(&nodes, THREADS, &runtime);
        let own = own.map_err(|error| format!("{}: {error}", contender.name()))?;
        sessions.insert(contender, own);
    }
    load(&nodes, &keys)?;
    if options.wants("speed") {
        speed::run(options, &mut sessions, &keys)?;
    }
    if options.wants("bulk") {
        bulk::run(options, &mut sessions, &keys, &nodes)?;
    }
    if options.wants("moving") {
        moving::run(options, &cluster, &mut sessions, &keys)?;
    }
    Ok(())
}

/// Gives each key its value.
fn load(nodes: &[SocketAddr], keys: &[String]) -> Answer {
    let mut session = bare::Bare::connect(nodes)?;
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for keys in keys.chunks(1000) {
        let value = Some(&VALUE[..]);
        contender::Session::run(&mut session, Work { keys, value })?;
    }
    Ok(())
}
