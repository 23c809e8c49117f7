//! Slots that change their owner under load, and nodes that leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reslot::{Client, cmd};

use super::clusters::{LEAVING, SOON, addr, client, key_in, moving, slot_of};
use super::load::{Load, Running, count_up};
use crate::local_cluster::{LocalCluster, poll_until};

/// Slots in motion in each test, and the threads that use them.
const SLOTS: u16 = 8;
const THREADS: usize = 16;

#[test]
fn moves_key_by_key_cost_no_command() {
    let move_slot = |cluster: &LocalCluster, slot, from, to| cluster.move_slot(slot, from, to);
    check_moves(300, move_slot);
}

#[test]
fn atomic_moves_cost_no_command() {
    if !moving().supports_atomic_migration() {
        return;
    }
    check_moves(400, |cluster, slot, from, to| {
        cluster.move_slot_atomic(slot..=slot, from, to);
    });
}

/// Half of the threads count single keys up, the other half by pipelines over all slots; slots go
/// round the nodes meanwhile. No command fails, and every command ran once.
#[track_caller]
fn check_moves(offset: u16, move_slot: impl Fn(&LocalCluster, u16, usize, usize)) {
    let cluster = moving();
    let client = client(&cluster);
    let user = client.clone();
    let load = Load::start(THREADS, move |number, running| match number % 2 {
        0 => {
            let slot = slot_of(0, offset + number as u16 / 2 % SLOTS);
            let key = key_in(slot, &format!("single{number}"));
            let tally = count_up(&user, &key, SOON, running);
            assert!(tally.not_run.is_empty(), "{:?}", tally.not_run[0]);
            assert_eq!(tally.unknown, 0);
            (vec![key], tally.acked)
        }
        _ => count_in_pipelines(&user, offset, number, running),
    });
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        for slot in 0..SLOTS {
            move_slot(&cluster, slot_of(0, offset + slot), from, to);
        }
    }
    for (keys, acked) in load.stop() {
        assert!(acked > 0);
        for key in keys {
            assert_eq!(client.get(&key).unwrap(), Some(acked), "{key}");
        }
    }
    let stats = client.stats();
    assert!(stats.total(|node| node.moved) > 0, "{stats:?}");
    // The map may have named other nodes besides for a while.
    for node in 0..3 {
        let node = &stats.nodes[&addr(&cluster, node)];
        assert_eq!(node.connects, 1, "no connection was given up");
    }
}

fn count_in_pipelines(
    client: &Client,
    offset: u16,
    thread: usize,
    running: &Running,
) -> (Vec<String>, i64) {
    let key = |at: u16| {
        key_in(
            slot_of(0, offset + at % SLOTS),
            &format!("many{thread}-{at}"),
        )
    };
    let keys: Vec<String> = (0..2 * SLOTS).map(key).collect();
    let mut rounds = 0;
    while running.goes_on() {
        let mut pipeline = client.pipeline();
        pipeline.timeout(SOON);
        for key in &keys {
            pipeline.add(cmd("INCR").arg(key));
        }
        rounds += 1;
        for (key, result) in keys.iter().zip(pipeline.execute().unwrap()) {
            assert_eq!(result, Ok(reslot::Value::Integer(rounds)), "{key}");
        }
    }
    (keys, rounds)
}

/// Each thread pushes numbers without waiting for replies; they must arrive in order although the
/// slot moves again and again. It stays until all threads have seen it at its new owner: a slot
/// that returns to a node whose MOVED is still on its way may be served there for what was written
/// after the refused commands, and no client can prevent that.
#[test]
fn moves_do_not_change_the_order_of_commands() {
    let cluster = moving();
    let client = client(&cluster);
    let slot = slot_of(0, 500);
    let user = client.clone();
    let rounds: Arc<[AtomicU64; 4]> = Arc::default();
    let done = Arc::clone(&rounds);
    let load = Load::start(4, move |number, running| {
        let key = key_in(slot, &format!("order{number}"));
        let mut count: i64 = 0;
        while running.goes_on() {
            let pending: Vec<_> = (0..50)
                .map(|_| {
                    count += 1;
                    let push = cmd("RPUSH").arg((&key, count)).timeout(SOON);
                    user.send::<i64>(push).unwrap()
                })
                .collect();
            let first = count - 49;
            for (length, pending) in (first..).zip(pending) {
                assert_eq!(pending.wait().unwrap(), length, "{:?}", user.stats());
            }
            done[number].fetch_add(1, Ordering::Relaxed);
        }
        (key, count)
    });
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 1), (1, 0)] {
        let each = || rounds.iter().map(|round| round.load(Ordering::Relaxed));
        let before: Vec<u64> = each().collect();
        poll_until(SOON, "each thread to be served", || {
            let served = before
                .iter()
                .zip(each())
                .all(|(before, now)| now >= before + 2);
            served.then_some(()).ok_or(format!("{before:?}"))
        });
        cluster.move_slot(slot, from, to);
    }
    for (key, count) in load.stop() {
        let list: Vec<i64> = client.lrange(&key, 0, -1).unwrap();
        assert!(list.into_iter().eq(1..=count), "{key}");
    }
}

/// A node is emptied, forgotten and stopped while the client does nothing: it will never answer
/// MOVED.
#[test]
fn a_node_that_left_while_the_client_was_idle() {
    let cluster = moving();
    let slots = [slot_of(0, 600), slot_of(1, 600), slot_of(2, 600)];
    for (home, slot) in slots.into_iter().enumerate() {
        cluster.move_slot(slot, home, LEAVING);
    }
    let client = client(&cluster);
    for slot in slots {
        client.set(key_in(slot, "kept"), slot).unwrap();
    }
    for (home, slot) in slots.into_iter().enumerate() {
        cluster.move_slot(slot, LEAVING, home);
    }
    for node in cluster.running() {
        if node != LEAVING {
            let forgotten = cluster.command(node, &["CLUSTER", "FORGET", cluster.id(LEAVING)]);
            assert!(forgotten.is_ok(), "{forgotten:?}");
        }
    }
    cluster.kill(LEAVING);
    let begun = Instant::now();
    for slot in slots {
        let value: u16 = client.query(cmd("GET").arg(key_in(slot, "kept"))).unwrap();
        assert_eq!(value, slot);
        assert_eq!(client.set(key_in(slot, "kept"), 1), Ok(()));
    }
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let address = addr(&cluster, LEAVING);
    poll_until(SOON, "the node to be let go", || {
        let known = client.stats().nodes.contains_key(&address);
        (!known).then_some(()).ok_or("it is there".into())
    });
}
