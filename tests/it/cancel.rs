//! Cancelling: `NotSent` is a proof, and neither half of a race hurts anybody else.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use reslot::{Cancelled, Client, Pending, Value, cmd};

use crate::fake::{FakeCluster, key_for_slot, keys_in};
use crate::run::{builder, connect, run, send};

/// Long enough for any machine; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_cancelled_token_keeps_a_command_for_all_nodes_from_every_node() {
    let cluster = FakeCluster::start(3);
    let client = connect(&cluster);
    let token = reslot::CancelToken::new();
    token.cancel();
    let flush = reslot::cmd("FLUSHALL").cancel_token(&token);
    let error = client.query::<reslot::Value>(flush).unwrap_err();
    assert!(matches!(error, reslot::Error::Cancelled(_)), "{error}");
    assert_eq!(error.certainty(), reslot::Certainty::NotSent);
    run(&client, "GET bar").unwrap();
    assert_eq!(cluster.log().commands("FLUSHALL").count(), 0);
}

#[test]
fn what_was_cancelled_unsent_never_reaches_a_server() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 125;
    const BURST: usize = 20;
    let begun = Instant::now();
    // The race is run until both sides have won it.
    let (lost, won) = (AtomicBool::new(false), AtomicBool::new(false));
    let is_open = || !(lost.load(SeqCst) && won.load(SeqCst)) && begun.elapsed() < LONG;
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
    let keys = keys_in(0..=16383, 8);
    let race = |thread: usize| {
        let (mut not_sent, mut all) = (Vec::new(), 0);
        for round in (0..).take_while(|&round| round < ROUNDS || is_open()) {
            let burst = (0..BURST).map(|n| {
                let id = format!("{thread}-{round}-{n}");
                let command = cmd("SET").arg(&keys[n % keys.len()]).arg(&id);
                (id, client.send::<Value>(command).unwrap())
            });
            let mut burst: Vec<(String, Pending<Value>)> = burst.collect();
            if round % 2 == 0 {
                burst.reverse();
            }
            for (id, pending) in burst {
                all += 1;
                if pending.cancel() == Cancelled::NotSent {
                    not_sent.push(id);
                    won.store(true, SeqCst);
                } else {
                    lost.store(true, SeqCst);
                }
            }
        }
        (not_sent, all)
    };
    let (not_sent, all) = std::thread::scope(|scope| {
        let race = &race;
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || race(n))).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.fold((HashSet::new(), 0), |(mut ids, all), (more, count)| {
            ids.extend(more);
            (ids, all + count)
        })
    });
    assert!(all >= 10_000);
    assert!(!not_sent.is_empty(), "no cancel was faster than the write");
    assert!(not_sent.len() < all, "no write was faster than the cancel");
    // Replies to these come behind everything that was written before.
    run(&client, "GET bar").unwrap();
    run(&client, "GET foo").unwrap();
    let mut seen = HashSet::new();
    for entry in cluster.log().commands("SET").list() {
        let id = entry.text(2);
        assert!(!not_sent.contains(&id), "{id} was to be unsent");
        assert!(seen.insert(id), "sent twice: {entry:?}");
    }
    assert!(seen.len() + not_sent.len() <= all);
}

#[test]
fn a_cancel_after_the_write_is_unknown_and_the_reply_is_swallowed() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let held = cluster.node(0).hold("INCR", "bar");
    let pending = send(&client, "INCR bar");
    held.wait_arrived(1);
    assert_eq!(pending.cancel(), Cancelled::Unknown);
    let next = send(&client, "INCR foo");
    held.release();
    assert_eq!(next.wait().unwrap(), Value::Integer(1));
    assert_eq!(cluster.executions("bar"), 1);
}

#[test]
fn a_cancel_after_the_end_changes_nothing() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let pending = send(&client, "INCR bar");
    cluster.log().executed().wait_for(1);
    run(&client, "INCR b").unwrap();
    assert_eq!(pending.cancel(), Cancelled::AlreadySettled);
}

/// A client whose only node is down, as far as it knows.
fn without_a_node(cluster: &FakeCluster) -> Client {
    let client = builder(cluster).response_timeout(LONG).connect().unwrap();
    cluster.node(0).kill();
    loop {
        let probe = cmd("INCR").arg("probe").timeout(Duration::from_millis(50));
        let error = client.query::<Value>(probe).unwrap_err();
        if error.certainty() == reslot::Certainty::NotSent {
            return client;
        }
    }
}

#[test]
fn commands_cancelled_in_any_order_leave_their_neighbours_alone() {
    let cluster = FakeCluster::start(1);
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let client = without_a_node(&cluster);
        let kept = send(&client, "INCR first");
        let three = (0..3).map(|n| Some(send(&client, &format!("INCR cancelled{n}"))));
        let mut three: Vec<_> = three.collect();
        let last = send(&client, "INCR last");
        for n in order {
            let pending = three[n].take().unwrap();
            assert_eq!(pending.cancel(), Cancelled::NotSent);
        }
        cluster.node(0).listen();
        kept.wait().unwrap();
        last.wait().unwrap();
        let cancelled = cluster
            .log()
            .when(|entry| entry.text(1).starts_with("cancelled"));
        assert_eq!(cancelled.count(), 0);
        let stats = || client.stats().nodes.into_values();
        crate::local_cluster::poll_until(LONG, "an empty queue", || {
            match stats().map(|node| node.queued).sum() {
                0 => Ok(()),
                queued => Err(format!("{queued} are queued")),
            }
        });
    }
    assert_eq!(cluster.executions("first"), 4);
    assert_eq!(cluster.executions("last"), 4);
}

#[test]
fn a_command_without_an_owner_is_cancelled_where_it_waits() {
    let cluster = FakeCluster::start(2);
    cluster.change(|topology| topology.unassign(5061..=5061));
    let client = connect(&cluster);
    let (cancelled, kept) = (send(&client, "INCR bar"), send(&client, "INCR {bar}2"));
    crate::local_cluster::poll_until(LONG, "both to wait", || match client.stats().parked_now {
        2 => Ok(()),
        count => Err(format!("{count} wait")),
    });
    assert_eq!(cancelled.cancel(), Cancelled::NotSent);
    cluster.assign(5061..=5061, 1);
    assert_eq!(kept.wait().unwrap(), Value::Integer(1));
    assert_eq!(cluster.log().key("bar").count(), 0);
    assert_eq!(client.stats().parked_now, 0);
}

#[test]
fn a_command_that_was_refused_is_cancelled_while_it_pauses() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let key = key_for_slot(7);
    cluster
        .on("INCR")
        .key(&key)
        .error("TRYAGAIN Multiple keys request during rehashing of slot");
    let pending = send(&client, &format!("INCR {key}"));
    cluster.log().commands("INCR").wait_for(3);
    // It may be on the wire at this moment; then it may only not run.
    let cancelled = pending.cancel();
    assert!([Cancelled::NotSent, Cancelled::Unknown].contains(&cancelled));
    run(&client, "INCR bar").unwrap();
    let sent = cluster.log().commands("INCR").key(&key);
    let count = sent.count();
    assert!(
        sent.wait_within(count + 1, Duration::from_millis(200))
            .is_none()
    );
}

#[test]
fn dropping_what_is_pending_does_not_stop_it() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    drop(send(&client, "INCR bar"));
    cluster.log().executed().wait_for(1);
    assert_eq!(run(&client, "INCR bar").unwrap(), Value::Integer(2));
}
