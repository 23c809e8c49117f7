//! Pipelines: every command has its own verdict, and no success is repeated.

use std::time::{Duration, Instant};

use reslot::{Certainty, Client, Reason, Value};

use crate::calls::await_stats;
use crate::fake::{FakeCluster, Script, key_for_slot, keys_in, resp, slot_of};
use crate::run::{batch, builder, connect, pipeline, run, send, texts, words};

/// How often each of these commands reached a node.
fn arrivals(cluster: &FakeCluster, node: usize, line: &str) -> usize {
    let texts = cluster.log().on(node).data().texts();
    texts.iter().filter(|text| *text == line).count()
}

#[test]
fn a_pipeline_over_two_nodes_is_split_and_merged() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let lines = [
        "INCR foo",
        "INCR bar",
        "INCR a",
        "INCR foo",
        "GET nothing",
        "INCR b",
    ];
    assert_eq!(
        texts(&pipeline(&client, &lines)),
        ["1", "1", "1", "2", "nil", "1"]
    );
    assert_eq!(
        cluster.log().data().count(),
        lines.len(),
        "nothing was redirected"
    );
    let (first, second): (i64, i64) = {
        let mut typed = client.pipeline();
        typed.add(words("INCR foo")).add(words("INCR bar"));
        typed.query().unwrap()
    };
    assert_eq!((first, second), (3, 2));
    assert_eq!(pipeline::<&str>(&client, &[]).len(), 0);
}

#[test]
fn only_the_moved_command_of_a_batch_with_writes_is_sent_again() {
    let cluster = FakeCluster::start(3);
    let client = connect(&cluster);
    cluster.assign(3300..=3300, 2);
    let lines = ["INCR bar", "INCR b", "INCR {bar}2"];
    assert_eq!(texts(&pipeline(&client, &lines)), ["1", "1", "1"]);
    assert_eq!(cluster.log().on(2).data().texts(), ["INCR b"]);
    assert_eq!(cluster.log().on(0).data().texts(), lines);

    assert_eq!(texts(&pipeline(&client, &lines)), ["2", "2", "2"]);
    assert_eq!(arrivals(&cluster, 0, "INCR b"), 1, "the map has learned");
}

#[test]
fn reads_that_succeeded_are_not_repeated_and_do_not_wait_for_a_refresh() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    run(&client, "SET bar there").unwrap();
    run(&client, "SET b moved").unwrap();
    cluster.assign(3300..=3300, 1);
    let slow = cluster.on("CLUSTER SLOTS").hold();
    let lines = ["GET bar", "GET b", "GET {bar}none"];
    assert_eq!(texts(&pipeline(&client, &lines)), ["there", "moved", "nil"]);
    assert_eq!(arrivals(&cluster, 0, "GET bar"), 1);
    assert_eq!(arrivals(&cluster, 1, "GET b"), 1);
    drop(slow);
}

#[test]
fn bursts_of_reads_and_writes_survive_a_move_with_each_write_run_once() {
    const THREADS: usize = 8;
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.assign(3300..=3300, 1);
    for burst in 1..=5 {
        let before = cluster.log().end();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let client = &client;
                scope.spawn(move || {
                    let mut lines = Vec::new();
                    for number in 0..25 {
                        let key = thread * 25 + number;
                        lines.push(format!("INCR {{bar}}{key}"));
                        lines.push(format!("INCR {{b}}{key}"));
                    }
                    let results = texts(&pipeline(client, &lines));
                    assert!(
                        results.iter().all(|n| *n == burst.to_string()),
                        "{results:?}"
                    );
                });
            }
        });
        if burst > 1 {
            let stale = cluster.log().on(0).since(before).data();
            let stale = stale.when(|entry| slot_of(&entry.argv[1]) == 3300);
            assert_eq!(stale.count(), 0, "burst {burst} went by the old map");
        }
    }
    assert_eq!(cluster.log().executed().count(), 5 * THREADS * 50);
}

