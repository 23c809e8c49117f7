//! Watched sessions: the guard is never lost, and the closure runs again where that can help.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use reslot::{Certainty, Client, Error, Misuse, Reason, Result, Value, cmd};

use crate::calls::{builder, connect, run, seen, words};
use crate::fake::{Dialect, FakeCluster, Script};

const SLOT: u16 = 5061;

/// Adds one to `bar` by GET and SET, guarded; before that `meddle` is called with the number of
/// the run.
fn add_one(client: &Client, mut meddle: impl FnMut(u32)) -> Result<(i64, u32)> {
    let mut runs = 0;
    let value = client.watch(&["bar"], |session| {
        runs += 1;
        let value: Option<i64> = session.query(cmd("GET").arg("bar"))?;
        let next = value.unwrap_or(0) + 1;
        meddle(runs);
        let _: Vec<Value> = session.transaction(|t| {
            t.add(cmd("SET").arg("bar").arg(next));
        })?;
        Ok(next)
    })?;
    Ok((value, runs))
}

const SESSION: [&str; 5] = ["WATCH bar", "GET bar", "MULTI", "SET bar", "EXEC"];

#[test]
fn a_session_has_one_connection_for_itself_and_gives_it_back() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    for number in 1..=3 {
        assert_eq!(add_one(&client, |_| ()), Ok((number, 1)));
    }
    assert_eq!(seen(&cluster, 0), SESSION.repeat(3));
    assert_eq!(
        cluster.node(0).opened(),
        2,
        "the shared connection and one for sessions"
    );
}

#[test]
fn a_foreign_write_makes_the_closure_run_again() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let other = client.clone();
    let result = add_one(&client, |runs| {
        if runs < 3 {
            run(&other, "INCRBY bar 10").unwrap();
        }
    });
    assert_eq!(result, Ok((21, 3)));
    assert_eq!(run(&client, "GET bar"), Ok(Value::Bulk("21".into())));
    let sets = cluster.log().executed().commands("SET").count();
    assert_eq!(sets, 1, "an aborted transaction has run nothing");
}

#[test]
fn many_sessions_at_once_lose_no_update() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let calls: Vec<_> = (0..4)
        .map(|_| {
            crate::calls::apart(&client, |client| {
                for _ in 0..10 {
                    add_one(client, |_| ()).unwrap();
                }
            })
        })
        .collect();
    calls.into_iter().for_each(crate::calls::done);
    assert_eq!(run(&client, "GET bar"), Ok(Value::Bulk("40".into())));
}

#[test]
fn a_connection_lost_before_exec_starts_the_session_anew() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let result = add_one(&client, |runs| {
        if runs == 1 {
            cluster.node(0).drop_connections();
            cluster.node(0).wait_open(0);
        }
    });
    assert_eq!(
        result,
        Ok((1, 2)),
        "nothing was written, so nothing is in doubt"
    );
    // No MULTI without its WATCH on the same connection.
    let expected = [&SESSION[..2], &SESSION[..]].concat();
    assert_eq!(seen(&cluster, 0), expected);
    assert_eq!(cluster.executions("bar"), 3, "GET, GET, SET");
}

#[test]
fn a_connection_lost_in_watch_or_a_read_starts_the_session_anew() {
    for place in ["WATCH", "GET"] {
        let cluster = FakeCluster::start(2);
        let client = connect(&cluster);
        cluster.node(0).on(place).times(1).close();
        let (value, _) = add_one(&client, |_| ()).unwrap();
        assert_eq!(value, 1);
        assert_eq!(cluster.log().commands("MULTI").count(), 1);
    }
}

#[test]
fn a_connection_lost_after_exec_was_sent_is_told_as_unknown() {
    for ran in [false, true] {
        let cluster = FakeCluster::start(2);
        let client = connect(&cluster);
        let exec = cluster.node(0).on("EXEC").times(1);
        if ran {
            exec.run_and_close()
        } else {
            exec.close()
        };
        let failure = add_one(&client, |_| ()).unwrap_err();
        assert!(matches!(failure, Error::MaybeExecuted(_)), "{failure:?}");
        assert_eq!(
            cluster.log().commands("EXEC").count(),
            1,
            "it is not sent again"
        );
        let sets = cluster.log().executed().commands("SET").count();
        assert_eq!(sets, usize::from(ran));
    }
}

#[test]
fn a_slot_that_has_moved_starts_the_session_at_its_owner() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.assign(SLOT..=SLOT, 1);
    assert_eq!(add_one(&client, |_| ()), Ok((1, 1)));
    assert_eq!(seen(&cluster, 0), ["WATCH bar"]);
    assert_eq!(seen(&cluster, 1), SESSION);
    // The client learns it from that.
    crate::local_cluster::poll_until(crate::calls::LONG, "the new map", || {
        match client.stats().maps {
            2.. => Ok(()),
            now => Err(format!("{now} maps")),
        }
    });
    assert_eq!(run(&client, "GET bar"), Ok(Value::Bulk("1".into())));
    assert_eq!(seen(&cluster, 0), ["WATCH bar"]);
}

