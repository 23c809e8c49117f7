//! A node that loses all its slots while commands wait for it, with the first of them half written.

use std::time::Duration;

use reslot::{Certainty, Client, Pending, Reason, Value};

use crate::calls::{
    HUGE_LENGTH, LONG, addr, apart, await_half, await_queued, await_stats, builder, count, done,
    half_written, huge_set, kill_and_notice, seen, send, spread_the_map,
};
use crate::fake::{FakeCluster, key_for_slot, keys_in};
use crate::local_cluster::poll_until;

/// Five nodes, of which the first does not answer and is about to leave. What it has on the wire
/// is waited for only briefly.
fn start() -> (FakeCluster, Client) {
    let cluster = FakeCluster::start(5);
    let builder = builder(&cluster).drain_limit(Duration::from_millis(50));
    let client = builder.connect().unwrap();
    (cluster, client)
}

/// Waits until the client has no threads for node 0 any more.
#[track_caller]
fn await_retired(cluster: &FakeCluster, client: &Client) {
    poll_until(LONG, "the end of a node", || {
        let stats = client.stats();
        match stats.nodes.get(&addr(cluster, 0)) {
            None => Ok(()),
            Some(stats) => Err(format!("{stats:?}")),
        }
    });
    // It may find out that nobody is there.
    cluster.node(0).resume_reading();
    cluster.node(0).wait_open(0);
    assert_eq!(
        cluster.log().on(0).commands("EXEC").count(),
        0,
        "no end of anything came"
    );
}

#[test]
fn moves_the_whole_queue_in_order() {
    let (cluster, client) = start();
    let blocker = key_for_slot(3276);
    let keys = keys_in(0..=3275, 10);
    let transaction = half_written(&cluster, &client, 0, &blocker);
    let all: Vec<_> = (0..200)
        .map(|at| send(&client, &format!("INCR {}", keys[at % keys.len()])))
        .collect();
    await_queued(&cluster, &client, 0, 200);
    cluster.assign(0..=3276, 1);
    spread_the_map(&cluster, &client);

    let counted: Vec<_> = all.into_iter().map(Pending::wait).collect();
    let expected: Vec<_> = (0..200).map(|at| Ok(Value::Integer(at / 10 + 1))).collect();
    assert_eq!(counted, expected);
    transaction.ran();
    await_retired(&cluster, &client);
    assert_eq!(cluster.log().on(0).commands("INCR").count(), 0);
    assert_eq!(cluster.log().executed().commands("INCR").count(), 200);
}

#[test]
fn sends_a_half_written_transaction_again_whole_and_in_its_place() {
    let (cluster, client) = start();
    let key = key_for_slot(0);
    let transaction = half_written(&cluster, &client, 0, &key);
    let behind = send(&client, &format!("STRLEN {key}"));
    await_queued(&cluster, &client, 0, 1);
    let second = apart(&client, |client| count(client, &key_for_slot(1)));
    await_queued(&cluster, &client, 0, 5);
    cluster.assign(0..=3276, 1);
    spread_the_map(&cluster, &client);

    transaction.ran();
    assert_eq!(behind.wait(), Ok(HUGE_LENGTH));
    assert_eq!(done(second), Ok((1, "1".to_owned())));
    check_chains(&cluster, 1);
    await_retired(&cluster, &client);
}

/// Each MULTI is followed by two members and EXEC, and no member stands alone.
#[track_caller]
fn check_chains(cluster: &FakeCluster, node: usize) -> usize {
    let names: Vec<String> = seen(cluster, node);
    let mut chains = 0;
    let mut rest = names.as_slice();
    while let [first, tail @ ..] = rest {
        let Some(at) = (first == "MULTI").then_some(3) else {
            assert_ne!(first, "EXEC", "{names:?}");
            rest = tail;
            continue;
        };
        assert_eq!(rest.get(at).map(String::as_str), Some("EXEC"), "{names:?}");
        chains += 1;
        rest = &rest[at + 1..];
    }
    chains
}

#[test]
fn sends_each_transaction_whole_to_the_owner_of_its_slot() {
    let (cluster, client) = start();
    let blocker = key_for_slot(3276);
    let transaction = half_written(&cluster, &client, 0, &blocker);
    let keys = keys_in(0..=3275, 20);
    let calls: Vec<_> = keys
        .iter()
        .map(|key| {
            let key = key.clone();
            apart(&client, move |client| count(client, &key))
        })
        .collect();
    await_queued(&cluster, &client, 0, 80);
    cluster.change(|topology| {
        topology.assign(0..=1637, 1);
        topology.assign(1638..=3276, 2);
    });
    spread_the_map(&cluster, &client);

    for call in calls {
        assert_eq!(done(call), Ok((1, "1".to_owned())));
    }
    transaction.ran();
    assert_eq!(check_chains(&cluster, 1), 10);
    assert_eq!(check_chains(&cluster, 2), 11);
    let moved = client.stats().total(|node| node.moved);
    // Only the call that spreads the map is redirected.
    assert_eq!(moved, 1, "each went to the right node");
}