#[test]
fn every_asked_command_has_its_own_asking_and_results_keep_their_order() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let mut keys = keys_in(0..=4000, 45);
    (0..5).for_each(|number| keys.insert(9 * number, format!("{{bar}}{number}")));
    for key in &keys {
        run(&client, &format!("SET {key} v:{key}")).unwrap();
    }
    cluster.begin_move(5061, 1);
    (0..5).for_each(|number| cluster.migrate_key(format!("{{bar}}{number}")));
    let start = cluster.log().end();
    let lines: Vec<_> = keys.iter().map(|key| format!("GET {key}")).collect();
    let wanted: Vec<_> = keys.iter().map(|key| format!("v:{key}")).collect();
    assert_eq!(texts(&pipeline(&client, &lines)), wanted);
    assert_eq!(cluster.log().on(0).since(start).data().count(), 50);
    let asked = cluster.log().on(1).since(start).data().texts();
    let pairs = (0..5).flat_map(|n| ["ASKING".to_owned(), format!("GET {{bar}}{n}")]);
    assert_eq!(asked, pairs.collect::<Vec<_>>());
}

#[test]
fn a_held_redirect_target_does_not_delay_another() {
    let cluster = FakeCluster::builder(3).owners(1).start();
    let client = connect(&cluster);
    cluster.assign(3300..=3300, 1);
    cluster.assign(5061..=5061, 2);
    let held = cluster.node(1).hold("GET", "b");
    std::thread::scope(|scope| {
        let both = scope.spawn(|| pipeline(&client, &["GET b", "INCR bar"]));
        held.wait_arrived(1);
        cluster.log().executed().on(2).wait_for(1);
        held.release();
        assert_eq!(texts(&both.join().unwrap()), ["nil", "1"]);
    });
}

#[test]
fn commands_of_one_slot_arrive_in_order_at_a_target_that_connects_late() {
    let cluster = FakeCluster::builder(2).owners(1).start();
    let limit = Duration::from_secs(10);
    let client = builder(&cluster).connect_timeout(limit).connect().unwrap();
    let late = cluster.node(1).on("HELLO").hold();
    cluster.assign(5061..=5061, 1);
    let lines = ["SET bar 1", "SET bar 2", "SET bar 3"];
    std::thread::scope(|scope| {
        let results = scope.spawn(|| pipeline(&client, &lines));
        cluster.log().on(0).commands("SET").wait_for(3);
        late.wait_arrived(1);
        let fourth = send(&client, "SET bar 4");
        late.release();
        assert_eq!(texts(&results.join().unwrap()), ["OK", "OK", "OK"]);
        fourth.wait().unwrap();
    });
    let executed = cluster.log().executed().on(1).texts();
    assert_eq!(
        executed,
        ["SET bar 1", "SET bar 2", "SET bar 3", "SET bar 4"]
    );
}

#[test]
fn asked_commands_of_one_slot_arrive_in_order_at_a_target_that_connects_late() {
    let cluster = FakeCluster::builder(2).owners(1).start();
    let limit = Duration::from_secs(10);
    let client = builder(&cluster).connect_timeout(limit).connect().unwrap();
    let late = cluster.node(1).on("HELLO").hold();
    cluster.begin_move(5061, 1);
    let lines = ["SET bar 1", "SET bar 2", "SET bar 3"];
    std::thread::scope(|scope| {
        let results = scope.spawn(|| pipeline(&client, &lines));
        late.wait_arrived(1);
        cluster.log().on(0).commands("SET").wait_for(3);
        late.release();
        assert_eq!(texts(&results.join().unwrap()), ["OK", "OK", "OK"]);
    });
    let data = cluster.log().on(1).data().texts();
    let wanted = [
        "ASKING",
        "SET bar 1",
        "ASKING",
        "SET bar 2",
        "ASKING",
        "SET bar 3",
    ];
    assert_eq!(data, wanted);
}

