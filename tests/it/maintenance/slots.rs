//! Announced moves of slots: commands follow at once, whatever else is going on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reslot::{Client, RefreshCause, cmd};

use super::announce::{addr, announce, builder, connect, eventually, pass, smigrated, smigrating};
use crate::fake::{FakeCluster, key_for_slot, resp};

fn incr(client: &Client, slot: u16) -> reslot::Result<i64> {
    client.query(cmd("INCR").arg(key_for_slot(slot)))
}

/// Pushes an announcement, and its copy: when that has arrived, the first one has been acted on.
#[track_caller]
fn tell(cluster: &FakeCluster, client: &Client, node: usize, push: &[u8]) {
    announce(cluster, client, node, push);
    announce(cluster, client, node, push);
}

/// Moves one slot, and tells the client by one copy from `from`.
#[track_caller]
fn move_slot(cluster: &FakeCluster, client: &Client, seq: i64, slot: u16, from: usize, to: usize) {
    cluster.assign(slot..=slot, to);
    let push = smigrated(cluster, seq, &[(from, to, &slot.to_string())]);
    tell(cluster, client, from, &push);
}

#[test]
fn the_same_announcement_on_all_connections_acts_once() {
    let cluster = FakeCluster::start(3);
    let client = connect(&cluster);
    cluster.assign(1..=1, 1);
    let push = smigrated(&cluster, 1, &[(0, 1, "1")]);
    let since = cluster.log().end();
    for node in cluster.nodes() {
        node.push(&push);
        node.push(&push);
    }
    eventually("all copies to arrive", || client.stats().announcements == 6);
    cluster
        .log()
        .commands("CLUSTER SLOTS")
        .since(since)
        .wait_for(1);
    assert_eq!(incr(&client, 1).unwrap(), 1);
    pass(Duration::from_millis(400));
    let stats = client.stats();
    assert_eq!(stats.refreshes.get(&RefreshCause::Maintenance), Some(&1));
    assert_eq!(stats.total(|node| node.moved), 0);
    assert_eq!(
        cluster.log().commands("CLUSTER SLOTS").since(since).count(),
        1
    );
}

#[test]
fn the_verification_asks_the_destination_first() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let since = cluster.log().end();
    move_slot(&cluster, &client, 1, 1, 0, 3);
    let asked = cluster
        .log()
        .commands("CLUSTER SLOTS")
        .since(since)
        .wait_for(1);
    assert_eq!(asked[0].node, 3);
}

#[test]
fn queued_commands_go_to_a_destination_that_was_not_known() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    let client = connect(&cluster);
    cluster.node(0).stop_reading();
    std::thread::scope(|scope| {
        let large = scope.spawn(|| client.set(key_for_slot(2), vec![b'x'; 40 << 20]));
        eventually("the first bytes to leave", || {
            client.stats().total(|node| node.bytes_out) > 1 << 16
        });
        let queued: Vec<_> = (0..10)
            .map(|_| {
                client
                    .send::<i64>(cmd("INCR").arg(key_for_slot(1)))
                    .unwrap()
            })
            .collect();
        move_slot(&cluster, &client, 1, 1, 0, 2);
        for (count, pending) in (1..).zip(queued) {
            assert_eq!(pending.wait().unwrap(), count);
        }
        assert_eq!(cluster.log().on(2).commands("INCR").count(), 10);
        assert_eq!(cluster.log().on(0).commands("INCR").count(), 0);
        cluster.node(0).resume_reading();
        large.join().unwrap().unwrap();
    });
}

#[test]
fn a_destination_known_as_replica_takes_over() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    cluster.replicate(2, 0);
    let client = connect(&cluster);
    assert_eq!(incr(&client, 1).unwrap(), 1);
    move_slot(&cluster, &client, 1, 1, 0, 2);
    assert_eq!(incr(&client, 1).unwrap(), 2);
    assert_eq!(cluster.log().on(2).commands("INCR").count(), 1);
    assert_eq!(client.stats().total(|node| node.moved), 0);
}

#[test]
fn a_destination_that_refuses_holds_up_nobody_else() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    let client = connect(&cluster);
    cluster.node(2).stop_listening();
    let maps = cluster.on("CLUSTER SLOTS").hold();
    tell(
        &cluster,
        &client,
        0,
        &smigrated(&cluster, 1, &[(0, 2, "1")]),
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| incr(&client, 1));
        for count in 1..=20 {
            assert_eq!(incr(&client, 2).unwrap(), count);
        }
        pass(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        // The announcement was wrong, and the map says so.
        maps.release();
        assert_eq!(waiting.join().unwrap().unwrap(), 1);
    });
    assert_eq!(cluster.log().on(0).commands("INCR").count(), 21);
}

#[test]
fn nonsense_about_nodes_only_refreshes() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let (first, second) = (addr(&cluster, 0), addr(&cluster, 1));
    let nowhere = "127.0.0.1:1".to_owned();
    let cases = [(&nowhere, &second), (&first, &first), (&nowhere, &nowhere)];
    for (seq, (from, to)) in (1..).zip(cases) {
        let triplet = [resp::simple(from), resp::simple(to), resp::bulk("1")];
        let items = [
            resp::bulk("SMIGRATED"),
            resp::integer(seq),
            resp::array(&[resp::array(&triplet)]),
        ];
        let since = cluster.log().end();
        announce(&cluster, &client, 0, &resp::push(&items));
        cluster
            .log()
            .commands("CLUSTER SLOTS")
            .since(since)
            .wait_for(1);
        assert_eq!(incr(&client, 1).unwrap(), seq);
    }
    let stats = client.stats();
    assert_eq!(stats.nodes.len(), 2);
    assert_eq!(stats.total(|node| node.moved + node.relocated), 0);
}

