//! Replicas that take over: by force, on request, and from a node that is frozen.
//!
//! Each test has a shard of its own: a server that was elected a moment ago may take the votes of
//! that time for those of the next election, and so disturb it.

use std::time::{Duration, Instant};

use reslot::{Client, cmd};

use super::clusters::{SOON, builder, client, key_in, replicated, slot_of};
use super::load::{Load, Tally, count_up};
use crate::local_cluster::LocalCluster;

const THREADS: usize = 8;

/// Less than the cluster needs to notice that a primary has gone (2 s): who waits for that shard
/// takes longer.
const UNHURT: Duration = Duration::from_millis(1500);

/// The primary of a slot, and its replica.
fn shard(cluster: &LocalCluster, slot: u16) -> (usize, usize) {
    let primary = cluster.primary_of(slot);
    (primary, cluster.replicas_of(primary)[0])
}

/// Threads that count up keys of one shard (even) and of the second one (odd).
fn load(client: &Client, shard: u16, name: &'static str, limit: Duration) -> Load<(String, Tally)> {
    let client = client.clone();
    Load::start(THREADS, move |number, running| {
        let key = key_in(
            slot_of((shard + number as u16 % 2) % 3, number as u16),
            &format!("{name}{number}"),
        );
        let tally = count_up(&client, &key, limit, running);
        (key, tally)
    })
}

/// Waits until a command of this shard succeeds.
fn wait_for_service(client: &Client, shard: u16, limit: Duration) {
    let begun = Instant::now();
    let key = key_in(slot_of(shard, 200), "service");
    while let Err(error) = client.query::<i64>(cmd("INCR").arg(&key).timeout(limit)) {
        assert!(begun.elapsed() < SOON, "{error}");
    }
}

#[test]
fn a_killed_primary_under_load() {
    let cluster = replicated();
    let (victim, replica) = shard(&cluster, slot_of(0, 0));
    // The one seed dies as well.
    let seed = cluster.addr(victim).to_string();
    let client = Client::builder().seed(seed).connect().unwrap();
    let load = load(&client, 0, "killed", UNHURT);
    wait_for_service(&client, 0, SOON);
    cluster.kill(victim);
    cluster.wait_promoted(replica);
    let promoted = Instant::now();
    wait_for_service(&client, 0, SOON);
    let tallies = load.stop();
    for (number, (key, tally)) in tallies.iter().enumerate() {
        let value: i64 = client.get(key).unwrap().unwrap_or(0);
        let most = tally.acked + tally.unknown;
        match number % 2 {
            0 => {
                // The last acknowledged write may not have reached the replica.
                let range = tally.acked - 1..=most;
                assert!(range.contains(&value), "{key}: {value}, not in {range:?}");
                let back = tally.successes.iter().find(|&&at| at > promoted);
                let took = back.map(|&at| at - promoted);
                let limit = Duration::from_secs(2);
                assert!(took.is_some_and(|took| took < limit), "{key}: {took:?}");
            }
            _ => {
                assert_eq!((value, tally.unknown), (tally.acked, 0), "{key}");
                assert!(tally.not_run.is_empty(), "{key}: {:?}", tally.not_run[0]);
                assert!(tally.slowest < UNHURT, "{key}: {:?}", tally.slowest);
            }
        }
    }
    cluster.restart(victim);
    cluster.wait_ready();
}

#[test]
fn a_requested_failover_costs_no_command() {
    let cluster = replicated();
    let (primary, replica) = shard(&cluster, slot_of(2, 0));
    let client = client(&cluster);
    let load = load(&client, 2, "requested", SOON);
    wait_for_service(&client, 2, SOON);
    cluster.failover(replica);
    wait_for_service(&client, 2, SOON);
    cluster.wait_ready();
    cluster.failover(primary);
    wait_for_service(&client, 2, SOON);
    for (key, tally) in load.stop() {
        assert!(tally.not_run.is_empty(), "{key}: {:?}", tally.not_run[0]);
        assert_eq!(tally.unknown, 0, "{key}");
        assert_eq!(client.get(&key).unwrap(), Some(tally.acked), "{key}");
    }
    cluster.wait_ready();
}

/// The sockets of a frozen node stay open: nothing but silence tells that it is gone.
#[test]
fn a_frozen_primary_is_replaced() {
    let cluster = replicated();
    let (victim, replica) = shard(&cluster, slot_of(1, 0));
    let client = builder(&cluster).response_timeout(UNHURT);
    let client = client.connect().unwrap();
    let load = load(&client, 1, "frozen", UNHURT);
    wait_for_service(&client, 1, UNHURT);
    cluster.pause(victim);
    cluster.wait_promoted(replica);
    let promoted = Instant::now();
    wait_for_service(&client, 1, UNHURT);
    // Late replies of the old primary reach nobody: each counter checks its own.
    cluster.resume(victim);
    cluster.wait_ready();
    wait_for_service(&client, 1, UNHURT);
    let tallies = load.stop();
    for (number, (key, tally)) in tallies.iter().enumerate() {
        let value: i64 = client.get(key).unwrap().unwrap_or(0);
        let range = tally.acked - 1..=tally.acked + tally.unknown;
        assert!(range.contains(&value), "{key}: {value}, not in {range:?}");
        match number % 2 {
            0 => {
                let back = tally.successes.iter().find(|&&at| at > promoted);
                let took = back.map(|&at| at - promoted);
                let limit = Duration::from_secs(5);
                assert!(took.is_some_and(|took| took < limit), "{key}: {took:?}");
            }
            _ => {
                assert_eq!(tally.unknown, 0, "{key}");
                assert!(tally.not_run.is_empty(), "{key}: {:?}", tally.not_run[0]);
                assert!(tally.slowest < UNHURT, "{key}: {:?}", tally.slowest);
            }
        }
    }
}
