//! Queued commands follow their slot: all of them, in order, once, and still cancellable.

use std::time::Duration;

use reslot::{Cancelled, Certainty, Client, NodeAddr, Pending, Reason, Value, cmd};

use crate::fake::{FakeCluster, Script, key_for_slot, slot_of};
use crate::run::{builder, run, send};

/// More than the kernel's buffers of a loopback connection hold.
const LARGE: usize = 16 << 20;

/// Long enough for any machine; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(20);

/// How long silent nodes are waited for.
const DRAIN: Duration = Duration::from_millis(200);

/// Three owners and two nodes more. The client waits long for replies and shortly for drains.
fn five_nodes() -> (FakeCluster, Client) {
    let cluster = FakeCluster::builder(5).owners(3).start();
    let settings = builder(&cluster).response_timeout(LONG).drain_limit(DRAIN);
    let client = settings.connect().unwrap();
    (cluster, client)
}

/// The name of a node in the client's statistics.
fn addr(cluster: &FakeCluster, node: usize) -> NodeAddr {
    let port = cluster.node(node).port();
    NodeAddr::new("127.0.0.1", port)
}

/// How many commands the client has queued for a node.
fn queued(cluster: &FakeCluster, client: &Client, node: usize) -> usize {
    client.stats().nodes[&addr(cluster, node)].queued
}

/// Waits until the client's books say so.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    crate::local_cluster::poll_until(LONG, what, || {
        if holds() {
            Ok(())
        } else {
            Err("not yet".into())
        }
    });
}

/// Keeps a node's queue from moving: the node stops reading while a large command is written.
fn stall(cluster: &FakeCluster, client: &Client, node: usize, key: &str) -> Pending<Value> {
    cluster.node(node).stop_reading();
    let large = client
        .send(cmd("SET").arg(key).arg(vec![b'x'; LARGE]))
        .unwrap();
    until("a half-written command", || {
        let stats = client.stats();
        let stats = &stats.nodes[&addr(cluster, node)];
        stats.in_flight == 1 && stats.queued == 0
    });
    large
}

/// Lets the client look at the map: a slot of node 2 has moved to node 4.
fn tell_of_the_new_map(cluster: &FakeCluster, client: &Client) {
    cluster.assign(16000..=16000, 4);
    run(client, &format!("GET {}", key_for_slot(16000))).unwrap();
}

#[test]
fn everything_queued_for_a_node_that_lost_its_slots_runs_in_order_at_the_new_owner() {
    let (cluster, client) = five_nodes();
    let large = stall(&cluster, &client, 0, "{bar}large");
    let lines = (0..200).map(|n| format!("APPEND {{{}}} {n},", ["bar", "b"][n % 2]));
    let behind: Vec<_> = lines.map(|line| send(&client, &line)).collect();
    until("the queue", || queued(&cluster, &client, 0) == 200);
    cluster.assign(0..=5461, 1);
    tell_of_the_new_map(&cluster, &client);
    large.wait().unwrap();
    behind
        .into_iter()
        .for_each(|pending| drop(pending.wait().unwrap()));
    for (key, first) in [("{bar}", 0), ("{b}", 1)] {
        let wanted: String = (first..200).step_by(2).map(|n| format!("{n},")).collect();
        assert_eq!(client.get::<String>(key).unwrap().unwrap(), wanted);
    }
    let appends = cluster.log().executed().commands("APPEND").list();
    assert_eq!(appends.len(), 200);
    assert!(appends.iter().all(|entry| entry.node == 1), "{appends:?}");
    cluster.node(0).resume_reading();
    cluster.node(0).wait_open(0);
}

