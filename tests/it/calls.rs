//! Calls of transactions, and the states that they are put into: half written, queued, in flight.

use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use reslot::{
    Builder, Certainty, Client, Cmd, NodeAddr, NodeStats, Pending, Result, ServerError, Value, cmd,
};

use crate::fake::{Entry, FakeCluster, PATIENCE, key_for_slot};
use crate::local_cluster::poll_until;

/// A time that no test gets near to: where it passes, something hangs.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// More than the kernel's buffers of a connection hold: what is longer is written in part while
/// its node does not read.
const HUGE: usize = 24 << 20;

/// Settings with one seed that does not get stuck in any test. Calls wait [`LONG`].
pub(crate) fn builder(cluster: &FakeCluster) -> Builder {
    let seed = cluster.nodes().last().expect("a node").addr();
    Client::builder()
        .seed(seed.to_string())
        .response_timeout(LONG)
        .drain_limit(LONG)
}

/// A client with these settings.
#[track_caller]
pub(crate) fn connect(cluster: &FakeCluster) -> Client {
    builder(cluster).connect().expect("the cluster is there")
}

/// A command by its words: `SET key value`.
pub(crate) fn words(line: &str) -> Cmd {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    words.fold(cmd(name), |command, word| command.arg(word))
}

/// Runs one command.
pub(crate) fn run(client: &Client, line: &str) -> Result<Value> {
    client.query(words(line))
}

/// Hands a command over.
#[track_caller]
pub(crate) fn send(client: &Client, line: &str) -> Pending<Value> {
    client.send(words(line)).expect("it can be sent")
}

/// Runs a transaction; the reply to each command.
pub(crate) fn transaction<L: AsRef<str>>(
    client: &Client,
    lines: &[L],
) -> Result<Vec<std::result::Result<Value, ServerError>>> {
    client.transaction(|t| {
        for line in lines {
            t.add(words(line.as_ref()));
        }
    })
}

/// A transaction of an INCR and a GET, as its replies.
pub(crate) fn count(client: &Client, key: &str) -> Result<(i64, String)> {
    client.transaction(|t| {
        t.add(cmd("INCR").arg(key)).add(cmd("GET").arg(key));
    })
}

/// A call on a thread of its own.
pub(crate) fn apart<T: Send + 'static>(
    client: &Client,
    call: impl FnOnce(&Client) -> T + Send + 'static,
) -> JoinHandle<T> {
    let client = client.clone();
    spawn(move || call(&client))
}

/// What one node has counted.
pub(crate) fn stats(cluster: &FakeCluster, client: &Client, node: usize) -> NodeStats {
    let mut stats = client.stats();
    stats.nodes.remove(&addr(cluster, node)).unwrap_or_default()
}

/// The name of a node in errors and counters.
pub(crate) fn addr(cluster: &FakeCluster, node: usize) -> NodeAddr {
    NodeAddr::new("127.0.0.1", cluster.node(node).port())
}

/// Waits until the counters of a node are as wanted.
#[track_caller]
pub(crate) fn await_stats(
    cluster: &FakeCluster,
    client: &Client,
    node: usize,
    wanted: impl Fn(&NodeStats) -> bool,
) {
    poll_until(PATIENCE, "counters", || {
        let stats = stats(cluster, client, node);
        if wanted(&stats) {
            Ok(())
        } else {
            Err(format!("node {node}: {stats:?}"))
        }
    });
}

/// Kills a node and waits until the client knows: from then on commands for it wait. The key is
/// one of this node's.
#[track_caller]
pub(crate) fn kill_and_notice(cluster: &FakeCluster, client: &Client, node: usize, key: &str) {
    cluster.node(node).kill();
    poll_until(PATIENCE, "the client to notice", || {
        let probe = cmd("GET").arg(key).timeout(Duration::from_millis(20));
        match client.query::<Value>(probe) {
            Err(failure) if failure.certainty() == Certainty::NotSent => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    await_queued(cluster, client, node, 0);
}

/// Waits until so many commands wait at a node.
#[track_caller]
pub(crate) fn await_queued(cluster: &FakeCluster, client: &Client, node: usize, count: usize) {
    await_stats(cluster, client, node, |stats| stats.queued == count);
}

/// A transaction under way: `SET key …` and `STRLEN key`, of which the node has got a part.
#[must_use = "its outcome matters"]
pub(crate) struct Half(JoinHandle<Result<(Value, usize)>>);

/// Makes a node stop reading and a transaction whose end stays in the client because of that.
#[track_caller]
pub(crate) fn half_written(cluster: &FakeCluster, client: &Client, node: usize, key: &str) -> Half {
    cluster.node(node).stop_reading();
    let key = key.to_owned();
    let thread = apart(client, move |client| {
        client.transaction(|t| {
            t.add(huge_set(&key)).add(cmd("STRLEN").arg(&key));
        })
    });
    await_half(cluster, client, node);
    Half(thread)
}

/// A SET that does not fit into the kernel's buffers.
pub(crate) fn huge_set(key: &str) -> Cmd {
    cmd("SET").arg(key).arg(vec![b'x'; HUGE])
}

/// Waits until a part of something huge is written, and asserts that not all of it is.
#[track_caller]
pub(crate) fn await_half(cluster: &FakeCluster, client: &Client, node: usize) {
    await_stats(cluster, client, node, |stats| stats.bytes_out > 1 << 16);
    let written = stats(cluster, client, node).bytes_out;
    assert!(written < HUGE as u64, "{written} bytes fit into the kernel");
}

impl Half {
    /// Its end: it ran, whole.
    #[track_caller]
    pub(crate) fn ran(self) {
        let result = self.0.join().expect("no panic");
        assert_eq!(result, Ok((Value::Ok, HUGE)));
    }

    /// Its end.
    #[track_caller]
    pub(crate) fn end(self) -> Result<(Value, usize)> {
        self.0.join().expect("no panic")
    }
}

/// The length of what [`huge_set`] writes.
pub(crate) const HUGE_LENGTH: Value = Value::Integer(HUGE as i64);

/// Has the client learn the present owners: it asks the last node of the cluster, which no test
/// disturbs. The last two nodes must own a slot each.
#[track_caller]
pub(crate) fn spread_the_map(cluster: &FakeCluster, client: &Client) {
    let last = cluster.nodes().len() - 1;
    let topology = cluster.topology();
    let slot = (0..16384)
        .rev()
        .find(|&slot| topology.owner(slot) == Some(last - 1))
        .expect("the last but one has slots");
    cluster.assign(slot..=slot, last);
    let maps = client.stats().maps;
    // A client that follows no redirect learns from it all the same.
    drop(run(client, &format!("GET {}", key_for_slot(slot))));
    poll_until(LONG, "the map to arrive", || match client.stats().maps {
        now if now > maps => Ok(()),
        now => Err(format!("{now} maps")),
    });
}

/// Names and first arguments of what users sent to a node on the connections that carried any of
/// it, in order of arrival.
pub(crate) fn seen(cluster: &FakeCluster, node: usize) -> Vec<String> {
    let entries = cluster.log().on(node).data().list();
    entries.iter().map(brief).collect()
}

/// The name of a command and its first argument.
pub(crate) fn brief(entry: &Entry) -> String {
    match entry.argv.len() {
        1 => entry.name(),
        _ => format!("{} {}", entry.name(), entry.text(1)),
    }
}

/// Waits until a call has ended, and gives its result.
#[track_caller]
pub(crate) fn done<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("no panic")
}
