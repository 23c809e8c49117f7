//! Nodes that die, and clusters that die and come back.

use std::time::{Duration, Instant};

use reslot::{Certainty, RefreshCause};

use crate::clients::{addr, asked, builder, connect, get, maps_asked, value};
use crate::fake::{Accept, FakeCluster, PATIENCE};
use crate::local_cluster::poll_until;

#[test]
fn a_node_that_vanishes_without_a_word_is_noticed() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    client.set("bar", "1").unwrap();
    cluster.assign(0..=16383, 1);
    cluster.node(0).kill();
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    assert!(client.stats().refreshes[&RefreshCause::ConnectionLost] >= 1);
    assert_eq!(asked(&cluster, 1, "GET", "bar"), 1);
    poll_until(PATIENCE, "it to be forgotten", || {
        let nodes = client.stats().nodes;
        (nodes.len() == 1).then_some(()).ok_or(format!("{nodes:?}"))
    });
}

/// Its sockets stay open and nothing answers any more; only timeouts tell.
#[test]
fn a_node_that_is_frozen_is_noticed() {
    let cluster = FakeCluster::start(2);
    let limit = Duration::from_millis(300);
    let builder = builder(&cluster).response_timeout(limit);
    let builder = builder.drain_limit(limit).connect_timeout(limit);
    let client = builder.connect().unwrap();
    cluster.node(0).on_any().ignore();
    let error = client.incr("bar").unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(error.certainty(), Certainty::Unknown);
    cluster.assign(0..=16383, 1);
    poll_until(PATIENCE, "the new owner to serve", || {
        client.incr("bar").map_err(|error| error.to_string())
    });
    assert!(client.stats().refreshes[&RefreshCause::Timeout] >= 1);
    client.set("foo", "1").unwrap();
}

#[test]
fn learned_nodes_tell_the_map_when_the_only_seed_is_gone() {
    let cluster = FakeCluster::start(3);
    let client = connect(&cluster);
    cluster.node(0).kill();
    cluster.change(|topology| topology.assign(0..=5460, 1));
    // A read, because a write could be on the wire before the client sees the end of it.
    assert_eq!(value(&client, "bar"), None);
    assert_eq!(asked(&cluster, 1, "GET", "bar"), 1);
    let start = cluster.log().end();
    cluster.assign(5061..=5061, 2);
    client.set("bar", "2").unwrap();
    cluster
        .log()
        .commands("CLUSTER SLOTS")
        .since(start)
        .wait_for(1);
    assert_eq!(asked(&cluster, 2, "SET", "bar"), 1);
}

#[test]
fn the_seed_tells_the_map_when_all_learned_nodes_are_gone() {
    let cluster = FakeCluster::builder(3).owners(3).start();
    cluster.assign(0..=16383, 1);
    let client = connect(&cluster);
    client.set("bar", "1").unwrap();
    cluster.node(1).kill();
    cluster.assign(0..=16383, 2);
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    assert_eq!(asked(&cluster, 2, "GET", "bar"), 1);
}

#[test]
fn a_cluster_that_was_down_as_a_whole_is_used_again() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    client.set("bar", "1").unwrap();
    cluster.nodes().iter().for_each(|node| node.kill());
    let limit = Duration::from_millis(200);
    for key in ["bar", "foo"] {
        let since = Instant::now();
        let error = client.query::<()>(get(key).timeout(limit)).unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert!(since.elapsed() >= limit);
    }
    // One call waits through the rest of the outage.
    let waiting = client.send::<Option<String>>(get("bar")).unwrap();
    cluster.nodes().iter().for_each(|node| node.listen());
    assert_eq!(waiting.wait().unwrap().as_deref(), Some("1"));
    client.set("foo", "1").unwrap();
    client.set("bar", "2").unwrap();
}

#[test]
fn a_node_that_closes_at_once_is_not_dialled_in_a_tight_loop() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.node(0).wait_open(1);
    let before = cluster.node(0).opened();
    let since = Instant::now();
    cluster.node(0).set_accept(Accept::CloseAtOnce);
    cluster.node(0).drop_connections();
    let waiting = client.send::<Option<String>>(get("bar")).unwrap();
    let start = cluster.log().end();
    poll_until(PATIENCE, "some attempts", || {
        let attempts = cluster.node(0).opened() - before;
        (attempts >= 6).then_some(()).ok_or(format!("{attempts}"))
    });
    // Pauses of at least 10, 20, 40, 80, 160 ms.
    assert!(
        since.elapsed() >= Duration::from_millis(310),
        "{:?}",
        since.elapsed()
    );
    client.set("foo", "1").unwrap();
    let seconds = usize::try_from(since.elapsed().as_secs()).unwrap();
    assert!(
        maps_asked(&cluster, start) <= 6 + seconds,
        "queries are spaced out, too"
    );
    cluster.node(0).set_accept(Accept::Serve);
    assert_eq!(waiting.wait().unwrap(), None);
}

#[test]
fn a_node_that_refuses_is_dialled_at_growing_distances() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.node(0).kill();
    let start = cluster.log().end();
    let waiting = client.send::<Option<String>>(get("bar")).unwrap();
    // The other node keeps telling a map with the dead node, less and less often.
    let log = cluster.log().on(1).commands("CLUSTER SLOTS").since(start);
    let queries = log.wait_for(4);
    let took = queries[3].at - queries[0].at;
    assert!(took >= Duration::from_millis(600), "{took:?}");
    client.set("foo", "1").unwrap();
    cluster.node(0).listen();
    assert_eq!(waiting.wait().unwrap(), None);
    assert_eq!(client.stats().nodes[&addr(&cluster, 0)].connects, 2);
}