#[test]
fn commands_cancelled_after_they_moved_are_never_sent() {
    let (cluster, client) = five_nodes();
    let at_old = stall(&cluster, &client, 0, "{b}large");
    let at_new = stall(
        &cluster,
        &client,
        1,
        &format!("{{{}}}large", key_for_slot(6000)),
    );
    let moved: Vec<_> = (0..100)
        .map(|n| send(&client, &format!("INCR {{bar}}{n}")))
        .collect();
    until("the queue", || queued(&cluster, &client, 0) == 100);
    cluster.assign(0..=5461, 1);
    tell_of_the_new_map(&cluster, &client);
    until("the move", || queued(&cluster, &client, 1) == 101);
    let mut kept = Vec::new();
    for (n, pending) in moved.into_iter().enumerate() {
        if n % 2 == 0 {
            assert_eq!(pending.cancel(), Cancelled::NotSent, "{n}");
        } else {
            kept.push(pending);
        }
    }
    cluster.node(1).resume_reading();
    for pending in kept {
        assert_eq!(pending.wait().unwrap(), Value::Integer(1));
    }
    at_old.wait().unwrap();
    at_new.wait().unwrap();
    let arrived = cluster.log().commands("INCR").list();
    let odd = |key: String| key.ends_with(['1', '3', '5', '7', '9']);
    assert_eq!(arrived.len(), 50);
    assert!(
        arrived.iter().all(|entry| odd(entry.text(1))),
        "{arrived:?}"
    );
}

#[test]
fn cancelled_commands_and_those_without_an_owner_end_when_a_queue_moves() {
    let (cluster, client) = five_nodes();
    let _large = stall(&cluster, &client, 0, "{bar}large");
    let cancelled: Vec<_> = (0..10)
        .map(|n| send(&client, &format!("INCR {{bar}}{n}")))
        .collect();
    let limit = Duration::from_secs(2);
    let homeless = |n| {
        let command = cmd("INCR").arg(format!("{{b}}{n}")).timeout(limit);
        client.send::<Value>(command).unwrap()
    };
    let homeless: Vec<_> = (0..10).map(homeless).collect();
    let kept: Vec<_> = (10..20)
        .map(|n| send(&client, &format!("INCR {{bar}}{n}")))
        .collect();
    until("the queue", || queued(&cluster, &client, 0) == 30);
    for pending in cancelled {
        assert_eq!(pending.cancel(), Cancelled::NotSent);
    }
    cluster.assign(0..=5461, 1);
    cluster.change(|topology| topology.unassign(3300..=3300));
    tell_of_the_new_map(&cluster, &client);
    for pending in kept {
        assert_eq!(pending.wait().unwrap(), Value::Integer(1));
    }
    for pending in homeless {
        let error = pending.wait().unwrap_err();
        let reason = error.failure().unwrap().reason();
        assert_ne!(error.certainty(), Certainty::Unknown, "{error}");
        assert!(
            [Reason::SlotUncovered, Reason::Timeout].contains(&reason),
            "{error}"
        );
    }
    let executed = cluster.log().executed().commands("INCR").list();
    assert_eq!(executed.len(), 10);
    assert!(executed.iter().all(|entry| slot_of(&entry.argv[1]) == 5061));
}

#[test]
fn nobody_hears_of_a_closed_client_when_a_node_is_dropped_from_the_map() {
    let (cluster, client) = five_nodes();
    let _large = stall(&cluster, &client, 0, "{bar}large");
    let queued_up: Vec<_> = (0..100)
        .map(|n| send(&client, &format!("INCR {{bar}}{n}")))
        .collect();
    until("the queue", || queued(&cluster, &client, 0) == 100);
    cluster.assign(0..=5461, 1);
    cluster.node(0).kill();
    for pending in queued_up {
        assert_eq!(pending.wait().unwrap(), Value::Integer(1));
    }
    assert_eq!(cluster.log().executed().commands("INCR").on(1).count(), 100);
}

#[test]
fn one_moved_reply_takes_along_what_is_queued_for_its_slot() {
    let (cluster, client) = five_nodes();
    let gate = cluster.gate();
    let port = cluster.node(1).port();
    let moved = format!("MOVED 5061 127.0.0.1:{port}");
    let stall = Script::new()
        .stop_reading()
        .hold(&gate)
        .error(&moved)
        .send();
    cluster.node(0).on("APPEND").times(1).script(stall);
    let first = send(&client, "APPEND bar 0,");
    gate.wait_arrived(1);
    let large = cmd("SET").arg("b").arg(vec![b'x'; LARGE]);
    let large = client.send::<Value>(large).unwrap();
    until("a half-written command", || {
        client.stats().nodes[&addr(&cluster, 0)].in_flight == 2
    });
    let behind: Vec<_> = (1..=100)
        .map(|n| send(&client, &format!("APPEND bar {n},")))
        .collect();
    until("the queue", || queued(&cluster, &client, 0) == 100);
    cluster.assign(5061..=5061, 1);
    gate.release();
    first.wait().unwrap();
    behind
        .into_iter()
        .for_each(|pending| drop(pending.wait().unwrap()));
    let wanted: String = (0..=100).map(|n| format!("{n},")).collect();
    assert_eq!(client.get::<String>("bar").unwrap().unwrap(), wanted);
    assert_eq!(client.stats().total(|node| node.moved), 1);
    assert_eq!(cluster.log().on(0).commands("APPEND").count(), 1);
    cluster.node(0).resume_reading();
    large.wait().unwrap();
}

