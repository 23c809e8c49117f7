//! Redirects among other commands: each command on its own, successes never again.

use std::thread;

use crate::clients::{asked, builder, connect, get, incr, never_refreshing, seen};
use crate::fake::{FakeCluster, resp};

#[test]
fn mixed_bursts_of_reads_and_writes_redirect_only_what_moved() {
    let cluster = FakeCluster::start(2);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    client.set("bar", "r").unwrap();
    client.set("b", "m").unwrap();
    cluster.assign(3300..=3300, 1);
    for burst in 1..=5 {
        let start = cluster.log().end();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| burst_of_one_thread(&client));
            }
        });
        for key in ["{bar}c", "{b}c"] {
            assert_eq!(cluster.executions(key), burst * 8 * 12, "{key}");
        }
        let moved = cluster.log().on(0).since(start);
        let moved = moved.when(|entry| entry.has("b") || entry.has("{b}c"));
        assert!(
            burst == 1 || moved.count() == 0,
            "burst {burst} went to the old owner"
        );
    }
    assert_eq!(
        asked(&cluster, 0, "INCR", "{bar}c"),
        5 * 8 * 12,
        "none was repeated"
    );
}

fn burst_of_one_thread(client: &reslot::Client) {
    let mut reads = Vec::new();
    let mut writes = Vec::new();
    for _ in 0..12 {
        reads.push(("r", client.send::<String>(get("bar")).unwrap()));
        reads.push(("m", client.send::<String>(get("b")).unwrap()));
        writes.push(client.send::<i64>(incr("{bar}c")).unwrap());
        writes.push(client.send::<i64>(incr("{b}c")).unwrap());
    }
    for (wanted, reply) in reads {
        assert_eq!(reply.wait().unwrap(), wanted);
    }
    for reply in writes {
        assert!(reply.wait().unwrap() > 0);
    }
}

#[test]
fn reads_that_succeeded_are_not_run_again_and_nobody_waits_for_the_map() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.assign(3300..=3300, 1);
    // Nobody tells its map before the end.
    let gate = cluster.on("CLUSTER SLOTS").hold();
    let mut pipeline = client.pipeline();
    for index in 0..50 {
        pipeline.add(get(&format!("{{bar}}{index}")));
        pipeline.add(get(&format!("{{b}}{index}")));
    }
    let results = pipeline.execute().unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    for index in 0..50 {
        let key = format!("{{bar}}{index}");
        assert_eq!(cluster.log().key(&key).count(), 1);
        let key = format!("{{b}}{index}");
        assert_eq!(asked(&cluster, 1, "GET", &key), 1);
        assert!(asked(&cluster, 0, "GET", &key) <= 1);
    }
    drop(gate);
}

#[test]
fn one_moved_command_does_not_double_its_neighbours() {
    let cluster = FakeCluster::start(2);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.node(0).on("INCR").key("b").moved(3300, 1);
    cluster.node(1).on("INCR").key("b").reply(resp::integer(7));
    let mut pipeline = client.pipeline();
    pipeline.add(incr("bar")).add(incr("b")).add(incr("{bar}2"));
    let values: (i64, i64, i64) = pipeline.query().unwrap();
    assert_eq!(values, (1, 7, 1));
    assert_eq!(seen(&cluster, 0), ["INCR bar", "INCR b", "INCR {bar}2"]);
    assert_eq!(seen(&cluster, 1), ["INCR b"]);
}

#[test]
fn keys_of_two_nodes_are_split_up_front() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    client.set("bar", "1").unwrap();
    client.set("foo", "2").unwrap();
    let mut pipeline = client.pipeline();
    pipeline.add(get("foo")).add(get("bar")).add(get("{foo}x"));
    let values: Vec<Option<String>> = pipeline.query().unwrap();
    assert_eq!(values, [Some("2".into()), Some("1".into()), None]);
    assert_eq!(seen(&cluster, 0), ["SET bar 1", "GET bar"]);
    assert_eq!(seen(&cluster, 1), ["SET foo 2", "GET foo", "GET {foo}x"]);
    assert_eq!(client.stats().total(|node| node.moved), 0);
}