#[test]
fn ends_what_was_written_whole_as_unknown_and_nothing_else() {
    let (cluster, client) = start();
    let [blocker, key] = [0, 5].map(key_for_slot);
    let gate = cluster.node(0).hold("INCR", &key);
    let sent = apart(&client, {
        let key = key.clone();
        move |client| count(client, &key)
    });
    gate.wait_arrived(0);
    cluster.log().on(0).commands("EXEC").wait_for(1);
    let read = send(&client, &format!("GET {key}"));
    cluster.log().on(0).commands("GET").key(&key).wait_for(2);
    let half = half_written(&cluster, &client, 0, &blocker);
    let queued = send(&client, &format!("INCR {key}"));
    await_queued(&cluster, &client, 0, 1);
    cluster.assign(0..=3276, 1);
    spread_the_map(&cluster, &client);

    let failure = done(sent).unwrap_err();
    assert_eq!(failure.certainty(), Certainty::Unknown);
    assert_eq!(failure.failure().unwrap().reason(), Reason::ConnectionLost);
    // What only reads is asked for again, before what stood behind it.
    assert_eq!(read.wait(), Ok(Value::Null));
    assert_eq!(queued.wait(), Ok(Value::Integer(1)));
    half.ran();
    assert_eq!(cluster.log().executed().commands("INCR").count(), 1);
}

#[test]
fn takes_replies_that_come_in_time() {
    let cluster = FakeCluster::start(5);
    let client = builder(&cluster).connect().unwrap();
    let key = key_for_slot(5);
    let gate = cluster.node(0).on("INCR").key(&key).hold_reply();
    let sent = send(&client, &format!("INCR {key}"));
    gate.wait_arrived(1);
    cluster.assign(0..=3276, 1);
    spread_the_map(&cluster, &client);
    let next = send(&client, &format!("INCR {key}"));
    gate.release();
    assert_eq!(sent.wait(), Ok(Value::Integer(1)));
    assert_eq!(next.wait(), Ok(Value::Integer(2)));
    await_retired(&cluster, &client);
}

#[test]
fn leaves_no_command_behind_that_has_no_destination() {
    let (cluster, client) = start();
    let blocker = key_for_slot(0);
    let half = half_written(&cluster, &client, 0, &blocker);
    let waiting = send(&client, &format!("INCR {}", key_for_slot(5)));
    let short = client
        .send::<Value>(
            crate::calls::words(&format!("INCR {}", key_for_slot(6)))
                .timeout(Duration::from_millis(500)),
        )
        .unwrap();
    let cancelled = send(&client, &format!("INCR {}", key_for_slot(7)));
    // On a slow machine the deadline of one of them passes before the move; that ends it, too.
    await_stats(&cluster, &client, 0, |stats| stats.queued >= 2);
    // All slots but the first ones have an owner.
    cluster.change(|topology| {
        topology.unassign(5..=7);
        topology.assign(0..=4, 1);
        topology.assign(8..=3276, 1);
    });
    spread_the_map(&cluster, &client);
    await_stats(&cluster, &client, 1, |stats| stats.sent > 0);
    half.ran();
    assert_eq!(cancelled.cancel(), reslot::Cancelled::NotSent);
    let failure = short.wait().unwrap_err();
    assert_eq!(failure.certainty(), Certainty::NotSent);
    cluster.assign(5..=7, 2);
    spread_the_map(&cluster, &client);
    assert_eq!(waiting.wait(), Ok(Value::Integer(1)));
    assert_eq!(cluster.log().executed().commands("INCR").count(), 1);
}

#[test]
fn of_a_destination_that_cannot_be_reached_keeps_deadlines_and_cancels() {
    let (cluster, client) = start();
    kill_and_notice(&cluster, &client, 1, &key_for_slot(4000));
    cluster.node(0).stop_reading();
    let half = client.send::<Value>(huge_set(&key_for_slot(0))).unwrap();
    await_half(&cluster, &client, 0);
    let key = key_for_slot(5);
    let served = send(&client, &format!("INCR {key}"));
    let cancelled = send(&client, &format!("INCR {key}"));
    let late = crate::calls::words(&format!("INCR {key}")).timeout(Duration::from_millis(500));
    let late = client.send::<Value>(late).unwrap();
    // On a slow machine the deadline of one of them passes before the move; that ends it, too.
    await_stats(&cluster, &client, 0, |stats| stats.queued >= 2);
    cluster.assign(0..=3276, 1);
    spread_the_map(&cluster, &client);
    await_stats(&cluster, &client, 1, |stats| stats.queued >= 3);
    assert_eq!(cancelled.cancel(), reslot::Cancelled::NotSent);
    let failure = late.wait().unwrap_err();
    assert!(
        failure.is_timeout() && failure.certainty() == Certainty::NotSent,
        "{failure}"
    );
    cluster.node(1).listen();
    assert_eq!(half.wait(), Ok(Value::Ok));
    assert_eq!(served.wait(), Ok(Value::Integer(1)));
    assert_eq!(cluster.log().commands("INCR").count(), 1);
}
