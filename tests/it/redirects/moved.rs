//! MOVED: followed at once, learned for good, without waiting for a refresh.

use std::thread;
use std::time::{Duration, Instant};

use reslot::{Certainty, cmd};

use crate::clients::{
    addr, asked, builder, connect, get, maps_asked, most_refreshes, never_refreshing, seen, value,
};
use crate::fake::{FakeCluster, Script, resp};

#[test]
fn is_followed_to_the_named_node() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.assign(5061..=5061, 1);
    client.set("bar", "1").unwrap();
    assert_eq!(seen(&cluster, 0), ["SET bar 1"]);
    assert_eq!(seen(&cluster, 1), ["SET bar 1"]);
    assert_eq!(cluster.executions("bar"), 1);
    let stats = client.stats();
    assert_eq!(stats.nodes[&addr(&cluster, 0)].moved, 1);
    assert_eq!(stats.total(|node| node.moved), 1);
}

#[test]
fn is_learned_even_if_no_node_tells_its_map() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.on("CLUSTER SLOTS").ignore();
    cluster.node(0).on("GET").key("bar").moved(5061, 1);
    cluster.node(1).on("GET").reply(resp::bulk("there"));
    for _ in 0..2 {
        assert_eq!(value(&client, "bar").as_deref(), Some("there"));
    }
    assert_eq!(asked(&cluster, 0, "GET", "bar"), 1);
    assert_eq!(asked(&cluster, 1, "GET", "bar"), 2);
}

#[test]
fn does_not_wait_for_a_refresh_that_hangs() {
    let cluster = FakeCluster::start(3);
    let timeout = Duration::from_millis(300);
    let client = builder(&cluster).connect_timeout(timeout).connect();
    let client = client.unwrap();
    let start = cluster.log().end();
    let gate = cluster.on("CLUSTER SLOTS").hold();
    cluster.assign(5061..=5061, 2);
    client.set("bar", "1").unwrap();
    gate.wait_arrived(2);
    let queries = cluster.log().commands("CLUSTER SLOTS").since(start).list();
    assert_eq!(queries[0].node, 2, "the node that MOVED named knows most");
    assert_ne!(
        queries[1].node, 2,
        "one that does not answer is not asked again at once"
    );
    let waited = queries[1].at - queries[0].at;
    assert!(waited >= timeout / 2, "the first one had only {waited:?}");
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
}

#[test]
fn leads_to_a_node_that_the_map_does_not_know() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.assign(5061..=5061, 2);
    client.set("bar", "1").unwrap();
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    assert_eq!(seen(&cluster, 2), ["SET bar 1", "GET bar"]);
    assert_eq!(cluster.node(2).opened(), 1);
}

#[test]
fn is_learned_and_returned_where_redirects_are_not_followed() {
    let cluster = FakeCluster::start(2);
    let builder = never_refreshing(builder(&cluster)).follow_redirects(false);
    let client = builder.connect().unwrap();
    cluster.assign(5061..=5061, 1);
    let error = client.set("bar", "1").unwrap_err();
    assert_eq!(error.code(), Some("MOVED"));
    assert_eq!(error.certainty(), Certainty::Refused);
    assert_eq!(cluster.executions("bar"), 0);
    client.set("bar", "2").unwrap();
    assert_eq!(seen(&cluster, 0), ["SET bar 1"]);
    assert_eq!(seen(&cluster, 1), ["SET bar 2"]);
}

#[test]
fn from_one_caller_serves_all_others() {
    let cluster = FakeCluster::start(2);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.assign(5061..=5061, 1);
    value(&client, "bar");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    client.incr("{bar}n").unwrap();
                }
            });
        }
    });
    assert_eq!(seen(&cluster, 0), ["GET bar"]);
    assert_eq!(cluster.executions("{bar}n"), 400);
    assert_eq!(client.get("{bar}n").unwrap(), Some(400));
}

#[test]
fn to_a_dead_node_ends_where_the_map_says() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    let client = connect(&cluster);
    cluster.node(2).kill();
    let rule = cluster.node(0).on("SET").key("bar").times(1).moved(5061, 2);
    client.set("bar", "1").unwrap();
    assert_eq!(rule.hits(), 1);
    assert_eq!(asked(&cluster, 0, "SET", "bar"), 2);
    assert_eq!(cluster.executions("bar"), 1);
}

