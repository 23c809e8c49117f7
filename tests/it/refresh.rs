//! Asking for the map: one at a time, not too often, never in the way of commands, and no old map
//! over newer knowledge.

use std::thread;
use std::time::{Duration, Instant};

use reslot::{Client, RefreshCause};

use crate::clients::{
    addr, asked, builder, connect, get, maps_asked, most_refreshes, never_refreshing, seen, value,
};
use crate::fake::{FakeCluster, Gate, key_for_slot, keys_in, resp};
use crate::local_cluster::poll_until;

/// The first queries from now on are answered with the map of this moment, but held back.
fn hold_old_map(cluster: &FakeCluster) -> Gate {
    cluster.on("CLUSTER SLOTS").times(1).hold_reply()
}

fn wait_maps(cluster: &FakeCluster, since: usize, count: usize) {
    let log = cluster.log().commands("CLUSTER SLOTS").since(since);
    log.wait_for(count);
}

/// Waits until no refresh is under way: all queries that were sent have been used.
fn wait_owner(client: &Client, cluster: &FakeCluster, node: usize, key: &str) {
    poll_until(crate::fake::PATIENCE, "the new map", || {
        let before = asked(cluster, node, "GET", key);
        value(client, key);
        let there = asked(cluster, node, "GET", key) > before;
        there.then_some(()).ok_or("the old owner served it".into())
    });
}

#[test]
fn many_threads_that_are_redirected_cause_one_query() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let start = cluster.log().end();
    cluster.assign(5061..=5061, 1);
    let gate = cluster.on("CLUSTER SLOTS").hold();
    thread::scope(|scope| {
        for index in 0..64 {
            let client = &client;
            scope.spawn(move || client.incr(format!("{{bar}}{index}")).unwrap());
        }
    });
    gate.wait_arrived(1);
    assert_eq!(maps_asked(&cluster, start), 1, "one in flight at a time");
    assert_eq!(cluster.log().executed().count(), 64, "nobody waited for it");
    gate.release();
    for index in 0..64 {
        client.incr(format!("{{bar}}{index}")).unwrap();
    }
    assert!(maps_asked(&cluster, start) <= 2, "and one that follows up");
    assert!(client.stats().refreshes[&RefreshCause::Moved] <= 2);
}

#[test]
fn a_map_older_than_a_redirect_does_not_undo_it() {
    let cluster = FakeCluster::start(3);
    let client = connect(&cluster);
    let start = cluster.log().end();
    // A first redirect makes the client ask; the answer is from before the second redirect.
    let gate = hold_old_map(&cluster);
    cluster.assign(3300..=3300, 1);
    client.set("b", "1").unwrap();
    gate.wait_arrived(1);
    cluster.assign(5061..=5061, 2);
    client.set("bar", "1").unwrap();
    assert_eq!(asked(&cluster, 0, "SET", "bar"), 1);
    gate.release();
    wait_maps(&cluster, start, 2);
    for _ in 0..10 {
        assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    }
    assert_eq!(asked(&cluster, 0, "GET", "bar"), 0);
    assert_eq!(asked(&cluster, 2, "GET", "bar"), 10);
}

#[test]
fn a_map_older_than_the_question_does_not_answer_it() {
    let cluster = FakeCluster::start(2);
    let key = key_for_slot(12000);
    cluster.change(|topology| topology.unassign(12000..=12000));
    let client = connect(&cluster);
    let start = cluster.log().end();
    let first = hold_old_map(&cluster);
    let second = cluster.on("CLUSTER SLOTS").nth(2).hold();
    let pending = client.send::<Option<String>>(get(&key)).unwrap();
    first.wait_arrived(1);
    cluster.assign(12000..=12000, 1);
    first.release();
    second.wait_arrived(1);
    assert!(!pending.is_done());
    assert_eq!(cluster.log().key(&key).count(), 0);
    second.release();
    assert_eq!(pending.wait().unwrap(), None);
    assert_eq!(maps_asked(&cluster, start), 2);
}

