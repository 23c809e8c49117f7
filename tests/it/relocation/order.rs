//! Commands of one slot run in the order in which they were handed over, wherever they wait.

use std::time::Duration;

use reslot::{Certainty, Pending, Reason, Value};

use crate::calls::{
    await_half, await_queued, await_stats, builder, connect, half_written, huge_set, run, seen,
    send, spread_the_map, stats,
};
use crate::fake::{FakeCluster, key_for_slot};

/// `SET key value`, as the log of the fake shows it.
fn sets(cluster: &FakeCluster, node: usize, key: &str) -> Vec<String> {
    let log = cluster.log().executed().on(node).commands("SET").key(key);
    log.list().iter().map(|entry| entry.text(2)).collect()
}

#[test]
fn what_was_in_flight_and_is_redirected_runs_before_what_was_relocated() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let [blocker, key] = [0, 5].map(key_for_slot);
    let gate = cluster.node(0).hold("SET", &key);
    let first = send(&client, &format!("SET {key} 1"));
    gate.wait_arrived(1);
    let transaction = half_written(&cluster, &client, 0, &blocker);
    let second = send(&client, &format!("SET {key} 2"));
    await_queued(&cluster, &client, 0, 1);
    cluster.assign(5..=5, 1);
    spread_the_map(&cluster, &client);
    await_stats(&cluster, &client, 0, |stats| stats.relocated == 1);
    let third = send(&client, &format!("SET {key} 3"));
    assert_eq!(seen(&cluster, 1), [""; 0], "the second waits for the first");

    gate.release();
    for pending in [first, second, third] {
        assert_eq!(pending.wait(), Ok(Value::Ok));
    }
    assert_eq!(sets(&cluster, 1, &key), ["1", "2", "3"]);
    assert_eq!(stats(&cluster, &client, 0).moved, 1);
    cluster.node(0).resume_reading();
    transaction.ran();
}

#[test]
fn what_is_never_answered_is_given_up_and_the_rest_moves_on() {
    let cluster = FakeCluster::start(4);
    let builder = builder(&cluster).drain_limit(Duration::from_millis(50));
    let client = builder.connect().unwrap();
    let [blocker, key] = [0, 5].map(key_for_slot);
    let gate = cluster.node(0).hold("SET", &key);
    let first = send(&client, &format!("SET {key} 1"));
    gate.wait_arrived(1);
    let transaction = half_written(&cluster, &client, 0, &blocker);
    let second = send(&client, &format!("SET {key} 2"));
    await_queued(&cluster, &client, 0, 1);
    cluster.assign(5..=5, 1);
    spread_the_map(&cluster, &client);

    let failure = first.wait().unwrap_err();
    assert_eq!(failure.certainty(), Certainty::Unknown);
    assert_eq!(failure.failure().unwrap().reason(), Reason::ConnectionLost);
    assert_eq!(second.wait(), Ok(Value::Ok));
    assert_eq!(sets(&cluster, 1, &key), ["2"]);
    // The node lives on with its other slots.
    cluster.node(0).resume_reading();
    transaction.ran();
    assert_eq!(
        run(&client, &format!("GET {key}")),
        Ok(Value::Bulk("2".into()))
    );
    assert_eq!(cluster.executions(&key), 2, "SET 2 and GET, never SET 1");
}

#[test]
fn a_queue_follows_one_moved_reply() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let [blocker, key] = [0, 5].map(key_for_slot);
    let gate = cluster.node(0).hold("INCR", &key);
    let first = send(&client, &format!("INCR {key}"));
    gate.wait_arrived(1);
    let transaction = half_written(&cluster, &client, 0, &blocker);
    let queued: Vec<_> = (0..100)
        .map(|_| send(&client, &format!("INCR {key}")))
        .collect();
    await_queued(&cluster, &client, 0, 100);
    cluster.assign(5..=5, 1);
    gate.release();

    assert_eq!(first.wait(), Ok(Value::Integer(1)));
    let counted: Vec<_> = queued.into_iter().map(Pending::wait).collect();
    let expected: Vec<_> = (2..=101).map(|n| Ok(Value::Integer(n))).collect();
    assert_eq!(counted, expected);
    let counters = stats(&cluster, &client, 0);
    assert_eq!((counters.moved, counters.relocated), (1, 100));
    cluster.node(0).resume_reading();
    transaction.ran();
}

#[test]
fn hops_over_two_stalled_nodes_end_at_the_third() {
    let cluster = FakeCluster::start(5);
    let client = connect(&cluster);
    let [here, there, key] = [0, 3277, 5].map(key_for_slot);
    let source = half_written(&cluster, &client, 0, &here);
    let middle = half_written(&cluster, &client, 1, &there);
    let first = send(&client, &format!("INCR {key}"));
    let given_up = send(&client, &format!("INCR {key}"));
    let third = send(&client, &format!("INCR {key}"));
    await_queued(&cluster, &client, 0, 3);
    cluster.assign(5..=5, 1);
    spread_the_map(&cluster, &client);
    await_queued(&cluster, &client, 1, 3);
    assert_eq!(given_up.cancel(), reslot::Cancelled::NotSent);
    cluster.assign(5..=5, 2);
    spread_the_map(&cluster, &client);

    assert_eq!(first.wait(), Ok(Value::Integer(1)));
    assert_eq!(third.wait(), Ok(Value::Integer(2)));
    for node in [0, 1] {
        cluster.node(node).resume_reading();
    }
    source.ran();
    middle.ran();
    assert_eq!(
        cluster.log().key(&key).count(),
        2,
        "all of them at the third node"
    );
    assert_eq!(cluster.log().on(2).key(&key).count(), 2);
}

#[test]
fn a_destination_that_is_still_connecting_gets_them_after_its_handshake() {
    let cluster = FakeCluster::builder(5).owners(4).start();
    let client = connect(&cluster);
    let key = key_for_slot(5);
    let hello = cluster.node(4).on("HELLO").hold();
    cluster.assign(5..=5, 4);
    let sent: Vec<_> = (0..3)
        .map(|_| send(&client, &format!("INCR {key}")))
        .collect();
    hello.wait_arrived(1);
    await_queued(&cluster, &client, 4, 3);
    assert_eq!(seen(&cluster, 4), [""; 0]);
    hello.release();
    let counted: Vec<_> = sent.into_iter().map(Pending::wait).collect();
    assert_eq!(counted, [1, 2, 3].map(|n| Ok(Value::Integer(n))));
}

#[test]
fn a_lost_connection_at_the_destination_of_ask_changes_no_order() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let key = key_for_slot(5);
    cluster.begin_move(5, 1);
    cluster.node(1).stop_reading();
    let first = client.send::<Value>(huge_set(&key)).unwrap();
    await_half(&cluster, &client, 1);
    let second = send(&client, &format!("SET {key} 2"));
    await_queued(&cluster, &client, 1, 1);
    cluster.assign(5..=5, 2);
    spread_the_map(&cluster, &client);
    await_stats(&cluster, &client, 1, |stats| stats.relocated == 1);
    cluster.node(1).drop_connections();

    assert_eq!(first.wait(), Ok(Value::Ok));
    assert_eq!(second.wait(), Ok(Value::Ok));
    assert_eq!(
        run(&client, &format!("GET {key}")),
        Ok(Value::Bulk("2".into()))
    );
    let asking = cluster.log().on(2).commands("ASKING").count();
    assert_eq!(asking, 0, "at its owner nothing is asked for");
}