#[test]
fn a_slot_that_moves_in_between_never_has_its_transaction_redirected() {
    for dialect in [Dialect::Redis, Dialect::Valkey] {
        let cluster = FakeCluster::builder(2).dialect(dialect).start();
        let client = connect(&cluster);
        let result = add_one(&client, |runs| {
            if runs == 1 {
                cluster.assign(SLOT..=SLOT, 1);
            }
        });
        assert_eq!(result, Ok((1, 2)));
        assert_eq!(seen(&cluster, 0), SESSION);
        assert_eq!(seen(&cluster, 1), SESSION, "the guard was set anew");
        assert_eq!(cluster.log().executed().commands("SET").count(), 1);
    }
}

#[test]
fn a_slot_that_moves_before_exec_aborts_it() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let gate = cluster.node(0).on("EXEC").times(1).hold();
    let call = crate::calls::apart(&client, |client| add_one(client, |_| ()));
    gate.wait_arrived(1);
    cluster.assign(SLOT..=SLOT, 1);
    gate.release();
    assert_eq!(crate::calls::done(call), Ok((1, 2)));
    assert_eq!(seen(&cluster, 1), SESSION);
}

#[test]
fn through_ask_each_step_has_its_own_asking() {
    for dialect in [Dialect::Redis, Dialect::Valkey] {
        let cluster = FakeCluster::builder(2).dialect(dialect).start();
        let client = connect(&cluster);
        cluster.begin_move(SLOT, 1);
        assert_eq!(add_one(&client, |_| ()), Ok((1, 1)));
        let asked = [
            "ASKING",
            "WATCH bar",
            "ASKING",
            "GET bar",
            "ASKING",
            "MULTI",
            "SET bar",
            "EXEC",
        ];
        assert_eq!(seen(&cluster, 0), ["WATCH bar"]);
        assert_eq!(seen(&cluster, 1), asked);
        // The map has not changed: the next command asks the owner first.
        assert_eq!(run(&client, "GET bar"), Ok(Value::Bulk("1".into())));
        assert_eq!(cluster.log().on(0).commands("GET").count(), 1);
    }
}

#[test]
fn conflicts_through_ask_are_noticed() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.begin_move(SLOT, 1);
    let other = client.clone();
    let result = add_one(&client, |runs| {
        if runs == 1 {
            run(&other, "INCRBY bar 5").unwrap();
        }
    });
    assert_eq!(result, Ok((6, 2)));
}

#[test]
fn refusals_for_the_moment_are_waited_for() {
    for refusal in [
        "LOADING for a while",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN later",
    ] {
        for place in ["WATCH", "SET", "EXEC"] {
            let cluster = FakeCluster::start(2);
            let client = connect(&cluster);
            cluster.node(0).on(place).times(2).error(refusal);
            let (value, _) = add_one(&client, |_| ()).unwrap();
            assert_eq!(value, 1, "{refusal} at {place}");
            assert_eq!(cluster.log().executed().commands("SET").count(), 1);
        }
    }
}

#[test]
fn conflicts_without_end_end_at_the_deadline() {
    let cluster = FakeCluster::start(2);
    let timeout = Duration::from_millis(300);
    let client = builder(&cluster)
        .response_timeout(timeout)
        .connect()
        .unwrap();
    cluster.node(0).on("EXEC").reply("_\r\n");
    let failure = add_one(&client, |_| ()).unwrap_err();
    assert_eq!(failure.failure().unwrap().reason(), Reason::WatchLost);
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert!(failure.attempts() > 1, "{failure:?}");
    assert_eq!(cluster.log().executed().commands("SET").count(), 0);
}

#[test]
fn a_closure_that_gives_up_lets_the_keys_go() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let stock: i64 = client
        .watch(&["bar"], |session| {
            let stock: Option<i64> = session.query(cmd("GET").arg("bar"))?;
            Ok(stock.unwrap_or(0))
        })
        .unwrap();
    assert_eq!(stock, 0);
    let own = Error::Misuse(Misuse::Invalid("not today".into()));
    let result: Result<()> = client.watch(&["bar"], |_| Err(own.clone()));
    assert_eq!(result, Err(own));
    assert_eq!(
        seen(&cluster, 0),
        ["WATCH bar", "GET bar", "UNWATCH", "WATCH bar", "UNWATCH"]
    );
    // The same connection serves the next session, and its keys are not watched any more.
    run(&client, "SET bar 5").unwrap();
    assert_eq!(add_one(&client, |_| ()), Ok((6, 1)));
    assert_eq!(cluster.node(0).opened(), 2);
}

