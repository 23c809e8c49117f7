//! Full queues: bounded in commands and bytes, per node, and nobody waits past a deadline.

use std::time::{Duration, Instant};

use reslot::{Certainty, Client, Reason, Result, Route, Value, WhenFull, cmd};

use crate::calls::{addr, await_stats};
use crate::fake::{FakeCluster, Gate, key_for_slot};
use crate::run::{builder, pipeline, run, send, texts, words};

const SHORT: Duration = Duration::from_millis(200);

/// Long enough for any machine; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(20);

/// A client with room for ten commands per node. The first node holds its first command.
fn full(cluster: &FakeCluster, when_full: WhenFull) -> (Client, Gate, Vec<reslot::Pending<Value>>) {
    let settings = builder(cluster).queue_commands(10).response_timeout(LONG);
    let client = settings.when_full(when_full).connect().unwrap();
    let held = cluster.node(0).on("INCR").times(1).hold();
    let pending = (0..10).map(|n| send(&client, &format!("INCR {{bar}}{n}")));
    let pending = pending.collect();
    held.wait_arrived(1);
    (client, held, pending)
}

#[track_caller]
fn assert_full(result: Result<Value>) {
    let error = result.unwrap_err();
    assert_eq!(
        error.failure().unwrap().reason(),
        Reason::QueueFull,
        "{error}"
    );
    assert_eq!(error.certainty(), Certainty::NotSent);
}

#[test]
fn a_full_queue_refuses_at_once_if_so_configured_and_only_for_its_node() {
    let cluster = FakeCluster::start(2);
    let (client, held, pending) = full(&cluster, WhenFull::Refuse);
    assert_full(run(&client, "INCR bar"));
    assert_full(send(&client, "INCR bar").wait());
    let results = pipeline(&client, &["INCR bar", "INCR foo"]);
    assert_eq!(texts(&results), ["NotSent", "1"]);
    held.release();
    pending
        .into_iter()
        .for_each(|pending| drop(pending.wait().unwrap()));
    assert_eq!(
        run(&client, "INCR bar").unwrap(),
        Value::Integer(1),
        "there is room again"
    );
}

#[test]
fn a_full_queue_makes_callers_wait_for_room() {
    let cluster = FakeCluster::start(1);
    let (client, held, pending) = full(&cluster, WhenFull::Wait);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| run(&client, "INCR bar")))
            .collect();
        let late = words("INCR late").timeout(SHORT);
        let begun = Instant::now();
        assert_full(client.query(late));
        assert!(begun.elapsed() >= SHORT);
        assert_eq!(cluster.log().commands("INCR").count(), 10);
        held.release();
        let results = waiting
            .into_iter()
            .map(|thread| thread.join().unwrap().unwrap());
        let mut counts: Vec<_> = results.map(|value| crate::run::text(&value)).collect();
        counts.sort_by_key(|count| count.parse::<u32>().unwrap());
        let wanted: Vec<_> = (1..=20).map(|n| n.to_string()).collect();
        assert_eq!(counts, wanted);
    });
    pending
        .into_iter()
        .for_each(|pending| drop(pending.wait().unwrap()));
    assert_eq!(cluster.log().key("late").count(), 0);
}

#[test]
fn room_comes_free_when_callers_of_queued_commands_give_up() {
    let cluster = FakeCluster::start(1);
    let settings = builder(&cluster).queue_commands(10).response_timeout(LONG);
    let client = settings.connect().unwrap();
    cluster.node(0).stop_reading();
    let large = client
        .send::<Value>(cmd("SET").arg("large").arg(vec![b'x'; 16 << 20]))
        .unwrap();
    let pending: Vec<_> = (0..9)
        .map(|n| send(&client, &format!("INCR k{n}")))
        .collect();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run(&client, "INCR waiting"));
        for pending in pending {
            assert_eq!(pending.cancel(), reslot::Cancelled::NotSent);
        }
        cluster.node(0).resume_reading();
        assert_eq!(waiting.join().unwrap().unwrap(), Value::Integer(1));
    });
    large.wait().unwrap();
    assert_eq!(cluster.log().commands("INCR").count(), 1);
}

#[test]
fn bytes_count_too_and_a_command_over_the_bound_goes_alone() {
    let cluster = FakeCluster::start(1);
    let settings = builder(&cluster).queue_bytes(1000).response_timeout(LONG);
    let client = settings.when_full(WhenFull::Refuse).connect().unwrap();
    let held = cluster.node(0).on("SET").hold();
    let set = |key: &str, len: usize| {
        let command = cmd("SET").arg(key).arg(vec![b'x'; len]);
        client.send::<Value>(command).unwrap()
    };
    let (first, second) = (set("a", 400), set("b", 400));
    assert_full(set("c", 400).wait());
    let third = set("d", 50);
    held.release();
    for pending in [first, second, third] {
        pending.wait().unwrap();
    }
    set("e", 5000).wait().expect("alone it fits");
    assert_eq!(cluster.log().key("c").count(), 0);
}

#[test]
fn a_pipeline_is_cut_to_fit_a_small_queue() {
    let cluster = FakeCluster::start(1);
    let settings = builder(&cluster).queue_commands(4).response_timeout(LONG);
    let client = settings.connect().unwrap();
    let lines: Vec<_> = (0..50).map(|_| "INCR bar").collect();
    let results = texts(&pipeline(&client, &lines));
    let wanted: Vec<_> = (1..=50).map(|n| n.to_string()).collect();
    assert_eq!(results, wanted, "a pipeline is cut to fit");
}

