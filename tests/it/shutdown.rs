//! Closing: bounded in time, everybody is told, and no thread or socket is left.

use std::process::Command;
use std::time::{Duration, Instant};

use reslot::{Cancelled, Certainty, Client, Error, Value, WhenFull, cmd};

use crate::fake::{Accept, FakeCluster, Node};
use crate::local_cluster::poll_until;
use crate::run::{builder, connect, run, send, words};

/// Long enough for any machine; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(20);

/// Set in the process that runs one test alone.
const ALONE: &str = "RESLOT_TEST_ALONE";

/// Runs a test in a process of its own, where every thread and socket of a client is its own.
fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let program = std::env::current_exe().unwrap();
    let name = format!("shutdown::{test}");
    let output = Command::new(program)
        .args(["--exact", &name, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("1 passed"), "{text}");
}

/// Names of the threads of all clients in this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("reslot-")).collect()
}

/// Waits until no thread is left. All are joined by then, but Linux lists a thread a little longer.
#[track_caller]
fn assert_no_threads() {
    poll_until(LONG, "the end of all threads", || match threads() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
}

/// Open files of this process.
fn files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Waits until no node has a connection.
fn assert_no_connections(cluster: &FakeCluster) {
    cluster.nodes().iter().for_each(Node::resume_reading);
    cluster.nodes().iter().for_each(|node| node.wait_open(0));
}

/// A call after the end.
fn assert_closed(client: &Client) {
    for error in [
        run(client, "GET bar").unwrap_err(),
        send(client, "INCR foo").wait().unwrap_err(),
    ] {
        assert!(matches!(error, Error::Closed(_)), "{error}");
        assert_eq!(error.certainty(), Certainty::NotSent);
    }
    let results = crate::run::pipeline(client, &["INCR foo", "INCR bar"]);
    assert!(
        results
            .iter()
            .all(|result| matches!(result, Err(Error::Closed(_)))),
        "{results:?}"
    );
}

/// Four nodes with everything at once that a close can meet: commands on the wire, a full queue
/// with callers waiting for room, an unreachable node, a slot without an owner, a slot on the move.
fn trouble() -> (FakeCluster, Client) {
    let cluster = FakeCluster::start(4);
    let settings = builder(&cluster).queue_commands(50).response_timeout(None);
    let client = settings.drain_limit(LONG).connect().unwrap();
    cluster.node(3).kill();
    cluster.node(1).stop_reading();
    (cluster, client)
}

#[test]
fn a_close_in_the_middle_of_everything_settles_all_and_leaves_nothing() {
    alone(
        "a_close_in_the_middle_of_everything_settles_all_and_leaves_nothing",
        || {
            let (cluster, client) = trouble();
            let held = cluster.node(0).on("INCR").hold();
            let mut pending = vec![send(&client, "INCR b")];
            held.wait_arrived(1);
            cluster.change(|topology| topology.unassign(9000..=9000));
            let large = cmd("SET")
                .arg(crate::fake::key_for_slot(5000))
                .arg(vec![b'x'; 16 << 20]);
            pending.push(client.send(large).unwrap());
            let homeless = crate::fake::key_for_slot(9000);
            pending.extend((0..10).map(|n| send(&client, &format!("INCR {{{homeless}}}{n}"))));
            let unreachable = crate::fake::key_for_slot(16000);
            pending.extend((0..20).map(|n| send(&client, &format!("INCR {{{unreachable}}}{n}"))));
            let stalled = crate::fake::key_for_slot(5001);
            let limit = Duration::from_millis(300);
            let call = |n: usize| run(&client, &format!("INCR {{{stalled}}}{n}"));
            let call = &call;
            std::thread::scope(|scope| {
                let callers: Vec<_> = (0..64).map(|n| scope.spawn(move || call(n))).collect();
                poll_until(LONG, "a full queue", || {
                    let load = |node: &reslot::NodeStats| node.queued + node.in_flight;
                    match client.stats().nodes.values().map(load).max() {
                        Some(50..) => Ok(()),
                        most => Err(format!("{most:?}")),
                    }
                });
                let begun = Instant::now();
                client.close(limit).unwrap();
                assert!(begun.elapsed() < limit + LONG / 4, "{:?}", begun.elapsed());
                for caller in callers {
                    let error = caller.join().unwrap().unwrap_err();
                    assert!(matches!(error, Error::Closed(_)), "{error}");
                }
            });
            for pending in pending {
                assert!(pending.is_done());
                let error = pending.wait().unwrap_err();
                assert!(
                    matches!(error, Error::Closed(_) | Error::MaybeExecuted(_)),
                    "{error}"
                );
            }
            assert_closed(&client);
            assert_no_threads();
            assert_no_connections(&cluster);
            held.release();
            assert!(cluster.log().executed().count() <= 1);
        },
    );
}

#[test]
fn clients_that_come_and_go_leave_no_threads_and_no_sockets() {
    alone(
        "clients_that_come_and_go_leave_no_threads_and_no_sockets",
        || {
            let cluster = FakeCluster::start(2);
            let mut before = 0;
            for round in 0..50 {
                let client = connect(&cluster);
                run(&client, "INCR bar").unwrap();
                run(&client, "MSET foo 1 bar 2").unwrap_err();
                let late = format!("late{round}");
                let held = cluster.on("GET").key(&late).hold();
                let late = words(&format!("GET {late}")).timeout(Duration::from_millis(1));
                client.query::<Value>(late).unwrap_err();
                drop(send(&client, "GET foo"));
                if round % 2 == 0 {
                    client.close(Duration::ZERO).unwrap();
                }
                let clone = client.clone();
                drop(client);
                held.release();
                drop(clone);
                assert_no_threads();
                assert_no_connections(&cluster);
                if round == 5 {
                    before = files();
                }
            }
            poll_until(LONG, "the fake to close its files", || match files() {
                now if now <= before => Ok(()),
                now => Err(format!("{now} open files, {before} before")),
            });
        },
    );
}

#[test]
fn a_client_that_cannot_connect_leaves_nothing() {
    alone("a_client_that_cannot_connect_leaves_nothing", || {
        let cluster = FakeCluster::start(3);
        cluster.node(0).kill();
        cluster.node(1).set_accept(Accept::Silent);
        cluster.node(2).on("CLUSTER SLOTS").ignore();
        let begun = Instant::now();
        let settings = builder(&cluster).connect_timeout(LONG);
        let limit = Duration::from_millis(200);
        let error = settings.connect_deadline(limit).connect().unwrap_err();
        assert!(matches!(error, Error::Connect(_)), "{error}");
        assert!(begun.elapsed() < LONG / 2);
        assert_no_threads();
        assert_no_connections(&cluster);
    });
}

#[test]
fn what_is_under_way_may_end_within_the_limit() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let held = cluster.node(0).hold("INCR", "bar");
    let pending = send(&client, "INCR bar");
    held.wait_arrived(1);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| client.close(LONG).unwrap());
        poll_until(LONG, "the end of calls", || match run(&client, "GET foo") {
            Err(Error::Closed(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        assert!(!pending.is_done());
        held.release();
        assert_eq!(pending.wait().unwrap(), Value::Integer(1));
        closing.join().unwrap();
    });
    assert_closed(&client);
    cluster.node(0).wait_open(0);
}

#[test]
fn a_close_whose_limit_passes_says_of_each_command_what_is_certain() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster).response_timeout(None).connect().unwrap();
    let held = cluster.node(0).hold("INCR", "bar");
    let sent = send(&client, "INCR bar");
    held.wait_arrived(1);
    cluster.node(0).stop_reading();
    let large = client
        .send::<Value>(cmd("SET").arg("k").arg(vec![b'x'; 16 << 20]))
        .unwrap();
    let queued = send(&client, "INCR queued");
    client.close(Duration::from_millis(50)).unwrap();
    let ends = [sent, large, queued].map(|pending| pending.wait().unwrap_err());
    assert!(
        ends.iter().all(|error| matches!(error, Error::Closed(_))),
        "{ends:?}"
    );
    assert_eq!(ends[0].certainty(), Certainty::Unknown);
    assert_eq!(ends[2].certainty(), Certainty::NotSent);
    cluster.node(0).resume_reading();
    cluster.node(0).wait_open(0);
    held.release();
    assert_eq!(cluster.log().key("queued").count(), 0);
    assert_eq!(cluster.executions("k"), 0);
}

