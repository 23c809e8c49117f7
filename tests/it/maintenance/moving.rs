//! A connection that is to be left: the next one is made first, and nothing on it is cut.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reslot::{Client, Reason, RefreshCause, cmd};

use super::announce::{announce, builder, eventually, moving, pass, timed};
use crate::fake::{FakeCluster, key_for_slot};

/// One node with two addresses.
fn one_node() -> (FakeCluster, Client) {
    let cluster = FakeCluster::builder(1).ipv6().start();
    let client = builder(&cluster)
        .response_timeout(Duration::from_secs(10))
        .connect()
        .unwrap();
    cluster.node(0).wait_open(1);
    (cluster, client)
}

fn other_address(cluster: &FakeCluster) -> String {
    format!("::1:{}", cluster.node(0).port())
}

fn incr(client: &Client) -> reslot::Result<i64> {
    client.query(cmd("INCR").arg(key_for_slot(1)))
}

#[test]
fn what_is_on_the_wire_is_answered_and_the_rest_goes_on_the_next_connection() {
    let (cluster, client) = one_node();
    let old = cluster.node(0).connections()[0];
    let gate = cluster.node(0).hold("GET", key_for_slot(2));
    std::thread::scope(|scope| {
        let written = scope.spawn(|| client.get::<Option<String>>(key_for_slot(2)));
        gate.wait_arrived(1);
        let to = other_address(&cluster);
        announce(&cluster, &client, 0, &moving(1, 30, Some(&to)));
        // The next connection is there before the old one is left.
        cluster.node(0).wait_open(2);
        pass(Duration::from_millis(50));
        let later = client
            .send::<i64>(cmd("INCR").arg(key_for_slot(1)))
            .unwrap();
        gate.release();
        assert_eq!(written.join().unwrap().unwrap(), None);
        assert_eq!(later.wait().unwrap(), 1);
    });
    cluster.node(0).wait_open(1);
    assert_ne!(cluster.node(0).connections()[0], old);
    let ran = cluster.log().commands("INCR").list();
    assert_ne!(ran[0].connection, old);
    // One for the map, the old one, the next one: nothing else was tried.
    assert_eq!(cluster.node(0).opened(), 3);
    let stats = client.stats();
    assert_eq!(stats.total(|node| node.unknown), 0);
    assert_eq!(stats.refreshes.get(&RefreshCause::ConnectionLost), None);
}

#[test]
fn without_a_new_endpoint_the_name_is_tried_after_half_the_time() {
    let (cluster, client) = one_node();
    announce(&cluster, &client, 0, &moving(1, 2, None));
    let ((), time) = timed(|| cluster.node(0).wait_open(2));
    assert!(time > Duration::from_millis(800), "{time:?}");
    cluster.node(0).wait_open(1);
    assert_eq!(incr(&client).unwrap(), 1);
}

#[test]
fn copies_and_repetitions_under_load_lose_nothing() {
    let (cluster, client) = one_node();
    let done = AtomicBool::new(false);
    let total: i64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while !done.load(Ordering::SeqCst) {
                        incr(&client).unwrap();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for seq in 1..=5 {
            let connects = client.stats().total(|node| node.connects);
            let to = other_address(&cluster);
            let push = match seq % 2 {
                1 => moving(seq, 5, Some(&to)),
                _ => moving(seq, 0, None),
            };
            cluster.node(0).push(&push.repeat(3));
            eventually("the next connection", || {
                client.stats().total(|node| node.connects) > connects
            });
            assert_eq!(incr(&client).map(|_| ()), Ok(()));
        }
        done.store(true, Ordering::SeqCst);
        let counts = writers.into_iter().map(|writer| writer.join().unwrap());
        counts.sum::<i64>() + 5
    });
    assert_eq!(incr(&client).unwrap(), total + 1);
    assert_eq!(client.stats().total(|node| node.unknown), 0);
}

#[test]
fn an_endpoint_that_cannot_be_reached_changes_nothing_before_the_server_closes() {
    let (cluster, client) = one_node();
    announce(&cluster, &client, 0, &moving(1, 1, Some("127.0.0.1:1")));
    for count in 1..=100 {
        assert_eq!(incr(&client).unwrap(), count);
    }
    assert_eq!(cluster.node(0).opened(), 2, "one of them asked for the map");
    cluster.node(0).drop_connections();
    eventually("the next connection", || {
        client.stats().total(|node| node.connects) == 2
    });
    assert_eq!(incr(&client).unwrap(), 101);
}

#[test]
fn the_end_of_the_client_does_not_wait_for_a_move() {
    let (cluster, client) = one_node();
    announce(&cluster, &client, 0, &moving(1, 600, None));
    let (result, time) = timed(|| client.close(Duration::from_secs(5)));
    result.unwrap();
    assert!(time < Duration::from_secs(2), "{time:?}");
    cluster.node(0).wait_open(0);
}

#[test]
fn callers_have_longer_until_the_connection_is_replaced() {
    let cluster = FakeCluster::builder(1).ipv6().start();
    let client = builder(&cluster)
        .response_timeout(Duration::from_millis(200))
        .relaxed_timeout(Duration::from_millis(900))
        .retry_reads(false)
        .connect()
        .unwrap();
    let key = key_for_slot(1);
    let silent = cluster.node(0).on("GET").ignore();
    announce(&cluster, &client, 0, &moving(1, 4, None));
    let (result, time) = timed(|| client.get::<Option<String>>(&key));
    let error = result.unwrap_err();
    assert_eq!(
        error.failure().unwrap().reason(),
        Reason::MaintenanceTimeout
    );
    assert!(time >= Duration::from_millis(900), "{time:?}");
    silent.remove();
    eventually("the next connection", || {
        client.stats().total(|node| node.connects) == 2
    });
    cluster.node(0).on("GET").ignore();
    let (result, time) = timed(|| client.get::<Option<String>>(&key));
    let error = result.unwrap_err();
    assert_eq!(error.failure().unwrap().reason(), Reason::Timeout);
    assert!(time < Duration::from_millis(800), "{time:?}");
}