#[test]
fn a_target_that_closes_in_the_middle_never_runs_later_commands_before_earlier_ones() {
    let cluster = FakeCluster::builder(2).owners(1).start();
    let client = connect(&cluster);
    cluster.assign(5061..=5061, 1);
    cluster.node(1).on("APPEND").nth(2).close();
    let results = texts(&pipeline(
        &client,
        &["APPEND bar 1", "APPEND bar 2", "APPEND bar 3"],
    ));
    assert_eq!(results[0], "1");
    assert_eq!(results[1], "Unknown", "it was written and not answered");
    let value: String = client.get("bar").unwrap().unwrap();
    assert!(["1", "13"].contains(&value.as_str()), "{value}");
    assert_eq!(value.contains('3'), results[2] != "Unknown", "{results:?}");
}

#[test]
fn only_the_command_answered_tryagain_is_retried_also_over_a_later_move() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster
        .node(0)
        .on("MGET")
        .nth(1)
        .error("TRYAGAIN Multiple keys request during rehashing of slot");
    cluster.node(0).on("MGET").nth(2).script(
        Script::new()
            .compute({
                let port = cluster.node(1).port();
                move |_| resp::error(&format!("MOVED 5061 127.0.0.1:{port}"))
            })
            .send(),
    );
    let mut view = cluster.topology();
    view.assign(5061..=5061, 1);
    cluster.set_view(1, view);
    let results = pipeline(&client, &["INCR bar", "MGET {bar}1 {bar}2", "INCR b"]);
    assert_eq!(
        results[1].as_ref().unwrap(),
        &Value::Array(vec![Value::Null, Value::Null])
    );
    assert_eq!((cluster.executions("bar"), cluster.executions("b")), (1, 1));
    assert_eq!(cluster.log().on(0).commands("MGET").count(), 2);
    assert_eq!(cluster.log().on(1).commands("MGET").count(), 1);
    assert_eq!(client.stats().total(|node| node.tryagain), 1);
}

/// The texts of all results, and which commands ran late.
fn report(client: &Client, lines: &[&str]) -> (Vec<String>, Vec<usize>) {
    let report = batch(client, lines).execute_with_report().unwrap();
    (texts(&report.results), report.reordered)
}

const TRYAGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

#[test]
fn strict_order_surfaces_tryagain_instead_of_running_late() {
    let cluster = FakeCluster::start(1);
    cluster.on("MSET").times(1).error(TRYAGAIN);
    let lines = ["MSET {a}1 x {a}2 y", "GET {a}1"];
    let strict = builder(&cluster).strict_order(true).connect().unwrap();
    let results = pipeline(&strict, &lines);
    assert_eq!(results[0].as_ref().unwrap_err().code(), Some("TRYAGAIN"));
    assert_eq!(texts(&results), ["Refused", "nil"]);
    assert_eq!(cluster.log().commands("MSET").count(), 1);
    cluster.on("MSET").times(1).error(TRYAGAIN);
    let (results, reordered) = report(&strict, &lines);
    assert_eq!((&*results[0], reordered), ("Refused", vec![]));
    cluster.on("MSET").times(1).error(TRYAGAIN);
    let single = run(&strict, lines[0]).unwrap_err();
    assert_eq!(single.code(), Some("TRYAGAIN"), "single commands, too");
}

#[test]
fn a_command_that_ran_after_a_later_one_is_reported() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let lines = ["SET {a}1 w", "MSET {a}1 x {a}2 y", "GET b", "GET {a}1"];
    for (refused, seen, late) in [(0, "x", vec![]), (1, "w", vec![1]), (3, "w", vec![1])] {
        cluster.on("MSET").times(refused).error(TRYAGAIN);
        let (results, reordered) = report(&client, &lines);
        assert_eq!(results, ["OK", "OK", "nil", seen]);
        assert_eq!(reordered, late, "refused {refused} times");
    }
    // Behind it there is nothing of its slot.
    cluster.on("MSET").times(1).error(TRYAGAIN);
    let (results, reordered) = report(&client, &lines[..3]);
    assert_eq!(results, ["OK", "OK", "nil"]);
    assert_eq!(reordered, [0; 0]);
}

