//! Clients of scripted clusters, in the ways that many tests want them.

use std::time::{Duration, Instant};

use reslot::{Builder, Client, Cmd, NodeAddr, cmd};

use crate::fake::FakeCluster;

/// A time that no test gets near to: where it passes, something hangs.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Settings with one seed, so that connecting asks for the map exactly once. Calls wait [`LONG`].
pub(crate) fn builder(cluster: &FakeCluster) -> Builder {
    let seed = cluster.node(0).addr().to_string();
    Client::builder().seed(seed).response_timeout(LONG)
}

/// A client that refreshes its map as usual.
#[track_caller]
pub(crate) fn connect(cluster: &FakeCluster) -> Client {
    builder(cluster).connect().expect("the cluster is there")
}

/// No refresh after the first map: what the client knows it has learned from redirects.
pub(crate) fn never_refreshing(builder: Builder) -> Builder {
    let hour = Duration::from_secs(3600);
    builder
        .refresh_min_interval(hour)
        .refresh_max_interval(hour)
        .periodic_refresh(None)
}

/// The name of a node in errors and counters.
pub(crate) fn addr(cluster: &FakeCluster, node: usize) -> NodeAddr {
    NodeAddr::new("127.0.0.1", cluster.node(node).port())
}

/// `GET key`.
pub(crate) fn get(key: &str) -> Cmd {
    cmd("GET").arg(key)
}

/// `INCR key`.
pub(crate) fn incr(key: &str) -> Cmd {
    cmd("INCR").arg(key)
}

/// The most refreshes that may have started since, if none came sooner than this after another.
pub(crate) fn most_refreshes(since: Instant, interval: Duration) -> usize {
    let whole = since.elapsed().as_micros() / interval.as_micros();
    usize::try_from(whole).expect("a test is short") + 1
}

/// Texts of what users sent to a node, in order of arrival.
pub(crate) fn seen(cluster: &FakeCluster, node: usize) -> Vec<String> {
    cluster.log().on(node).data().texts()
}

/// How often a node was asked for this.
pub(crate) fn asked(cluster: &FakeCluster, node: usize, command: &str, key: &str) -> usize {
    cluster.log().on(node).commands(command).key(key).count()
}

/// How often nodes were asked for their map from this place of the log on.
pub(crate) fn maps_asked(cluster: &FakeCluster, since: usize) -> usize {
    cluster.log().commands("CLUSTER SLOTS").since(since).count()
}

/// The value of a key, which must not fail.
#[track_caller]
pub(crate) fn value(client: &Client, key: impl AsRef<[u8]>) -> Option<String> {
    client.get(key).unwrap()
}
