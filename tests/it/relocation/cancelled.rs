//! Cancels and deadlines of commands that change queues: they end once and are never written.

use reslot::{Cancelled, Client, Pending, Value};

use crate::calls::{
    addr, await_queued, await_stats, connect, half_written, send, spread_the_map, stats,
};
use crate::fake::{FakeCluster, key_for_slot};
use crate::local_cluster::poll_until;

#[test]
fn between_two_queues() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let [blocker, key] = [0, 5].map(key_for_slot);
    let gate = cluster.node(0).hold("INCR", &key);
    let first = send(&client, &format!("INCR {key}"));
    gate.wait_arrived(1);
    let transaction = half_written(&cluster, &client, 0, &blocker);
    let second = send(&client, &format!("INCR {key}"));
    let third = send(&client, &format!("INCR {key}"));
    await_queued(&cluster, &client, 0, 2);
    cluster.assign(5..=5, 1);
    spread_the_map(&cluster, &client);
    await_stats(&cluster, &client, 0, |stats| stats.relocated == 2);
    // They wait for the first one, in no queue.
    poll_until(crate::calls::LONG, "parked commands", || {
        match client.stats().parked_now {
            2 => Ok(()),
            other => Err(format!("{other} are parked")),
        }
    });
    assert_eq!(second.cancel(), Cancelled::NotSent);

    gate.release();
    assert_eq!(first.wait(), Ok(Value::Integer(1)));
    assert_eq!(third.wait(), Ok(Value::Integer(2)));
    assert_eq!(cluster.log().on(1).key(&key).count(), 2);
    assert_eq!(cluster.log().on(0).key(&key).count(), 1);
    cluster.node(0).resume_reading();
    transaction.ran();
}

/// So many `INCR key` in the queue of node 1, which does not read, after a move from node 0.
fn relocated(
    cluster: &FakeCluster,
    client: &Client,
    count: usize,
) -> (Vec<Pending<Value>>, [crate::calls::Half; 2]) {
    let [here, there, key] = [0, 4096, 5].map(key_for_slot);
    let source = half_written(cluster, client, 0, &here);
    let destination = half_written(cluster, client, 1, &there);
    let all = (0..count)
        .map(|_| send(client, &format!("INCR {key}")))
        .collect();
    await_queued(cluster, client, 0, count);
    cluster.assign(5..=5, 1);
    spread_the_map(cluster, client);
    await_queued(cluster, client, 1, count);
    (all, [source, destination])
}

fn resume(cluster: &FakeCluster, halves: [crate::calls::Half; 2]) {
    for (node, half) in halves.into_iter().enumerate() {
        cluster.node(node).resume_reading();
        half.ran();
    }
}

#[test]
fn in_the_new_queue_in_any_order() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let (mut all, halves) = relocated(&cluster, &client, 3);
    for (at, left) in [(1, 2), (1, 1), (0, 0)] {
        assert_eq!(all.remove(at).cancel(), Cancelled::NotSent);
        await_queued(&cluster, &client, 1, left);
    }
    resume(&cluster, halves);
    assert_eq!(cluster.log().commands("INCR").count(), 0);
}

#[test]
fn half_of_the_new_queue() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let (all, halves) = relocated(&cluster, &client, 200);
    let mut kept = Vec::new();
    for (at, pending) in all.into_iter().enumerate() {
        if at % 2 == 0 {
            assert_eq!(pending.cancel(), Cancelled::NotSent);
        } else {
            kept.push(pending);
        }
    }
    await_queued(&cluster, &client, 1, 100);
    resume(&cluster, halves);
    let counted: Vec<_> = kept.into_iter().map(Pending::wait).collect();
    let expected: Vec<_> = (1..=100).map(|n| Ok(Value::Integer(n))).collect();
    assert_eq!(counted, expected);
    assert_eq!(cluster.log().commands("INCR").count(), 100);
}

#[test]
fn before_the_move() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let [blocker, key] = [0, 5].map(key_for_slot);
    let transaction = half_written(&cluster, &client, 0, &blocker);
    let mut all: Vec<_> = (0..20)
        .map(|_| send(&client, &format!("INCR {key}")))
        .collect();
    await_queued(&cluster, &client, 0, 20);
    let kept = all.split_off(10);
    for pending in all {
        assert_eq!(pending.cancel(), Cancelled::NotSent);
    }
    cluster.assign(5..=5, 1);
    spread_the_map(&cluster, &client);
    for (pending, number) in kept.into_iter().zip(1..) {
        assert_eq!(pending.wait(), Ok(Value::Integer(number)));
    }
    assert_eq!(stats(&cluster, &client, 0).relocated, 10);
    cluster.node(0).resume_reading();
    transaction.ran();
    assert_eq!(cluster.log().commands("INCR").count(), 10);
    assert!(client.stats().nodes.contains_key(&addr(&cluster, 0)));
}

#[test]
fn by_a_deadline_in_the_new_queue() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let (all, halves) = relocated(&cluster, &client, 2);
    let [first, second] = all.try_into().unwrap();
    let first = first.wait_timeout(std::time::Duration::ZERO).unwrap_err();
    assert_eq!(
        first.cancel(),
        Cancelled::NotSent,
        "looking does not end it"
    );
    resume(&cluster, halves);
    assert_eq!(second.wait(), Ok(Value::Integer(1)));
    assert_eq!(cluster.log().commands("INCR").count(), 1);
}
