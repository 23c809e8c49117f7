//! Reads from replicas: which commands, and what happens when a replica cannot serve.

use std::time::{Duration, Instant};

use reslot::{Client, ReadFrom, Value, cmd};

use super::clusters::{SOON, builder, key_in, replicated, slot_of};
use crate::local_cluster::{LocalCluster, poll_until};

fn reader(cluster: &LocalCluster) -> Client {
    let builder = builder(cluster).read_from(ReadFrom::PreferReplica);
    builder.connect().unwrap()
}

/// Waits until all replicas have what was written so far.
fn wait_for_replicas(cluster: &LocalCluster) {
    for node in cluster.running() {
        if cluster.is_primary(node) {
            assert_eq!(cluster.command(node, &["WAIT", "1", "5000"]).text(), "1");
        }
    }
}

#[test]
fn reads_go_to_replicas_and_disguised_writes_do_not() {
    let cluster = replicated();
    let slot = slot_of(0, 0);
    let (primary, replica) = {
        let primary = cluster.primary_of(slot);
        (primary, cluster.replicas_of(primary)[0])
    };
    let client = reader(&cluster);
    let key = |name: &str| key_in(slot, name);
    client.set(key("s"), "1").unwrap();
    client.rpush(key("l"), [1, 2]).unwrap();
    let add = cmd("GEOADD").arg((key("g"), 1, 2, "m"));
    client.query::<()>(add).unwrap();
    let library = "#!lua name=replicas\n\
        redis.register_function{function_name='replicas_read', flags={'no-writes'}, \
        callback=function(keys) return redis.call('GET', keys[1]) end}";
    let load = cmd("FUNCTION").arg(("LOAD", "REPLACE", library));
    client.query::<Value>(load).unwrap();
    let script = "return redis.call('GET', KEYS[1])";
    let sha: String = client.query(cmd("SCRIPT").arg(("LOAD", script))).unwrap();
    // Scripts are not sent to replicas by the server.
    cluster.command(replica, &["SCRIPT", "LOAD", script]);
    wait_for_replicas(&cluster);
    cluster.reset_stats();

    let radius = (1, 2, 10, "km");
    let reads = [
        ("get", cmd("GET").arg(key("s"))),
        ("mget", cmd("MGET").arg((key("s"), key("none")))),
        ("eval_ro", cmd("EVAL_RO").arg((script, 1, key("s")))),
        ("evalsha_ro", cmd("EVALSHA_RO").arg((&sha, 1, key("s")))),
        (
            "fcall_ro",
            cmd("FCALL_RO").arg(("replicas_read", 1, key("s"))),
        ),
        ("sort_ro", cmd("SORT_RO").arg((key("l"), "DESC"))),
        (
            "georadius_ro",
            cmd("GEORADIUS_RO").arg(key("g")).arg(radius),
        ),
        (
            "bitfield_ro",
            cmd("BITFIELD_RO").arg((key("s"), "GET", "u8", 0)),
        ),
        ("lrange", cmd("LRANGE").arg((key("l"), 0, -1))),
        ("object|encoding", cmd("OBJECT").arg(("ENCODING", key("s")))),
    ];
    let writes = [
        ("set", cmd("SET").arg((key("t"), 1))),
        ("eval", cmd("EVAL").arg((script, 1, key("s")))),
        ("evalsha", cmd("EVALSHA").arg((&sha, 1, key("s")))),
        ("fcall", cmd("FCALL").arg(("replicas_read", 1, key("s")))),
        ("sort", cmd("SORT").arg((key("l"), "STORE", key("d")))),
        (
            "georadius",
            cmd("GEORADIUS")
                .arg(key("g"))
                .arg(radius)
                .arg(("STORE", key("d"))),
        ),
        ("getex", cmd("GETEX").arg((key("s"), "PERSIST"))),
        ("getdel", cmd("GETDEL").arg(key("none"))),
        (
            "bitfield",
            cmd("BITFIELD").arg((key("bits"), "SET", "u8", 0, 1)),
        ),
        ("incr", cmd("INCR").arg(key("t"))),
    ];
    for (name, command) in reads.iter().chain(&writes) {
        for _ in 0..3 {
            let reply = client.query::<Value>(command.clone());
            assert!(reply.is_ok(), "{name}: {reply:?}");
        }
    }
    let (there, here) = (cluster.commandstats(replica), cluster.commandstats(primary));
    for (name, _) in &reads {
        // Those of the scripts count as well.
        let times = if *name == "get" { 12 } else { 3 };
        assert_eq!(there.get(*name), Some(&times), "{name} at the replica");
        assert!(
            !here.contains_key(*name) || *name == "get",
            "{name} at the primary"
        );
    }
    for (name, _) in &writes {
        assert_eq!(here.get(*name), Some(&3), "{name} at the primary");
    }
    for node in cluster.running() {
        let errors = cluster.errorstats(node);
        for code in ["MOVED", "READONLY", "ASK"] {
            assert!(!errors.contains_key(code), "node {node}: {errors:?}");
        }
    }
}

