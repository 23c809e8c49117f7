//! Blocking commands: in nobody's way, wherever their slot goes, and without losing an element.

use std::thread::JoinHandle;
use std::time::Duration;

use reslot::{CancelToken, Certainty, Client, Error, Misuse, Reason, Result, Value, cmd};

use crate::calls::{
    LONG, apart, builder, connect, done, run, seen, send, spread_the_map, stats, words,
};
use crate::fake::{Accept, FakeCluster, Script, key_for_slot};

const SLOT: u16 = 5061;

/// `BLPOP key seconds` on a thread of its own, once it blocks at a node.
fn blpop(cluster: &FakeCluster, client: &Client, line: &str) -> JoinHandle<Result<Value>> {
    let before = cluster.log().commands("BLPOP").count();
    let owned = line.to_owned();
    let call = apart(client, move |client| run(client, &owned));
    cluster.log().commands("BLPOP").wait_for(before + 1);
    call
}

/// What BLPOP gives.
fn popped(key: &str, element: &str) -> Result<Value> {
    let pair = [key, element].map(|text| Value::Bulk(text.into()));
    Ok(Value::Array(pair.into()))
}

/// The times that BLPOPs on a node named.
fn times(cluster: &FakeCluster, node: usize) -> Vec<f64> {
    let log = cluster.log().on(node).commands("BLPOP");
    let last = |entry: &crate::fake::Entry| entry.text(entry.argv.len() - 1).parse().unwrap();
    log.list().iter().map(last).collect()
}

#[test]
fn a_blocked_call_delays_nobody_on_its_node() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let call = blpop(&cluster, &client, "BLPOP list{bar} 0");
    for number in 1..=100 {
        assert_eq!(run(&client, "INCR bar"), Ok(Value::Integer(number)));
    }
    assert_eq!(run(&client, "RPUSH list{bar} x"), Ok(Value::Integer(1)));
    assert_eq!(done(call), popped("list{bar}", "x"));
    let by_blpop = cluster.log().commands("BLPOP").list()[0].connection;
    assert_eq!(cluster.log().connection(by_blpop).data().count(), 1);
}

#[test]
fn connections_are_used_again_and_replaced_when_they_are_dead() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    for _ in 0..5 {
        run(&client, "RPUSH bar x").unwrap();
        assert_eq!(run(&client, "BLPOP bar 1"), popped("bar", "x"));
    }
    assert_eq!(cluster.node(0).opened(), 2);
    cluster.node(0).drop_connections();
    cluster.node(0).wait_open(1);
    run(&client, "RPUSH bar x").unwrap();
    assert_eq!(run(&client, "BLPOP bar 1"), popped("bar", "x"));
    assert_eq!(
        cluster.log().commands("BLPOP").count(),
        6,
        "nothing was tried on a dead one"
    );
}

#[test]
fn many_blocked_calls_each_get_an_element() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let calls: Vec<_> = (0..16)
        .map(|_| blpop(&cluster, &client, "BLPOP bar 0"))
        .collect();
    let elements: Vec<String> = (0..16).map(|number| number.to_string()).collect();
    run(&client, &format!("RPUSH bar {}", elements.join(" "))).unwrap();
    let mut got: Vec<Value> = calls.into_iter().map(|call| done(call).unwrap()).collect();
    got.sort_by_key(|value| format!("{value:?}"));
    got.dedup();
    assert_eq!(got.len(), 16);
}

#[test]
fn a_time_that_is_over_gives_nil() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    assert_eq!(run(&client, "BLPOP bar 0.05"), Ok(Value::Null));
    let time = times(&cluster, 0)[0];
    assert!(time <= 0.05 && time > 0.0, "{time}");
}

#[test]
fn another_slot_may_leave_the_node_meanwhile() {
    let cluster = FakeCluster::start(4);
    // Whoever waited for the blocked call would wait for ever.
    let client = builder(&cluster).connect().unwrap();
    let (blocked, moving) = (key_for_slot(0), key_for_slot(5));
    let call = blpop(&cluster, &client, &format!("BLPOP {blocked} 0"));
    for round in 1..=3 {
        cluster.assign(5..=5, round);
        spread_the_map(&cluster, &client);
        let count = i64::try_from(round).unwrap();
        assert_eq!(
            run(&client, &format!("INCR {moving}")),
            Ok(Value::Integer(count))
        );
        assert_eq!(
            run(&client, &format!("GET {}", key_for_slot(1))),
            Ok(Value::Null)
        );
    }
    assert_eq!(
        cluster.log().commands("BLPOP").count(),
        1,
        "it was not disturbed"
    );
    run(&client, &format!("RPUSH {blocked} x")).unwrap();
    assert_eq!(done(call), popped(&blocked, "x"));
}