#[test]
fn where_all_sources_fail_the_old_map_is_kept_and_asking_slows_down() {
    let cluster = FakeCluster::start(3);
    let client = connect(&cluster);
    let start = cluster.log().end();
    cluster.on("CLUSTER SLOTS").error("ERR not today");
    cluster.assign(5061..=5061, 1);
    client.set("bar", "1").unwrap();
    // Three nodes and the seed: four queries are one round.
    let queries = cluster.log().commands("CLUSTER SLOTS").since(start);
    let queries = queries.wait_for(12);
    let nodes: Vec<usize> = queries[..4].iter().map(|query| query.node).collect();
    assert_eq!(nodes[0], 1, "first the node that MOVED named");
    assert!(
        [0, 1, 2].iter().all(|node| nodes.contains(node)),
        "then all others: {nodes:?}"
    );
    let second = queries[4].at - queries[0].at;
    let third = queries[8].at - queries[4].at;
    assert!(second >= Duration::from_millis(150), "{second:?}");
    assert!(third >= Duration::from_millis(350), "{third:?}");
    for key in ["bar", "b", "foo", "a"] {
        client.set(key, "1").unwrap();
    }
    assert_eq!(asked(&cluster, 0, "SET", "bar"), 1);
    assert!(client.stats().topology_failures >= 11);
}

#[test]
fn maps_that_are_empty_or_nonsense_are_not_adopted() {
    let nonsense = [
        resp::array(&[b""; 0]),
        resp::null(3),
        resp::simple("OK"),
        resp::array(&[resp::integer(5)]),
        resp::array(&[resp::array(&[resp::integer(0), resp::integer(99999)])]),
    ];
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let start = cluster.log().end();
    for (index, map) in nonsense.iter().enumerate() {
        cluster
            .on("CLUSTER SLOTS")
            .nth(index + 1)
            .reply(map.clone());
    }
    cluster.assign(5061..=5061, 1);
    client.set("bar", "1").unwrap();
    wait_maps(&cluster, start, nonsense.len() + 1);
    for key in ["bar", "b", "foo", "a"] {
        client.set(key, "1").unwrap();
    }
    assert_eq!(asked(&cluster, 0, "SET", "bar"), 1);
    assert_eq!(client.stats().total(|node| node.moved), 1);
}

#[test]
fn one_partial_map_takes_no_slot_from_its_owner() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let start = cluster.log().end();
    let mut partial = cluster.topology();
    partial.unassign(9000..=16383);
    cluster.set_view(1, partial);
    // The named node knows too little, but others know better.
    cluster.assign(5061..=5061, 1);
    cluster.node(0).on("SET").key("bar").moved(5061, 1);
    cluster
        .node(1)
        .on("SET")
        .key("bar")
        .reply(resp::simple("OK"));
    cluster.node(1).on("GET").reply(resp::bulk("served"));
    let gate = cluster.on("CLUSTER SLOTS").times(1).hold_reply();
    client.set("bar", "1").unwrap();
    gate.wait_arrived(1);
    cluster.clear_view(1);
    gate.release();
    assert_eq!(value(&client, "foo").as_deref(), Some("served"));
    wait_maps(&cluster, start, 2);
    assert_eq!(value(&client, "foo").as_deref(), Some("served"));
    assert_eq!(asked(&cluster, 1, "GET", "foo"), 2);
}

#[test]
fn a_storm_of_redirects_does_not_become_one_of_queries() {
    let cluster = FakeCluster::start(2);
    let interval = Duration::from_millis(50);
    let client = builder(&cluster).refresh_min_interval(interval).connect();
    let client = client.unwrap();
    let (start, since) = (cluster.log().end(), Instant::now());
    let mut slots = 0..8000;
    while since.elapsed() < Duration::from_millis(600) {
        let slot = slots.next().expect("slots enough");
        cluster.assign(slot..=slot, 1);
        client.set(key_for_slot(slot), "1").unwrap();
    }
    let most = most_refreshes(since, interval);
    let queries = maps_asked(&cluster, start);
    assert!(
        (2..=most).contains(&queries),
        "{queries} queries, not {most}"
    );
    assert!(client.stats().total(|node| node.moved) > 10);
}

