//! Cancels and deadlines of commands that a server may have: the caller is told so, and the late
//! reply reaches nobody else.

use std::time::{Duration, Instant};

use reslot::{CancelToken, Cancelled, Certainty, Error, Value};

use crate::calls::{
    HUGE_LENGTH, LONG, apart, await_half, await_queued, await_stats, brief, connect, count, done,
    huge_set, run, send, stats, words,
};
use crate::fake::{FakeCluster, Script, key_for_slot};

#[test]
fn a_half_written_transaction_goes_on_without_its_caller() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let key = key_for_slot(0);
    cluster.node(0).stop_reading();
    let token = CancelToken::new();
    let call = {
        let (token, key) = (token.clone(), key.clone());
        apart(&client, move |client| {
            client.transaction::<Value>(|t| {
                t.add(huge_set(&key)).add(words("STRLEN").arg(&key));
                t.cancel_token(&token);
            })
        })
    };
    await_half(&cluster, &client, 0);
    let behind = send(&client, &format!("STRLEN {key}"));
    await_queued(&cluster, &client, 0, 1);
    token.cancel();
    let failure = done(call).unwrap_err();
    assert!(matches!(failure, Error::Cancelled(_)), "{failure:?}");
    assert_eq!(failure.certainty(), Certainty::Unknown);

    cluster.node(0).resume_reading();
    assert_eq!(
        behind.wait(),
        Ok(HUGE_LENGTH),
        "its own reply, of an ended transaction"
    );
    let names: Vec<String> = cluster
        .log()
        .on(0)
        .data()
        .list()
        .iter()
        .map(brief)
        .collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert_eq!((names[0].as_str(), names[3].as_str()), ("MULTI", "EXEC"));
    assert_eq!(run(&client, "GET b"), Ok(Value::Null));
}

#[test]
fn a_late_reply_is_dropped() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    for key in ["bar", "foo"] {
        run(&client, &format!("SET {key} {key}")).unwrap();
    }
    let gate = cluster.node(0).hold("GET", "bar");
    let late = apart(&client, |client| {
        client.query::<String>(words("GET bar").timeout(Duration::from_millis(50)))
    });
    gate.wait_arrived(1);
    let during = send(&client, "GET foo");
    let failure = done(late).unwrap_err();
    assert!(failure.is_timeout(), "{failure:?}");
    assert_eq!(failure.certainty(), Certainty::Unknown);
    let after = send(&client, "GET foo");
    gate.release();
    for pending in [during, after, send(&client, "GET foo")] {
        assert_eq!(pending.wait(), Ok(Value::Bulk("foo".into())));
    }
    assert_eq!(run(&client, "GET bar"), Ok(Value::Bulk("bar".into())));
    assert_eq!(stats(&cluster, &client, 0).connects, 1);
}

#[test]
fn a_late_reply_that_came_by_halves_is_dropped() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    run(&client, "SET foo foo").unwrap();
    let (arrived, gate) = (cluster.gate(), cluster.gate());
    arrived.release();
    let script = Script::new()
        .raw("$6\r\nhal")
        .hold(&arrived)
        .hold(&gate)
        .raw("ves\r\n");
    cluster.node(0).on("GET").key("bar").times(1).script(script);
    let late = send(&client, "GET bar");
    gate.wait_arrived(1);
    assert_eq!(late.cancel(), Cancelled::Unknown);
    let next = send(&client, "GET foo");
    gate.release();
    assert_eq!(next.wait(), Ok(Value::Bulk("foo".into())));
}