#[test]
fn a_slot_that_moves_takes_the_blocked_call_along() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let call = blpop(&cluster, &client, "BLPOP bar 20");
    cluster.assign(SLOT..=SLOT, 1);
    cluster.log().on(1).commands("BLPOP").wait_for(1);
    run(&client, "RPUSH bar x").unwrap();
    assert_eq!(done(call), popped("bar", "x"));
    let (first, second) = (times(&cluster, 0)[0], times(&cluster, 1)[0]);
    assert!(
        second <= first && second > 0.0,
        "the rest of the time: {first}, {second}"
    );
}

#[test]
fn a_call_for_ever_stays_one_when_it_is_sent_again() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let call = blpop(&cluster, &client, "BLPOP bar 0");
    cluster.assign(SLOT..=SLOT, 1);
    cluster.log().on(1).commands("BLPOP").wait_for(1);
    assert_eq!(times(&cluster, 1), [0.0]);
    run(&client, "RPUSH bar x").unwrap();
    assert_eq!(done(call), popped("bar", "x"));
}

#[test]
fn a_call_that_blocks_long_may_outlive_more_moves_than_the_budget() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).max_redirects(1).connect().unwrap();
    // The server holds each attempt for a while before the slot is on its way again.
    for (node, other) in [(0, 1), (1, 0)] {
        let port = cluster.node(other).port();
        let moved = format!("MOVED {SLOT} 127.0.0.1:{port}");
        let script = Script::new()
            .wait(Duration::from_millis(1100))
            .error(&moved)
            .send();
        cluster.node(node).on("BLPOP").times(1).script(script);
    }
    let call = blpop(&cluster, &client, "BLPOP bar 0");
    cluster.log().commands("BLPOP").wait_for(3);
    crate::local_cluster::Wire::connect(cluster.node(0).addr())
        .and_then(|mut wire| wire.call(&["RPUSH", "bar", "x"]))
        .unwrap();
    assert_eq!(done(call), popped("bar", "x"));
}

#[test]
fn redirects_in_circles_end_in_the_budget() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).max_redirects(2).connect().unwrap();
    cluster.node(0).on("BLPOP").moved(SLOT, 1);
    cluster.node(1).on("BLPOP").moved(SLOT, 0);
    let failure = run(&client, "BLPOP bar 0").unwrap_err();
    assert_eq!(
        failure.failure().unwrap().reason(),
        Reason::TooManyRedirects
    );
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert_eq!(failure.code(), Some("MOVED"));
    assert_eq!(cluster.log().commands("BLPOP").count(), 3);
}

#[test]
fn ask_is_followed_with_an_asking_of_its_own() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.begin_move(SLOT, 1);
    let call = blpop(&cluster, &client, "BLPOP bar 20");
    cluster.log().on(1).commands("BLPOP").wait_for(1);
    assert_eq!(seen(&cluster, 1), ["ASKING", "BLPOP bar"]);
    run(&client, "RPUSH bar x").unwrap();
    assert_eq!(done(call), popped("bar", "x"));
}

#[test]
fn a_demoted_node_hands_it_to_its_successor() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    cluster.replicate(2, 0);
    let client = connect(&cluster);
    let gate = cluster.gate();
    let unblocked = "UNBLOCKED force unblock from blocking operation, instance state changed \
                     (master -> replica?)";
    // So long, at least, the first attempt takes.
    let script = Script::new().wait(Duration::from_millis(20));
    let script = script.hold(&gate).error(unblocked).send().close();
    cluster.node(0).on("BLPOP").times(1).script(script);
    let call = blpop(&cluster, &client, "BLPOP bar 20");
    gate.wait_arrived(1);
    cluster.promote(2);
    gate.release();
    cluster.log().on(2).commands("BLPOP").wait_for(1);
    run(&client, "RPUSH bar x").unwrap();
    assert_eq!(done(call), popped("bar", "x"));
    let (first, second) = (times(&cluster, 0)[0], times(&cluster, 2)[0]);
    assert!(second < first, "the rest of the time: {first}, {second}");
}

