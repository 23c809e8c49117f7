//! Errors inside of transactions: each reply gets to its own caller, and nothing runs by halves.

use reslot::{Certainty, Reason, Value, cmd};

use crate::calls::{apart, connect, count, done, run, seen, transaction};
use crate::fake::{FakeCluster, resp};

#[test]
fn an_error_in_exec_is_the_result_of_its_command() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    run(&client, "SET foo s").unwrap();
    let replies = transaction(&client, &["RPUSH foo x", "GET foo"]).unwrap();
    assert_eq!(replies[0].as_ref().unwrap_err().code(), "WRONGTYPE");
    assert_eq!(replies[1], Ok(Value::Bulk("s".into())));
    let typed: reslot::Result<(i64, String)> = client.transaction(|t| {
        t.add(cmd("RPUSH").arg("foo").arg("x"))
            .add(cmd("GET").arg("foo"));
    });
    assert!(typed.is_err(), "a failed member is no number");
}

#[test]
fn a_nil_exec_is_a_lost_watch_and_not_an_empty_result() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    for nil in [resp::null_array(2), resp::null(3)] {
        let rule = cluster.node(0).on("EXEC").reply(nil);
        let failure = transaction(&client, &["GET bar"]).unwrap_err();
        assert_eq!(failure.failure().unwrap().reason(), Reason::WatchLost);
        assert_eq!(failure.certainty(), Certainty::Refused);
        rule.remove();
        assert_eq!(
            transaction(&client, &["GET bar"]),
            Ok(vec![Ok(Value::Null)])
        );
    }
}

#[test]
fn execabort_is_told_with_the_errors_behind_it() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let failure = transaction(&client, &["INCR bar", "INCR bar 1", "NOSUCH bar"]);
    let failure = failure.unwrap_err();
    assert_eq!(failure.certainty(), Certainty::Refused);
    let members: Vec<usize> = failure
        .failure()
        .unwrap()
        .members()
        .iter()
        .map(|m| m.0)
        .collect();
    assert_eq!(members, [1, 2]);
    assert!(
        failure
            .server_error()
            .unwrap()
            .line()
            .contains("wrong number"),
        "{failure}"
    );
    assert_eq!(cluster.executions("bar"), 0);
    assert_eq!(
        cluster.log().commands("MULTI").count(),
        1,
        "it is not sent again"
    );
}

#[test]
fn execabort_alone_is_returned() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let abort = "EXECABORT Transaction discarded because of: something";
    cluster.node(0).on("EXEC").times(1).error(abort);
    let failure = transaction(&client, &["INCR bar"]).unwrap_err();
    assert_eq!(failure.code(), Some("EXECABORT"));
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert_eq!(cluster.log().commands("MULTI").count(), 1);
}

#[test]
fn an_error_at_any_place_leaves_no_reply_for_the_next_caller() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    run(&client, "MSET {bar}value v {bar}text t").unwrap();
    let calls: Vec<_> = (0..4)
        .map(|number| {
            apart(&client, move |client| {
                for round in 0..25 {
                    one_error(client, (number + round) % 5);
                    let value = run(client, "GET {bar}value");
                    assert_eq!(value, Ok(Value::Bulk("v".into())), "behind {number}");
                }
            })
        })
        .collect();
    calls.into_iter().for_each(done);
    cluster
        .node(0)
        .on("MULTI")
        .times(1)
        .error("ERR no transactions here");
    transaction(&client, &["GET {bar}value"]).unwrap_err();
    assert_eq!(run(&client, "GET {bar}value"), Ok(Value::Bulk("v".into())));
}

/// Something that fails in its own way.
fn one_error(client: &reslot::Client, way: usize) {
    match way {
        0 => drop(transaction(client, &["INCR {bar}n 1", "GET {bar}value"]).unwrap_err()),
        1 => drop(transaction(client, &["GET {bar}value", "INCR {bar}n 1"]).unwrap_err()),
        2 => {
            assert!(transaction(client, &["INCR {bar}text", "GET {bar}value"]).unwrap()[0].is_err())
        }
        3 => drop(run(client, "INCR {bar}text").unwrap_err()),
        _ => {
            let mut pipeline = client.pipeline();
            for line in ["INCR {bar}text", "GET {bar}value", "INCR {bar}text"] {
                pipeline.add(crate::calls::words(line));
            }
            let each = pipeline.execute().unwrap();
            assert_eq!(each[1], Ok(Value::Bulk("v".into())));
        }
    }
}

#[test]
fn members_that_ran_without_their_multi_are_not_sent_again() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    // A server that refuses MULTI for the moment runs the members one by one.
    cluster
        .node(0)
        .on("MULTI")
        .times(1)
        .error("LOADING Redis is loading the dataset in memory");
    let failure = count(&client, "bar").unwrap_err();
    assert_eq!(failure.certainty(), Certainty::Unknown);
    assert_eq!(seen(&cluster, 0), ["MULTI", "INCR bar", "GET bar", "EXEC"]);
    assert_eq!(run(&client, "GET bar"), Ok(Value::Bulk("1".into())));
}
