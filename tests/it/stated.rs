//! What a single command states about time, cancel and place counts, or is refused; nothing is
//! ignored.

use std::time::{Duration, Instant};

use reslot::{CancelToken, Certainty, Client, Cmd, Error, Misuse, Reason, Result, Route, Value};
use reslot::{WatchOptions, cmd};

use crate::calls::{LONG, addr, apart, builder, connect, done, run, seen, words};
use crate::fake::{FakeCluster, Log};

const SHORT: Duration = Duration::from_millis(50);

/// A misuse that names the command and the method to use instead.
#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T>, method: &str) {
    let error = result.unwrap_err();
    assert!(
        matches!(error, Error::Misuse(Misuse::Refused { .. })),
        "{error}"
    );
    let text = error.to_string();
    assert!(text.starts_with("GET: ") && text.contains(method), "{text}");
}

/// `Unknown` if these commands reached the server, and `NotSent` if not: whether there was time
/// enough is the machine's business.
#[track_caller]
fn assert_told_truly(log: &Log, error: &Error) {
    assert!(error.is_timeout(), "{error}");
    match error.certainty() {
        Certainty::Unknown => drop(log.wait_for(1)),
        Certainty::NotSent => assert_eq!(log.count(), 0),
        Certainty::Refused => panic!("{error}"),
    }
}

/// Reads of `bar` that state something for themselves alone, and what has it as a whole.
fn selfish() -> [(Cmd, &'static str); 4] {
    let get = || words("GET bar");
    [
        (get().timeout(SHORT), "timeout"),
        (get().timeout(None), "timeout"),
        (get().deadline(Instant::now() + LONG), "timeout"),
        (get().cancel_token(&CancelToken::new()), "cancel_token"),
    ]
}

/// Sessions with these options whose closure runs a transaction of `SET bar 1`.
fn set(client: &Client, options: &WatchOptions) -> Result<(Value,)> {
    client.watch_with(&["bar"], options, |session| {
        let _: Value = session.query(words("GET bar"))?;
        session.transaction(|t| {
            t.add(words("SET bar 1"));
        })
    })
}

#[test]
fn a_pipeline_refuses_commands_with_limits_of_their_own_one_by_one() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    for (command, method) in selfish() {
        let mut pipeline = client.pipeline();
        pipeline.add(words("INCR bar")).add(command);
        let mut results = pipeline.execute().unwrap();
        assert_refused(results.pop().unwrap(), &format!("use `Pipeline::{method}`"));
        assert!(results[0].is_ok());
    }
    assert_eq!(cluster.log().commands("GET").count(), 0);
}

#[test]
fn a_transaction_refuses_members_with_limits_of_their_own() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    for (command, method) in selfish() {
        let method = format!("use `Transaction::{method}`");
        let whole = |command: Cmd| {
            client.transaction::<Value>(|t| {
                t.add(words("INCR bar")).add(command);
            })
        };
        assert_refused(whole(command.clone()), &method);
        let watched = client.watch(&["bar"], |session| {
            session.transaction::<Value>(|t| {
                t.add(words("INCR bar")).add(command.clone());
            })
        });
        assert_refused(watched, &method);
    }
    assert_eq!(cluster.log().commands("MULTI").count(), 0);
}

#[test]
fn a_member_that_names_another_node_is_refused() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let here = || words("GET bar").route(Route::Node(addr(&cluster, 0)));
    let elsewhere = || words("GET bar").route(Route::Node(addr(&cluster, 1)));
    let all = || words("GET bar").route(Route::AllPrimaries);
    for command in [here(), elsewhere(), all()] {
        // Its node is not settled before it runs.
        let result = client.transaction::<Value>(|t| {
            t.add(command.clone());
        });
        assert_refused(result, "node");
    }
    for command in [elsewhere(), all()] {
        let result = client.watch(&["bar"], |s| s.query::<Value>(command.clone()));
        assert_refused(result, "node");
        let result = client.watch(&["bar"], |session| {
            session.transaction::<Value>(|t| {
                t.add(command.clone());
            })
        });
        assert_refused(result, "node");
    }
    let result = client.watch(&["bar"], |session| {
        assert_eq!(session.query(here()), Ok(Value::Null));
        session.transaction::<(Value, Value)>(|t| {
            t.add(here());
            t.add(words("GET bar").route(Route::AnyPrimary));
        })
    });
    assert_eq!(result, Ok((Value::Null, Value::Null)));
    assert_eq!(seen(&cluster, 1), [""; 0]);
}

