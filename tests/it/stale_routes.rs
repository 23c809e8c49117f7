//! Pipelines that are sent by other routes than those by which their commands were grouped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reslot::{Certainty, Error};

use crate::calls::{LONG, addr};
use crate::fake::{FakeCluster, key_for_slot};
use crate::run::{batch, builder, connect, run, texts};

#[test]
fn what_is_grouped_anew_keeps_its_order_also_where_not_all_of_it_fits() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).queue_commands(4).connect().unwrap();
    let mut lines: Vec<_> = (1..=5).map(|n| format!("APPEND bar {n}")).collect();
    lines.extend(["INCR b".to_owned(), "APPEND bar 6".to_owned()]);
    let commands = batch(&client, &lines);
    cluster.assign(3300..=3300, 1);
    run(&client, "INCR b").unwrap();
    let results = texts(&commands.execute().unwrap());
    assert_eq!(results, ["1", "2", "3", "4", "5", "2", "6"]);
    assert_eq!(client.get("bar").unwrap(), Some("123456".to_owned()));
}

#[test]
fn an_error_names_the_node_that_its_command_was_sent_to() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let mut commands = batch(&client, &["INCR bar", "INCR {bar}2", "INCR b"]);
    cluster.assign(5061..=5061, 1);
    run(&client, "INCR bar").unwrap();
    cluster.on("INCR").ignore();
    commands.timeout(Duration::from_millis(100));
    let results = commands.execute().unwrap();
    for (result, node) in results.iter().zip([1, 1, 0]) {
        let error = result.as_ref().unwrap_err();
        assert_eq!(error.node(), Some(&addr(&cluster, node)), "{error}");
    }
}

#[test]
fn a_pipeline_that_was_built_before_its_slot_moved_twice_goes_where_the_slot_is() {
    let cluster = FakeCluster::start(3);
    let client = connect(&cluster);
    let commands = batch(&client, &["INCR bar", "INCR b", "INCR foo"]);
    for node in [1, 2] {
        cluster.assign(5061..=5061, node);
        run(&client, "INCR {bar}2").unwrap();
    }
    assert_eq!(texts(&commands.execute().unwrap()), ["1", "1", "1"]);
    assert_eq!(cluster.log().key("bar").count(), 1);
    assert_eq!(cluster.log().key("bar").on(2).count(), 1);
}

#[test]
fn a_pipeline_of_a_client_that_was_closed_meanwhile_is_not_sent() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let commands = batch(&client, &["INCR bar", "INCR foo", "PING"]);
    client.close(Duration::ZERO).unwrap();
    for result in commands.execute().unwrap() {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Closed(_)), "{error}");
        assert_eq!(error.certainty(), Certainty::NotSent);
    }
}

#[test]
fn a_large_pipeline_keeps_the_order_of_each_slot_while_the_routes_change_all_the_time() {
    const KEYS: usize = 500;
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
    let lines = (0..10 * KEYS).map(|n| format!("APPEND k{} {}", n % KEYS, n / KEYS));
    let lines: Vec<_> = lines.collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for slot in 0..4 {
            let (cluster, client, done) = (&cluster, &client, &done);
            scope.spawn(move || {
                let line = format!("INCR {}", key_for_slot(slot));
                for node in [1, 0].into_iter().cycle() {
                    cluster.assign(slot..=slot, node);
                    run(client, &line).unwrap();
                    if done.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
        }
        let results = texts(&batch(&client, &lines).execute().unwrap());
        done.store(true, Ordering::SeqCst);
        for (index, result) in results.iter().enumerate() {
            assert_eq!(*result, (index / KEYS + 1).to_string(), "{}", lines[index]);
        }
    });
}
