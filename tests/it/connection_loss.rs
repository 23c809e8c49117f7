//! Lost connections: what was not written whole runs later, once; what may have run is not sent
//! again unless it only reads.

use std::time::{Duration, Instant};

use reslot::{Certainty, Reason, Value, cmd};

use crate::fake::{Accept, FakeCluster, Script, key_for_slot, resp};
use crate::run::{builder, connect, pipeline, run, send, texts, words};

/// More than the kernel's buffers of a loopback connection hold.
const LARGE: usize = 32 << 20;

/// Long enough for any machine; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_write_that_ran_without_a_reply_is_unknown_and_not_repeated() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.on("INCR").times(1).run_and_close();
    let error = run(&client, "INCR bar").unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!(failure.reason(), Reason::ConnectionLost);
    assert_eq!(failure.certainty(), Certainty::Unknown);
    assert_eq!(failure.attempts(), 1);
    assert_eq!(cluster.executions("bar"), 1);
    assert_eq!(run(&client, "INCR bar").unwrap(), Value::Integer(2));
}

#[test]
fn a_read_without_a_reply_is_sent_again() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    run(&client, "SET bar v").unwrap();
    cluster.on("GET").times(1).run_and_close();
    assert_eq!(run(&client, "GET bar").unwrap(), Value::Bulk(b"v".into()));
    assert_eq!(cluster.log().commands("GET").count(), 2);
}

#[test]
fn reads_in_flight_end_at_the_loss_if_they_may_not_be_repeated() {
    let cluster = FakeCluster::start(1);
    let settings = builder(&cluster).retry_reads(false);
    let client = settings.response_timeout(None).connect().unwrap();
    let held = cluster.on("GET").hold();
    let reads: Vec<_> = (0..100)
        .map(|n| send(&client, &format!("GET k{n}")))
        .collect();
    cluster.log().commands("GET").wait_for(100);
    cluster.node(0).drop_connections();
    for read in reads {
        let Ok(result) = read.wait_timeout(LONG) else {
            panic!("a read was forgotten at the loss of its connection")
        };
        assert_eq!(result.unwrap_err().certainty(), Certainty::Unknown);
    }
    held.release();
    assert_eq!(run(&client, "GET bar").unwrap(), Value::Null);
    assert_eq!(cluster.log().commands("GET").count(), 101);
}

#[test]
fn what_waits_behind_a_lost_write_runs_once_after_the_reconnect() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let gate = cluster.gate();
    let stall = Script::new().run().stop_reading().hold(&gate).close();
    cluster.on("INCR").key("bar").times(1).script(stall);
    let lost = send(&client, "INCR bar");
    gate.wait_arrived(1);
    let large = client
        .send::<Value>(cmd("SET").arg("large").arg(vec![b'x'; LARGE]))
        .unwrap();
    let behind: Vec<_> = (0..3)
        .map(|n| send(&client, &format!("INCR k{n}")))
        .collect();
    gate.release();
    assert_eq!(lost.wait().unwrap_err().certainty(), Certainty::Unknown);
    large.wait().unwrap();
    for pending in behind {
        assert_eq!(pending.wait().unwrap(), Value::Integer(1));
    }
    let executed = cluster.log().executed().list();
    let keys: Vec<_> = executed.iter().map(|entry| entry.text(1)).collect();
    assert_eq!(keys, ["bar", "large", "k0", "k1", "k2"]);
}

#[test]
fn a_write_cut_off_in_the_middle_is_sent_again_whole_and_runs_once() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.node(0).close_after_bytes(100_000);
    let large = client
        .send::<Value>(cmd("SET").arg("large").arg(vec![b'x'; LARGE]))
        .unwrap();
    cluster.node(0).wait_open(0);
    cluster.node(0).read_on();
    large.wait().unwrap();
    assert_eq!(cluster.executions("large"), 1);
    assert_eq!(client.strlen("large").unwrap(), LARGE as u64);
}

