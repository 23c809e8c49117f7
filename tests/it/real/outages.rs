//! Slots without an owner, nodes that restart, a whole cluster that goes and comes back.

use std::time::{Duration, Instant};

use reslot::{Reason, Value, cmd};

use super::clusters::{SOON, client, key_in, patient, slot_of};
use super::load::{Load, count_up};
use crate::local_cluster::{LocalCluster, poll_until};

const SHORT: Duration = Duration::from_millis(400);

#[test]
fn a_slot_that_nobody_serves_hurts_no_other() {
    let cluster = patient();
    let client = client(&cluster);
    let hole = slot_of(1, 20);
    let key = key_in(hole, "hole");
    client.set(&key, 1).unwrap();
    for node in 0..3 {
        let gone = cluster.command(node, &["CLUSTER", "DELSLOTS", &hole.to_string()]);
        assert!(gone.is_ok(), "{gone:?}");
    }
    let user = client.clone();
    let load = Load::start(2, move |number, running| {
        let good = key_in(slot_of(1, 21 + number as u16), "good");
        count_up(&user, &good, Duration::from_secs(3), running).not_run
    });
    for _ in 0..3 {
        let begun = Instant::now();
        let error = client
            .query::<Value>(cmd("GET").arg(&key).timeout(SHORT))
            .unwrap_err();
        assert!(begun.elapsed() < SOON);
        let failure = error.failure().unwrap();
        let uncovered = failure.reason() == Reason::SlotUncovered;
        assert!(uncovered || error.code() == Some("CLUSTERDOWN"), "{error}");
        assert_ne!(error.certainty(), reslot::Certainty::Unknown, "{error}");
    }
    // A client that starts now starts all the same.
    let other = super::clusters::client(&cluster);
    let set = cmd("SET").arg((&key, 2)).timeout(SHORT);
    assert!(other.query::<Value>(set).is_err());
    let pending = client
        .send::<i64>(cmd("INCR").arg(&key).timeout(SOON))
        .unwrap();
    for node in 0..3 {
        let slot = hole.to_string();
        let owner = ["CLUSTER", "SETSLOT", &slot, "NODE", cluster.id(1)];
        let args: &[&str] = if node == 1 {
            &["CLUSTER", "ADDSLOTS", &slot]
        } else {
            &owner
        };
        let added = cluster.command(node, args);
        assert!(added.is_ok(), "node {node}: {added:?}");
    }
    assert_eq!(pending.wait().unwrap(), 2);
    assert_eq!(other.incr(&key).unwrap(), 3);
    for not_run in load.stop() {
        assert!(not_run.is_empty(), "{:?}", not_run[0]);
    }
}

#[test]
fn a_restarted_node_is_found_again() {
    let cluster = patient();
    let client = client(&cluster);
    let key = key_in(slot_of(2, 0), "restarted");
    client.set(&key, 1).unwrap();
    cluster.restart(2);
    // Nobody was using the connection when it broke.
    poll_until(SOON, "the node to serve", || {
        client.set(&key, 1).map_err(|error| error.to_string())
    });
    cluster.wait_ready();
    assert_eq!(client.get(&key).unwrap(), Some(1));
}

#[test]
fn a_client_survives_the_restart_of_the_whole_cluster() {
    let cluster = patient();
    let client = client(&cluster);
    let keys: Vec<String> = (0..3).map(|node| key_in(slot_of(node, 1), "all")).collect();
    for key in &keys {
        client.set(key, 1).unwrap();
    }
    (0..3).for_each(|node| cluster.kill(node));
    for key in &keys {
        let begun = Instant::now();
        let error = client
            .query::<Value>(cmd("SET").arg((key, 2)).timeout(SHORT))
            .unwrap_err();
        assert!(begun.elapsed() < SOON, "{error}");
    }
    assert!(client.query::<Value>(cmd("PING").timeout(SHORT)).is_err());
    assert!(client.query::<Value>(cmd("DBSIZE").timeout(SHORT)).is_err());
    // What is handed over now is served when the cluster is back.
    let pending = client
        .send::<i64>(cmd("INCR").arg(&keys[0]).timeout(3 * SOON))
        .unwrap();
    (0..3).for_each(|node| cluster.restart(node));
    cluster.wait_ready();
    assert_eq!(pending.wait().unwrap(), 1);
    let begun = Instant::now();
    for key in &keys[1..] {
        assert_eq!(client.incr(key).unwrap(), 1);
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let stats = client.stats();
    assert!(stats.topology_queries < 200, "{stats:?}");
}

/// Also after calls that ended in errors, and with a node that does not answer.
#[test]
fn closing_leaves_no_thread_and_no_socket() {
    let cluster = patient();
    let key = key_in(slot_of(0, 2), "close");
    for round in 0..20 {
        let builder = super::clusters::builder(&cluster).client_name("leaves-nothing");
        let client = builder.connect().unwrap();
        client.set(&key, round).unwrap();
        assert!(client.query::<Value>(cmd("LPUSH").arg((&key, 1))).is_err());
        assert!(
            client
                .query::<Value>(cmd("MGET").arg(("foo", "bar")))
                .is_err()
        );
        assert!(
            client
                .query::<Value>(cmd("GET").arg(&key).timeout(Duration::ZERO))
                .is_err()
        );
        // A thread takes its name only when it runs.
        poll_until(SOON, "two threads for each node", || {
            match threads_of(&cluster) {
                6 => Ok(()),
                now => Err(format!("{now} threads")),
            }
        });
        match round % 2 {
            0 => client.close(SHORT).unwrap(),
            _ => drop(client),
        }
        assert_eq!(threads_of(&cluster), 0);
    }
    poll_until(SOON, "the servers to see the end", || {
        for node in 0..3 {
            let list = cluster.command(node, &["CLIENT", "LIST"]).text();
            if list.contains("leaves-nothing") {
                return Err(list);
            }
        }
        Ok(())
    });
}

/// The threads of this process that serve nodes of this cluster, by their names.
fn threads_of(cluster: &LocalCluster) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| {
        let name = task.ok()?.path().join("comm");
        // A thread may end before its name is read.
        std::fs::read_to_string(name).ok()
    });
    let ports: Vec<String> = (0..3)
        .map(|node| cluster.addr(node).port().to_string())
        .collect();
    let serve = |name: &String| ports.iter().any(|port| name.trim_end().ends_with(port));
    names.filter(serve).count()
}
