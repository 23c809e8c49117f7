//! Handshakes: nothing runs before they are complete, and what they meet is told in its own words.

use std::time::{Duration, Instant};

use reslot::{Error, Misuse, Value};

use crate::fake::{FakeCluster, Script, resp};
use crate::run::{builder, connect, pipeline, run, send, texts, words};

/// Long enough for any machine; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(20);

#[track_caller]
fn connect_error(cluster: &FakeCluster) -> String {
    let error = builder(cluster).connect().unwrap_err();
    assert!(matches!(error, Error::Connect(_)), "{error}");
    error.to_string()
}

#[test]
fn a_reply_that_is_missing_in_the_handshake_ends_it_and_lets_no_command_out() {
    let cluster = FakeCluster::start(1);
    let limit = Duration::from_millis(200);
    let settings = builder(&cluster)
        .connect_timeout(limit)
        .response_timeout(LONG);
    let client = settings.connect().unwrap();
    let swallow = cluster
        .node(0)
        .on("CLIENT SETINFO")
        .key("LIB-NAME")
        .ignore();
    let start = cluster.log().end();
    cluster.node(0).drop_connections();
    let handshakes = cluster.log().since(start).commands("CLIENT SETINFO");
    let handshakes = handshakes.key("LIB-NAME");
    // What is sent before the client has noticed may be lost with the old connection.
    handshakes.wait_for(1);
    let waiting = send(&client, "INCR bar");
    handshakes.wait_for(4);
    assert_eq!(cluster.log().commands("INCR").count(), 0);
    swallow.remove();
    assert_eq!(waiting.wait().unwrap(), Value::Integer(1));
}

#[test]
fn servers_without_the_new_protocol_are_spoken_to_in_the_old_one() {
    let old = FakeCluster::builder(2).resp2_only().start();
    let proxy = FakeCluster::start(2);
    proxy
        .on("HELLO")
        .error("NOPROTO unsupported protocol version");
    for cluster in [old, proxy] {
        let client = connect(&cluster);
        let lines = ["SET bar v", "GET bar", "GET none", "INCR foo"];
        assert_eq!(texts(&pipeline(&client, &lines)), ["OK", "v", "nil", "1"]);
    }
}

#[test]
fn a_refused_login_is_told_and_not_retried_in_the_old_protocol() {
    for refusal in [
        "WRONGPASS invalid username-password pair or user is disabled.",
        "NOAUTH HELLO must be called with the client already authenticated",
        "NOPERM this user has no permissions to run the 'hello' command",
        "ERR max number of clients reached",
    ] {
        let cluster = FakeCluster::start(1);
        cluster.on("HELLO").error(refusal);
        let text = connect_error(&cluster);
        assert!(text.contains(refusal), "{text}");
        assert_eq!(cluster.log().commands("AUTH").count(), 0);
        assert_eq!(cluster.log().commands("CLUSTER").count(), 0);
    }
}

#[test]
fn a_refused_topology_command_is_told_in_the_servers_words() {
    let refusal = "NOPERM this user has no permissions to run the 'cluster|slots' command";
    let cluster = FakeCluster::start(2);
    cluster.on("CLUSTER SLOTS").error(refusal);
    let text = connect_error(&cluster);
    assert_eq!(text.matches(refusal).count(), 2, "{text}");
}

#[test]
fn several_seeds_that_are_no_cluster_are_told_so() {
    let refusal = "ERR This instance has cluster support disabled";
    let cluster = FakeCluster::start(2);
    cluster.on("CLUSTER SLOTS").error(refusal);
    let text = connect_error(&cluster);
    assert!(text.contains(refusal), "{text}");
}

#[test]
fn a_single_server_takes_keys_of_all_slots() {
    let cluster = FakeCluster::start(1);
    cluster
        .on("CLUSTER SLOTS")
        .error("ERR This instance has cluster support disabled");
    let client = connect(&cluster);
    let lines = ["SET foo 1", "SET bar 2", "GET foo", "GET bar"];
    assert_eq!(texts(&pipeline(&client, &lines)), ["OK", "OK", "1", "2"]);
}