#[test]
fn a_lost_connection_ends_a_pop_as_unknown() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    for ran in [false, true] {
        run(&client, "RPUSH bar x").unwrap();
        let blpop = cluster.node(0).on("BLPOP").times(1);
        if ran {
            blpop.run_and_close()
        } else {
            blpop.close()
        };
        let before = cluster.log().commands("BLPOP").count();
        let failure = run(&client, "BLPOP bar 20").unwrap_err();
        assert!(matches!(failure, Error::MaybeExecuted(_)), "{failure:?}");
        assert_eq!(failure.failure().unwrap().reason(), Reason::ConnectionLost);
        assert_eq!(
            cluster.log().commands("BLPOP").count(),
            before + 1,
            "it is not sent again"
        );
    }
    // The first one is still there; the second one was taken by a call that told so.
    assert_eq!(run(&client, "BLPOP bar 1"), popped("bar", "x"));
}

#[test]
fn a_lost_connection_under_a_read_is_sent_again() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let script = Script::new().wait(Duration::from_millis(20)).close();
    cluster.node(0).on("XREAD").times(1).script(script);
    cluster.node(0).on("XREAD").reply("*0\r\n");
    let read = run(&client, "XREAD BLOCK 20000 STREAMS bar 0");
    assert_eq!(read, Ok(Value::Array(vec![])));
    let blocks: Vec<u64> = cluster
        .log()
        .commands("XREAD")
        .list()
        .iter()
        .map(|entry| entry.text(2).parse().unwrap())
        .collect();
    assert!(blocks.len() == 2 && blocks[1] < blocks[0], "{blocks:?}");
}

#[test]
fn calls_under_way_end_when_their_connections_are_dropped() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let call = blpop(&cluster, &client, "BLPOP list{bar} 30");
    let gate = cluster.node(0).hold("INCR", "bar");
    let writes: Vec<_> = (0..100).map(|_| send(&client, "INCR bar")).collect();
    cluster.log().commands("INCR").wait_for(100);
    gate.wait_arrived(1);
    cluster.node(0).drop_connections();
    for pending in writes {
        assert_eq!(pending.wait().unwrap_err().certainty(), Certainty::Unknown);
    }
    assert_eq!(done(call).unwrap_err().certainty(), Certainty::Unknown);
    assert_eq!(cluster.executions("bar"), 0);
}

/// Ends a blocked call by a token and waits until the node has noticed.
fn cancel(cluster: &FakeCluster, client: &Client) -> Error {
    let token = CancelToken::new();
    let command = words("BLPOP bar 30").cancel_token(&token);
    let call = apart(client, move |client| client.query::<Value>(command));
    cluster.log().commands("BLPOP").wait_for(1);
    token.cancel();
    let failure = done(call).unwrap_err();
    // Only the shared connection is left.
    cluster.node(0).wait_open(1);
    failure
}

#[test]
fn a_cancelled_call_takes_no_element() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let failure = cancel(&cluster, &client);
    assert!(matches!(failure, Error::Cancelled(_)), "{failure:?}");
    assert_eq!(failure.certainty(), Certainty::Unknown, "it was sent");
    assert_eq!(run(&client, "RPUSH bar x"), Ok(Value::Integer(1)));
    assert_eq!(
        run(&client, "LRANGE bar 0 -1"),
        Ok(Value::Array(vec![Value::Bulk("x".into())]))
    );
    assert_eq!(run(&client, "BLPOP bar 1"), popped("bar", "x"));
}

#[test]
fn a_call_with_a_cancelled_token_is_not_sent() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let token = CancelToken::new();
    token.cancel();
    let result = client.query::<Value>(words("BLPOP bar 30").cancel_token(&token));
    assert_eq!(result.unwrap_err().certainty(), Certainty::NotSent);
    assert_eq!(cluster.log().data().count(), 0);
}

#[test]
fn a_patience_shorter_than_the_block_time_takes_no_element() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    for (seconds, patience) in [("30", 400), ("0", 400)] {
        let before = times(&cluster, 0).len();
        let command = cmd("BLPOP").arg("bar").arg(seconds);
        let result = client.query::<Value>(command.timeout(Duration::from_millis(patience)));
        let failure = result.unwrap_err();
        assert!(failure.is_timeout(), "{failure:?}");
        // The server has ended it before the caller did, so nothing is in doubt.
        assert_eq!(failure.certainty(), Certainty::Refused);
        let told = times(&cluster, 0)[before];
        assert!(told > 0.0 && told < 0.4, "{told}");
    }
    run(&client, "RPUSH bar x").unwrap();
    assert_eq!(run(&client, "BLPOP bar 1"), popped("bar", "x"));
}

