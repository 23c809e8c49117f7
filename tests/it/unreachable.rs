//! A call that ends because its node cannot be reached says why it cannot.

use std::time::Duration;

use reslot::{Certainty, Client, Error, Maintenance, Result, Route, Value, cmd};

use crate::calls::{self, kill_and_notice, words};
use crate::fake::FakeCluster;

const SHORT: Duration = Duration::from_millis(300);

fn short(cluster: &FakeCluster) -> Client {
    let builder = calls::builder(cluster).response_timeout(SHORT);
    builder.connect().unwrap()
}

/// Not sent, and for this reason.
#[track_caller]
fn assert_named(error: &Error, cluster: &FakeCluster, why: &str) {
    let failure = error.failure().expect("a failure");
    assert_eq!(failure.certainty(), Certainty::NotSent, "{error}");
    let told = failure.connect_error().unwrap_or_default();
    assert!(told.contains(why), "{error}");
    let node = cluster.node(0).addr();
    let text = format!("deadline passed; not sent; node {node} (cannot connect: {told})");
    assert!(error.to_string().starts_with(&text), "{error}");
    assert_eq!(error.attempts(), 0);
}

#[test]
fn all_kinds_of_calls_to_a_dead_node_name_the_error_of_connecting() {
    let cluster = FakeCluster::start(2);
    let client = short(&cluster);
    kill_and_notice(&cluster, &client, 0, "bar");
    const REFUSED: &str = "Connection refused";
    let error = calls::run(&client, "GET bar").unwrap_err();
    assert_named(&error, &cluster, REFUSED);
    let mut pipeline = client.pipeline();
    pipeline.add(words("GET bar")).add(words("GET foo"));
    let named = |node| words("PING").route(Route::Node(calls::addr(&cluster, node)));
    pipeline.add(named(0)).add(named(1));
    let held = cluster.node(1).on("PING").times(1).hold();
    let results = pipeline.execute().unwrap();
    held.release();
    assert_named(results[0].as_ref().unwrap_err(), &cluster, REFUSED);
    assert_eq!(results[1], Ok(Value::Null));
    assert_named(results[2].as_ref().unwrap_err(), &cluster, REFUSED);
    let other = results[3].as_ref().unwrap_err();
    assert_eq!(other.node(), Some(&calls::addr(&cluster, 1)));
    assert_eq!(other.failure().unwrap().connect_error(), None);
    let error = calls::transaction(&client, &["GET bar"]).unwrap_err();
    assert_named(&error, &cluster, REFUSED);
    let blocking = words("BLPOP bar 0.1").timeout(SHORT);
    let error = client.query::<Value>(blocking).unwrap_err();
    assert_named(&error, &cluster, REFUSED);
    let watched: Result<()> = client.watch(&["bar"], |_| Ok(()));
    assert_named(&watched.unwrap_err(), &cluster, REFUSED);
    // It is forgotten as soon as there is a connection.
    cluster.node(0).listen();
    let found = client.query(cmd("GET").arg("bar").timeout(calls::LONG));
    assert_eq!(found, Ok(Value::Null));
    let held = cluster.node(0).on("GET").hold();
    let error = calls::run(&client, "GET bar").unwrap_err();
    held.release();
    assert_eq!(error.failure().unwrap().connect_error(), None, "{error}");
}

#[test]
fn a_command_for_any_node_names_one_if_none_can_be_reached() {
    let cluster = FakeCluster::start(1);
    let client = short(&cluster);
    kill_and_notice(&cluster, &client, 0, "bar");
    let error = calls::run(&client, "PING").unwrap_err();
    assert_named(&error, &cluster, "Connection refused");
    let mut pipeline = client.pipeline();
    pipeline.add(words("PING"));
    let error = pipeline.execute().unwrap().remove(0).unwrap_err();
    assert_named(&error, &cluster, "Connection refused");
}

#[test]
fn announcements_that_a_server_does_not_know_are_named() {
    let cluster = FakeCluster::start(1);
    cluster
        .on("CLIENT")
        .error("ERR unknown subcommand 'MAINT_NOTIFICATIONS'");
    let builder = calls::builder(&cluster).response_timeout(SHORT);
    let client = builder.maintenance(Maintenance::On).connect().unwrap();
    let error = calls::run(&client, "GET bar").unwrap_err();
    assert_named(&error, &cluster, "MAINT_NOTIFICATIONS");
}

#[test]
fn commands_whose_callers_gave_up_are_counted() {
    let cluster = FakeCluster::start(1);
    let client = short(&cluster);
    let held = cluster.node(0).on("GET").hold();
    calls::run(&client, "GET bar").unwrap_err();
    let mut pipeline = client.pipeline();
    for _ in 0..3 {
        pipeline.add(words("GET bar"));
    }
    pipeline.execute().unwrap();
    let _ = calls::send(&client, "GET bar").cancel();
    let blocking = words("BLPOP bar 0").timeout(SHORT);
    client.query::<Value>(blocking).unwrap_err();
    let stats = client.stats();
    assert_eq!((stats.timed_out, stats.cancelled), (5, 1));
    held.release();
    calls::run(&client, "SET bar 1").unwrap();
    let late = client.stats();
    // What was cancelled may have been written before.
    let replies = late.total(|node| node.succeeded);
    assert!(
        (5..=6).contains(&replies),
        "late replies are replies: {replies}"
    );
    assert_eq!((late.timed_out, late.cancelled), (5, 1));
}
