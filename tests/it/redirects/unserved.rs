//! "Not now": CLUSTERDOWN, LOADING, MASTERDOWN, READONLY, slots without owner. Such commands have
//! not run; they wait within their deadline, and nobody else does.

use std::thread;
use std::time::{Duration, Instant};

use reslot::{Certainty, Reason, RefreshCause};

use crate::clients::{LONG, asked, builder, connect, get, maps_asked, most_refreshes, value};
use crate::fake::{FakeCluster, Script, key_for_slot};

const LINES: [&str; 6] = [
    "CLUSTERDOWN Hash slot not served",
    "CLUSTERDOWN The cluster is down",
    "CLUSTERDOWN The cluster is down and only accepts read commands",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "READONLY You can't write against a read only replica.",
];

#[test]
fn answers_that_pass_are_retried_at_the_same_node() {
    for line in LINES {
        let cluster = FakeCluster::start(2);
        let client = builder(&cluster).max_redirects(0).connect().unwrap();
        let start = cluster.log().end();
        cluster.on("INCR").times(2).error(line);
        assert_eq!(client.incr("bar").unwrap(), 1, "{line}");
        let sent = cluster.log().commands("INCR").list();
        assert_eq!(sent.len(), 3, "{line}");
        assert!(sent.iter().all(|entry| entry.node == 0));
        assert!(sent[1].at - sent[0].at >= Duration::from_millis(5));
        assert!(sent[2].at - sent[1].at >= Duration::from_millis(10));
        cluster
            .log()
            .commands("CLUSTER SLOTS")
            .since(start)
            .wait_for(1);
        assert_eq!(client.stats().refreshes[&RefreshCause::NotServing], 1);
        assert_eq!(client.stats().total(|node| node.not_serving), 2);
    }
}

#[test]
fn answers_that_do_not_pass_end_at_the_deadline() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.on("INCR").error(LINES[3]);
    let command = crate::clients::incr("bar").timeout(Duration::from_millis(300));
    let error = client.query::<i64>(command).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(error.server_error().unwrap().line(), LINES[3]);
    assert_eq!(error.certainty(), Certainty::Refused);
    assert!(error.attempts() >= 2, "{error}");
    assert_eq!(value(&client, "bar"), None, "the slot is usable again");
}

#[test]
fn writes_go_to_the_promoted_replica_after_readonly() {
    let cluster = FakeCluster::builder(2).owners(1).start();
    cluster.replicate(1, 0);
    let client = connect(&cluster);
    let demoted = cluster.node(0).on("SET").error(LINES[5]);
    let pending = client
        .send::<()>(reslot::cmd("SET").arg("bar").arg(1))
        .unwrap();
    cluster.log().commands("SET").wait_for(2);
    cluster.promote(1);
    pending.wait().unwrap();
    assert!(demoted.hits() >= 2);
    assert_eq!(asked(&cluster, 1, "SET", "bar"), 1);
    assert_eq!(cluster.executions("bar"), 1);
}

#[test]
fn an_outage_costs_few_queries_and_ends_by_itself() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let (start, since) = (cluster.log().end(), Instant::now());
    let down = cluster.on("INCR").error(LINES[0]);
    thread::scope(|scope| {
        for index in 0..16 {
            let client = &client;
            scope.spawn(move || {
                for key in ["bar", "b", "foo", "a"] {
                    client.incr(format!("{{{key}}}{index}")).unwrap();
                }
            });
        }
        cluster
            .log()
            .commands("CLUSTER SLOTS")
            .since(start)
            .wait_for(3);
        down.remove();
    });
    let most = most_refreshes(since, Duration::from_millis(100));
    let queries = maps_asked(&cluster, start);
    assert!(queries <= most, "{queries} queries, not {most}");
    assert_eq!(cluster.log().executed().count(), 64);
}

