//! What a transaction may hold: one slot, whatever fits into the queue, and no command that would
//! change the connection.

use std::time::Duration;

use reslot::{Certainty, Client, Error, Misuse, Reason, Route, Value, WhenFull, cmd};

use crate::calls::{addr, builder, connect, count, run, seen, transaction, words};
use crate::fake::{FakeCluster, resp};

/// Nothing but set-up and map has reached any server.
#[track_caller]
fn check_nothing_sent(cluster: &FakeCluster) {
    assert_eq!(cluster.log().data().texts(), [""; 0]);
}

#[test]
fn keys_of_two_slots_are_refused_before_anything_is_sent() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    for other in ["foo", "b"] {
        let result = transaction(&client, &["SET bar 1", &format!("SET {other} 1")]);
        assert!(
            matches!(result, Err(Error::Misuse(Misuse::CrossSlot { .. }))),
            "{result:?}"
        );
    }
    let one_command = transaction(&client, &["GET bar", "MGET {bar}1 foo"]);
    assert!(matches!(
        one_command,
        Err(Error::Misuse(Misuse::CrossSlot { .. }))
    ));
    check_nothing_sent(&cluster);
}

#[test]
fn a_transaction_that_does_not_fit_is_refused_whole() {
    let cluster = FakeCluster::start(2);
    for when_full in [WhenFull::Refuse, WhenFull::Wait] {
        let builder = builder(&cluster).queue_commands(3).when_full(when_full);
        let client = builder.connect().unwrap();
        let failure = count(&client, "bar").unwrap_err();
        assert_eq!(failure.failure().unwrap().reason(), Reason::QueueFull);
        let text = "4 commands in one piece never fit: queue_commands is 3; not sent; node";
        assert!(failure.to_string().starts_with(text), "{failure}");
        assert_eq!(failure.certainty(), Certainty::NotSent);
        check_nothing_sent(&cluster);
    }
    let client = connect(&cluster);
    assert_eq!(run(&client, "GET bar"), Ok(Value::Null), "not QUEUED");
}

#[test]
fn a_flaw_of_one_member_keeps_all_of_it_back() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    // An argument that no server takes; its pages are never touched.
    let long = vec![0_u8; (512 << 20) + 1];
    for flawed in [
        cmd("SET").arg("bar").arg(&long[..]),
        cmd("DEL").key("bar").key("foo"),
    ] {
        let result = client.transaction::<Value>(|t| {
            t.add(words("SET bar 1")).add(flawed);
        });
        assert!(matches!(result, Err(Error::Misuse(_))), "{result:?}");
    }
    check_nothing_sent(&cluster);
    assert_eq!(run(&client, "GET bar"), Ok(Value::Null));
}

#[test]
fn commands_that_change_the_connection_are_refused() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    for line in [
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH bar",
        "UNWATCH",
        "SELECT 0",
        "AUTH secret",
        "HELLO 3",
        "SUBSCRIBE news",
        "SSUBSCRIBE bar",
        "QUIT",
        "RESET",
        "CLIENT REPLY OFF",
        "MONITOR",
        "READONLY",
        "ASKING",
    ] {
        let result = transaction(&client, &["SET bar 1", line]);
        let refused = matches!(result, Err(Error::Misuse(Misuse::Refused { .. })));
        assert!(refused, "{line}: {result:?}");
    }
    check_nothing_sent(&cluster);
}

#[test]
fn commands_without_keys_run_where_the_transaction_runs() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    // Alone they would be sent to all nodes, or to any.
    for name in ["DBSIZE", "KEYS"] {
        cluster.on(name).reply(resp::simple("QUEUED"));
    }
    let inner = ["+OK\r\n", ":1\r\n", "+PONG\r\n", "*0\r\n"];
    cluster.on("EXEC").times(1).reply(resp::array(&inner));
    let replies = transaction(&client, &["SET foo 1", "DBSIZE", "PING", "KEYS *"]).unwrap();
    assert_eq!(
        replies[1..3],
        [Ok(Value::Integer(1)), Ok(Value::Simple("PONG".into()))]
    );
    assert_eq!(cluster.log().on(1).commands("PING").count(), 1);
    assert_eq!(
        seen(&cluster, 1),
        ["MULTI", "SET foo", "DBSIZE", "KEYS *", "EXEC"]
    );
    assert_eq!(seen(&cluster, 0), [""; 0]);
}

#[test]
fn a_command_that_names_its_node_is_refused() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let result = client.transaction::<Vec<Value>>(|t| {
        t.add(words("SET foo 1"));
        t.add(cmd("PING").route(Route::Node(addr(&cluster, 0))));
    });
    let refused = matches!(result, Err(Error::Misuse(Misuse::Refused { .. })));
    assert!(refused, "{result:?}");
    check_nothing_sent(&cluster);
}

#[test]
fn a_blocking_command_in_a_transaction_does_not_block() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let replies = transaction(&client, &["BLPOP bar 0", "RPUSH bar x", "BLPOP bar 0"]);
    let popped = Value::Array(vec![Value::Bulk("bar".into()), Value::Bulk("x".into())]);
    assert_eq!(
        replies,
        Ok(vec![Ok(Value::Null), Ok(Value::Integer(1)), Ok(popped)])
    );
    assert_eq!(cluster.node(0).opened(), 1, "on the shared connection");
}

#[test]
fn transactions_without_keys_or_commands() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    assert_eq!(transaction::<&str>(&client, &[]), Ok(vec![]));
    check_nothing_sent(&cluster);
    let pong = Value::Simple("PONG".into());
    assert_eq!(
        transaction(&client, &["PING", "PING"]),
        Ok(vec![Ok(pong.clone()), Ok(pong)])
    );
    assert_eq!(cluster.log().commands("MULTI").count(), 1);
}

#[test]
fn a_single_server_takes_keys_of_all_slots_together() {
    let cluster = FakeCluster::start(1);
    cluster
        .on("CLUSTER SLOTS")
        .error("ERR This instance has cluster support disabled");
    let client = connect(&cluster);
    // The fake is a cluster after all: it queues one after the other and complains at the end.
    let failure = transaction(&client, &["SET bar 1", "SET foo 1"]).unwrap_err();
    assert_eq!(failure.code(), Some("CROSSSLOT"));
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert_eq!(cluster.log().commands("MULTI").count(), 1);
}

#[test]
fn a_timeout_of_its_own_ends_it() {
    let cluster = FakeCluster::start(2);
    let client: Client = connect(&cluster);
    let gate = cluster.node(0).on("EXEC").times(1).hold();
    let result = client.transaction::<Value>(|t| {
        t.add(cmd("INCR").arg("bar"))
            .timeout(Duration::from_millis(50));
    });
    let failure = result.unwrap_err();
    assert!(failure.is_timeout());
    assert_eq!(failure.certainty(), Certainty::Unknown);
    gate.release();
    assert_eq!(
        count(&client, "bar"),
        Ok((2, "2".into())),
        "it ran, and its reply is dropped"
    );
}
