//! Nodes that join, leave and return while the client works.

use std::time::Duration;

use reslot::{Certainty, Reason, cmd};

use crate::clients::{addr, asked, builder, connect, get, incr, seen, value};
use crate::fake::{FakeCluster, PATIENCE, key_for_slot, keys_in};
use crate::local_cluster::poll_until;

#[test]
fn a_node_that_left_is_let_go() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    client.set("bar", "1").unwrap();
    client.set("foo", "1").unwrap();
    cluster.assign(0..=16383, 1);
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    cluster.node(0).wait_open(0);
    poll_until(PATIENCE, "its threads to end", || {
        let nodes = client.stats().nodes;
        (nodes.len() == 1).then_some(()).ok_or(format!("{nodes:?}"))
    });
    assert_eq!(cluster.log().on(0).key("bar").count(), 2);
}

#[test]
fn a_node_that_returns_gets_fresh_connections() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    for round in 0..3 {
        cluster.assign(0..=16383, 1);
        client.set("bar", round).unwrap();
        cluster.node(0).wait_open(0);
        let before = cluster.node(0).opened();
        cluster.node(0).set_id(&format!("{round:040}"));
        let start = cluster.log().end();
        cluster.assign(0..=8191, 0);
        client.set("bar", round).unwrap();
        // Once a map names it, it need not be kept for the sake of redirects.
        let maps = cluster.log().commands("CLUSTER SLOTS").since(start);
        maps.wait_for(1);
        client.set("foo", round).unwrap();
        assert!(cluster.node(0).opened() > before);
    }
    assert_eq!(cluster.executions("bar"), 6);
    poll_until(PATIENCE, "the queues to be empty", || {
        let left = client
            .stats()
            .nodes
            .values()
            .map(|n| n.queued + n.in_flight)
            .sum::<usize>();
        (left == 0).then_some(()).ok_or(format!("{left} left"))
    });
}

/// The node stalls with commands queued, then all its slots move.
#[test]
fn queued_commands_of_a_node_that_leaves_go_to_the_new_owner() {
    let cluster = FakeCluster::start(2);
    let limit = Duration::from_millis(500);
    let client = builder(&cluster).drain_limit(limit).connect().unwrap();
    cluster.node(0).stop_reading();
    let large = cmd("SET").arg("b").arg(vec![b'x'; 48 << 20]);
    let half = client.send::<()>(large).unwrap();
    let keys = keys_in(4000..=8000, 100);
    let queued: Vec<_> = keys
        .iter()
        .map(|key| client.send::<i64>(incr(key)).unwrap())
        .collect();
    let sent = client.stats().nodes[&addr(&cluster, 0)].in_flight;
    assert!(sent <= 1, "the rest waits behind the large command");
    cluster.change(|topology| topology.assign(0..=8191, 1));
    // Some redirect makes the client look.
    cluster
        .node(1)
        .on("GET")
        .key("foo")
        .times(1)
        .moved(12182, 1);
    assert_eq!(value(&client, "foo"), None);
    for reply in queued {
        assert_eq!(reply.wait().unwrap(), 1);
    }
    for key in &keys {
        assert_eq!(cluster.executions(key), 1);
        assert_eq!(asked(&cluster, 1, "INCR", key), 1);
    }
    // Its last byte never left, so it cannot have run there; it runs at the new owner.
    half.wait().unwrap();
    assert_eq!(cluster.executions("b"), 1);
    cluster.node(0).resume_reading();
    cluster.node(0).wait_open(0);
}

#[test]
fn sent_commands_of_a_node_that_leaves_get_their_replies() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let gate = cluster.node(0).on("INCR").key("b").hold_reply();
    let sent = client.send::<i64>(incr("b")).unwrap();
    gate.wait_arrived(1);
    cluster.assign(0..=16383, 1);
    let moved = client.send::<i64>(incr("bar")).unwrap();
    cluster
        .node(1)
        .on("GET")
        .key("foo")
        .times(1)
        .moved(12182, 1);
    assert_eq!(value(&client, "foo"), None);
    assert!(!sent.is_done());
    gate.release();
    assert_eq!(sent.wait().unwrap(), 1);
    assert_eq!(moved.wait().unwrap(), 1);
    cluster.node(0).wait_open(0);
}

#[test]
fn a_node_that_leaves_without_answering_leaves_doubt_and_no_hang() {
    let cluster = FakeCluster::start(2);
    let limit = Duration::from_millis(300);
    let client = builder(&cluster).drain_limit(limit).connect().unwrap();
    let gate = cluster.node(0).on("INCR").key("b").hold_reply();
    let sent = client.send::<i64>(incr("b")).unwrap();
    gate.wait_arrived(1);
    cluster.assign(0..=16383, 1);
    cluster
        .node(1)
        .on("GET")
        .key("foo")
        .times(1)
        .moved(12182, 1);
    assert_eq!(value(&client, "foo"), None);
    let error = sent.wait().unwrap_err();
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    assert_eq!(
        error.failure().unwrap().reason(),
        Reason::ConnectionLost,
        "not closed: {error}"
    );
    assert_eq!(
        client.incr("b").unwrap(),
        2,
        "it had run once, and went along with its slot"
    );
    drop(gate);
}

/// Redirects to a node that maps name only sometimes, while maps come late: whatever the order,
/// no connection stays behind.
#[test]
fn redirects_that_race_with_maps_leak_no_connection() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    let interval = Duration::from_millis(2);
    let builder = builder(&cluster).refresh_min_interval(interval);
    let client = builder.refresh_max_interval(interval).connect().unwrap();
    for round in 0..60u16 {
        let slot = round % 20;
        let gate = cluster.on("CLUSTER SLOTS").times(1).hold_reply();
        cluster.assign(slot..=slot, 2);
        client.set(key_for_slot(slot), "1").unwrap();
        cluster.assign(slot..=slot, 0);
        client.set(key_for_slot(slot), "2").unwrap();
        drop(gate);
    }
    poll_until(PATIENCE, "the third node to be let go", || {
        client.set("bar", "1").unwrap();
        client.set("foo", "1").unwrap();
        let (nodes, open) = (client.stats().nodes.len(), cluster.node(2).connections());
        let gone = nodes == 2 && open.is_empty();
        gone.then_some(()).ok_or(format!("{nodes} nodes, {open:?}"))
    });
    (0..2).for_each(|node| cluster.node(node).wait_open(1));
}

#[test]
fn a_promoted_replica_takes_over_and_the_old_primary_may_return() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    cluster.replicate(2, 0);
    let client = connect(&cluster);
    client.set("bar", "1").unwrap();
    cluster.node(0).kill();
    let pending = client.send::<Option<String>>(get("bar")).unwrap();
    cluster.promote(2);
    assert_eq!(pending.wait().unwrap().as_deref(), Some("1"));
    assert_eq!(asked(&cluster, 2, "GET", "bar"), 1);
    cluster.node(0).listen();
    cluster.promote(0);
    client.set("bar", "2").unwrap();
    assert_eq!(value(&client, "bar").as_deref(), Some("2"));
    assert_eq!(seen(&cluster, 0).last().unwrap(), "GET bar");
    assert_eq!(cluster.log().executed().commands("SET").count(), 2);
}