#[test]
fn cancels_that_race_the_write_are_told_truly() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let begun = Instant::now();
    let (mut unsent, mut unknown, mut ended) = (0, 0, 0);
    // The race is run until both sides have won it.
    let is_open = |unsent: usize, sent: usize| {
        unsent + sent < 2000 || (unsent == 0 || sent == 0) && begun.elapsed() < LONG
    };
    while is_open(unsent, unknown + ended) {
        let number = unsent + unknown + ended;
        let pending = send(&client, &format!("INCR k{number}"));
        if number % 3 == 1 {
            std::thread::yield_now();
        }
        match pending.cancel() {
            Cancelled::NotSent => unsent += 1,
            Cancelled::Unknown => unknown += 1,
            Cancelled::AlreadySettled => ended += 1,
        }
        if number % 100 == 99 {
            // What may come late has come before this.
            run(&client, "GET end").unwrap();
            let seen = cluster.log().commands("INCR").count();
            assert!(
                seen <= unknown + ended,
                "{seen} arrived of {unknown} + {ended}"
            );
        }
    }
    assert!(unsent > 0, "no cancel was faster than the write");
    assert!(unknown + ended > 0, "no write was faster than the cancel");
    run(&client, "GET end").unwrap();
    let seen = cluster.log().commands("INCR").count();
    assert_eq!(
        seen,
        unknown + ended,
        "what was not told as unsent has been sent"
    );
    assert_eq!(cluster.log().executed().commands("INCR").count(), seen);
}

#[test]
fn deadlines_that_race_the_reply_leave_no_reply_behind() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            apart(&client, move |client| {
                for round in 0..200 {
                    let text = format!("{caller}-{round}");
                    let echo = words("ECHO").arg(&text);
                    let patience = Duration::from_micros(50 * (round % 5) + 1);
                    let result = client.query::<String>(echo.timeout(patience));
                    match result {
                        Ok(reply) => assert_eq!(reply, text),
                        Err(failure) => assert!(failure.is_timeout(), "{failure:?}"),
                    }
                }
                let text = format!("{caller}-end");
                assert_eq!(client.query::<String>(words("ECHO").arg(&text)), Ok(text));
            })
        })
        .collect();
    callers.into_iter().for_each(done);
    assert_eq!(stats(&cluster, &client, 0).connects, 1);
}

#[test]
fn a_node_that_leaves_too_many_unanswered_gets_a_new_connection() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let gate = cluster.node(0).on("INCR").times(1).hold();
    let written: Vec<_> = (0..1000).map(|_| send(&client, "INCR bar")).collect();
    cluster.log().commands("INCR").wait_for(1000);
    for pending in written {
        assert_eq!(pending.cancel(), Cancelled::Unknown);
    }
    await_stats(&cluster, &client, 0, |stats| stats.connects == 2);
    assert_eq!(run(&client, "INCR foo"), Ok(Value::Integer(1)));
    drop(gate);
    assert_eq!(count(&client, "b"), Ok((1, "1".into())));
}

#[test]
fn a_cancel_after_the_end_changes_nothing() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let token = CancelToken::new();
    let command = words("INCR bar").cancel_token(&token);
    let pending = client.send::<i64>(command).unwrap();
    cluster.log().executed().wait_for(1);
    await_stats(&cluster, &client, 0, |stats| stats.succeeded == 1);
    token.cancel();
    assert_eq!(pending.wait(), Ok(1));
    let ended = send(&client, "INCR bar");
    await_stats(&cluster, &client, 0, |stats| stats.succeeded == 2);
    assert_eq!(ended.cancel(), Cancelled::AlreadySettled);
}

#[test]
fn a_command_that_was_refused_can_be_cancelled_again() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let tryagain = cluster.node(0).on("INCR").error("TRYAGAIN later");
    let pending = send(&client, "INCR bar");
    await_stats(&cluster, &client, 0, |stats| stats.tryagain >= 5);
    match pending.cancel() {
        Cancelled::NotSent => {
            let seen = cluster.log().commands("INCR").count();
            tryagain.remove();
            assert_eq!(run(&client, "INCR b"), Ok(Value::Integer(1)));
            assert_eq!(cluster.log().commands("INCR").key("bar").count(), seen);
        }
        // It was on the wire at that very moment.
        Cancelled::Unknown => {}
        Cancelled::AlreadySettled => panic!("it cannot have ended"),
    }
}
