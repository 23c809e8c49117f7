//! Reads from replicas: who serves them, and what happens when a replica cannot.

use std::time::Duration;

use reslot::{Client, ReadFrom, cmd};

use crate::clients::{asked, builder, maps_asked, never_refreshing, value};
use crate::fake::{FakeCluster, PATIENCE, resp};
use crate::local_cluster::poll_until;

/// One primary (node 0) with so many replicas.
fn shard(replicas: usize) -> FakeCluster {
    let cluster = FakeCluster::builder(replicas + 1).owners(1).start();
    (1..=replicas).for_each(|replica| cluster.replicate(replica, 0));
    cluster
}

fn reading_from_replicas(cluster: &FakeCluster) -> Client {
    let builder = builder(cluster).read_from(ReadFrom::PreferReplica);
    never_refreshing(builder).connect().unwrap()
}

#[test]
fn reads_go_to_replicas_and_writes_to_the_primary() {
    let cluster = shard(2);
    let client = reading_from_replicas(&cluster);
    client.set("bar", "1").unwrap();
    for _ in 0..10 {
        assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    }
    assert_eq!(cluster.log().on(0).commands("GET").count(), 0);
    for replica in [1, 2] {
        assert_eq!(asked(&cluster, replica, "GET", "bar"), 5, "they take turns");
        assert_eq!(cluster.log().on(replica).commands("READONLY").count(), 1);
        assert_eq!(cluster.log().on(replica).commands("SET").count(), 0);
    }
    assert_eq!(client.stats().total(|node| node.moved), 0);
}

#[test]
fn only_true_reads_go_to_replicas() {
    let cluster = shard(1);
    let client = reading_from_replicas(&cluster);
    let reads: [&[&str]; 7] = [
        &["SORT_RO", "bar"],
        &["EVAL_RO", "return 1", "1", "bar"],
        &["FCALL_RO", "f", "1", "bar"],
        &["GEORADIUS_RO", "bar", "1", "1", "1", "m"],
        &["BITFIELD_RO", "bar", "GET", "u8", "0"],
        &["HGETALL", "bar"],
        &["XRANGE", "bar", "-", "+"],
    ];
    let writes: [&[&str]; 8] = [
        &["SORT", "bar", "STORE", "{bar}2"],
        &["GEORADIUS", "bar", "1", "1", "1", "m", "STORE", "{bar}2"],
        &["GETEX", "bar", "EX", "1"],
        &["GETDEL", "bar"],
        &["BITFIELD", "bar", "SET", "u8", "0", "1"],
        &["EVAL", "return 1", "1", "bar"],
        &["EVALSHA", "sha", "1", "bar"],
        &["FCALL", "f", "1", "bar"],
    ];
    for (words, node) in reads
        .iter()
        .map(|w| (w, 1))
        .chain(writes.iter().map(|w| (w, 0)))
    {
        cluster.on(words[0]).reply(resp::simple("OK"));
        client.query::<()>(cmd(words[0]).arg(&words[1..])).unwrap();
        let seen = cluster.log().commands(words[0]).list();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].node, node, "{words:?}");
    }
}

#[test]
fn a_replica_that_forgot_readonly_is_mended_and_keeps_its_place() {
    let cluster = shard(1);
    let builder = builder(&cluster).read_from(ReadFrom::PreferReplica);
    let client = builder.connect().unwrap();
    let start = cluster.log().end();
    client.set("bar", "1").unwrap();
    client.set("b", "1").unwrap();
    cluster.node(1).on("GET").key("bar").times(1).moved(5061, 0);
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    assert_eq!(
        asked(&cluster, 0, "GET", "bar"),
        1,
        "the primary served the first read"
    );
    // A connection made anew says READONLY again.
    cluster.log().on(1).commands("READONLY").wait_for(2);
    poll_until(PATIENCE, "the replica to serve again", || {
        let before = asked(&cluster, 1, "GET", "bar");
        value(&client, "bar");
        let served = asked(&cluster, 1, "GET", "bar") > before;
        served.then_some(()).ok_or("not yet".into())
    });
    let before = cluster.log().on(0).commands("GET").count();
    for _ in 0..20 {
        value(&client, "bar");
        value(&client, "b");
    }
    assert_eq!(cluster.log().on(0).commands("GET").count(), before);
    let queries = maps_asked(&cluster, start);
    assert!(
        queries <= 2,
        "MOVED and the end of a connection are two reasons: {queries}"
    );
}