#[test]
fn a_query_of_a_session_has_its_own_time() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.on("GET").ignore();
    for by_deadline in [false, true] {
        let before = cluster.log().end();
        let mut own = None;
        let result: Result<Value> = client.watch(&["bar"], |session| {
            let get = words("GET bar");
            let result = session.query(if by_deadline {
                get.deadline(Instant::now() + SHORT)
            } else {
                get.timeout(SHORT)
            });
            own = result.as_ref().err().cloned();
            result
        });
        assert_told_truly(&cluster.log().since(before).commands("GET"), &own.unwrap());
        let error = result.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        assert_eq!(error.certainty(), Certainty::NotSent, "nothing was done");
    }
}

#[test]
fn the_time_of_a_query_does_not_outlast_the_session() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.on("GET").ignore();
    let options = WatchOptions::new().timeout(SHORT);
    let result: Result<Value> = client.watch_with(&["bar"], &options, |session| {
        session.query(words("GET bar").timeout(None))
    });
    assert!(result.unwrap_err().is_timeout());
}

#[test]
fn a_query_whose_token_is_cancelled_is_not_sent() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let token = CancelToken::new();
    token.cancel();
    let get = words("GET bar").cancel_token(&token);
    let result: Result<Value> = client.watch(&["bar"], |session| session.query(get.clone()));
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Cancelled(_)), "{error}");
    assert_eq!(error.certainty(), Certainty::NotSent);
    assert_eq!(seen(&cluster, 0), ["WATCH bar"]);
}

#[test]
fn a_cancel_ends_a_query_that_waits() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let token = CancelToken::new();
    let held = cluster.on("GET").times(1).hold();
    let get = words("GET bar").cancel_token(&token);
    let call = apart(&client, move |client| {
        client.watch(&["bar"], |session| session.query::<Value>(get.clone()))
    });
    held.wait_arrived(1);
    token.cancel();
    let error = done(call).unwrap_err();
    assert!(matches!(error, Error::Cancelled(_)), "{error}");
}

#[test]
fn a_session_has_a_time_of_its_own() {
    let cluster = FakeCluster::start(1);
    let short = builder(&cluster).response_timeout(SHORT).connect().unwrap();
    let held = cluster.on("EXEC").times(1).hold();
    let options = WatchOptions::new().timeout(LONG);
    let call = apart(&short, move |client| set(client, &options));
    held.wait_arrived(1);
    // Longer than the client waits by itself.
    cluster.on("GET").key("foo").ignore();
    assert!(run(&short, "GET foo").unwrap_err().is_timeout());
    held.release();
    done(call).unwrap();

    let client = connect(&cluster);
    cluster.on("EXEC").ignore();
    let before = cluster.log().end();
    let error = set(&client, &WatchOptions::new().timeout(SHORT)).unwrap_err();
    assert_told_truly(&cluster.log().since(before).commands("EXEC"), &error);
}

#[test]
fn a_transaction_of_a_session_has_its_own_time_and_token() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.on("EXEC").ignore();
    let late: Result<Value> = client.watch(&["bar"], |session| {
        session.transaction(|t| {
            t.add(words("SET bar 1")).timeout(SHORT);
        })
    });
    assert_told_truly(&cluster.log().commands("EXEC"), &late.unwrap_err());
    let before = cluster.log().end();
    let token = CancelToken::new();
    token.cancel();
    let cancelled: Result<Value> = client.watch(&["bar"], |session| {
        session.transaction(|t| {
            t.add(words("SET bar 1")).cancel_token(&token);
        })
    });
    let error = cancelled.unwrap_err();
    assert!(matches!(error, Error::Cancelled(_)), "{error}");
    assert_eq!(error.certainty(), Certainty::NotSent);
    assert_eq!(cluster.log().since(before).commands("MULTI").count(), 0);
}

