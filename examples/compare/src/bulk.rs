//! Bulk load: big pipelines of writes, beside `redis-benchmark`.

use std::net::SocketAddr;
use std::process::Command;

use crate::contender::{Answer, Contender, Failure};
use crate::keys::VALUE;
use crate::measure::{How, Load, measure};
use crate::options::Options;
use crate::rows::Sessions;
use crate::table::{median, verdict};

const BATCH: usize = 10_000;
const THREADS: usize = 2;

/// What reslot must reach: so many times the speed of `redis-benchmark`.
const TARGET: f64 = 0.7;

/// Measures the clients and the benchmark in turn, and prints medians.
pub(crate) fn run(
    options: &Options,
    sessions: &mut Sessions,
    keys: &[String],
    nodes: &[SocketAddr],
) -> Answer {
    let load = Load {
        keys,
        batch: BATCH,
        how: How::Write(&VALUE),
        length: options.length,
    };
    let wanted = |contender: &Contender| [Contender::Bare, Contender::Reslot].contains(contender);
    let contenders: Vec<_> = options.only.iter().copied().filter(wanted).collect();
    let mut rates = vec![Vec::new(); contenders.len()];
    let mut references = Vec::new();
    for round in 1..=options.rounds {
        eprintln!("bulk load: round {round} of {}", options.rounds);
        references.push(benchmark(nodes[0].port())?);
        for (contender, rates) in contenders.iter().zip(&mut rates) {
            if let Some(own) = sessions.get_mut(contender) {
                rates.push(measure(&mut own[..THREADS], load)?.rate);
            }
        }
    }
    let reference = median(&references);
    println!("\n| SET, {THREADS} threads, pipelines of {BATCH} | commands/s | × redis-benchmark |");
    println!("|---|---|---|\n| redis-benchmark | {reference:.0} | |");
    for (contender, rates) in contenders.iter().zip(&rates) {
        let ratio = median(rates) / reference;
        let verdict = match contender {
            Contender::Reslot => format!(" (≥ {TARGET}: {})", verdict(ratio >= TARGET)),
            _ => String::new(),
        };
        println!(
            "| {} | {:.0} | {ratio:.2}{verdict} |",
            contender.name(),
            median(rates)
        );
    }
    Ok(())
}

/// Writes per second as `redis-benchmark` gives them. Now and then it does not come to an end: then
/// it is run again.
fn benchmark(port: u16) -> Result<f64, Failure> {
    let size = VALUE.len().to_string();
    for _ in 0..3 {
        let output = Command::new("timeout")
            .args([
                "60",
                "redis-benchmark",
                "--cluster",
                "-p",
                &port.to_string(),
            ])
            .args(["-t", "set", "-d", &size, "-P", "50", "-r", "100000"])
            .args(["-n", "2000000", "--csv"])
            .output()
            .map_err(|error| format!("redis-benchmark: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("\"SET\",\""));
        if let Some(rate) = line.and_then(|line| line.split('"').next()?.parse().ok()) {
            return Ok(rate);
        }
    }
    Err("redis-benchmark is missing, or ends without a result".into())
}
