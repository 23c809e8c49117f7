//! Announcements to push, and clients that ask for them.

use std::time::{Duration, Instant};

use reslot::{Builder, Client, Maintenance};

use crate::fake::{FakeCluster, PATIENCE, resp};

/// Settings with one seed; announcements are required.
pub(super) fn builder(cluster: &FakeCluster) -> Builder {
    Client::builder()
        .seed(cluster.node(0).addr().to_string())
        .maintenance(Maintenance::On)
        .periodic_refresh(None)
}

#[track_caller]
pub(super) fn connect(cluster: &FakeCluster) -> Client {
    builder(cluster).connect().expect("the cluster is there")
}

/// Where a node is, as announcements name it.
pub(super) fn addr(cluster: &FakeCluster, node: usize) -> String {
    cluster.node(node).addr().to_string()
}

pub(super) fn smigrating(seq: i64, slots: &str) -> Vec<u8> {
    let items = [
        resp::simple("SMIGRATING"),
        resp::integer(seq),
        resp::simple(slots),
    ];
    resp::push(&items)
}

/// Moves as (from, to, slots).
pub(super) fn smigrated(
    cluster: &FakeCluster,
    seq: i64,
    moves: &[(usize, usize, &str)],
) -> Vec<u8> {
    let triplet = |&(from, to, slots): &(usize, usize, &str)| {
        let fields = [
            resp::simple(&addr(cluster, from)),
            resp::simple(&addr(cluster, to)),
            resp::simple(slots),
        ];
        resp::array(&fields)
    };
    let triplets: Vec<Vec<u8>> = moves.iter().map(triplet).collect();
    let items = [
        resp::simple("SMIGRATED"),
        resp::integer(seq),
        resp::array(&triplets),
    ];
    resp::push(&items)
}

/// `MIGRATING` and `FAILING_OVER` with a time, `MIGRATED` and `FAILED_OVER` without.
pub(super) fn plain(kind: &str, seq: i64) -> Vec<u8> {
    let mut items = vec![resp::simple(kind), resp::integer(seq)];
    if kind.ends_with("ING") || kind == "FAILING_OVER" {
        items.push(resp::integer(5));
    }
    resp::push(&items)
}

pub(super) fn moving(seq: i64, seconds: i64, to: Option<&str>) -> Vec<u8> {
    let to = to.map_or_else(|| resp::null(3), resp::simple);
    let items = [
        resp::simple("MOVING"),
        resp::integer(seq),
        resp::integer(seconds),
        to,
    ];
    resp::push(&items)
}

/// Waits for something that the client does by itself.
#[track_caller]
pub(super) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        pass(Duration::from_millis(2));
    }
}

/// Lets time pass: deadlines are about nothing else.
#[expect(
    clippy::disallowed_methods,
    reason = "that nothing happens in some time is no event"
)]
pub(super) fn pass(time: Duration) {
    std::thread::sleep(time);
}

/// Pushes to all connections of a node, and waits until the client has heard it on one more.
#[track_caller]
pub(super) fn announce(cluster: &FakeCluster, client: &Client, node: usize, push: &[u8]) {
    let before = client.stats().announcements;
    cluster.node(node).push(push);
    eventually("the announcement to arrive", || {
        client.stats().announcements > before
    });
}

/// How long a call took, with its result.
pub(super) fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = call();
    (result, begin.elapsed())
}