#[test]
fn order_within_a_slot_survives_an_outage() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    // Each is refused once, and none is answered before all are there.
    let gate = cluster.gate();
    let refuse = Script::new().hold(&gate).error(LINES[0]).send();
    cluster.on("RPUSH").times(20).script(refuse);
    let push = |value: usize| reslot::cmd("RPUSH").arg("bar").arg(value);
    let pending: Vec<_> = (0..20)
        .map(|value| client.send::<i64>(push(value)).unwrap())
        .collect();
    cluster.log().commands("RPUSH").wait_for(20);
    gate.release();
    for reply in pending {
        reply.wait().unwrap();
    }
    let list: Vec<usize> = client.lrange("bar", 0, -1).unwrap();
    assert_eq!(list, (0..20).collect::<Vec<_>>());
}

/// A cluster of which only slots up to 100 have an owner.
fn with_a_hole() -> FakeCluster {
    let cluster = FakeCluster::start(2);
    cluster.change(|topology| {
        topology.unassign(0..=16383);
        topology.assign(0..=100, 0);
        topology.assign(50..=50, 1);
    });
    cluster
}

#[test]
fn a_slot_without_owner_fails_clearly_and_others_work() {
    let cluster = with_a_hole();
    let client = connect(&cluster);
    let key = key_for_slot(12000);
    let error = client
        .query::<Option<String>>(get(&key).timeout(Duration::from_millis(300)))
        .unwrap_err();
    assert_eq!(
        error.failure().unwrap().reason(),
        Reason::SlotUncovered,
        "{error}"
    );
    assert_eq!(error.certainty(), Certainty::NotSent);
    assert_eq!(error.slot().unwrap().number(), 12000);
    for slot in [0, 50, 100] {
        client.set(key_for_slot(slot), "1").unwrap();
    }
    assert_eq!(
        cluster.log().key(&key).count(),
        0,
        "nobody was bothered with it"
    );
}

#[test]
fn a_slot_without_owner_is_waited_for() {
    let cluster = with_a_hole();
    let client = connect(&cluster);
    let key = key_for_slot(12000);
    let start = cluster.log().end();
    let pending = client.send::<Option<String>>(get(&key)).unwrap();
    cluster
        .log()
        .commands("CLUSTER SLOTS")
        .since(start)
        .wait_for(1);
    client.set(key_for_slot(50), "1").unwrap();
    assert!(!pending.is_done());
    cluster.assign(12000..=12000, 1);
    assert_eq!(pending.wait().unwrap(), None);
    assert_eq!(asked(&cluster, 1, "GET", &key), 1);
}

#[test]
fn a_slot_that_loses_its_owner_is_waited_for() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    client.set("bar", "1").unwrap();
    cluster.change(|topology| topology.unassign(5061..=5061));
    let pending = client.send::<Option<String>>(get("bar")).unwrap();
    cluster.log().on(0).commands("GET").wait_for(2);
    client.set("b", "1").unwrap();
    assert!(!pending.is_done());
    cluster.assign(5061..=5061, 1);
    assert_eq!(pending.wait().unwrap().as_deref(), Some("1"));
}

#[test]
fn waiting_for_an_owner_is_cancelled_at_once() {
    let cluster = with_a_hole();
    let client = builder(&cluster).response_timeout(None).connect().unwrap();
    let key = key_for_slot(12000);
    let pending = client.send::<Option<String>>(get(&key)).unwrap();
    let since = Instant::now();
    assert_eq!(pending.cancel(), reslot::Cancelled::NotSent);
    cluster.assign(12000..=12000, 1);
    assert_eq!(value(&client, format!("{{{key}}}2")), None);
    assert!(since.elapsed() < LONG);
    assert_eq!(cluster.log().key(&key).count(), 0);
}

#[test]
fn permanent_refusals_are_not_retried() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let lines = [
        "NOSCRIPT No matching script. Please use EVAL.",
        "CROSSSLOT Keys in request don't hash to the same slot",
        "NOPERM this user has no permissions to run the 'get' command",
    ];
    for (index, line) in lines.iter().enumerate() {
        cluster.on("EVALSHA").nth(index + 1).error(line);
    }
    for line in lines {
        let command = reslot::cmd("EVALSHA").arg("sha").arg(1).arg("bar");
        let error = client.query::<i64>(command).unwrap_err();
        assert_eq!(error.server_error().unwrap().line(), line);
        assert_eq!(error.certainty(), Certainty::Refused);
    }
    assert_eq!(cluster.log().commands("EVALSHA").count(), lines.len());
}
