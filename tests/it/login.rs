//! Logins: every connection logs in before anything else, whatever it is for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reslot::{Certainty, Credentials, Error, Protocol, ReadFrom, Value};

use crate::fake::{FakeCluster, resp};
use crate::run::{builder, run, send, words};

/// Long enough for any machine; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(20);

/// The first command of every connection so far.
fn first_commands(cluster: &FakeCluster) -> Vec<String> {
    let log = cluster.log().list();
    let last = log.iter().map(|entry| entry.connection).max().unwrap_or(0);
    let first = |connection| log.iter().find(|entry| entry.connection == connection);
    let words = |entry: &crate::fake::Entry| {
        let words = (0..entry.argv.len()).map(|index| entry.text(index));
        words.collect::<Vec<_>>().join(" ")
    };
    (0..=last).filter_map(first).map(words).collect()
}

#[test]
fn seeds_discovered_nodes_replicas_and_redirect_targets_all_get_the_login() {
    let cluster = FakeCluster::builder(4).owners(2).password("secret").start();
    cluster.replicate(2, 0);
    let settings = builder(&cluster)
        .password("secret")
        .read_from(ReadFrom::PreferReplica);
    let client = settings.connect().unwrap();
    run(&client, "SET bar v").unwrap();
    assert_eq!(run(&client, "GET bar").unwrap(), Value::Bulk(b"v".into()));
    cluster.assign(12182..=12182, 3);
    assert_eq!(run(&client, "INCR foo").unwrap(), Value::Integer(1));
    cluster.begin_move(15495, 3);
    assert_eq!(run(&client, "INCR a").unwrap(), Value::Integer(1));
    for node in 0..4 {
        assert!(
            cluster.log().on(node).data().count() > 0,
            "node {node} was used"
        );
    }
    let first = first_commands(&cluster);
    assert!(
        first
            .iter()
            .all(|first| first == "HELLO 3 AUTH default secret"),
        "{first:?}"
    );
}

#[test]
fn a_user_logs_in_by_name_and_with_the_old_protocol_by_auth() {
    let cluster = FakeCluster::builder(1).password("secret").start();
    let named = || {
        builder(&cluster)
            .username("app")
            .password("secret")
            .client_name("mine")
    };
    let client = named().connect().unwrap();
    run(&client, "INCR bar").unwrap();
    let start = cluster.log().end();
    let old = named().protocol(Protocol::Resp2).connect().unwrap();
    assert_eq!(run(&old, "INCR bar").unwrap(), Value::Integer(2));
    let auth = "AUTH app secret";
    assert_eq!(cluster.log().since(start).texts()[0], auth);
    assert_eq!(cluster.log().since(start).commands("HELLO").count(), 0);
    assert_eq!(cluster.log().texts()[0], "HELLO 3 AUTH app secret");
    assert_eq!(cluster.log().texts()[1], "CLIENT SETNAME mine");
}

#[test]
fn a_wrong_password_is_named_and_nothing_is_tried_without_login() {
    let cluster = FakeCluster::builder(2).password("secret").start();
    let error = builder(&cluster).password("wrong").connect().unwrap_err();
    let Error::Connect(reasons) = &error else {
        panic!("{error}")
    };
    assert_eq!(reasons.len(), 2, "each seed's own reason");
    assert!(
        reasons.iter().all(|reason| reason.contains("WRONGPASS")),
        "{reasons:?}"
    );
    assert!(
        !error.to_string().contains("wrong "),
        "the password is not shown"
    );
    let error = builder(&cluster).connect().unwrap_err();
    assert!(error.to_string().contains("NOAUTH"), "{error}");
    assert_eq!(cluster.log().commands("CLUSTER").count(), 0);
}

