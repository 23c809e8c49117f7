//! Deadlines: they say what is certain, nothing is sent after them, and late replies hit nobody.

use std::time::{Duration, Instant};

use reslot::{Certainty, Reason, RefreshCause, Value, cmd};

use crate::fake::{FakeCluster, Script, key_for_slot, resp};
use crate::run::{builder, connect, run, send, words};

const SHORT: Duration = Duration::from_millis(300);

/// Long enough for any machine; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_write_to_a_silent_node_may_have_run_and_its_late_reply_hits_nobody() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).response_timeout(SHORT).connect().unwrap();
    let held = cluster.on("INCR").key("bar").times(1).hold_reply();
    let begun = Instant::now();
    let error = run(&client, "INCR bar").unwrap_err();
    assert!(begun.elapsed() >= SHORT);
    assert!(error.is_timeout(), "{error}");
    assert_eq!(
        (error.certainty(), error.attempts()),
        (Certainty::Unknown, 1)
    );
    run(&client, "INCR foo").expect("another node answers");
    let next = send(&client, "GET b");
    held.release();
    assert_eq!(next.wait().unwrap(), Value::Null);
    assert_eq!(cluster.executions("bar"), 1);
    assert_eq!(run(&client, "INCR bar").unwrap(), Value::Integer(2));
    assert_eq!(
        client.stats().total(|node| node.connects),
        2,
        "nothing was replaced"
    );
}

#[test]
fn a_write_to_a_paused_node_runs_at_most_once_and_the_next_one_gets_its_own_reply() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster).response_timeout(SHORT).connect().unwrap();
    cluster.node(0).stop_reading();
    let error = run(&client, "INCR bar").unwrap_err();
    assert_eq!(error.certainty(), Certainty::Unknown);
    cluster.node(0).resume_reading();
    let next = words("INCR foo").timeout(LONG);
    assert_eq!(client.query::<Value>(next).unwrap(), Value::Integer(1));
    assert_eq!(cluster.executions("bar"), 1);
    assert_eq!(cluster.log().commands("INCR").key("bar").count(), 1);
}

#[test]
fn a_reply_of_which_half_came_in_time_is_still_nobody_elses() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
    run(&client, "SET b other").unwrap();
    let gate = cluster.gate();
    let halves = Script::new().raw("$5\r\nhe").hold(&gate).raw("llo\r\n");
    cluster.on("GET").key("bar").times(1).script(halves);
    let before = send(&client, "GET b");
    let late = words("GET bar").timeout(Duration::from_millis(100));
    let late = client.query::<Value>(late).unwrap_err();
    assert!(late.is_timeout(), "{late}");
    assert_eq!(late.certainty(), Certainty::Unknown);
    let during = send(&client, "GET b");
    gate.release();
    let after = send(&client, "GET b");
    for pending in [before, during, after] {
        assert_eq!(pending.wait().unwrap(), Value::Bulk(b"other".into()));
    }
    assert_eq!(run(&client, "GET bar").unwrap(), Value::Null);
}

#[test]
fn a_command_that_timed_out_while_its_node_was_down_is_never_sent() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.node(0).kill();
    let mut late = Vec::new();
    // What is written before the loss is noticed may be uncertain; the rest certainly waits.
    while late.last() != Some(&Certainty::NotSent) {
        let command = words("INCR bar").timeout(Duration::from_millis(50));
        late.push(client.query::<Value>(command).unwrap_err().certainty());
    }
    let never = words("INCR never").timeout(Duration::from_millis(200));
    let error = client.query::<Value>(never).unwrap_err();
    assert_eq!(error.certainty(), Certainty::NotSent);
    cluster.node(0).listen();
    let next = words("INCR next").timeout(LONG);
    assert_eq!(client.query::<Value>(next).unwrap(), Value::Integer(1));
    assert_eq!(cluster.log().key("never").count(), 0);
    assert_eq!(cluster.log().key("bar").count(), 0);
}

