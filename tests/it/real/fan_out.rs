//! Commands that only all primaries together can answer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reslot::{Certainty, Client, Error, Result, Route, Value, cmd};

use super::clusters::{SOON, addr, builder, client, key_in, patient, slot_of};
use crate::local_cluster::{LocalCluster, poll_until};

#[test]
fn counts_keys_and_flushes_of_all_nodes() {
    let cluster = patient();
    let client = client(&cluster);
    client.query::<()>(cmd("FLUSHALL")).unwrap();
    let mut pipeline = client.pipeline();
    for number in 0..300 {
        pipeline.add(cmd("SET").arg((format!("fan:{number}"), number)));
    }
    pipeline.query::<()>().unwrap();
    assert_eq!(client.query::<i64>(cmd("DBSIZE")).unwrap(), 300);
    let keys: Vec<String> = client.query(cmd("KEYS").arg("fan:*")).unwrap();
    assert_eq!((keys.len(), BTreeSet::from_iter(keys).len()), (300, 300));
    client.query::<()>(cmd("FLUSHALL").arg("ASYNC")).unwrap();
    assert_eq!(client.query::<i64>(cmd("dbsize")).unwrap(), 0);
    assert_eq!(
        client.query::<Option<String>>(cmd("RANDOMKEY")).unwrap(),
        None
    );

    // Keys on one node only.
    let only = key_in(slot_of(2, 0), "only");
    client.set(&only, 1).unwrap();
    for _ in 0..50 {
        let random: Option<String> = client.query(cmd("RANDOMKEY")).unwrap();
        assert_eq!(random.as_ref(), Some(&only));
    }
    client.query::<()>(cmd("FLUSHDB")).unwrap();
    for node in 0..3 {
        assert_eq!(cluster.command(node, &["DBSIZE"]).text(), "0");
    }
    client
        .query::<()>(cmd("CONFIG").arg(("SET", "maxmemory", "100mb")))
        .unwrap();
    let one = |node| {
        cmd("CONFIG")
            .arg(("GET", "maxmemory"))
            .route(Route::Node(node))
    };
    for node in 0..3 {
        let (_, bytes): (String, String) = client.query(one(addr(&cluster, node))).unwrap();
        assert_eq!(bytes, "104857600");
    }
    client
        .query::<()>(cmd("CONFIG").arg(("SET", "maxmemory", "0")))
        .unwrap();
}

/// The first command of a client that has not seen the cluster yet.
#[test]
fn a_lazy_client_asks_all_nodes() {
    let cluster = patient();
    let client = builder(&cluster).lazy(true).connect().unwrap();
    let all = cmd("ECHO").arg("x").route(Route::AllPrimaries);
    let replies: Vec<String> = client.query(all).unwrap();
    assert_eq!(replies, ["x", "x", "x"]);
}

#[test]
fn scripts_are_loaded_everywhere() {
    let cluster = patient();
    let client = client(&cluster);
    let script = "return {KEYS[1], ARGV[1]}";
    let sha: String = client.query(cmd("SCRIPT").arg(("LOAD", script))).unwrap();
    let exists = || cmd("SCRIPT").arg(("EXISTS", &sha, "0000000000000000000000000000000000000000"));
    assert_eq!(client.query::<Vec<bool>>(exists()).unwrap(), [true, false]);
    for number in 0..100 {
        let key = format!("script:{number}");
        let reply: (String, i64) = client
            .query(cmd("EVALSHA").arg((&sha, 1, &key, number)))
            .unwrap();
        assert_eq!(reply, (key, number));
    }
    // It counts as there only if it is on all nodes.
    assert!(cluster.command(1, &["SCRIPT", "FLUSH"]).is_ok());
    assert_eq!(client.query::<Vec<bool>>(exists()).unwrap(), [false, false]);
    client.query::<()>(cmd("SCRIPT").arg("FLUSH")).unwrap();
    let key = key_in(slot_of(0, 0), "script");
    let error = client
        .query::<Value>(cmd("EVALSHA").arg((&sha, 1, key, 1)))
        .unwrap_err();
    assert_eq!(error.code(), Some("NOSCRIPT"));
}

/// Only one node runs the script; the others have nothing to kill. (The script must be another
/// client's: a server does not read from a connection whose script it runs.)
#[test]
fn a_script_is_killed_wherever_it_runs() {
    let cluster = patient();
    let (client, other) = (client(&cluster), client(&cluster));
    // So long a script may run before other commands are looked at.
    let patience = |millis| cmd("CONFIG").arg(("SET", "lua-time-limit", millis));
    client.query::<()>(patience(50)).unwrap();
    for node in 0..3 {
        let key = key_in(slot_of(node, 0), "endless");
        let endless = cmd("EVAL").arg(("while true do end", 1, key)).timeout(None);
        let pending = other.send::<Value>(endless).unwrap();
        poll_until(SOON, "the script to be killed", || {
            let killed: Result<Value> = client.query(cmd("SCRIPT").arg("KILL"));
            killed.map_err(|error| error.to_string())
        });
        let error = pending.wait().unwrap_err();
        assert!(error.to_string().contains("killed"), "{error}");
    }
    let error = client
        .query::<Value>(cmd("SCRIPT").arg("KILL"))
        .unwrap_err();
    assert_eq!(error.code(), Some("NOTBUSY"));
    client.query::<()>(patience(5000)).unwrap();
}

#[test]
fn a_stopped_node_is_named_instead_of_left_out() {
    let cluster = patient();
    let client = client(&cluster);
    cluster.kill(2);
    for (name, args) in [
        ("DBSIZE", vec![]),
        ("KEYS", vec!["*"]),
        ("FLUSHALL", vec![]),
        ("SCRIPT", vec!["LOAD", "return 1"]),
        ("RANDOMKEY", vec![]),
    ] {
        check_names_node(&cluster, &client, 2, name, &args);
    }
    cluster.restart(2);
    cluster.wait_ready();
    assert_eq!(client.query::<i64>(cmd("DBSIZE")).unwrap(), 0);
}

#[track_caller]
fn check_names_node(
    cluster: &LocalCluster,
    client: &Client,
    node: usize,
    name: &str,
    args: &[&str],
) {
    let begun = Instant::now();
    let command = cmd(name).arg(args).timeout(Duration::from_millis(200));
    let error: Error = client.query::<Value>(command).expect_err(name);
    assert!(begun.elapsed() < SOON, "{name}: {:?}", begun.elapsed());
    assert_eq!(error.node(), Some(&addr(cluster, node)), "{name}: {error}");
    assert!(
        error.to_string().contains(&cluster.addr(node).to_string()),
        "{error}"
    );
    // That this node did not run it says nothing about the others.
    if name == "FLUSHALL" {
        assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    }
}