#[test]
fn a_silent_server_costs_no_more_than_the_patience() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).connect_timeout(LONG).connect().unwrap();
    cluster.node(0).set_accept(Accept::Silent);
    let patient = words("BLPOP bar 0").timeout(Duration::from_millis(100));
    let failure = client.query::<Value>(patient).unwrap_err();
    assert!(failure.is_timeout(), "{failure:?}");
    assert_eq!(failure.certainty(), Certainty::NotSent);
    let token = CancelToken::new();
    let cancelled = words("BLPOP bar 0").cancel_token(&token);
    let opened = cluster.node(0).opened();
    let call = apart(&client, move |client| client.query::<Value>(cancelled));
    cluster.log().on(0).commands("HELLO").wait_for(opened + 1);
    token.cancel();
    let failure = done(call).unwrap_err();
    assert!(matches!(failure, Error::Cancelled(_)), "{failure:?}");
    assert_eq!(failure.certainty(), Certainty::NotSent);
}

#[test]
fn a_silent_server_does_not_keep_the_client_open() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).connect_timeout(LONG).connect().unwrap();
    cluster.node(0).set_accept(Accept::Silent);
    let opened = cluster.node(0).opened();
    let call = apart(&client, |client| run(client, "BLPOP bar 0"));
    cluster.log().on(0).commands("HELLO").wait_for(opened + 1);
    client.close(Duration::ZERO).unwrap();
    let failure = done(call).unwrap_err();
    assert!(matches!(failure, Error::Closed(_)), "{failure:?}");
    assert_eq!(failure.certainty(), Certainty::NotSent);
}

#[test]
fn closing_the_client_ends_blocked_calls_and_their_connections() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let calls: Vec<_> = (0..4)
        .map(|_| blpop(&cluster, &client, "BLPOP bar 0"))
        .collect();
    client.close(LONG).unwrap();
    for call in calls {
        let failure = done(call).unwrap_err();
        assert!(matches!(failure, Error::Closed(_)), "{failure:?}");
        assert_eq!(failure.certainty(), Certainty::Unknown);
    }
    cluster.node(0).wait_open(0);
    let failure = run(&client, "BLPOP bar 0").unwrap_err();
    assert_eq!(failure.certainty(), Certainty::NotSent);
}

#[test]
fn a_short_time_to_block_is_no_short_time_for_trouble() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    run(&client, "RPUSH bar x").unwrap();
    cluster
        .node(0)
        .on("BLPOP")
        .times(3)
        .error("LOADING for a while");
    let call = apart(&client, |client| run(client, "BLPOP bar 0.001"));
    // Its time is over, so nil is right, too; but it does not fail.
    let result = done(call);
    assert!(
        result == popped("bar", "x") || result == Ok(Value::Null),
        "{result:?}"
    );
    cluster.node(0).kill();
    let call = apart(&client, |client| run(client, "BLPOP bar 0.001"));
    crate::calls::await_stats(&cluster, &client, 0, |stats| stats.in_flight == 0);
    cluster.node(0).listen();
    let result = done(call);
    assert!(result.is_ok(), "{result:?}");
}

#[test]
fn blocking_commands_are_refused_where_they_would_block_others() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let refused =
        |result: Result<Value>| matches!(result, Err(Error::Misuse(Misuse::Refused { .. })));
    let mut pipeline = client.pipeline();
    pipeline.add(words("BLPOP bar 0")).add(words("INCR bar"));
    let mut each = pipeline.execute().unwrap();
    assert_eq!(each.pop(), Some(Ok(Value::Integer(1))));
    assert!(refused(each.remove(0)));
    assert!(refused(
        client
            .send::<Value>(words("BLPOP bar 0"))
            .and_then(|p| p.wait())
    ));
    assert_eq!(cluster.log().commands("BLPOP").count(), 0);
    assert_eq!(stats(&cluster, &client, 0).sent, 1);
}

#[test]
fn errors_of_the_server_are_returned_at_once() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    run(&client, "SET bar text").unwrap();
    let failure = run(&client, "BLPOP bar 30").unwrap_err();
    assert_eq!(failure.code(), Some("WRONGTYPE"));
    assert_eq!(cluster.log().commands("BLPOP").count(), 1);
}

#[test]
fn a_call_that_was_not_written_whole_was_not_sent() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    run(&client, "BLPOP bar 0.01").unwrap();
    cluster.node(0).stop_reading();
    let huge = [b"{bar}".as_slice(), &vec![b'x'; 32 << 20]].concat();
    let pop = cmd("BLPOP").arg(huge).arg("0.1");
    let error = client.query::<Value>(pop.timeout(Duration::from_millis(300)));
    let error = error.unwrap_err();
    cluster.node(0).resume_reading();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(
        (error.certainty(), error.attempts()),
        (Certainty::NotSent, 0)
    );
}
