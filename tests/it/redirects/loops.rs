//! Nodes that send a command round in circles: bounded, named, cheap.

use std::time::{Duration, Instant};

use reslot::{Certainty, Reason};

use crate::clients::{addr, asked, builder, maps_asked, most_refreshes, never_refreshing};
use crate::fake::FakeCluster;

/// Two nodes, each of which believes that the other one owns the slot of `bar`.
fn quarrel() -> FakeCluster {
    let cluster = FakeCluster::start(2);
    let mut view = cluster.topology();
    view.assign(5061..=5061, 1);
    cluster.set_view(0, view);
    cluster
}

#[test]
fn end_when_the_budget_is_used_up() {
    let cluster = quarrel();
    let builder = never_refreshing(builder(&cluster)).max_redirects(2);
    let client = builder.connect().unwrap();
    let error = client.incr("bar").unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!(failure.reason(), Reason::TooManyRedirects, "{error}");
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert_eq!(
        error.code(),
        Some("MOVED"),
        "the last redirect is the cause"
    );
    assert_eq!(failure.attempts(), 3);
    assert_eq!(error.slot().unwrap().number(), 5061);
    let hops = failure.hops();
    assert_eq!(hops.len(), 3);
    assert_eq!(hops[0], hops[2], "it went there and back");
    assert_eq!(cluster.log().commands("INCR").count(), 3);
    assert_eq!(client.stats().redirects_exhausted, 1);
}

#[test]
fn with_no_budget_are_not_entered_but_teach() {
    let cluster = FakeCluster::start(2);
    let builder = never_refreshing(builder(&cluster)).max_redirects(0);
    let client = builder.connect().unwrap();
    cluster.assign(5061..=5061, 1);
    let error = client.incr("bar").unwrap_err();
    assert_eq!(error.failure().unwrap().reason(), Reason::TooManyRedirects);
    assert_eq!(error.node(), Some(&addr(&cluster, 0)));
    assert_eq!(client.incr("bar").unwrap(), 1);
    assert_eq!(asked(&cluster, 0, "INCR", "bar"), 1);
}

#[test]
fn of_a_misconfigured_cluster_cost_few_queries_and_hurt_nobody_else() {
    let cluster = quarrel();
    let client = builder(&cluster).connect().unwrap();
    let (start, since) = (cluster.log().end(), Instant::now());
    let error = client.incr("bar").unwrap_err();
    assert_eq!(error.failure().unwrap().reason(), Reason::TooManyRedirects);
    assert_eq!(error.attempts(), 17, "the first and 16 more");
    assert_eq!(cluster.log().commands("INCR").count(), 17);
    let interval = Duration::from_millis(100);
    let most = most_refreshes(since, interval);
    let asked = maps_asked(&cluster, start);
    assert!(asked <= most, "{asked} queries, not {most}");
    // From the second hop on it paused: 15 pauses of at least half of 1, 2, 4, … 50 ms.
    let gets = cluster.log().commands("INCR").list();
    let took = gets[16].at - gets[0].at;
    assert!(took >= Duration::from_millis(250), "only {took:?}");
    client.set("b", "1").unwrap();
    client.set("foo", "1").unwrap();
}

#[test]
fn that_end_in_time_succeed() {
    let cluster = quarrel();
    let client = builder(&cluster).connect().unwrap();
    let pending = client.send::<i64>(crate::clients::incr("bar")).unwrap();
    cluster.log().commands("INCR").wait_for(4);
    cluster.clear_view(0);
    assert_eq!(pending.wait().unwrap(), 1);
    assert_eq!(cluster.executions("bar"), 1);
}