#[test]
fn a_command_that_moves_twice_while_it_waits_runs_once_at_the_last_owner() {
    let cluster = FakeCluster::builder(5).owners(3).start();
    let settings = builder(&cluster).connect_timeout(DRAIN);
    let client = settings.response_timeout(LONG).connect().unwrap();
    let late = cluster.node(3).on("HELLO").hold();
    cluster.assign(5061..=5061, 3);
    let hopping = send(&client, "INCR bar");
    late.wait_arrived(1);
    cluster.assign(5061..=5061, 4);
    tell_of_the_new_map(&cluster, &client);
    assert_eq!(hopping.wait().unwrap(), Value::Integer(1));
    late.release();
    assert_eq!(cluster.log().executed().commands("INCR").on(4).count(), 1);
    assert_eq!(cluster.log().on(3).commands("INCR").count(), 0);
}

#[test]
fn commands_of_one_thread_keep_their_order_while_their_slot_moves_to_and_fro() {
    const THREADS: usize = 4;
    const BURST: usize = 20;
    const MOVES: usize = 40;
    let (cluster, client) = five_nodes();
    let moving = std::sync::atomic::AtomicBool::new(true);
    let burst = |thread: usize, from: usize| {
        let line = |n: usize| format!("APPEND {{bar}}{thread} {n},");
        let pending: Vec<_> = (from..from + BURST)
            .map(|n| send(&client, &line(n)))
            .collect();
        pending
            .into_iter()
            .for_each(|pending| drop(pending.wait().unwrap()));
    };
    std::thread::scope(|scope| {
        let writers = (0..THREADS).map(|thread| {
            let (moving, burst) = (&moving, &burst);
            scope.spawn(move || {
                let mut next = 0;
                while moving.load(std::sync::atomic::Ordering::Relaxed) {
                    burst(thread, next);
                    next += BURST;
                }
                next
            })
        });
        let writers: Vec<_> = writers.collect();
        for step in 1..=MOVES {
            let target = step % 4;
            let before = cluster.log().end();
            cluster.assign(5061..=5061, target);
            // As many as can be under way: a slot that moves on sooner sends the last of them round
            // until their redirects are used up, which is right.
            let log = cluster.log().on(target).executed().since(before);
            log.wait_for(THREADS * BURST);
        }
        moving.store(false, std::sync::atomic::Ordering::Relaxed);
        for (thread, writer) in writers.into_iter().enumerate() {
            let count = writer.join().unwrap();
            let wanted: String = (0..count).map(|n| format!("{n},")).collect();
            let value: String = client.get(format!("{{bar}}{thread}")).unwrap().unwrap();
            assert_eq!(value, wanted, "thread {thread}");
        }
    });
    assert!(client.stats().total(|node| node.moved) > 0);
}

#[test]
fn two_hundred_threads_that_meet_moved_at_once_ask_for_one_map() {
    const THREADS: usize = 200;
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
    let held = cluster.node(0).on("INCR").hold();
    let before = cluster.log().end();
    std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|_| scope.spawn(|| run(&client, "INCR bar").unwrap()));
        let threads: Vec<_> = threads.collect();
        cluster.log().on(0).commands("INCR").wait_for(THREADS);
        cluster.assign(5061..=5061, 1);
        held.release();
        threads
            .into_iter()
            .for_each(|thread| drop(thread.join().unwrap()));
    });
    assert_eq!(run(&client, "GET bar").unwrap(), Value::Bulk(b"200".into()));
    assert_eq!(client.stats().total(|node| node.moved), THREADS as u64);
    let queries = cluster.log().commands("CLUSTER SLOTS").since(before);
    queries.wait_for(1);
    // A storm would go on at the least interval of 100 ms.
    assert!(
        queries.wait_within(3, Duration::from_millis(500)).is_none(),
        "{queries:?}"
    );
}