#[test]
fn what_moves_as_a_whole_keeps_its_order_and_is_not_reported() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let lines = ["INCR bar", "INCR b", "INCR bar", "INCR bar"];
    cluster.assign(5061..=5061, 1);
    assert_eq!(report(&client, &lines).0, ["1", "1", "2", "3"]);
    cluster.assign(5061..=5061, 0);
    let (results, reordered) = report(&client, &lines);
    assert_eq!(results, ["4", "2", "5", "6"]);
    assert_eq!(reordered, [0; 0]);
}

#[test]
fn a_key_that_has_left_a_half_moved_slot_is_reported_as_late() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    run(&client, "SET {bar}here 1").unwrap();
    cluster.begin_move(5061, 1);
    let held = cluster.node(1).hold("INCR", "{bar}gone");
    let (results, reordered) = std::thread::scope(|scope| {
        let both = scope.spawn(|| report(&client, &["INCR {bar}gone", "INCR {bar}here"]));
        held.wait_arrived(1);
        await_stats(&cluster, &client, 0, |stats| stats.succeeded == 2);
        held.release();
        both.join().unwrap()
    });
    assert_eq!(results, ["1", "2"]);
    assert_eq!(reordered, [0]);
}

#[test]
fn a_command_is_late_also_if_the_reply_to_the_later_one_comes_after_its_own() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    run(&client, "SET {bar}here 1").unwrap();
    cluster.begin_move(5061, 1);
    let reply = cluster.node(0).on("INCR").key("{bar}here").hold_reply();
    let (results, reordered) = std::thread::scope(|scope| {
        let both = scope.spawn(|| report(&client, &["INCR {bar}gone", "INCR {bar}here"]));
        await_stats(&cluster, &client, 1, |stats| stats.succeeded == 1);
        reply.release();
        both.join().unwrap()
    });
    assert_eq!(results, ["1", "2"]);
    assert_eq!(reordered, [0]);
}

#[test]
fn unfollowed_redirects_surface_once_and_still_teach() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).follow_redirects(false).connect().unwrap();
    cluster.assign(5061..=5061, 1);
    let results = pipeline(&client, &["INCR b", "INCR bar"]);
    assert_eq!(texts(&results), ["1", "Refused"]);
    let error = results[1].as_ref().unwrap_err();
    assert_eq!((error.code(), error.attempts()), (Some("MOVED"), 1));
    assert_eq!(run(&client, "INCR bar").unwrap(), Value::Integer(1));
    assert_eq!(cluster.log().on(0).key("bar").count(), 1);
}

#[test]
fn no_redirects_still_means_one_attempt() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster)
        .max_redirects(0)
        .retry_reads(false)
        .connect()
        .unwrap();
    assert_eq!(run(&client, "INCR bar").unwrap(), Value::Integer(1));
    cluster.assign(5061..=5061, 1);
    let error = run(&client, "INCR bar").unwrap_err();
    assert_eq!(error.failure().unwrap().reason(), Reason::TooManyRedirects);
    assert_eq!(
        (error.code(), error.certainty()),
        (Some("MOVED"), Certainty::Refused)
    );
    assert_eq!(error.attempts(), 1);
    assert_eq!(cluster.executions("bar"), 1);
}

#[test]
fn answered_commands_keep_their_results_when_the_connection_closes() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.on("INCR").nth(4).close();
    let lines: Vec<_> = (1..=6)
        .map(|number| format!("INCR {{bar}}{number}"))
        .collect();
    let results = texts(&pipeline(&client, &lines));
    assert_eq!(results, ["1", "1", "1", "Unknown", "Unknown", "Unknown"]);
    assert_eq!(cluster.log().executed().count(), 3);
    assert_eq!(
        cluster.log().commands("INCR").count(),
        6,
        "nothing was sent twice"
    );
}