#[test]
fn an_error_of_a_member_is_the_callers() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let runs = AtomicU32::new(0);
    let result: Result<Value> = client.watch(&["bar"], |session| {
        runs.fetch_add(1, Ordering::Relaxed);
        session.transaction(|t| {
            t.add(words("INCR bar 1")).add(words("INCR bar"));
        })
    });
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), Some("ERR"));
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert_eq!(failure.failure().unwrap().members().len(), 1);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    assert_eq!(cluster.executions("bar"), 0);
    assert_eq!(
        add_one(&client, |_| ()),
        Ok((1, 1)),
        "the next session is not affected"
    );
}

#[test]
fn keys_of_other_slots_and_late_calls_are_refused() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let cross =
        |result: Result<Value>| matches!(result, Err(Error::Misuse(Misuse::CrossSlot { .. })));
    assert!(cross(client.watch(&["bar", "foo"], |_| Ok(Value::Null))));
    assert!(cross(client.watch(&["bar"], |s| s.query(words("GET foo")))));
    assert!(cross(client.watch(&["bar"], |s| s.transaction(|t| {
        t.add(words("GET foo"));
    }))));
    let none: Result<Value> = client.watch::<&str, _>(&[], |_| Ok(Value::Null));
    assert!(matches!(none, Err(Error::Misuse(_))));
    let late: Result<Value> = client.watch(&["bar"], |session| {
        let _: Vec<Value> = session.transaction(|t| {
            t.add(words("SET bar 1"));
        })?;
        session.query(words("GET bar"))
    });
    assert!(matches!(late, Err(Error::Misuse(Misuse::Refused { .. }))));
    assert_eq!(cluster.log().key("foo").count(), 0);
}

#[test]
fn closing_the_client_ends_a_session() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let gate = cluster.node(0).on("EXEC").times(1).hold();
    let call = crate::calls::apart(&client, |client| add_one(client, |_| ()));
    gate.wait_arrived(1);
    client.close(Duration::from_millis(10)).unwrap();
    let failure = crate::calls::done(call).unwrap_err();
    assert!(matches!(failure, Error::Closed(_)), "{failure:?}");
    assert_eq!(failure.certainty(), Certainty::Unknown);
    assert!(matches!(add_one(&client, |_| ()), Err(Error::Closed(_))));
    cluster.node(0).wait_open(0);
}

#[test]
fn a_redirect_for_another_slot_is_not_followed() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.node(0).on("WATCH").times(1).moved(1, 1);
    let failure = add_one(&client, |_| ()).unwrap_err();
    assert_eq!(failure.code(), Some("MOVED"));
    assert_eq!(seen(&cluster, 1), [""; 0]);
}

#[test]
fn redirects_round_in_circles_end_in_the_budget() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).max_redirects(3).connect().unwrap();
    cluster.node(0).on("WATCH").moved(SLOT, 1);
    cluster.node(1).on("WATCH").moved(SLOT, 0);
    let failure = add_one(&client, |_| ()).unwrap_err();
    assert_eq!(
        failure.failure().unwrap().reason(),
        Reason::TooManyRedirects
    );
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert_eq!(cluster.log().commands("WATCH").count(), 4);
}

#[test]
fn a_push_in_between_is_no_reply_and_no_end() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let push = crate::fake::resp::push(&["+news\r\n", "+of something\r\n"]);
    let script = Script::new().raw(push.clone()).run().send().raw(push);
    cluster.node(0).on("GET").times(1).script(script);
    let node = Arc::new(&cluster);
    assert_eq!(add_one(&client, |_| drop(Arc::clone(&node))), Ok((1, 1)));
    assert_eq!(cluster.log().commands("WATCH").count(), 1);
}

#[test]
fn what_ran_although_multi_was_refused_is_not_called_refused() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster
        .on("MULTI")
        .times(1)
        .error("NOPERM no permission to run 'multi'");
    let error = add_one(&client, |_| ()).unwrap_err();
    assert_eq!(
        run(&client, "GET bar"),
        Ok(Value::Bulk("1".into())),
        "it ran"
    );
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
}

#[test]
fn a_panic_in_the_closure_leaves_nothing_watched() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        client.watch(&["bar"], |_| -> Result<()> { panic!("in the closure") })
    }));
    assert!(unwound.is_err());
    run(&client, "SET bar 5").unwrap();
    assert_eq!(
        add_one(&client, |_| ()),
        Ok((6, 1)),
        "nothing changed since"
    );
}

#[test]
fn a_reply_that_nobody_asked_for_is_not_taken_by_the_next_session() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    run(&client, "SET bar 5").unwrap();
    cluster.on("UNWATCH").times(1).reply("+OK\r\n+EXTRA\r\n");
    client.watch(&["bar"], |_| Ok(())).unwrap();
    let seen: Value = client
        .watch(&["bar"], |session| session.query(cmd("GET").arg("bar")))
        .unwrap();
    assert_eq!(seen, Value::Bulk("5".into()));
}