#[test]
fn a_replica_that_cannot_serve_is_skipped_for_a_while() {
    for line in [
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    ] {
        let cluster = shard(2);
        let client = reading_from_replicas(&cluster);
        client.set("bar", "1").unwrap();
        let sick = cluster.node(1).on("GET").error(line);
        for _ in 0..20 {
            assert_eq!(value(&client, "bar").as_deref(), Some("1"));
        }
        // It is tried again only after some seconds, which may pass on a slow machine.
        let tries = sick.hits();
        assert!((1..10).contains(&tries), "{line}: {tries}");
        assert!(asked(&cluster, 2, "GET", "bar") >= 20 - 2 * tries);
        assert!(asked(&cluster, 0, "GET", "bar") <= tries);
    }
}

#[test]
fn without_a_replica_that_serves_the_primary_does() {
    let cluster = shard(1);
    let client = reading_from_replicas(&cluster);
    client.set("bar", "1").unwrap();
    cluster
        .node(1)
        .on("GET")
        .error("LOADING Redis is loading the dataset in memory");
    for _ in 0..10 {
        assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    }
    // It is tried again only after some seconds, which may pass on a slow machine.
    assert!((1..10).contains(&asked(&cluster, 1, "GET", "bar")));
    assert_eq!(asked(&cluster, 0, "GET", "bar"), 10);
}

#[test]
fn a_replica_that_is_down_does_not_fail_reads() {
    let cluster = shard(1);
    let client = reading_from_replicas(&cluster);
    client.set("bar", "1").unwrap();
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    cluster.node(1).kill();
    for _ in 0..10 {
        assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    }
    assert!(asked(&cluster, 0, "GET", "bar") >= 9);
}

#[test]
fn reads_that_wait_for_a_dead_replica_are_served_by_others() {
    let cluster = shard(1);
    let client = reading_from_replicas(&cluster);
    client.set("bar", "1").unwrap();
    // It has never been connected to, and is not there when it is needed.
    cluster.node(1).kill();
    let mut pipeline = client.pipeline();
    for _ in 0..20 {
        pipeline.add(crate::clients::get("bar"));
    }
    let values: Vec<String> = pipeline.query().unwrap();
    assert_eq!(values, ["1"; 20]);
    assert_eq!(asked(&cluster, 0, "GET", "bar"), 20);
    // It is used again once it is back.
    cluster.node(1).listen();
    poll_until(PATIENCE, "the replica to serve", || {
        value(&client, "bar");
        let served = asked(&cluster, 1, "GET", "bar") > 0;
        served.then_some(()).ok_or("not yet".into())
    });
}

#[test]
fn a_replica_that_does_not_answer_is_skipped_for_a_while() {
    let cluster = shard(1);
    let builder = builder(&cluster).read_from(ReadFrom::PreferReplica);
    let client = builder.response_timeout(Duration::from_millis(200));
    let client = never_refreshing(client).connect().unwrap();
    client.set("bar", "1").unwrap();
    let silent = cluster.node(1).on("GET").ignore();
    let read = || {
        client
            .get::<String>("bar")
            .map_err(|error| error.to_string())
    };
    assert!(read().is_err());
    let found = poll_until(PATIENCE, "the primary to serve", read);
    assert_eq!(found.as_deref(), Some("1"));
    assert!(silent.hits() <= 3, "{}", silent.hits());
}

/// A replica of the source answers nil for keys that have left already.
#[test]
fn a_slot_in_motion_is_read_at_the_primary() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    cluster.replicate(2, 0);
    let client = reading_from_replicas(&cluster);
    client.set("{bar}1", "1").unwrap();
    cluster.begin_move(5061, 1);
    cluster.migrate_key("{bar}1");
    // A write meets ASK, and from then on the client knows.
    client.incr("{bar}n").unwrap();
    for _ in 0..5 {
        assert_eq!(
            value(&client, "{bar}1").as_deref(),
            Some("1"),
            "no false nil"
        );
    }
    assert_eq!(asked(&cluster, 2, "GET", "{bar}1"), 0);
    client.set("b", "1").unwrap();
    assert_eq!(value(&client, "b").as_deref(), Some("1"));
    assert_eq!(
        asked(&cluster, 2, "GET", "b"),
        1,
        "other slots are still read at the replica"
    );
}