#[test]
fn commands_that_waited_for_a_reconnect_run_after_the_login() {
    for resp2_only in [false, true] {
        let mut nodes = FakeCluster::builder(1).password("secret");
        if resp2_only {
            nodes = nodes.resp2_only();
        }
        let cluster = nodes.start();
        let settings = builder(&cluster).password("secret").response_timeout(LONG);
        let client = settings.connect_timeout(LONG).connect().unwrap();
        let login = if resp2_only { "AUTH" } else { "HELLO" };
        let slow = cluster.node(0).on(login).hold_reply();
        cluster.node(0).drop_connections();
        slow.wait_arrived(1);
        let before = cluster.log().end();
        let waiting: Vec<_> = (0..100)
            .map(|n| send(&client, &format!("INCR k{n}")))
            .collect();
        assert!(
            cluster
                .log()
                .since(before)
                .commands("INCR")
                .wait_within(1, SETTLE)
                .is_none()
        );
        slow.release();
        for pending in waiting {
            assert_eq!(pending.wait().unwrap(), Value::Integer(1));
        }
        let first = first_commands(&cluster);
        assert!(
            first.iter().all(|first| first.starts_with("HELLO 3")),
            "{first:?}"
        );
    }
}

/// Long enough that a command sent too early would have come.
const SETTLE: Duration = Duration::from_millis(50);

#[test]
fn a_rotated_password_is_used_from_the_next_connection_on() {
    let cluster = FakeCluster::start(1);
    let rotated = Arc::new(AtomicBool::new(false));
    let new = Arc::clone(&rotated);
    let secret = move || {
        if new.load(Ordering::SeqCst) {
            "new"
        } else {
            "old"
        }
    };
    let settings = builder(&cluster).response_timeout(LONG);
    let client = settings
        .credentials(move |_| Credentials::password(secret()))
        .connect();
    let client = client.unwrap();
    let open = cluster.node(0).connections();
    cluster
        .on("HELLO")
        .when(|entry| !entry.has("new"))
        .error("WRONGPASS invalid password");
    run(&client, "INCR bar").expect("the old connection stays");
    assert_eq!(cluster.node(0).connections(), open);
    cluster.node(0).drop_connections();
    cluster.log().commands("HELLO").key("old").wait_for(4);
    let waiting = send(&client, "INCR bar");
    rotated.store(true, Ordering::SeqCst);
    assert_eq!(waiting.wait().unwrap(), Value::Integer(2));
}

#[test]
fn a_closure_for_credentials_that_panics_fails_its_connection_only() {
    let cluster = FakeCluster::start(1);
    let broken = Arc::new(AtomicBool::new(false));
    let panics = Arc::clone(&broken);
    let provide = move |_: &reslot::NodeAddr| {
        assert!(!panics.load(Ordering::SeqCst), "on purpose");
        Credentials::password("any")
    };
    cluster
        .on("HELLO")
        .compute(|_| resp::map(3, &[resp::bulk("proto"), resp::integer(3)]));
    let settings = builder(&cluster)
        .response_timeout(LONG)
        .credentials(provide);
    let client = settings.connect().unwrap();
    broken.store(true, Ordering::SeqCst);
    cluster.node(0).drop_connections();
    loop {
        let short = words("INCR bar").timeout(Duration::from_millis(50));
        let error = client.query::<Value>(short).unwrap_err();
        if error.certainty() == reslot::Certainty::NotSent {
            break;
        }
    }
    broken.store(false, Ordering::SeqCst);
    run(&client, "INCR foo").unwrap();
}

/// What follows a refused MULTI would run, so nothing follows it before one was accepted.
#[test]
fn a_user_that_may_not_run_multi_runs_nothing_of_a_transaction() {
    let cluster = FakeCluster::builder(1).password("secret").start();
    let client = builder(&cluster).password("secret").connect().unwrap();
    let increment = || client.transaction::<(i64,)>(|t| _ = t.add(words("INCR bar")));
    let watched = || client.watch(&["bar"], |session| session.query::<Value>(words("GET bar")));
    cluster.on("MULTI").times(2).error("NOPERM no multi");
    for error in [increment().unwrap_err(), watched().unwrap_err()] {
        assert_eq!(error.code(), Some("NOPERM"), "{error}");
        assert_eq!(error.certainty(), Certainty::NotSent, "{error}");
    }
    assert_eq!(cluster.log().commands("INCR").count(), 0);
    assert_eq!(cluster.log().commands("WATCH").count(), 0);
    assert_eq!(watched(), Ok(Value::Null));
    assert_eq!(increment(), Ok((1,)));
    assert_eq!(increment(), Ok((2,)));
    // Refused twice, accepted once, then taken for granted.
    assert_eq!(cluster.log().commands("MULTI").count(), 2 + 1 + 2);
}