#[test]
fn seeds_that_are_down_or_silent_are_each_named_within_the_limit() {
    let cluster = FakeCluster::start(3);
    cluster.node(0).kill();
    cluster.node(1).set_accept(crate::fake::Accept::Silent);
    cluster.node(2).set_accept(crate::fake::Accept::CloseAtOnce);
    let begun = Instant::now();
    let settings = builder(&cluster).connect_timeout(Duration::from_millis(300));
    let error = settings.connect().unwrap_err();
    assert!(begun.elapsed() < LONG / 2);
    let Error::Connect(reasons) = &error else {
        panic!("{error}")
    };
    for node in cluster.nodes() {
        let addr = node.addr().to_string();
        assert_eq!(
            reasons
                .iter()
                .filter(|reason| reason.contains(&addr))
                .count(),
            1
        );
    }
    cluster.node(1).wait_open(0);
}

#[test]
fn the_whole_of_connecting_has_a_limit_of_its_own() {
    let cluster = FakeCluster::start(1);
    cluster.node(0).set_accept(crate::fake::Accept::Silent);
    let begun = Instant::now();
    let limit = Duration::from_millis(200);
    let settings = builder(&cluster)
        .connect_timeout(LONG * 3)
        .connect_deadline(limit);
    let error = settings.connect().unwrap_err();
    assert!(matches!(error, Error::Connect(_)), "{error}");
    assert!((limit..LONG).contains(&begun.elapsed()));
    cluster.node(0).wait_open(0);
}

#[test]
fn a_silent_seed_does_not_hold_up_the_others() {
    let cluster = FakeCluster::builder(2).owners(0).start();
    cluster.assign(0..=16383, 1);
    cluster.node(0).set_accept(crate::fake::Accept::Silent);
    let begun = Instant::now();
    let client = builder(&cluster).connect_timeout(LONG).connect().unwrap();
    run(&client, "INCR bar").unwrap();
    client.close(LONG).unwrap();
    assert!(begun.elapsed() < LONG / 2);
    cluster.node(0).wait_open(0);
}

#[test]
fn a_handshake_in_single_bytes_between_pushes_is_a_handshake() {
    let cluster = FakeCluster::start(1);
    let push = resp::push(&[resp::bulk("hello"), resp::bulk("you")]);
    let bytes = Script::new()
        .run()
        .send_in_pieces(1, Duration::ZERO)
        .raw(push);
    cluster.on("HELLO").script(bytes.clone());
    cluster.on("CLUSTER SLOTS").script(bytes);
    let client = connect(&cluster);
    assert_eq!(run(&client, "INCR bar").unwrap(), Value::Integer(1));
}

#[test]
fn commands_that_would_change_the_shared_connection_are_refused_unsent() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let start = cluster.log().end();
    for line in [
        "RESET",
        "CLIENT REPLY OFF",
        "CLIENT REPLY SKIP",
        "MONITOR",
        "HELLO 2",
        "SELECT 1",
        "SUBSCRIBE c",
        "PSUBSCRIBE c*",
        "SSUBSCRIBE c",
        "UNSUBSCRIBE",
        "READONLY",
        "READWRITE",
        "ASKING",
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH k",
        "UNWATCH",
        "AUTH secret",
        "QUIT",
        "CLIENT TRACKING ON",
        "CLIENT ID",
        "CLIENT NO-EVICT on",
        "multi",
    ] {
        let refused = |error: Error| match error {
            Error::Misuse(Misuse::Refused { why, .. }) => assert!(!why.is_empty(), "{line}"),
            other => panic!("{line}: {other}"),
        };
        refused(run(&client, line).unwrap_err());
        refused(client.send::<Value>(words(line)).unwrap_err());
        refused(pipeline(&client, &[line, "PING"]).remove(0).unwrap_err());
    }
    assert_eq!(
        cluster
            .log()
            .since(start)
            .when(|entry| !entry.is("PING"))
            .count(),
        0
    );
}
