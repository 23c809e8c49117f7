//! How reslot alone grows with threads, batches, values and nodes. Nothing is demanded here.

use std::net::SocketAddr;

use tokio::runtime::Runtime;

use crate::child;
use crate::contender::{Answer, Contender, Failure, Session};
use crate::keys::{Keys, Size, load, names};
use crate::measure::{How, Load, Measured, measure};
use crate::options::Options;
use crate::table::median;

/// The most threads.
const THREADS: usize = 256;

/// Names and sizes of values.
const VALUES: [(&str, usize); 7] = [
    ("10 B", 10),
    ("100 B", 100),
    ("1 KiB", 1 << 10),
    ("10 KiB", 10 << 10),
    ("100 KiB", 100 << 10),
    ("1 MiB", 1 << 20),
    ("10 MiB", 10 << 20),
];

/// Keys of each size of values.
const KEYS_PER_VALUE: usize = 10;

/// One line.
struct Point {
    what: String,
    cluster: usize,
    threads: usize,
    batch: usize,
    keys: Vec<String>,
}

/// Measures each point, and prints medians.
pub(crate) fn run(
    options: &Options,
    nodes: &[SocketAddr],
    runtime: &Runtime,
    keys: &Keys,
) -> Answer {
    let (_three, three) = child::start_fake(3)?;
    let (_hundred, hundred) = child::start_fake(100)?;
    let mut clusters = Vec::new();
    for nodes in [nodes, &three, &hundred] {
        clusters.push(Contender::Reslot.open(nodes, THREADS, runtime)?);
    }
    let points = points(nodes, keys.of(Size::Small))?;
    println!("\n| reslot alone, GET | commands/s | client CPU µs per command |\n|---|---|---|");
    for point in points {
        eprintln!("growth: {}", point.what);
        let measured = (0..options.rounds)
            .map(|_| point.measure(&mut clusters[point.cluster], options))
            .collect::<Result<Vec<Measured>, _>>()?;
        let middle =
            |of: fn(&Measured) -> f64| median(&measured.iter().map(of).collect::<Vec<_>>());
        let (rate, cpu) = (middle(|one| one.rate), middle(|one| one.cpu * 1e6));
        println!("| {} | {rate:.0} | {cpu:.2} |", point.what);
    }
    Ok(())
}

/// All lines. Values are written.
fn points(nodes: &[SocketAddr], keys: &[String]) -> Result<Vec<Point>, Failure> {
    let point = |what, cluster, threads, batch| Point {
        what,
        cluster,
        threads,
        batch,
        keys: keys.to_vec(),
    };
    let mut points = Vec::new();
    for threads in (0..).map(|power| 1 << power).take_while(|&n| n <= THREADS) {
        let what = format!("threads: {threads}, one at a time");
        points.push(point(what, 0, threads, 1));
    }
    for batch in [1, 10, 100, 1000, 10_000] {
        let what = format!("batches of {batch}, 1 thread");
        points.push(point(what, 0, 1, batch));
    }
    for (name, size) in VALUES {
        let what = format!("values of {name}, 1 thread, one at a time");
        let own = names(&format!("value-{size}"), KEYS_PER_VALUE);
        load(nodes, &own, &vec![b'v'; size])?;
        points.push(Point {
            keys: own,
            ..point(what, 0, 1, 1)
        });
    }
    for (cluster, count) in [(1, 3), (2, 100)] {
        let what = format!("{count} nodes (not real), 64 threads, one at a time");
        points.push(point(what, cluster, 64, 1));
        let what = format!("{count} nodes (not real), batches of 1000, 1 thread");
        points.push(point(what, cluster, 1, 1000));
    }
    Ok(points)
}

impl Point {
    fn measure(
        &self,
        sessions: &mut [Box<dyn Session>],
        options: &Options,
    ) -> Result<Measured, Failure> {
        let load = Load {
            keys: &self.keys,
            batch: self.batch,
            how: How::Read,
            length: options.length,
        };
        measure(&mut sessions[..self.threads], load)
    }
}