#[test]
fn a_command_behind_a_large_one_that_stalls_times_out_unsent() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
    cluster.node(0).stop_reading();
    let large = client
        .send::<Value>(cmd("SET").arg("large").arg(vec![b'x'; 16 << 20]))
        .unwrap();
    let behind = words("INCR bar").timeout(SHORT);
    let error = client.query::<Value>(behind).unwrap_err();
    assert_eq!(error.certainty(), Certainty::NotSent);
    cluster.node(0).resume_reading();
    large.wait().unwrap();
    assert_eq!(run(&client, "INCR next").unwrap(), Value::Integer(1));
    assert_eq!(cluster.log().key("bar").count(), 0);
}

#[test]
fn a_deadline_holds_while_a_redirect_target_cannot_be_reached() {
    let cluster = FakeCluster::builder(2).owners(1).start();
    let client = connect(&cluster);
    let unreached = cluster.node(1).on("HELLO").hold();
    cluster.assign(5061..=5061, 1);
    let begun = Instant::now();
    let error = client
        .query::<Value>(words("INCR bar").timeout(SHORT))
        .unwrap_err();
    assert!(begun.elapsed() < LONG / 2);
    assert!(error.is_timeout(), "{error}");
    assert_eq!(
        (error.certainty(), error.code()),
        (Certainty::Refused, Some("MOVED"))
    );
    unreached.release();
    let next = words("INCR {bar}next").timeout(LONG);
    assert_eq!(client.query::<Value>(next).unwrap(), Value::Integer(1));
    assert_eq!(cluster.executions("bar"), 0);
    assert_eq!(cluster.log().on(1).key("bar").count(), 0);
}

#[test]
fn a_deadline_holds_while_nobody_serves_the_slot() {
    let cluster = FakeCluster::start(2);
    cluster.change(|topology| topology.unassign(5061..=5061));
    let client = connect(&cluster);
    let error = client
        .query::<Value>(words("INCR bar").timeout(SHORT))
        .unwrap_err();
    assert_eq!(error.certainty(), Certainty::NotSent);
    assert_eq!(error.failure().unwrap().reason(), Reason::SlotUncovered);
    run(&client, "INCR b").expect("other slots work");
    let found = send(&client, "INCR bar");
    cluster.assign(5061..=5061, 0);
    assert_eq!(found.wait().unwrap(), Value::Integer(1));
    assert_eq!(cluster.executions("bar"), 1);
}

#[test]
fn a_deadline_that_has_passed_sends_nothing() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let passed = words("INCR bar").deadline(Instant::now());
    let error = client.query::<Value>(passed).unwrap_err();
    assert_eq!(error.certainty(), Certainty::NotSent);
    let error = client
        .query::<Value>(words("INCR bar").timeout(Duration::ZERO))
        .unwrap_err();
    assert_eq!(error.certainty(), Certainty::NotSent);
    run(&client, "INCR foo").unwrap();
    assert_eq!(cluster.log().key("bar").count(), 0);
}

#[test]
fn a_node_that_leaves_hundreds_unanswered_gets_a_new_connection() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
    let held = cluster.node(0).on("INCR").times(1).hold();
    let late: Vec<_> = (0..1000)
        .map(|n| cmd("INCR").arg(format!("{{bar}}{n}")).timeout(SHORT))
        .map(|command| client.send::<Value>(command).unwrap())
        .collect();
    for pending in late {
        assert_ne!(pending.wait().unwrap_err().certainty(), Certainty::Refused);
    }
    let error = run(&client, "INCR {bar}").unwrap_err();
    assert_eq!(
        error.failure().map(reslot::Failure::reason),
        Some(Reason::ConnectionLost),
        "it is noticed after a while that the node is stuck"
    );
    crate::local_cluster::poll_until(LONG, "a new connection", || {
        match client.stats().total(|node| node.connects) {
            3.. => Ok(()),
            now => Err(format!("{now} connections")),
        }
    });
    assert_eq!(
        run(&client, "INCR bar").unwrap(),
        Value::Integer(1),
        "by a new connection"
    );
    held.release();
    assert_eq!(run(&client, "INCR bar").unwrap(), Value::Integer(2));
    assert!(cluster.log().executed().count() <= 1003);
    assert!(
        client
            .stats()
            .refreshes
            .contains_key(&RefreshCause::Timeout)
    );
}