#[test]
fn an_older_map_on_its_way_does_not_undo_a_move() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let old = cluster.on("CLUSTER SLOTS").times(1).hold_reply();
    announce(&cluster, &client, 0, &smigrated(&cluster, 1, &[]));
    old.wait_arrived(1);
    move_slot(&cluster, &client, 2, 1, 0, 1);
    let since = cluster.log().end();
    old.release();
    for count in 1..=50 {
        assert_eq!(incr(&client, 1).unwrap(), count);
    }
    cluster
        .log()
        .commands("CLUSTER SLOTS")
        .since(since)
        .wait_for(1);
    assert_eq!(incr(&client, 1).unwrap(), 51);
    assert_eq!(client.stats().total(|node| node.moved), 0);
}

#[test]
fn a_late_copy_of_an_older_move_does_not_bring_a_slot_back() {
    let cluster = FakeCluster::start(3);
    let client = connect(&cluster);
    move_slot(&cluster, &client, 1, 1, 0, 1);
    move_slot(&cluster, &client, 2, 1, 1, 2);
    // Not the same bytes, so not known as a copy.
    let late = smigrated(&cluster, 1, &[(0, 1, "1,1")]);
    tell(&cluster, &client, 1, &late);
    assert_eq!(incr(&client, 1).unwrap(), 1);
    assert_eq!(client.stats().total(|node| node.moved), 0);
}

#[test]
fn a_source_that_lost_everything_is_left() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.node(0).wait_open(1);
    let gate = cluster.node(0).hold("GET", key_for_slot(3));
    std::thread::scope(|scope| {
        let written = scope.spawn(|| client.get::<Option<String>>(key_for_slot(3)));
        gate.wait_arrived(1);
        cluster.assign(0..=16383, 1);
        announce(
            &cluster,
            &client,
            0,
            &smigrated(&cluster, 1, &[(0, 1, "0-8191")]),
        );
        // It may be behind the other one, on its way to the old owner.
        let next = scope.spawn(|| incr(&client, 1));
        gate.release();
        written.join().unwrap().unwrap();
        assert_eq!(next.join().unwrap().unwrap(), 1);
    });
    cluster.node(0).wait_open(0);
    let since = cluster.log().end();
    for count in 2..=50 {
        assert_eq!(incr(&client, 1).unwrap(), count);
    }
    assert_eq!(cluster.log().on(0).data().since(since).count(), 0);
    eventually("the node to be forgotten", || {
        client.stats().nodes.len() == 1
    });
}

/// A node comes, slots go round, a node goes, under load.
#[test]
fn no_command_fails_while_nodes_come_and_go() {
    let cluster = FakeCluster::builder(4).owners(2).start();
    let client = connect(&cluster);
    let done = AtomicBool::new(false);
    let steps: [(usize, usize, u16, u16); 8] = [
        (0, 2, 0, 4095),
        (1, 3, 8192, 12287),
        (2, 1, 0, 2047),
        (1, 0, 0, 2047),
        (2, 0, 2048, 4095),
        (3, 2, 8192, 12287),
        (2, 1, 8192, 12287),
        (0, 3, 4096, 8191),
    ];
    let counts: Vec<i64> = std::thread::scope(|scope| {
        let writer = |slots: std::ops::Range<u16>| {
            let (client, done) = (&client, &done);
            scope.spawn(move || {
                let mut rounds = 0;
                while !done.load(Ordering::SeqCst) {
                    rounds += 1;
                    for slot in slots.clone().step_by(512) {
                        assert_eq!(incr(client, slot).unwrap(), rounds);
                    }
                }
                rounds
            })
        };
        let writers = [writer(0..4096), writer(4096..9000), writer(9000..16384)];
        for (seq, &(from, to, first, last)) in (1..).zip(&steps) {
            let slots = format!("{first}-{last}");
            for node in cluster.nodes() {
                node.push(&smigrating(seq, &slots));
            }
            pass(Duration::from_millis(30));
            cluster.assign(first..=last, to);
            let push = smigrated(&cluster, seq, &[(from, to, &slots)]);
            cluster.nodes().iter().for_each(|node| node.push(&push));
            pass(Duration::from_millis(70));
        }
        done.store(true, Ordering::SeqCst);
        writers.map(|writer| writer.join().unwrap()).to_vec()
    });
    assert!(counts.iter().all(|&rounds| rounds > 0));
    // Primaries in the end: 0, 1 and 3.
    eventually("the emptied node to end", || {
        client.stats().nodes.len() == 3
    });
    assert!(
        !client
            .stats()
            .nodes
            .keys()
            .any(|node| node.port() == cluster.node(2).port())
    );
}

#[test]
fn a_client_without_redirects_needs_none() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).max_redirects(0).connect().unwrap();
    for (seq, slot) in (1..).zip(1..20) {
        move_slot(&cluster, &client, seq, slot, 0, 1);
        assert_eq!(incr(&client, slot).unwrap(), 1);
    }
}
