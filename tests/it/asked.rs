//! Commands that the client does not know: a server is asked first, and all that ends a call ends
//! that, too.

use std::time::Duration;

use reslot::{CancelToken, Certainty, Client, Error, Result, Value, WatchOptions, cmd};

use crate::calls::{apart, connect, done, seen};
use crate::fake::FakeCluster;
use crate::run::{builder, pipeline, texts};

fn unknown() -> reslot::Cmd {
    cmd("MODULE.SET").arg("bar").arg(1)
}

fn first(results: Result<Vec<Result<Value>>>) -> Result<Value> {
    results.and_then(|mut results| results.remove(0))
}

/// Calls of an unknown command, each with this token in its way.
const CALLS: [fn(&Client, &CancelToken) -> Result<Value>; 7] = [
    |client, token| client.query(unknown().cancel_token(token)),
    |client, token| client.send(unknown().cancel_token(token))?.wait(),
    |client, token| {
        let mut pipeline = client.pipeline();
        pipeline.add(unknown()).cancel_token(token);
        first(pipeline.execute())
    },
    |client, token| {
        client.transaction(|t| {
            t.add(unknown()).cancel_token(token);
        })
    },
    |client, token| client.watch(&["bar"], |s| s.query(unknown().cancel_token(token))),
    |client, token| {
        let options = WatchOptions::new().cancel_token(token);
        client.watch_with(&["bar"], &options, |session| session.query(unknown()))
    },
    |client, token| {
        client.watch(&["bar"], |session| {
            session.transaction(|t| {
                t.add(unknown()).cancel_token(token);
            })
        })
    },
];

#[test]
fn a_cancel_ends_a_call_whose_command_is_asked_about() {
    for (index, call) in CALLS.into_iter().enumerate() {
        let cluster = FakeCluster::start(1);
        let client = connect(&cluster);
        let held = cluster.on("COMMAND").hold();
        let token = CancelToken::new();
        let cancel = token.clone();
        let call = apart(&client, move |client| call(client, &token));
        held.wait_arrived(1);
        cancel.cancel();
        let error = done(call).unwrap_err();
        held.release();
        assert!(matches!(error, Error::Cancelled(_)), "{index}: {error}");
        assert_eq!(error.certainty(), Certainty::NotSent, "{index}");
        let sent = seen(&cluster, 0);
        assert!(!sent.iter().any(|line| line.contains("MODULE")), "{sent:?}");
    }
}

#[test]
fn a_command_that_was_only_asked_about_was_not_sent() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster).retry_reads(false).connect().unwrap();
    cluster.on("COMMAND").nth(1).ignore();
    let late = unknown().timeout(Duration::from_millis(100));
    let error = client.query::<Value>(late).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(
        (error.certainty(), error.attempts()),
        (Certainty::NotSent, 0)
    );
    cluster.node(0).drop_connections();

    let closed = cluster.on("COMMAND").times(1).close();
    while closed.hits() == 0 {
        // The loss of the connection may be noticed by this.
        let error = client.query::<Value>(unknown()).unwrap_err();
        assert_eq!(error.certainty(), Certainty::NotSent, "{error}");
    }
    cluster.on("COMMAND").error("ERR unknown command 'COMMAND'");
    let results = pipeline(&client, &["MODULE.SET bar 1", "INCR bar"]);
    assert_eq!(texts(&results), ["NotSent", "1"]);
    assert_eq!(results[0].as_ref().unwrap_err().code(), Some("ERR"));
}