#[test]
fn commands_that_were_not_written_whole_run_after_the_reconnect() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let mut commands = batch(&client, &["INCR {bar}1", "INCR {bar}2", "INCR {bar}3"]);
    commands.add(reslot::cmd("SET").arg("{bar}big").arg(vec![b'x'; 32 << 20]));
    commands.add(words("INCR {bar}4")).add(words("INCR {bar}5"));
    cluster.node(0).close_after_bytes(1 << 20);
    std::thread::scope(|scope| {
        let results = scope.spawn(|| commands.execute().unwrap());
        cluster.log().executed().commands("INCR").wait_for(3);
        cluster.node(0).wait_open(0);
        cluster.node(0).read_on();
        assert_eq!(
            texts(&results.join().unwrap()),
            ["1", "1", "1", "OK", "1", "1"]
        );
    });
    assert_eq!(cluster.log().executed().count(), 6);
    assert_eq!(cluster.executions("{bar}big"), 1);
}

#[test]
fn executed_commands_without_replies_are_not_run_again() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    cluster.on("INCR").nth(1).script(Script::new().run());
    cluster.on("INCR").nth(2).run_and_close();
    let results = pipeline(&client, &["INCR bar", "INCR bar"]);
    assert_eq!(texts(&results), ["Unknown", "Unknown"]);
    for result in results {
        let failure = result.unwrap_err().failure().unwrap().clone();
        assert_eq!(
            (failure.reason(), failure.attempts()),
            (Reason::ConnectionLost, 1)
        );
    }
    assert_eq!(run(&client, "GET bar").unwrap(), Value::Bulk(b"2".into()));
}

#[test]
fn reads_behind_a_broken_connection_are_all_sent_again() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let keys = keys_in(0..=16383, 10);
    let sets: Vec<_> = keys
        .iter()
        .map(|key| format!("SET {key} v:{key}"))
        .collect();
    assert!(
        texts(&pipeline(&client, &sets))
            .iter()
            .all(|reply| reply == "OK")
    );
    cluster.on("GET").nth(5).close();
    let gets: Vec<_> = keys.iter().map(|key| format!("GET {key}")).collect();
    let wanted: Vec<_> = keys.iter().map(|key| format!("v:{key}")).collect();
    assert_eq!(texts(&pipeline(&client, &gets)), wanted);
    assert_eq!(arrivals(&cluster, 0, &gets[3]), 1, "it was answered");
    assert_eq!(arrivals(&cluster, 0, &gets[9]), 2);
}

#[test]
fn an_error_of_one_command_is_not_the_error_of_the_batch() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let lines = [
        "SET bar v",
        "RPUSH bar x",
        "GET bar",
        "INCR foo",
        "SET",
        "SELECT 1",
    ];
    let results = pipeline(&client, &lines);
    assert_eq!(texts(&results[..1]), ["OK"]);
    assert_eq!(results[1].as_ref().unwrap_err().code(), Some("WRONGTYPE"));
    assert_eq!(texts(&results[2..4]), ["v", "1"]);
    assert_eq!(results[4].as_ref().unwrap_err().code(), Some("ERR"));
    assert!(matches!(results[5], Err(reslot::Error::Misuse(_))));
}

#[test]
fn a_target_that_stops_answering_fails_only_its_own_command() {
    let cluster = FakeCluster::builder(2).owners(1).start();
    let client = connect(&cluster);
    cluster.assign(5061..=5061, 1);
    let held = cluster.node(1).hold("INCR", "bar");
    let mut commands = batch(&client, &["INCR b", "INCR bar", "INCR foo"]);
    commands.timeout(Duration::from_millis(300));
    let results = commands.execute().unwrap();
    assert_eq!(texts(&results), ["1", "Unknown", "1"]);
    assert!(results[1].as_ref().unwrap_err().is_timeout());
    assert_eq!(held.arrived(), 1);
}

