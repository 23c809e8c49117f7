//! Connections that die under transactions: what never left whole is sent again whole, what left
//! whole and got no answer is told as unknown.

use reslot::{Certainty, Client, Error, Reason, Value};

use crate::calls::{
    await_queued, brief, builder, connect, count, half_written, kill_and_notice, run, seen,
    transaction,
};
use crate::fake::{FakeCluster, key_for_slot};

#[track_caller]
fn check_unknown<T: std::fmt::Debug>(result: reslot::Result<T>) {
    let failure = result.unwrap_err();
    assert!(matches!(failure, Error::MaybeExecuted(_)), "{failure:?}");
    assert_eq!(failure.certainty(), Certainty::Unknown);
    assert_eq!(failure.failure().unwrap().reason(), Reason::ConnectionLost);
}

#[test]
fn after_exec_ran_it_is_not_sent_again() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.node(0).on("EXEC").times(1).run_and_close();
    check_unknown(count(&client, "bar"));
    assert_eq!(run(&client, "GET bar"), Ok(Value::Bulk("1".into())));
    assert_eq!(cluster.log().commands("MULTI").count(), 1);
}

#[test]
fn before_exec_ran_it_is_not_sent_again_either() {
    for place in ["MULTI", "INCR", "GET", "EXEC"] {
        let cluster = FakeCluster::start(2);
        let client = connect(&cluster);
        // All of it was written, so nobody can tell that it did not run.
        cluster.node(0).on(place).times(1).close();
        check_unknown(count(&client, "bar"));
        assert_eq!(cluster.executions("bar"), 0);
        assert_eq!(count(&client, "bar"), Ok((1, "1".into())));
        assert_eq!(cluster.log().commands("EXEC").count(), 2);
    }
}

#[test]
fn with_only_reads_it_is_not_sent_again_either() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.node(0).on("EXEC").times(1).close();
    check_unknown(transaction(&client, &["GET bar"]));
}

#[test]
fn at_each_byte_of_it_nothing_runs_twice_or_by_halves() {
    let cluster = FakeCluster::start(1);
    let length = b"*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$3\r\nbar\r\n".len();
    let mut ran = 0;
    for cut in [1, 14, 15, 16, length - 1, length, length + 1] {
        let client: Client = connect(&cluster);
        cluster.node(0).wait_open(1);
        let start = cluster.log().end();
        cluster.node(0).close_after_bytes(cut);
        let call = crate::calls::apart(&client, |client| count(client, "bar"));
        cluster.node(0).wait_open(0);
        cluster.node(0).read_on();
        // It fitted into the kernel, so it was written whole: it is unknown, or, if the kernel
        // knew of the close by then, sent again.
        match crate::calls::done(call) {
            Ok((number, text)) => {
                ran += 1;
                assert_eq!((number, text), (ran, ran.to_string()));
            }
            Err(failure) => assert_eq!(failure.certainty(), Certainty::Unknown),
        }
        assert_eq!(
            run(&client, "PING"),
            Ok(Value::Simple("PONG".into())),
            "not QUEUED"
        );
        let lone = cluster
            .log()
            .executed()
            .since(start)
            .commands("INCR")
            .count();
        let whole = cluster
            .log()
            .executed()
            .since(start)
            .commands("GET")
            .count();
        assert_eq!(lone, whole);
        drop(client);
        cluster.node(0).wait_open(0);
    }
}

#[test]
fn a_tail_is_never_written_to_the_next_connection() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let key = key_for_slot(0);
    let transaction = half_written(&cluster, &client, 0, &key);
    // It dies for good, in the middle of the SET; the client connects again.
    cluster.node(0).close_after_bytes(1 << 20);
    cluster.node(0).resume_reading();
    cluster.node(0).wait_open(0);
    cluster.node(0).read_on();
    transaction.ran();
    let entries = cluster.log().on(0).data().list();
    let last = entries.last().unwrap().connection;
    let own = entries.iter().filter(|entry| entry.connection == last);
    let expected = [
        "MULTI",
        &format!("SET {key}"),
        &format!("STRLEN {key}"),
        "EXEC",
    ];
    assert_eq!(own.map(brief).collect::<Vec<_>>(), expected);
    assert_eq!(cluster.log().executed().commands("SET").count(), 1);
}

#[test]
fn transactions_queued_for_a_dead_node_run_when_it_is_back() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    kill_and_notice(&cluster, &client, 0, "bar");
    let calls: Vec<_> = (0..3)
        .map(|_| crate::calls::apart(&client, |client| count(client, "bar")))
        .collect();
    await_queued(&cluster, &client, 0, 12);
    cluster.node(0).listen();
    let mut numbers: Vec<i64> = calls
        .into_iter()
        .map(|call| crate::calls::done(call).unwrap().0)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
    let one = ["MULTI", "INCR bar", "GET bar", "EXEC"];
    assert_eq!(seen(&cluster, 0), [one, one, one].concat());
}

#[test]
fn closing_the_client_ends_each_of_them_once() {
    let cluster = FakeCluster::start(4);
    let client = builder(&cluster).connect().unwrap();
    let (blocker, key) = (key_for_slot(0), key_for_slot(4096));
    let half = half_written(&cluster, &client, 0, &blocker);
    let queued = crate::calls::apart(&client, {
        let blocker = blocker.clone();
        move |client| count(client, &blocker)
    });
    await_queued(&cluster, &client, 0, 4);
    let gate = cluster.node(1).on("EXEC").hold();
    let sent = crate::calls::apart(&client, move |client| count(client, &key));
    gate.wait_arrived(1);

    client.close(std::time::Duration::from_millis(10)).unwrap();
    let half = half.end().unwrap_err();
    assert!(matches!(half, Error::Closed(_)), "{half:?}");
    assert_ne!(
        half.certainty(),
        Certainty::Unknown,
        "its EXEC was never written"
    );
    let queued = crate::calls::done(queued).unwrap_err();
    assert!(matches!(queued, Error::Closed(_)), "{queued:?}");
    assert_eq!(queued.certainty(), Certainty::NotSent);
    let sent = crate::calls::done(sent).unwrap_err();
    assert!(matches!(sent, Error::Closed(_)), "{sent:?}");
    assert_eq!(sent.certainty(), Certainty::Unknown);
    assert!(matches!(count(&client, "bar"), Err(Error::Closed(_))));
}