#[test]
fn the_query_has_a_connection_of_its_own() {
    let cluster = FakeCluster::start(2);
    // What is read to find out may meet the busy connection, and waits there for so long.
    let limit = Duration::from_millis(200);
    let client = builder(&cluster).drain_limit(limit).connect().unwrap();
    cluster.node(1).wait_open(1);
    let shared = cluster.node(1).connections()[0];
    let start = cluster.log().end();
    let gate = cluster.node(1).hold("GET", "foo");
    let stuck = client.send::<Option<String>>(get("foo")).unwrap();
    gate.wait_arrived(1);
    // The node that is asked first is the one whose shared connection is busy.
    cluster.change(|topology| {
        topology.assign(3300..=3300, 1);
        topology.assign(9500..=9500, 0);
    });
    let moved = client.send::<Option<String>>(get("b")).unwrap();
    let log = cluster.log().on(1).commands("CLUSTER SLOTS").since(start);
    let query = log.wait_for(1)[0].clone();
    assert_ne!(query.connection, shared);
    wait_owner(&client, &cluster, 0, "{}foo");
    assert!(!stuck.is_done() && !moved.is_done());
    gate.release();
    stuck.wait().unwrap();
    moved.wait().unwrap();
    cluster.node(1).wait_open(1);
}

#[test]
fn commands_flow_while_a_query_hangs() {
    let cluster = FakeCluster::start(3);
    let client = connect(&cluster);
    let gate = cluster.on("CLUSTER SLOTS").hold();
    cluster.assign(5061..=5061, 2);
    client.set("bar", "1").unwrap();
    gate.wait_arrived(1);
    for key in keys_in(0..=16383, 300) {
        client.set(key, "1").unwrap();
    }
    // What truly needs the map ends at its own deadline.
    cluster
        .on("SET")
        .key("gone")
        .error("CLUSTERDOWN Hash slot not served");
    let limit = Duration::from_millis(200);
    let command = reslot::cmd("SET").arg("gone").arg(1).timeout(limit);
    let since = Instant::now();
    let error = client.query::<()>(command).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(since.elapsed() >= limit);
}

#[test]
fn a_query_that_times_out_is_followed_by_one_to_another_node() {
    let cluster = FakeCluster::start(3);
    let builder = builder(&cluster).connect_timeout(Duration::from_millis(200));
    let client = builder.connect().unwrap();
    let start = cluster.log().end();
    cluster.node(2).on("CLUSTER SLOTS").ignore();
    cluster.change(|topology| {
        topology.assign(5061..=5061, 2);
        topology.assign(3300..=3300, 1);
    });
    client.set("bar", "1").unwrap();
    wait_maps(&cluster, start, 2);
    wait_owner(&client, &cluster, 1, "b");
    let first = cluster.log().commands("CLUSTER SLOTS").since(start).list();
    assert_eq!(first[0].node, 2);
    assert!(client.stats().topology_failures >= 1);
}

#[test]
fn an_idle_client_asks_once_in_a_period() {
    let cluster = FakeCluster::start(1);
    let period = Duration::from_millis(150);
    let builder = builder(&cluster).periodic_refresh(period);
    let client = builder.connect().unwrap();
    let queries = cluster.log().commands("CLUSTER SLOTS").wait_for(3);
    // Nine tenths of the period at least.
    assert!(queries[2].at - queries[1].at >= Duration::from_millis(130));
    poll_until(crate::fake::PATIENCE, "the counter", || {
        let count = client
            .stats()
            .refreshes
            .get(&RefreshCause::Periodic)
            .copied();
        (count >= Some(2)).then_some(()).ok_or(format!("{count:?}"))
    });
}

#[test]
fn waiting_commands_do_not_wait_for_slow_queries_of_others() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.begin_move(5061, 2);
    for _ in 0..5 {
        client.incr("bar").unwrap();
    }
    assert_eq!(asked(&cluster, 0, "INCR", "bar"), 5);
    assert_eq!(client.stats().nodes[&addr(&cluster, 2)].connects, 1);
    assert_eq!(seen(&cluster, 1), [""; 0]);
}
