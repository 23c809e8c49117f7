//! Redirects that make no sense: returned as they are, the map untouched, the client usable.

use reslot::{Error, RefreshCause};

use crate::clients::{asked, builder, connect, get, incr, never_refreshing, seen, value};
use crate::fake::FakeCluster;

const NONSENSE: [&str; 17] = [
    "MOVED __proto__ 127.0.0.1:7000",
    "MOVED -1 127.0.0.1:7000",
    "MOVED +5061 127.0.0.1:7000",
    "MOVED 16384 127.0.0.1:7000",
    "MOVED 99999 127.0.0.1:7000",
    "MOVED 99999999999999999999 127.0.0.1:7000",
    "MOVED 5061",
    "MOVED",
    "MOVED 5061 127.0.0.1:",
    "MOVED 5061 127.0.0.1:99999",
    "MOVED 5061 127.0.0.1:0",
    "MOVED 5061 127.0.0.1:x",
    "MOVED 5061 127.0.0.1",
    "MOVED  5061 127.0.0.1:7000",
    "ASK",
    "ASK x 127.0.0.1:7000",
    "ASK 5061 :",
];

#[test]
fn are_returned_unchanged() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    for (index, line) in NONSENSE.iter().enumerate() {
        cluster.on("GET").nth(index + 1).error(line);
    }
    for line in NONSENSE {
        let error = client.get::<String>("bar").unwrap_err();
        assert!(matches!(error, Error::Server(_)), "{line}: {error:?}");
        assert_eq!(error.server_error().unwrap().line(), line);
        assert_eq!(error.attempts(), 1, "{line}");
    }
    client.set("bar", "1").unwrap();
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    assert_eq!(asked(&cluster, 0, "GET", "bar"), NONSENSE.len() + 1);
    assert_eq!(seen(&cluster, 1), [""; 0]);
    assert_eq!(client.stats().total(|node| node.moved + node.ask), 0);
}

#[test]
fn with_a_huge_endpoint_hurt_only_their_command() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let long = "h".repeat(300);
    cluster
        .on("GET")
        .nth(1)
        .error(&format!("MOVED 5061 {long}:1"));
    let huge = "h".repeat(1 << 20);
    cluster
        .on("GET")
        .nth(2)
        .error(&format!("MOVED 5061 {huge}:1"));
    let error = client.get::<String>("bar").unwrap_err();
    assert_eq!(error.code(), Some("MOVED"));
    let error = client
        .query::<String>(get("bar").read_only(false))
        .unwrap_err();
    assert!(error.failure().is_some(), "{error}");
    assert_eq!(client.incr("bar").unwrap(), 1);
}

#[test]
fn in_a_pipeline_fail_alone() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster
        .on("GET")
        .key("bar")
        .error("MOVED 16384 127.0.0.1:7000");
    let mut pipeline = client.pipeline();
    pipeline.add(incr("b")).add(get("bar")).add(incr("foo"));
    let results = pipeline.execute().unwrap();
    assert!(results[0].is_ok() && results[2].is_ok(), "{results:?}");
    let error = results[1].as_ref().unwrap_err();
    assert_eq!(
        error.server_error().unwrap().line(),
        "MOVED 16384 127.0.0.1:7000"
    );
    assert_eq!(cluster.log().data().count(), 3);
}

#[test]
fn for_another_slot_are_not_followed_but_make_the_client_look() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let start = cluster.log().end();
    cluster.node(0).on("GET").times(1).moved(5062, 1);
    let error = client.get::<String>("bar").unwrap_err();
    assert_eq!(error.code(), Some("MOVED"));
    assert_eq!(error.attempts(), 1);
    let maps = cluster.log().commands("CLUSTER SLOTS").since(start);
    maps.wait_for(1);
    assert_eq!(client.stats().refreshes[&RefreshCause::Confused], 1);
    assert_eq!(value(&client, "bar"), None);
    assert_eq!(seen(&cluster, 1), [""; 0]);
}

#[test]
fn for_another_slot_do_not_change_the_map() {
    let cluster = FakeCluster::start(2);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    let other = format!("{{{}}}", crate::fake::key_for_slot(5062));
    cluster.node(0).on("GET").key("bar").moved(5062, 1);
    client.get::<String>("bar").unwrap_err();
    value(&client, &other);
    assert_eq!(asked(&cluster, 0, "GET", &other), 1);
    assert_eq!(seen(&cluster, 1), [""; 0]);
}