#[test]
fn a_cancelled_session_says_what_is_certain_about_it() {
    for (place, certainty) in [
        ("WATCH", Certainty::NotSent),
        ("GET", Certainty::NotSent),
        ("EXEC", Certainty::Unknown),
    ] {
        let cluster = FakeCluster::start(1);
        let client = connect(&cluster);
        let held = cluster.on(place).times(1).hold();
        let token = CancelToken::new();
        let options = WatchOptions::new().cancel_token(&token);
        let call = apart(&client, move |client| set(client, &options));
        held.wait_arrived(1);
        token.cancel();
        let error = done(call).unwrap_err();
        assert!(matches!(error, Error::Cancelled(_)), "{place}: {error}");
        assert_eq!(error.certainty(), certainty, "{place}");
    }
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let token = CancelToken::new();
    token.cancel();
    let options = WatchOptions::new().cancel_token(&token);
    let error = set(&client, &options).unwrap_err();
    assert_eq!(error.certainty(), Certainty::NotSent);
    assert_eq!(cluster.log().data().count(), 0);
}

#[test]
fn a_session_that_is_cancelled_between_its_runs_was_refused() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.on("EXEC").reply("_\r\n");
    let token = CancelToken::new();
    let options = WatchOptions::new().cancel_token(&token).timeout(None);
    let mut runs = 0;
    let result: Result<Value> = client.watch_with(&["bar"], &options, |session| {
        runs += 1;
        let result = session.transaction(|t| {
            t.add(words("SET bar 1"));
        });
        if runs == 2 {
            token.cancel();
        }
        result
    });
    let error = result.unwrap_err();
    assert_eq!(error.failure().unwrap().reason(), Reason::Cancelled);
    assert_eq!(error.certainty(), Certainty::Refused);
    assert_eq!(runs, 2);
}

#[test]
fn a_session_whose_node_is_silent_was_not_sent() {
    for place in ["WATCH", "HELLO"] {
        let cluster = FakeCluster::start(1);
        let client = connect(&cluster);
        cluster.on(place).ignore();
        let error = set(&client, &WatchOptions::new().timeout(SHORT)).unwrap_err();
        assert!(error.is_timeout(), "{place}: {error}");
        assert_eq!(error.certainty(), Certainty::NotSent, "{place}");
    }
}

#[test]
fn a_session_that_wrote_beside_its_transaction_may_have_run() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.on("EXEC").reply("_\r\n");
    let sessions = |beside: &str| {
        let token = CancelToken::new();
        let options = WatchOptions::new().cancel_token(&token);
        let mut runs = 0;
        let result: Result<Value> = client.watch_with(&["bar"], &options, |session| {
            let _: Value = session.query(words(beside))?;
            let result = session.transaction(|t| {
                t.add(cmd("SET").arg("bar").arg(1));
            });
            runs += 1;
            if runs == 3 {
                token.cancel();
            }
            result
        });
        result.unwrap_err().certainty()
    };
    assert_eq!(sessions("GET {bar}2"), Certainty::Refused);
    assert_eq!(sessions("INCR {bar}3"), Certainty::Unknown);
    assert_eq!(cluster.executions("{bar}3"), 3, "each run does it again");
}

#[test]
fn a_session_whose_node_cannot_be_reached_after_a_conflict_timed_out() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.on("EXEC").reply("_\r\n");
    let options = WatchOptions::new().timeout(Duration::from_secs(1));
    let result: Result<Value> = client.watch_with(&["bar"], &options, |session| {
        cluster.node(0).stop_listening();
        session.transaction(|t| {
            t.add(words("SET bar 1"));
        })
    });
    let error = result.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(error.certainty(), Certainty::Refused);
}
