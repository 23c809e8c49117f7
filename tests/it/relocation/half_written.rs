//! A transaction of which the server has read a part: nothing gets inside it, nothing passes it.

use reslot::{Client, Value};

use crate::calls::{
    HUGE_LENGTH, apart, await_half, await_queued, await_stats, brief, connect, count, done,
    half_written, huge_set, seen, send, spread_the_map, stats,
};
use crate::fake::{FakeCluster, key_for_slot};

/// Nodes 0 to 3 with the slots from 0, 4096, 8192 and 12288 on. Tests disturb the first two.
fn start() -> (FakeCluster, Client) {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    (cluster, client)
}

#[test]
fn at_the_destination_takes_in_no_relocated_command() {
    let (cluster, client) = start();
    let [here, there, moving] = [0, 4096, 5].map(key_for_slot);
    let source = half_written(&cluster, &client, 0, &here);
    let destination = half_written(&cluster, &client, 1, &there);
    let relocated = send(&client, &format!("INCR {moving}"));
    await_queued(&cluster, &client, 0, 1);
    cluster.assign(5..=5, 1);
    spread_the_map(&cluster, &client);
    await_queued(&cluster, &client, 1, 1);
    assert_eq!(stats(&cluster, &client, 0).relocated, 1);

    cluster.node(1).resume_reading();
    destination.ran();
    assert_eq!(relocated.wait(), Ok(Value::Integer(1)));
    let incr = format!("INCR {moving}");
    let chain = [
        "MULTI".to_owned(),
        format!("SET {there}"),
        format!("STRLEN {there}"),
    ];
    let expected = [&chain[..], &["EXEC".to_owned(), incr]].concat();
    assert_eq!(
        seen(&cluster, 1),
        expected,
        "the transaction is whole, then comes the INCR"
    );
    cluster.node(0).resume_reading();
    source.ran();
    assert_eq!(cluster.executions(&moving), 1);
}

#[test]
fn in_front_of_an_asked_command_leaves_no_lone_asking_behind() {
    let (cluster, client) = start();
    let (blocker, moving) = (key_for_slot(4096), key_for_slot(5));
    let transaction = half_written(&cluster, &client, 1, &blocker);
    cluster.begin_move(5, 1);
    let asked = send(&client, &format!("INCR {moving}"));
    await_queued(&cluster, &client, 1, 1);
    cluster.assign(5..=5, 2);
    spread_the_map(&cluster, &client);

    assert_eq!(asked.wait(), Ok(Value::Integer(1)));
    cluster.node(1).resume_reading();
    transaction.ran();
    assert_eq!(
        run_get(&client, &blocker),
        HUGE_LENGTH,
        "the node goes on as usual"
    );
    assert_eq!(cluster.log().commands("ASKING").count(), 0);
    assert_eq!(cluster.log().on(1).key(&moving).count(), 0);
    assert_eq!(cluster.executions(&moving), 1);
}

fn run_get(client: &Client, key: &str) -> Value {
    crate::calls::run(client, &format!("STRLEN {key}")).unwrap()
}

#[test]
fn does_not_keep_a_queued_transaction_behind_it_from_moving_whole() {
    let (cluster, client) = start();
    let (blocker, moving) = (key_for_slot(0), key_for_slot(5));
    let first = half_written(&cluster, &client, 0, &blocker);
    let key = moving.clone();
    let second = apart(&client, move |client| count(client, &key));
    await_queued(&cluster, &client, 0, 4);
    cluster.assign(5..=5, 1);
    spread_the_map(&cluster, &client);

    // The source still does not read.
    assert_eq!(done(second), Ok((1, "1".to_owned())));
    let chain = [
        "MULTI",
        &format!("INCR {moving}"),
        &format!("GET {moving}"),
        "EXEC",
    ];
    assert_eq!(seen(&cluster, 1), chain);
    cluster.node(0).resume_reading();
    first.ran();
    assert_eq!(cluster.log().on(0).key(&moving).count(), 0);
}

#[test]
fn is_not_overtaken_by_a_command_of_its_slot_that_moves() {
    let (cluster, client) = start();
    let key = key_for_slot(0);
    let transaction = half_written(&cluster, &client, 0, &key);
    let behind = send(&client, &format!("STRLEN {key}"));
    await_queued(&cluster, &client, 0, 1);
    cluster.assign(0..=0, 1);
    spread_the_map(&cluster, &client);
    await_stats(&cluster, &client, 0, |stats| stats.relocated == 1);

    cluster.node(0).resume_reading();
    transaction.ran();
    assert_eq!(
        behind.wait(),
        Ok(HUGE_LENGTH),
        "it sees what the transaction has done"
    );
    let (set, strlen) = (format!("SET {key}"), format!("STRLEN {key}"));
    let chain = ["MULTI", &set, &strlen, "EXEC"];
    assert_eq!(
        seen(&cluster, 0),
        chain,
        "the end was written where the beginning was"
    );
    assert_eq!(seen(&cluster, 1), [&chain[..], &[&strlen]].concat());
}

#[test]
fn of_a_dying_connection_is_sent_again_whole() {
    let (cluster, client) = start();
    let key = key_for_slot(0);
    let transaction = half_written(&cluster, &client, 0, &key);
    let behind = send(&client, &format!("STRLEN {key}"));
    await_queued(&cluster, &client, 0, 1);
    cluster.node(0).drop_connections();
    cluster.node(0).resume_reading();

    transaction.ran();
    assert_eq!(behind.wait(), Ok(HUGE_LENGTH));
    check_last_connection(&cluster, &key);
    assert_eq!(
        cluster.log().executed().commands("SET").key(&key).count(),
        1
    );
}

/// What came over the connection of node 0 that was opened last is the transaction, then STRLEN.
#[track_caller]
fn check_last_connection(cluster: &FakeCluster, key: &str) {
    let entries = cluster.log().on(0).data().list();
    let last = entries.iter().map(|entry| entry.connection).max();
    let own = entries
        .iter()
        .filter(|entry| Some(entry.connection) == last);
    let (set, strlen) = (format!("SET {key}"), format!("STRLEN {key}"));
    let expected = ["MULTI", &set, &strlen, "EXEC", &strlen];
    assert_eq!(own.map(brief).collect::<Vec<_>>(), expected);
}

#[test]
fn command_of_a_lost_connection_is_not_overtaken_by_those_that_moved_before() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let key = key_for_slot(0);
    cluster.node(0).stop_reading();
    let first = client.send::<Value>(huge_set(&key)).unwrap();
    await_half(&cluster, &client, 0);
    let behind = send(&client, &format!("STRLEN {key}"));
    await_queued(&cluster, &client, 0, 1);
    cluster.assign(0..=0, 1);
    spread_the_map(&cluster, &client);
    // The second command has left the node, the first one comes to light by the end of the
    // connection only.
    await_stats(&cluster, &client, 0, |stats| stats.relocated == 1);
    cluster.node(0).drop_connections();

    assert_eq!(first.wait(), Ok(Value::Ok));
    assert_eq!(behind.wait(), Ok(HUGE_LENGTH));
    assert_eq!(
        seen(&cluster, 1),
        [format!("SET {key}"), format!("STRLEN {key}")]
    );
}
