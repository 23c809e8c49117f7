//! Cancels and deadlines of commands that are not written yet: no server ever sees them.

use std::time::Duration;

use reslot::{CancelToken, Cancelled, Certainty, Error, Reason, Value, WhenFull, cmd};

use crate::calls::{
    apart, await_queued, builder, connect, count, done, half_written, kill_and_notice, run, send,
    words,
};
use crate::fake::{FakeCluster, key_for_slot};

#[test]
fn behind_a_half_written_transaction() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let key = key_for_slot(0);
    let half = half_written(&cluster, &client, 0, &key);
    let token = CancelToken::new();
    let chain = {
        let token = token.clone();
        apart(&client, move |client| {
            client.transaction::<Value>(|t| {
                t.add(words("INCR bar"))
                    .add(words("INCR bar"))
                    .cancel_token(&token);
            })
        })
    };
    await_queued(&cluster, &client, 0, 4);
    let single = send(&client, "INCR bar");
    let kept = send(&client, "INCR b");
    await_queued(&cluster, &client, 0, 6);
    assert_eq!(single.cancel(), Cancelled::NotSent);
    token.cancel();
    let failure = done(chain).unwrap_err();
    assert!(matches!(failure, Error::Cancelled(_)), "{failure:?}");
    assert_eq!(failure.certainty(), Certainty::NotSent);
    await_queued(&cluster, &client, 0, 1);

    cluster.node(0).resume_reading();
    half.ran();
    assert_eq!(kept.wait(), Ok(Value::Integer(1)));
    assert_eq!(cluster.log().key("bar").count(), 0);
    assert_eq!(cluster.log().commands("MULTI").count(), 1, "it left whole");
}

#[test]
fn in_the_queue_of_a_node_that_is_down() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    kill_and_notice(&cluster, &client, 0, "bar");
    let late = words("INCR bar").timeout(Duration::from_millis(50));
    let failure = client.query::<i64>(late).unwrap_err();
    assert!(failure.is_timeout(), "{failure:?}");
    assert_eq!(failure.certainty(), Certainty::NotSent);
    let late = client.transaction::<Value>(|t| {
        t.add(words("INCR bar")).timeout(Duration::from_millis(50));
    });
    assert_eq!(late.unwrap_err().certainty(), Certainty::NotSent);
    assert_eq!(send(&client, "INCR bar").cancel(), Cancelled::NotSent);

    cluster.node(0).listen();
    assert_eq!(run(&client, "INCR b"), Ok(Value::Integer(1)));
    assert_eq!(cluster.log().key("bar").count(), 0);
}

#[test]
fn while_a_slot_has_no_owner() {
    let cluster = FakeCluster::start(2);
    cluster.change(|topology| topology.unassign(5061..=5061));
    let client = connect(&cluster);
    let cancelled = send(&client, "INCR bar");
    let late = words("INCR bar").timeout(Duration::from_millis(50));
    let failure = client.query::<i64>(late).unwrap_err();
    assert_eq!(failure.certainty(), Certainty::NotSent);
    assert_eq!(failure.failure().unwrap().reason(), Reason::SlotUncovered);
    assert_eq!(cancelled.cancel(), Cancelled::NotSent);
    cluster.assign(5061..=5061, 1);
    assert_eq!(run(&client, "INCR {bar}2"), Ok(Value::Integer(1)));
    assert_eq!(cluster.executions("bar"), 0);
}

#[test]
fn while_a_redirect_waits_for_its_target() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    let client = connect(&cluster);
    cluster.node(2).stop_listening();
    cluster.begin_move(5061, 2);
    let late = words("INCR bar").timeout(Duration::from_millis(100));
    let failure = client.query::<i64>(late).unwrap_err();
    assert!(failure.is_timeout(), "{failure:?}");
    assert_eq!(
        failure.certainty(),
        Certainty::Refused,
        "one server has refused it"
    );
    assert_eq!(failure.code(), Some("ASK"));
    await_queued(&cluster, &client, 2, 0);
    let cancelled = send(&client, "INCR bar");
    await_queued(&cluster, &client, 2, 1);
    assert_eq!(cancelled.cancel(), Cancelled::NotSent);
    cluster.node(2).listen();
    assert_eq!(run(&client, "INCR {bar}2"), Ok(Value::Integer(1)));
    assert_eq!(cluster.log().on(2).key("bar").count(), 0);
}