#[test]
fn a_stalled_node_costs_a_pipeline_its_timeout_and_no_results_of_others() {
    let cluster = FakeCluster::start(4);
    let limit = Duration::from_millis(300);
    let client = builder(&cluster).response_timeout(limit).connect().unwrap();
    let stalled = cluster.node(2).on("INCR").hold();
    let keys = keys_in(0..=16383, 20);
    let lines: Vec<_> = keys.iter().map(|key| format!("INCR {key}")).collect();
    let begun = Instant::now();
    let results = texts(&pipeline(&client, &lines));
    let taken = begun.elapsed();
    assert!(taken >= limit, "{taken:?}");
    assert!(taken < 8 * limit, "{taken:?}");
    for (key, result) in keys.iter().zip(results) {
        let on_stalled = slot_of(key.as_bytes()) / 4096 == 2;
        assert_eq!(result, if on_stalled { "Unknown" } else { "1" }, "{key}");
    }
    assert_eq!(stalled.arrived(), 1);
}

#[test]
fn a_node_that_is_down_fails_only_its_own_commands() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.node(1).kill();
    let mut commands = batch(&client, &["INCR bar", "INCR foo", "INCR b", "INCR a"]);
    commands.timeout(Duration::from_millis(300));
    let results = commands.execute().unwrap();
    let results = texts(&results);
    assert_eq!((&*results[0], &*results[2]), ("1", "1"));
    // What was written before the loss was noticed may be uncertain.
    let ended = |text: &str| ["NotSent", "Unknown"].contains(&text);
    assert!(ended(&results[1]) && ended(&results[3]), "{results:?}");
    cluster.node(1).listen();
    assert_eq!(run(&client, "INCR foo").unwrap(), Value::Integer(1));
}

#[test]
fn commands_of_other_slots_are_served_while_a_redirected_batch_waits() {
    let cluster = FakeCluster::builder(2).owners(1).start();
    let client = connect(&cluster);
    cluster.assign(3300..=3300, 1);
    let held = cluster.node(1).on("INCR").hold();
    std::thread::scope(|scope| {
        let batch = scope.spawn(|| pipeline(&client, &["INCR b", "INCR bar"]));
        held.wait_arrived(1);
        for count in 2..=50 {
            assert_eq!(run(&client, "INCR bar").unwrap(), Value::Integer(count));
        }
        assert_eq!(held.arrived(), 1, "nothing else waits there");
        held.release();
        assert_eq!(texts(&batch.join().unwrap()), ["1", "1"]);
    });
}

#[test]
fn a_pipeline_larger_than_the_queue_goes_through_in_order() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).queue_commands(10).connect().unwrap();
    let lines: Vec<_> = (0..300)
        .map(|n| format!("APPEND {} x", if n % 3 == 0 { "foo" } else { "bar" }))
        .collect();
    let (mut foo, mut bar) = (0, 0);
    let wanted = lines.iter().map(|line| {
        let count = if line.contains("foo") {
            &mut foo
        } else {
            &mut bar
        };
        *count += 1;
        count.to_string()
    });
    let wanted: Vec<_> = wanted.collect();
    assert_eq!(texts(&pipeline(&client, &lines)), wanted);
}

#[test]
fn commands_for_a_slot_of_a_vanished_node_end_on_their_own() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let key = key_for_slot(1);
    cluster.change(|topology| topology.unassign(0..=100));
    let incr = format!("INCR {key}");
    let mut commands = batch(&client, &[&*incr, "INCR bar", "INCR foo"]);
    commands.timeout(Duration::from_millis(500));
    let results = commands.execute().unwrap();
    assert_eq!(texts(&results), ["Refused", "1", "1"]);
    let error = results[0].as_ref().unwrap_err();
    assert_eq!(error.code(), Some("CLUSTERDOWN"));
}