#[test]
fn to_a_dead_node_is_bounded_by_the_deadline() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    let client = connect(&cluster);
    let start = cluster.log().end();
    cluster.node(2).kill();
    // All nodes believe in it, so no map leads elsewhere.
    cluster.assign(5061..=5061, 2);
    let command = cmd("SET").arg("bar").arg(1);
    let command = command.timeout(Duration::from_millis(600));
    let since = Instant::now();
    let error = client.query::<()>(command).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(error.code(), Some("MOVED"), "{error}");
    assert_ne!(error.certainty(), Certainty::Unknown, "{error}");
    assert_eq!(asked(&cluster, 0, "SET", "bar"), 1);
    // A round asks the other two nodes at most, the dead one, and the seed.
    let most = most_refreshes(since, Duration::from_millis(100));
    let queries = maps_asked(&cluster, start);
    assert!(queries <= most * 3, "{queries} queries, not {most} rounds");
    // Everything else goes on.
    client.set("b", "1").unwrap();
    client.set("foo", "1").unwrap();
}

#[test]
fn is_not_undone_by_the_stale_map_of_another_node() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    let stale = cluster.topology();
    let client = connect(&cluster);
    cluster.set_view(2, stale);
    cluster.assign(5061..=5061, 1);
    let start = cluster.log().end();
    for _ in 0..20 {
        value(&client, "bar");
    }
    let maps = cluster
        .log()
        .commands("CLUSTER SLOTS")
        .since(start)
        .wait_for(1);
    assert_eq!(maps[0].node, 1, "the node that MOVED named");
    value(&client, "bar");
    assert_eq!(asked(&cluster, 0, "GET", "bar"), 1);
    assert_eq!(asked(&cluster, 1, "GET", "bar"), 21);
}

#[test]
fn of_queued_commands_is_spared_by_moving_them_along() {
    let cluster = FakeCluster::start(2);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.assign(5061..=5061, 1);
    // The first answer is held, so the others are on the wire or queued when it comes.
    let gate = cluster.gate();
    let moved = format!("MOVED 5061 {}", cluster.node(1).addr());
    let script = Script::new().hold(&gate).error(&moved).send();
    cluster.node(0).on("INCR").times(1).script(script);
    let pending: Vec<_> = (0..50)
        .map(|_| client.send::<i64>(crate::clients::incr("bar")).unwrap())
        .collect();
    gate.wait_arrived(1);
    gate.release();
    let values: Vec<i64> = pending.into_iter().map(|p| p.wait().unwrap()).collect();
    assert_eq!(values, (1..=50).collect::<Vec<_>>(), "in order, once each");
    assert_eq!(cluster.executions("bar"), 50);
    assert_eq!(asked(&cluster, 1, "INCR", "bar"), 50);
}

#[test]
fn in_other_disguises_is_data() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let start = cluster.log().end();
    let moved = resp::error(&format!("MOVED 5061 {}", cluster.node(1).addr()));
    let plain = resp::bulk("MOVED 5061 127.0.0.1:1");
    let replies = [
        resp::array(&[resp::integer(1), moved]),
        plain,
        resp::simple("MOVED 5061 127.0.0.1:1"),
        resp::error("MOVEDX 5061 127.0.0.1:1"),
        resp::error("ERR MOVED 5061 127.0.0.1:1"),
        resp::error("moved 5061 127.0.0.1:1"),
    ];
    for (index, reply) in replies.iter().enumerate() {
        cluster.on("GET").nth(index + 1).reply(reply.clone());
    }
    let mut results = Vec::new();
    for _ in &replies {
        results.push(client.query::<reslot::Value>(get("bar")));
    }
    let list = results[0].as_ref().unwrap();
    assert!(
        matches!(list, reslot::Value::Array(items) if items.len() == 2),
        "{list:?}"
    );
    assert!(results[1].is_ok() && results[2].is_ok());
    for error in &results[3..] {
        assert!(matches!(error, Err(reslot::Error::Server(_))), "{error:?}");
    }
    assert_eq!(asked(&cluster, 0, "GET", "bar"), replies.len());
    assert_eq!(seen(&cluster, 1), [""; 0]);
    assert_eq!(maps_asked(&cluster, start), 0);
}