/// Replicas answer nil for a key that has left already, so reads follow the keys.
#[test]
fn no_false_nil_while_a_slot_migrates() {
    let cluster = replicated();
    let slot = slot_of(1, 5);
    let (from, to) = (cluster.primary_of(slot), cluster.primary_of(slot_of(2, 5)));
    let client = reader(&cluster);
    let (gone, here) = (key_in(slot, "gone"), key_in(slot, "here"));
    client.set(&gone, 1).unwrap();
    client.set(&here, 2).unwrap();
    wait_for_replicas(&cluster);
    let migration = cluster.begin_move(slot, from, to);
    // A write is answered ASK: from now on the client knows.
    client.set(key_in(slot, "new"), 3).unwrap();
    migration.migrate_keys(&[&gone]);
    wait_for_replicas(&cluster);
    for _ in 0..20 {
        assert_eq!(client.get(&gone).unwrap(), Some(1));
        assert_eq!(client.get(&here).unwrap(), Some(2));
        assert_eq!(client.get(key_in(slot, "new")).unwrap(), Some(3));
    }
    migration.migrate_all();
    migration.finish();
    wait_for_replicas(&cluster);
    assert_eq!(client.get(&here).unwrap(), Some(2));
    cluster.move_slot(slot, to, from);
}

#[test]
fn a_dead_replica_costs_no_read() {
    let cluster = replicated();
    let slot = slot_of(2, 0);
    let replica = cluster.replicas_of(cluster.primary_of(slot))[0];
    let builder = builder(&cluster).read_from(ReadFrom::PreferReplica);
    // A replica that the map lists again is seen with the next refresh.
    let builder = builder.periodic_refresh(Duration::from_secs(1));
    let client = builder.connect().unwrap();
    let key = key_in(slot, "read");
    client.set(&key, 7).unwrap();
    wait_for_replicas(&cluster);
    assert_eq!(client.get(&key).unwrap(), Some(7));
    cluster.kill(replica);
    let begun = Instant::now();
    for _ in 0..200 {
        assert_eq!(client.get(&key).unwrap(), Some(7));
    }
    let took = begun.elapsed();
    cluster.restart(replica);
    cluster.wait_ready();
    assert!(took < Duration::from_secs(2), "{took:?}");
    // And it serves again once it is back.
    cluster.reset_stats();
    poll_until(SOON, "reads at the replica", || {
        assert_eq!(client.get(&key).unwrap(), Some(7));
        let stats = cluster.commandstats(replica);
        stats
            .contains_key("get")
            .then_some(())
            .ok_or(format!("{stats:?}"))
    });
}

/// A replica that cannot be reached from the start.
#[test]
fn without_a_usable_replica_the_primary_serves() {
    let cluster = replicated();
    let slot = slot_of(2, 1);
    let replica = cluster.replicas_of(cluster.primary_of(slot))[0];
    cluster.kill(replica);
    let client = reader(&cluster);
    let key = key_in(slot, "alone");
    client.set(&key, 7).unwrap();
    let begun = Instant::now();
    for _ in 0..50 {
        assert_eq!(client.get(&key).unwrap(), Some(7));
    }
    let took = begun.elapsed();
    cluster.restart(replica);
    cluster.wait_ready();
    assert!(took < Duration::from_secs(2), "{took:?}");
}
