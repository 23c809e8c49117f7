//! TRYAGAIN: the same command later, from the owner on, at no cost to the redirect budget.

use std::time::Duration;

use reslot::{Cancelled, Certainty, Cmd, cmd};

use crate::clients::{asked, builder, get, incr, maps_asked, never_refreshing, seen};
use crate::fake::{FakeCluster, PATIENCE};
use crate::local_cluster::poll_until;

const AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

fn mget() -> Cmd {
    cmd("MGET").arg("{bar}1").arg("{bar}2")
}

#[test]
fn is_repeated_at_the_owner_after_growing_pauses() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).max_redirects(0).connect().unwrap();
    let start = cluster.log().end();
    cluster.node(0).on("MGET").times(4).error(AGAIN);
    let values: Vec<Option<String>> = client.query(mget()).unwrap();
    assert_eq!(values, [None, None]);
    let sent = cluster.log().commands("MGET").list();
    assert_eq!(sent.len(), 5);
    assert!(sent.iter().all(|entry| entry.node == 0), "{sent:#?}");
    // Nominal pauses are 10, 20, 40, 80 ms; at least half of each.
    for (pair, least) in sent.windows(2).zip([5, 10, 20, 40]) {
        let pause = pair[1].at - pair[0].at;
        assert!(pause >= Duration::from_millis(least), "{pause:?}");
    }
    assert_eq!(maps_asked(&cluster, start), 0);
    assert_eq!(client.stats().total(|node| node.tryagain), 4);
}

#[test]
fn for_ever_ends_at_the_deadline_and_names_the_cause() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).connect().unwrap();
    let start = cluster.log().end();
    cluster.on("MGET").error(AGAIN);
    let command = mget().timeout(Duration::from_millis(400));
    let error = client.query::<Vec<Option<String>>>(command).unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert_eq!(error.server_error().unwrap().line(), AGAIN);
    assert_eq!(error.certainty(), Certainty::Refused);
    // Pauses of at least 5, 10, 20, 40, 80, 160, 250 ms leave no time for more.
    let sent = cluster.log().commands("MGET").count();
    assert!((2..=8).contains(&sent), "{sent}");
    assert_eq!(maps_asked(&cluster, start), 0);
}

#[test]
fn is_cancelled_while_it_waits() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).connect().unwrap();
    cluster.on("MGET").error(AGAIN);
    // A cancel may hit the moment of an attempt and is `Unknown` then; most hit a pause.
    let unsent = (0..50).find_map(|index| {
        let key = format!("{{bar}}c{index}");
        let command = cmd("MGET").arg(&key).arg("{bar}2");
        let refused = || client.stats().total(|node| node.tryagain);
        let before = refused();
        let pending = client.send::<Vec<Option<String>>>(command).unwrap();
        // The third answer has come, and the pause after it is the longest so far.
        poll_until(PATIENCE, "three answers", || match refused() - before {
            3.. => Ok(()),
            now => Err(format!("{now} answers")),
        });
        (pending.cancel() == Cancelled::NotSent).then_some(key)
    });
    let key = unsent.expect("some cancel comes in a pause");
    let sent = cluster.log().key(&key).count();
    // The pauses of another command together are longer than the one above can have been.
    cluster.on("DEL").times(6).error(AGAIN);
    let command = cmd("DEL").arg("{bar}1").arg("{bar}2");
    assert_eq!(client.query::<i64>(command).unwrap(), 0);
    assert_eq!(cluster.log().key(&key).count(), sent);
}

#[test]
fn behind_ask_starts_again_at_the_owner() {
    let cluster = FakeCluster::start(2);
    let client = never_refreshing(builder(&cluster)).max_redirects(1);
    let client = client.connect().unwrap();
    cluster.node(0).on("MGET").times(3).ask(5061, 1);
    cluster.node(1).on("MGET").error(AGAIN);
    let values: Vec<Option<String>> = client.query(mget()).unwrap();
    assert_eq!(values, [None, None]);
    assert_eq!(seen(&cluster, 0), ["MGET {bar}1 {bar}2"; 4]);
    let pair = ["ASKING", "MGET {bar}1 {bar}2"];
    assert_eq!(seen(&cluster, 1), [pair, pair, pair].concat());
}

#[test]
fn then_moved_is_followed() {
    let cluster = FakeCluster::start(2);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.node(0).on("MSET").times(1).error(AGAIN);
    let command = cmd("MSET").arg(["{bar}1", "a", "{bar}2", "b"]);
    cluster.assign(5061..=5061, 1);
    client.query::<()>(command).unwrap();
    assert_eq!(cluster.executions("{bar}1"), 1);
    assert_eq!(cluster.log().on(0).commands("MSET").count(), 2);
    assert_eq!(cluster.log().on(1).commands("MSET").count(), 1);
}

#[test]
fn is_over_when_the_keys_are_together_again() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).connect().unwrap();
    let start = cluster.log().end();
    client.set("{bar}1", "a").unwrap();
    client.set("{bar}2", "b").unwrap();
    cluster.begin_move(5061, 1);
    cluster.migrate_key("{bar}1");
    let pending = client.send::<Vec<String>>(mget()).unwrap();
    cluster.log().commands("MGET").wait_for(3);
    cluster.finish_move(5061);
    assert_eq!(pending.wait().unwrap(), ["a", "b"]);
    assert_eq!(cluster.log().executed().commands("MGET").count(), 1);
    let refreshes = maps_asked(&cluster, start);
    assert!(refreshes <= 1, "only MOVED is a reason: {refreshes}");
}

#[test]
fn does_not_hold_up_other_commands_of_its_slot() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).connect().unwrap();
    let rule = cluster.on("MGET").error(AGAIN);
    let pending = client.send::<Vec<Option<String>>>(mget()).unwrap();
    cluster.log().commands("MGET").wait_for(4);
    assert_eq!(client.query::<i64>(incr("{bar}n")).unwrap(), 1);
    assert!(!pending.is_done());
    rule.remove();
    assert_eq!(pending.wait().unwrap(), [None, None]);
}

#[test]
fn of_one_in_a_pipeline_repeats_only_that_one() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).connect().unwrap();
    cluster.on("MGET").times(2).error(AGAIN);
    let mut pipeline = client.pipeline();
    pipeline
        .add(incr("{bar}n"))
        .add(mget())
        .add(incr("foo"))
        .add(get("b"));
    let results = pipeline.execute().unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(cluster.executions("{bar}n"), 1);
    assert_eq!(cluster.executions("foo"), 1);
    assert_eq!(asked(&cluster, 0, "GET", "b"), 1);
    assert_eq!(cluster.log().commands("MGET").count(), 3);
}
