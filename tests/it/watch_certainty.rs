//! What the errors that leave a watched session say about the session as a whole.

use reslot::{Certainty, Client, Error, Misuse, Reason, Result, Value, cmd};

use crate::calls::{builder, connect, words};
use crate::fake::FakeCluster;
use std::time::Duration;

/// The error of a call that was certainly not sent.
fn unsent(client: &Client) -> Error {
    let token = reslot::CancelToken::new();
    token.cancel();
    let error = client.query::<Value>(words("GET bar").cancel_token(&token));
    let error = error.unwrap_err();
    assert_eq!(error.certainty(), Certainty::NotSent);
    error
}

#[test]
fn what_leaves_a_session_that_wrote_is_never_certain() {
    for first in ["INCR bar", "GET bar"] {
        let cluster = FakeCluster::start(2);
        let client = connect(&cluster);
        let result: Result<()> = client.watch(&["bar"], |session| {
            session.query::<Value>(words(first))?;
            Err(unsent(&client))
        });
        let error = result.unwrap_err();
        let expected = match first {
            "INCR bar" => (Certainty::Unknown, 1),
            _ => (Certainty::NotSent, 0),
        };
        assert_eq!((error.certainty(), error.attempts()), expected, "{first}");
        assert!(matches!(error, Error::Cancelled(_)), "{error:?}");
    }
}

#[test]
fn what_leaves_a_session_whose_transaction_ran_is_never_certain() {
    for member in ["INCR bar", "GET bar"] {
        let cluster = FakeCluster::start(2);
        let client = connect(&cluster);
        let result: Result<()> = client.watch(&["bar"], |session| {
            session.transaction::<Vec<Value>>(|t| {
                t.add(words(member));
            })?;
            Err(unsent(&client))
        });
        let wrote = member == "INCR bar";
        let certainty = result.unwrap_err().certainty();
        assert_eq!(certainty == Certainty::Unknown, wrote, "{member}");
    }
}

#[test]
fn a_refusal_after_a_write_of_the_session_does_not_say_refused() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.node(0).on("EXEC").error("EXECABORT no");
    let result: Result<Value> = client.watch(&["bar"], |session| {
        session.query::<Value>(words("INCR bar"))?;
        session.transaction(|t| {
            t.add(words("INCR bar"));
        })
    });
    assert_eq!(result.unwrap_err().certainty(), Certainty::Unknown);
    cluster.node(0).on("WATCH").error("NOPERM no");
    let refused: Result<()> = client.watch(&["bar"], |_| Ok(()));
    assert_eq!(refused.unwrap_err().certainty(), Certainty::Refused);
}

#[test]
fn a_misuse_concerns_only_its_own_call() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let result: Result<Value> = client.watch(&["bar"], |session| {
        session.query::<Value>(words("INCR bar"))?;
        session.transaction(|t| {
            t.add(words("GET bar")).add(words("GETSET foo 1"));
        })
    });
    let error = result.unwrap_err();
    assert_eq!(error.certainty(), Certainty::NotSent);
    let Error::Misuse(Misuse::CrossSlot { command, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(command, "GETSET", "the member, not MULTI");
}

#[test]
fn a_session_that_never_began_was_sent_no_times() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster)
        .response_timeout(Duration::from_millis(300))
        .connect()
        .unwrap();
    cluster.node(0).kill();
    let result: Result<Value> =
        client.watch(&["bar"], |session| session.query(cmd("GET").arg("bar")));
    let error = result.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!(failure.reason(), Reason::Timeout);
    assert_eq!(
        (failure.certainty(), failure.attempts()),
        (Certainty::NotSent, 0)
    );
    assert!(!error.to_string().contains("times"), "{error}");
}