#[test]
fn bytes_that_are_no_reply_end_the_connection_and_only_what_was_on_it() {
    for garbage in [
        "HTTP/1.1 400 Bad Request\r\n",
        ":12a\r\n",
        "$-2\r\n",
        "*1\r\n>1\r\n+x\r\n",
    ] {
        let cluster = FakeCluster::start(1);
        let client = connect(&cluster);
        cluster.on("INCR").key("bar").times(1).reply(garbage);
        let lines = ["INCR b", "INCR bar", "INCR foo", "GET b"];
        let results = pipeline(&client, &lines);
        assert_eq!(
            texts(&results),
            ["1", "Unknown", "Unknown", "1"],
            "{garbage:?}"
        );
        assert_eq!(run(&client, "INCR b").unwrap(), Value::Integer(2));
        assert_eq!(cluster.log().commands("INCR").key("bar").count(), 1);
        assert_eq!(client.stats().total(|node| node.connects), 2, "{garbage:?}");
    }
}

#[test]
fn a_reply_that_nobody_asked_for_ends_the_connection_before_it_hits_a_stranger() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let twice = Script::new().run().send().send();
    cluster.on("INCR").times(1).script(twice);
    assert_eq!(run(&client, "INCR bar").unwrap(), Value::Integer(1));
    for expected in 0..50 {
        // It may be on the wire when the spare reply is found: then it is lost, never wrong.
        match run(&client, "APPEND foo x") {
            Ok(length) => assert!(matches!(length, Value::Integer(n) if n > 0), "{length:?}"),
            Err(error) => assert_eq!(error.certainty(), Certainty::Unknown, "{expected}"),
        }
    }
    assert_eq!(run(&client, "GET bar").unwrap(), Value::Bulk(b"1".into()));
}

#[test]
fn a_vanished_node_is_found_missing_by_its_lost_connection() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    run(&client, "INCR bar").unwrap();
    cluster.assign(0..=8191, 1);
    cluster.node(0).kill();
    assert_eq!(run(&client, "GET bar").unwrap(), Value::Bulk(b"1".into()));
    assert_eq!(cluster.log().on(0).commands("GET").count(), 0);
}

#[test]
fn a_cluster_that_was_down_as_a_whole_serves_again_without_a_new_client() {
    let cluster = FakeCluster::start(2);
    let limit = Duration::from_millis(200);
    let client = builder(&cluster).response_timeout(limit).connect().unwrap();
    cluster.nodes().iter().for_each(crate::fake::Node::kill);
    for line in ["INCR bar", "INCR foo", "INCR bar"] {
        let error = run(&client, line).unwrap_err();
        assert_ne!(error.certainty(), Certainty::Refused, "{error}");
    }
    let executed = cluster.log().executed().count();
    cluster.nodes().iter().for_each(crate::fake::Node::listen);
    for line in ["INCR b", "INCR a"] {
        let back = client.query::<i64>(words(line).timeout(LONG));
        assert_eq!(back.unwrap(), 1);
    }
    assert_eq!(executed, 0);
}

/// Three nodes; the first one loses all its slots to the second, and a MOVED of the third tells
/// the client to look at the map.
fn take_all_from_first(cluster: &FakeCluster, client: &reslot::Client) {
    cluster.assign(0..=5461, 1);
    cluster.assign(16000..=16000, 1);
    let told = key_for_slot(16000);
    run(client, &format!("GET {told}")).unwrap();
    // By the new map a command for a slot of the first node waits until that is drained.
    while client.stats().parked == 0 {
        let probe = client
            .send::<Value>(cmd("GET").arg(key_for_slot(1)))
            .unwrap();
        drop(probe.wait_timeout(Duration::from_millis(5)));
    }
}

#[test]
fn replies_of_a_node_that_lost_everything_are_delivered_within_the_drain_limit() {
    let cluster = FakeCluster::start(3);
    let client = builder(&cluster).drain_limit(LONG).connect().unwrap();
    let held = cluster.node(0).on("INCR").hold_reply();
    let written = send(&client, "INCR bar");
    held.wait_arrived(1);
    take_all_from_first(&cluster, &client);
    held.release();
    assert_eq!(written.wait().unwrap(), Value::Integer(1));
    cluster.node(0).wait_open(0);
    assert_eq!(cluster.executions("bar"), 1);
}