#[test]
fn a_full_queue_does_not_hold_up_a_close() {
    for dies in [false, true] {
        for _ in 0..10 {
            let cluster = FakeCluster::start(1);
            let settings = builder(&cluster)
                .queue_commands(8)
                .when_full(WhenFull::Wait);
            let client = settings.response_timeout(None).connect().unwrap();
            let held = cluster.node(0).on("INCR").hold();
            std::thread::scope(|scope| {
                let call = || run(&client, "INCR bar");
                let callers: Vec<_> = (0..32).map(|_| scope.spawn(call)).collect();
                held.wait_arrived(1);
                cluster.log().commands("INCR").wait_for(8);
                let begun = Instant::now();
                if dies {
                    cluster.node(0).kill();
                }
                client.close(Duration::from_millis(20)).unwrap();
                assert!(begun.elapsed() < LONG / 2);
                for caller in callers {
                    let error = caller.join().unwrap().unwrap_err();
                    let lost = dies && matches!(error, Error::MaybeExecuted(_));
                    assert!(lost || matches!(error, Error::Closed(_)), "{error}");
                }
            });
        }
    }
}

#[test]
fn a_second_close_and_one_from_another_clone_do_nothing() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let clones: Vec<_> = (0..4).map(|_| client.clone()).collect();
    std::thread::scope(|scope| {
        clones
            .iter()
            .for_each(|clone| drop(scope.spawn(|| clone.close(LONG).unwrap())));
    });
    client.close(Duration::ZERO).unwrap();
    clones.iter().for_each(assert_closed);
    assert_no_connections(&cluster);
}

#[test]
fn the_end_of_the_last_clone_closes_and_a_pending_command_keeps_its_client() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let held = cluster.node(0).hold("INCR", "bar");
    let pending = send(&client, "INCR bar");
    held.wait_arrived(1);
    drop(client);
    held.release();
    assert_eq!(pending.wait().unwrap(), Value::Integer(1));
    assert_no_connections(&cluster);
}

#[test]
fn commands_end_once_also_if_they_are_cancelled_while_the_client_closes() {
    for _ in 0..20 {
        let cluster = FakeCluster::start(1);
        let client = connect(&cluster);
        let pending: Vec<_> = (0..200)
            .map(|n| send(&client, &format!("INCR k{n}")))
            .collect();
        let cancelled = std::thread::scope(|scope| {
            let closing = scope.spawn(|| client.close(Duration::ZERO).unwrap());
            let ends: Vec<_> = pending.into_iter().map(reslot::Pending::cancel).collect();
            closing.join().unwrap();
            ends
        });
        let unsent = cancelled
            .iter()
            .zip(0..)
            .filter(|(end, _)| **end == Cancelled::NotSent);
        for (_, n) in unsent {
            assert_eq!(cluster.log().key(format!("k{n}")).count(), 0, "k{n}");
        }
    }
}