#[test]
fn a_caller_that_gives_up_hundreds_costs_nobody_else_the_connection() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
    let held = cluster.node(0).on("INCR").times(1).hold();
    let patient = client.send::<Value>(cmd("INCR").arg("bar")).unwrap();
    let mut hasty = client.pipeline();
    for n in 0..1000 {
        hasty.add(cmd("INCR").arg(format!("{{bar}}{n}")));
    }
    hasty.timeout(SHORT);
    for result in hasty.execute().unwrap() {
        assert!(result.unwrap_err().is_timeout());
    }
    held.release();
    assert_eq!(patient.wait().unwrap(), Value::Integer(1));
    assert_eq!(run(&client, "INCR bar").unwrap(), Value::Integer(2));
    assert_eq!(client.stats().total(|node| node.connects), 1);
}

#[test]
fn waiting_for_a_while_gives_the_command_back_and_does_not_end_it() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let held = cluster.node(0).hold("INCR", "bar");
    let pending = send(&client, "INCR bar");
    let pending = pending.wait_timeout(Duration::from_millis(20)).unwrap_err();
    assert!(!pending.is_done());
    held.release();
    assert_eq!(
        pending.wait_timeout(LONG).unwrap().unwrap(),
        Value::Integer(1)
    );
}

#[test]
fn replies_come_in_any_pieces_while_others_time_out() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
    cluster
        .on("GET")
        .compute(|entry| resp::bulk(entry.argv[1].repeat(100)));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let client = &client;
            scope.spawn(move || {
                for n in 0..200 {
                    let key = key_for_slot(thread * 200 + n);
                    let limit = if n % 3 == 0 {
                        Duration::from_micros(200)
                    } else {
                        LONG
                    };
                    let reply = client.query::<String>(cmd("GET").arg(&key).timeout(limit));
                    match reply {
                        Ok(value) => assert_eq!(value, key.repeat(100)),
                        Err(error) => assert!(error.is_timeout() && n % 3 == 0, "{error}"),
                    }
                }
            });
        }
    });
}

/// A reply that comes byte by byte: never silent for long, and not complete for some seconds.
fn trickle() -> Script {
    let reply = [&b"$900\r\n"[..], &[b'x'; 900], b"\r\n"].concat();
    let pause = Duration::from_millis(5);
    Script::new().reply(reply).send_in_pieces(1, pause)
}

/// Calls, one at a time, leave the reading of what follows at once to the caller.
fn warm(client: &reslot::Client) {
    for _ in 0..5 {
        assert_eq!(run(client, "EXISTS b").unwrap(), Value::Integer(0));
    }
}

#[test]
fn a_reply_that_trickles_in_does_not_hold_its_caller_beyond_the_deadline() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
    cluster.on("GET").key("bar").times(1).script(trickle());
    warm(&client);
    let begun = Instant::now();
    let late = words("GET bar").timeout(Duration::from_millis(100));
    let late = client.query::<Value>(late);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}: {late:?}");
    assert!(late.unwrap_err().is_timeout());
    assert_eq!(run(&client, "GET b").unwrap(), Value::Null);
}

#[test]
fn a_reply_that_trickles_in_does_not_hold_a_cancelled_caller() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
    cluster.on("GET").key("bar").times(1).script(trickle());
    warm(&client);
    let token = reslot::CancelToken::new();
    let begun = Instant::now();
    let (result, took) = std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let result = client.query::<Value>(words("GET bar").cancel_token(&token));
            (result, begun.elapsed())
        });
        cluster.log().key("bar").wait_for(1);
        token.cancel();
        call.join().unwrap()
    });
    assert!(took < Duration::from_secs(2), "{took:?}: {result:?}");
    assert!(result.is_err());
    assert_eq!(run(&client, "GET b").unwrap(), Value::Null);
}
