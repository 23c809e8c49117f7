//! CPU time of clients that have nothing to do.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use crate::child::{self, Running};
use crate::contender::{Answer, Contender, Failure, Work};
use crate::keys::names;
use crate::options::Options;
use crate::usage;

/// Connections of the clients that have one per thread.
const SESSIONS: usize = 64;

/// Until threads and tasks that were busy are at rest.
const SETTLE: Duration = Duration::from_secs(2);

/// Has each client idle in a process of its own, all at the same time, and prints the CPU times.
pub(crate) fn run(options: &Options, nodes: &[SocketAddr]) -> Answer {
    let seconds = options.idle;
    eprintln!("idle: {seconds} s");
    let start = |&contender| -> Result<(Contender, Running), Failure> {
        Ok((contender, child::start_idle(contender, seconds, nodes)?))
    };
    let running: Result<Vec<_>, _> = options.only.iter().map(start).collect();
    println!("\n| idle, {SESSIONS} threads' sessions | CPU ms in {seconds} s |\n|---|---|");
    for (contender, child) in running? {
        let result = child.result();
        let text = result.unwrap_or_else(|error| format!("failed: {error}"));
        println!("| {} | {text} |", contender.name());
    }
    Ok(())
}

/// In the child: prints the milliseconds.
pub(crate) fn child(contender: Contender, seconds: u64, nodes: &[SocketAddr]) -> Answer {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut sessions = contender.open(nodes, SESSIONS, &runtime)?;
    let keys = names("key", 100);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for session in &mut sessions {
        for key in &keys {
            let keys = &[*key];
            session.run(Work { keys, value: None })?;
        }
    }
    thread::sleep(SETTLE);
    let (exact, coarse) = (usage::cpu_of_threads(), usage::cpu());
    thread::sleep(Duration::from_secs(seconds));
    // The exact one misses threads that ended.
    let exact = usage::cpu_of_threads().saturating_sub(exact);
    let used = exact.max(usage::cpu() - coarse);
    println!("{:.1}", used.as_secs_f64() * 1e3);
    Ok(())
}