#[test]
fn a_cancelled_token_sends_nothing() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let token = CancelToken::new();
    token.cancel();
    assert!(token.is_cancelled());
    let check = |result: reslot::Result<Value>| {
        let failure = result.unwrap_err();
        assert!(matches!(failure, Error::Cancelled(_)), "{failure:?}");
        assert_eq!(failure.certainty(), Certainty::NotSent);
    };
    let command = || words("INCR bar").cancel_token(&token);
    check(client.query(command()));
    check(
        client
            .send::<Value>(command())
            .and_then(|pending| pending.wait()),
    );
    check(client.transaction(|t| {
        t.add(words("INCR bar")).cancel_token(&token);
    }));
    let mut pipeline = client.pipeline();
    pipeline
        .add(words("INCR bar"))
        .add(words("INCR foo"))
        .cancel_token(&token);
    pipeline.execute().unwrap().into_iter().for_each(check);
    // As many as before have an effect without it.
    assert_eq!(count(&client, "bar"), Ok((1, "1".into())));
    assert_eq!(cluster.log().data().commands("INCR").count(), 1);
}

#[test]
fn one_token_ends_all_calls_that_have_it_and_no_other() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    kill_and_notice(&cluster, &client, 0, "bar");
    let token = CancelToken::new();
    let queued: Vec<_> = (0..10)
        .map(|at| {
            let command = words("INCR bar");
            let command = if at % 2 == 0 {
                command.cancel_token(&token)
            } else {
                command
            };
            client.send::<i64>(command).unwrap()
        })
        .collect();
    let answered = client.query::<i64>(words("INCR foo").cancel_token(&token));
    assert_eq!(answered, Ok(1), "a call that has ended is not affected");
    await_queued(&cluster, &client, 0, 10);
    token.clone().cancel();
    token.cancel();
    cluster.node(0).listen();
    let mut served = 0;
    for (at, pending) in queued.into_iter().enumerate() {
        match pending.wait() {
            Ok(number) => {
                served += 1;
                assert_eq!((at % 2, number), (1, served));
            }
            Err(failure) => assert_eq!((at % 2, failure.certainty()), (0, Certainty::NotSent)),
        }
    }
    assert_eq!(cluster.log().key("bar").count(), 5);
}

#[test]
fn a_full_queue_refuses_at_once_and_waits_only_as_long_as_its_caller() {
    let cluster = FakeCluster::start(2);
    for when_full in [WhenFull::Refuse, WhenFull::Wait] {
        let builder = builder(&cluster).queue_commands(10).when_full(when_full);
        let client = builder.connect().unwrap();
        kill_and_notice(&cluster, &client, 0, "bar");
        let queued: Vec<_> = (0..10).map(|_| send(&client, "INCR bar")).collect();
        let late = words("INCR bar").timeout(Duration::from_millis(50));
        let failure = client.query::<i64>(late).unwrap_err();
        assert_eq!(failure.certainty(), Certainty::NotSent);
        let reason = failure.failure().unwrap().reason();
        assert!(
            matches!(reason, Reason::QueueFull | Reason::Timeout),
            "{reason:?}"
        );
        // A cancel gives the place back.
        let mut queued = queued.into_iter();
        assert_eq!(queued.next().unwrap().cancel(), Cancelled::NotSent);
        let next = match when_full {
            WhenFull::Wait => send(&client, "INCR bar"),
            _ => {
                await_queued(&cluster, &client, 0, 9);
                send(&client, "INCR bar")
            }
        };
        cluster.node(0).listen();
        let start = cluster.log().end();
        for pending in queued.chain([next]) {
            pending.wait().unwrap();
        }
        let ran = cluster
            .log()
            .executed()
            .since(start)
            .commands("INCR")
            .count();
        assert_eq!(ran, 10);
    }
}

#[test]
fn a_cancelled_pipeline_keeps_the_results_that_are_there() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let gate = cluster.node(1).hold("INCR", "foo");
    let token = CancelToken::new();
    let call = {
        let token = token.clone();
        apart(&client, move |client| {
            let mut pipeline = client.pipeline();
            for key in ["bar", "foo", "b", "a"] {
                pipeline.add(cmd("INCR").arg(key));
            }
            pipeline.cancel_token(&token);
            pipeline.execute()
        })
    };
    gate.wait_arrived(1);
    crate::calls::await_stats(&cluster, &client, 0, |stats| stats.succeeded == 2);
    token.cancel();
    let each = done(call).unwrap();
    assert_eq!(
        (&each[0], &each[2]),
        (&Ok(Value::Integer(1)), &Ok(Value::Integer(1)))
    );
    for at in [1, 3] {
        assert_eq!(
            each[at].as_ref().unwrap_err().certainty(),
            Certainty::Unknown
        );
    }
}