#[test]
fn the_drain_limit_closes_the_connection_before_it_gives_up_what_was_sent() {
    let cluster = FakeCluster::start(3);
    let settings = builder(&cluster).response_timeout(LONG);
    let limit = Duration::from_millis(200);
    let client = settings.drain_limit(limit).connect().unwrap();
    let held = cluster.node(0).on("INCR").hold();
    let written = send(&client, "INCR bar");
    held.wait_arrived(1);
    take_all_from_first(&cluster, &client);
    let failure = written.wait().unwrap_err().failure().unwrap().clone();
    assert_eq!(failure.reason(), Reason::ConnectionLost);
    assert_eq!(failure.certainty(), Certainty::Unknown);
    cluster.node(0).wait_open(0);
    held.release();
    assert_eq!(run(&client, "STRLEN bar").unwrap(), Value::Integer(0));
    assert_eq!(cluster.log().commands("INCR").count(), 1);
}

#[test]
fn the_next_command_of_a_moved_slot_waits_for_a_silent_owner_only_so_long() {
    let cluster = FakeCluster::start(3);
    let settings = builder(&cluster).response_timeout(LONG);
    let limit = Duration::from_millis(200);
    let client = settings.drain_limit(limit).connect().unwrap();
    let held = cluster.node(0).on("SET").hold();
    let first = send(&client, "SET bar 1");
    held.wait_arrived(1);
    take_all_from_first(&cluster, &client);
    let second = send(&client, "SET bar 2");
    assert_eq!(first.wait().unwrap_err().certainty(), Certainty::Unknown);
    second.wait().unwrap();
    assert_eq!(
        cluster.log().executed().on(1).texts().last().unwrap(),
        "SET bar 2"
    );
    held.release();
    assert_eq!(run(&client, "GET bar").unwrap(), Value::Bulk(b"2".into()));
}

#[test]
fn connections_are_not_reset_by_changes_of_the_map() {
    let cluster = FakeCluster::start(2);
    let settings = builder(&cluster)
        .refresh_min_interval(Duration::from_millis(1))
        .refresh_max_interval(Duration::from_millis(1));
    let client = settings.connect().unwrap();
    let start = cluster.log().end();
    let moving = format!("INCR {}", key_for_slot(4000));
    for round in 1..=20 {
        cluster.assign(4000..=4000, round % 2);
        let wanted = [round.to_string(), round.to_string(), round.to_string()];
        assert_eq!(
            texts(&pipeline(&client, &[&*moving, "INCR bar", "INCR foo"])),
            wanted
        );
    }
    cluster
        .log()
        .commands("CLUSTER SLOTS")
        .since(start)
        .wait_for(1);
    let connects: Vec<_> = client
        .stats()
        .nodes
        .values()
        .map(|node| node.connects)
        .collect();
    assert_eq!(connects, [1, 1]);
}

#[test]
fn a_node_that_closes_at_once_is_dialled_at_growing_distances() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.node(0).set_accept(Accept::CloseAtOnce);
    let opened = cluster.node(0).opened();
    let begun = Instant::now();
    cluster.node(0).drop_connections();
    while cluster.node(0).opened() < opened + 6 {
        let short = words("INCR bar").timeout(Duration::from_millis(20));
        client.query::<Value>(short).unwrap_err();
        run(&client, "INCR foo").unwrap();
    }
    // Pauses of 20, 40, 80 and 160 ms lie between five attempts, each at least half as long. The
    // sixth may be a topology query.
    let taken = begun.elapsed();
    assert!(
        taken >= Duration::from_millis(150),
        "six connections within {taken:?}"
    );
}

#[test]
fn a_push_between_replies_is_no_reply() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let push = resp::push(&[resp::bulk("invalidate"), resp::array(&[resp::bulk("k")])]);
    let script = Script::new().raw(push.clone()).run().send().raw(push);
    cluster.on("INCR").script(script);
    let lines: Vec<_> = (0..100).map(|_| "INCR bar").collect();
    let wanted: Vec<_> = (1..=100).map(|n| n.to_string()).collect();
    assert_eq!(texts(&pipeline(&client, &lines)), wanted);
}