#[test]
fn submissions_during_an_outage_are_bounded_and_then_refused_at_once() {
    const BOUND: usize = 500;
    let cluster = FakeCluster::start(2);
    let settings = builder(&cluster)
        .queue_commands(BOUND)
        .response_timeout(LONG);
    let client = settings.when_full(WhenFull::Refuse).connect().unwrap();
    cluster.node(0).kill();
    let begun = Instant::now();
    let pending = std::thread::scope(|scope| {
        let submit = |thread: usize| {
            let lines = (0..1000).map(move |n| format!("SET {{bar}}{thread}-{n} x"));
            lines.map(|line| send(&client, &line)).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || submit(n))).collect();
        let all = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        all.collect::<Vec<_>>()
    });
    assert!(begun.elapsed() < LONG, "nobody waited");
    run(&client, "INCR foo").expect("the other node works");
    let (ended, waiting): (Vec<_>, Vec<_>) = pending.into_iter().partition(|p| p.is_done());
    // Threads that look at the same moment may overshoot by one command each.
    assert!(waiting.len() <= BOUND + 8, "{} wait", waiting.len());
    let mut unknown = 0;
    for pending in ended {
        let error = pending.wait().unwrap_err();
        match error.failure().unwrap().reason() {
            Reason::QueueFull => assert_eq!(error.certainty(), Certainty::NotSent),
            reason => {
                assert_eq!(reason, Reason::ConnectionLost);
                unknown += 1;
            }
        }
    }
    cluster.node(0).listen();
    let served = waiting.len();
    waiting
        .into_iter()
        .for_each(|pending| drop(pending.wait().unwrap()));
    let executed = cluster.log().executed().commands("SET").count();
    assert!((served..=served + unknown).contains(&executed));
}

#[test]
fn a_part_that_waits_for_room_does_not_hold_up_the_replies_to_another() {
    let cluster = FakeCluster::start(2);
    let (client, held, pending) = full(&cluster, WhenFull::Wait);
    let named = || words("INCR bar").route(Route::Node(addr(&cluster, 0)));
    std::thread::scope(|scope| {
        let calls = [words("INCR bar"), named()].map(|waiting| {
            let mut pipeline = client.pipeline();
            pipeline.add(waiting).add(words("INCR foo"));
            scope.spawn(move || texts(&pipeline.execute().unwrap()))
        });
        await_stats(&cluster, &client, 1, |stats| stats.succeeded == 2);
        assert!(calls.iter().all(|call| !call.is_finished()));
        held.release();
        let mut results = calls.map(|call| call.join().unwrap());
        results.sort();
        let [first, second] = results.map(|result| result[0].clone());
        assert_eq!((&*first, &*second), ("1", "2"));
    });
    pending
        .into_iter()
        .for_each(|pending| drop(pending.wait().unwrap()));
}

#[test]
fn a_full_node_does_not_hold_up_callers_of_another() {
    let cluster = FakeCluster::start(2);
    let (client, held, pending) = full(&cluster, WhenFull::Wait);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..10)
            .map(|_| scope.spawn(|| run(&client, "INCR bar")))
            .collect();
        for count in 1..=100 {
            assert_eq!(run(&client, "INCR foo").unwrap(), Value::Integer(count));
        }
        held.release();
        waiting
            .into_iter()
            .for_each(|thread| drop(thread.join().unwrap().unwrap()));
    });
    pending
        .into_iter()
        .for_each(|pending| drop(pending.wait().unwrap()));
}

#[test]
fn a_node_that_stays_full_keeps_nothing_from_others_that_were_full_too() {
    let cluster = FakeCluster::start(3);
    let settings = builder(&cluster).queue_commands(2).response_timeout(LONG);
    let client = settings.connect().unwrap();
    let gates = [0, 2].map(|node| cluster.node(node).on("INCR").hold());
    let fill = ["INCR bar", "INCR foo", "INCR bar", "INCR foo"];
    let pending = fill.map(|line| send(&client, line));
    gates.iter().for_each(|gate| gate.wait_arrived(1));
    let other = format!("INCR {}", key_for_slot(8000));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| pipeline(&client, &["INCR {bar}2", "INCR {foo}2", &*other]));
        await_stats(&cluster, &client, 1, |stats| stats.succeeded == 1);
        gates[1].release();
        cluster.log().executed().key("{foo}2").wait_for(1);
        gates[0].release();
        assert_eq!(texts(&call.join().unwrap()), ["1", "1", "1"]);
    });
    pending
        .into_iter()
        .for_each(|pending| drop(pending.wait().unwrap()));
}

#[test]
fn a_named_node_that_is_full_keeps_nothing_from_another_named_one() {
    let cluster = FakeCluster::start(2);
    let (client, held, pending) = full(&cluster, WhenFull::Wait);
    let named = |line: &str, node| words(line).route(Route::Node(addr(&cluster, node)));
    std::thread::scope(|scope| {
        let mut pipeline = client.pipeline();
        pipeline.add(named("INCR bar", 0)).add(named("INCR foo", 1));
        let call = scope.spawn(move || texts(&pipeline.execute().unwrap()));
        cluster.log().executed().key("foo").wait_for(1);
        held.release();
        assert_eq!(call.join().unwrap(), ["1", "1"]);
    });
    pending
        .into_iter()
        .for_each(|pending| drop(pending.wait().unwrap()));
}
