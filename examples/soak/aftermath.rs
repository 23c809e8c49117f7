//! When the cluster is left in peace: does the same client work again, and is nothing left over?

use std::fs;
use std::time::{Duration, Instant};

use reslot::{Client, Stats, cmd};

use crate::arena::{Arena, Excuse, PATIENCE};
use crate::bank;
use crate::keys::{Key, TAGS};
use crate::tally::Kind;

/// How long the client may take to settle down.
const SETTLE: Duration = Duration::from_secs(5);

/// Every slot in use takes commands of all kinds, without exception.
pub(crate) fn works_again(arena: &Arena) {
    for tag in 0..TAGS {
        let key = Key::new(tag, "again");
        let name = key.name();
        let client = &arena.client;
        let call = || {
            client.query::<i64>(cmd("INCR").arg(name))?;
            client.transaction::<(i64,)>(|t| {
                t.add(cmd("INCR").arg(name));
            })?;
            client.watch(&[name], |session| {
                session.transaction::<(i64,)>(|t| {
                    t.add(cmd("INCR").arg(name));
                })
            })?;
            let mut pipeline = client.pipeline();
            pipeline.add(cmd("INCR").arg(name));
            pipeline.add(cmd("GET").arg(name));
            pipeline.query::<(i64, i64)>()
        };
        let (result, span) = arena.timed(Kind::Single, PATIENCE, call);
        arena.fate(
            Kind::Single,
            span,
            Some(key.slot()),
            Excuse::default(),
            &result,
        );
        if result.as_ref().is_ok_and(|&both| both != (4, 4)) {
            arena.violation(&format!("{name} is {result:?}, not 4"));
        }
    }
    bank::banks()
        .iter()
        .for_each(|bank| bank::look(arena, bank));
}

/// Nothing waits anywhere in the client.
pub(crate) fn nothing_waits(arena: &Arena) -> Stats {
    let busy = |stats: &Stats| {
        let at_nodes = stats.total(|node| (node.queued + node.in_flight) as u64);
        at_nodes + stats.parked_now > 0
    };
    let stats = eventually(|| arena.client.stats(), |stats| !busy(stats));
    if busy(&stats) {
        let parked = stats.parked_now;
        let nodes = stats.nodes.iter().map(|(addr, node)| {
            let (queued, in_flight) = (node.queued, node.in_flight);
            format!("{addr}: {queued} queued, {in_flight} in flight")
        });
        let nodes = nodes.collect::<Vec<_>>().join("; ");
        arena.violation(&format!(
            "all calls ended, but {parked} are parked; {nodes}"
        ));
    }
    stats
}

/// The client has two threads for each node that was ever a primary, and the coordinator: nothing
/// is left of calls and of connections that are gone.
pub(crate) fn threads_are_as_many_as(arena: &Arena, nodes: usize) {
    let wanted = || 1 + 2 * arena.client.stats().nodes.len();
    let fine = |threads: &Vec<String>| threads.len() == wanted() && wanted() <= 1 + 2 * nodes;
    let threads = eventually(threads, fine);
    if !fine(&threads) {
        let nodes: Vec<_> = arena.client.stats().nodes.into_keys().collect();
        arena.violation(&format!("threads {threads:?} for the nodes {nodes:?}"));
    }
}

/// After the end no thread and no socket is left.
pub(crate) fn nothing_is_left(arena: &Arena, client: &Client, sockets_before: usize) {
    let (result, _) = arena.timed(Kind::Single, SETTLE, || client.close(SETTLE));
    if let Err(error) = result {
        arena.violation(&format!("close: {error}"));
    }
    let (threads, sockets) = (threads(), sockets());
    if !threads.is_empty() || sockets > sockets_before {
        arena.violation(&format!(
            "after the end there are threads {threads:?} and {sockets} sockets; there were \
             {sockets_before} before the beginning"
        ));
    }
}

fn eventually<T>(look: impl Fn() -> T, fine: impl Fn(&T) -> bool) -> T {
    let start = Instant::now();
    loop {
        let seen = look();
        if fine(&seen) || start.elapsed() > SETTLE {
            return seen;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// The names of the client's threads.
pub(crate) fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    let mut own: Vec<String> = names
        .map(|name| name.trim().to_owned())
        .filter(|name| name.starts_with("reslot-"))
        .collect();
    own.sort();
    own
}

/// How many sockets this process has.
pub(crate) fn sockets() -> usize {
    let files = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
}
