//! Slots half way between two nodes: ASK, TRYAGAIN, and what they must not teach.

use std::time::{Duration, Instant};

use reslot::{Reason, Value, cmd};

use super::clusters::{SOON, UNLISTED, client, key_in, moving, slot_of};
use crate::local_cluster::poll_until;

#[test]
fn ask_leaves_the_map_alone() {
    let cluster = moving();
    let client = client(&cluster);
    let slot = slot_of(0, 0);
    let (gone, here) = (key_in(slot, "gone"), key_in(slot, "here"));
    client.set(&gone, "1").unwrap();
    client.set(&here, "2").unwrap();
    let migration = cluster.begin_move(slot, 0, 1);
    migration.migrate_keys(&[&gone]);
    let before = client.stats();
    for _ in 0..50 {
        assert_eq!(client.get(&gone).unwrap(), Some(1));
        assert_eq!(client.get(&here).unwrap(), Some(2));
    }
    let after = client.stats();
    assert_eq!(
        after.total(|node| node.ask),
        50,
        "one for each read that is gone"
    );
    assert_eq!(after.total(|node| node.moved), 0);
    assert_eq!(after.topology_queries, before.topology_queries);
    // A new key of the slot is made at the target.
    client.set(key_in(slot, "new"), "3").unwrap();
    assert_eq!(client.get(key_in(slot, "new")).unwrap(), Some(3));
    migration.migrate_all();
    migration.finish();
    for name in ["gone", "here", "new"] {
        assert!(client.exists(key_in(slot, name)).unwrap());
    }
    // MOVED once, unless the map was refreshed before.
    assert!(client.stats().total(|node| node.moved) <= 1);
}

#[test]
fn each_asked_command_has_its_own_asking() {
    let cluster = moving();
    let client = client(&cluster);
    let slot = slot_of(0, 1);
    let key = |number: usize| key_in(slot, &format!("k{number}"));
    for number in 0..60 {
        client.set(key(number), number).unwrap();
    }
    let migration = cluster.begin_move(slot, 0, 2);
    let odd: Vec<String> = (0..60).filter(|number| number % 2 == 1).map(key).collect();
    migration.migrate_keys(&odd);
    std::thread::scope(|scope| {
        // Others use the same connection to the target meanwhile.
        for thread in 0..4 {
            let client = &client;
            scope.spawn(move || {
                let own = key_in(slot_of(2, thread), "own");
                for number in 0..200 {
                    client.set(&own, number).unwrap();
                    assert_eq!(client.get(&own).unwrap(), Some(number));
                }
            });
        }
        for _ in 0..20 {
            let mut pipeline = client.pipeline();
            for number in 0..60 {
                pipeline.add(cmd("GET").arg(key(number)));
            }
            let values: Vec<usize> = pipeline.query().unwrap();
            assert!(values.into_iter().eq(0..60));
        }
    });
    let stats = client.stats();
    assert_eq!(
        stats.total(|node| node.moved),
        0,
        "an ASKING was missing or went astray"
    );
    assert_eq!(stats.total(|node| node.ask), 30 * 20);
    // Writes of a pipeline run once each.
    let mut pipeline = client.pipeline();
    for number in 0..60 {
        pipeline.add(cmd("INCR").arg(key(number)));
    }
    let values: Vec<usize> = pipeline.query().unwrap();
    assert!(values.into_iter().eq(1..61));
    migration.migrate_all();
    migration.finish();
}

/// A node that just joined imports its first slot: no map names it.
#[test]
fn ask_to_a_node_that_no_map_names() {
    let cluster = moving();
    let client = client(&cluster);
    let slot = slot_of(1, 10);
    let migration = cluster.begin_move(slot, 1, UNLISTED);
    for number in 0..20 {
        assert_eq!(client.incr(key_in(slot, "first")).unwrap(), number + 1);
    }
    assert_eq!(client.stats().total(|node| node.moved), 0);
    assert_eq!(client.del(key_in(slot, "first")), Ok(true));
    migration.cancel();
    assert_eq!(client.get::<i64>(key_in(slot, "first")).unwrap(), None);
}

/// Some keys here, some there: neither node can run it, until the rest has followed.
#[test]
fn commands_on_several_keys_wait_until_these_are_together() {
    let cluster = moving();
    let client = client(&cluster);
    let slot = slot_of(0, 2);
    let (one, two) = (key_in(slot, "one"), key_in(slot, "two"));
    client
        .query::<()>(cmd("MSET").arg((&one, 1, &two, 2)))
        .unwrap();
    let migration = cluster.begin_move(slot, 0, 1);
    migration.migrate_keys(&[&one]);
    let queries = client.stats().topology_queries;
    let begun = Instant::now();
    let get = cmd("MGET").arg((&one, &two)).timeout(SOON);
    let get = client.send::<(i64, i64)>(get).unwrap();
    let set = cmd("MSET").arg((&one, 11, &two, 12)).timeout(SOON);
    let set = client.send::<()>(set).unwrap();
    let script = cmd("EVAL")
        .arg(("return #KEYS", 2, &one, &two))
        .timeout(SOON);
    let script = client.send::<i64>(script).unwrap();
    // Commands on one key go on meanwhile.
    assert_eq!(client.get(&one).unwrap(), Some(1));
    assert_eq!(client.get(&two).unwrap(), Some(2));
    poll_until(SOON, "some attempts", || {
        let attempts = client.stats().total(|node| node.tryagain);
        (attempts >= 9).then_some(()).ok_or(attempts.to_string())
    });
    assert!(!get.is_done() && !set.is_done() && !script.is_done());
    let attempts = client.stats().total(|node| node.tryagain);
    let most = 3 * (8 + begun.elapsed().as_millis() as u64 / 100);
    assert!(
        attempts <= most,
        "{attempts} attempts in {:?}",
        begun.elapsed()
    );
    assert_eq!(
        client.stats().topology_queries,
        queries,
        "no query for TRYAGAIN"
    );
    migration.migrate_all();
    migration.finish();
    let (a, b) = get.wait().unwrap();
    assert!((a, b) == (1, 2) || (a, b) == (11, 12), "{a} {b}");
    set.wait().unwrap();
    assert_eq!(script.wait().unwrap(), 2);
    assert_eq!(
        client
            .query::<(i64, i64)>(cmd("MGET").arg((&one, &two)))
            .unwrap(),
        (11, 12)
    );
}

#[test]
fn keys_that_stay_apart_end_at_the_deadline() {
    let cluster = moving();
    let client = client(&cluster);
    let slot = slot_of(0, 3);
    let (one, two) = (key_in(slot, "one"), key_in(slot, "two"));
    client
        .query::<()>(cmd("MSET").arg((&one, 1, &two, 2)))
        .unwrap();
    let migration = cluster.begin_move(slot, 0, 1);
    migration.migrate_keys(&[&one]);
    let limit = Duration::from_millis(400);
    let begun = Instant::now();
    let set = cmd("MSET").arg((&one, 3, &two, 4)).timeout(limit);
    let error = client.query::<Value>(set).unwrap_err();
    assert!(begun.elapsed() >= limit && begun.elapsed() < SOON);
    assert_eq!(error.failure().unwrap().reason(), Reason::Timeout);
    assert_eq!(error.code(), Some("TRYAGAIN"), "{error}");
    assert_eq!(client.get(&one).unwrap(), Some(1));
    assert_eq!(client.get(&two).unwrap(), Some(2));
    // In a pipeline it concerns no neighbour.
    let mut pipeline = client.pipeline();
    pipeline.timeout(limit);
    pipeline
        .add(cmd("INCR").arg(&one))
        .add(cmd("MGET").arg((&one, &two)));
    pipeline.add(cmd("INCR").arg(&two));
    let results = pipeline.execute().unwrap();
    assert_eq!(
        (&results[0], &results[2]),
        (&Ok(Value::Integer(2)), &Ok(Value::Integer(3)))
    );
    assert_eq!(results[1].as_ref().unwrap_err().code(), Some("TRYAGAIN"));
    migration.migrate_all();
    migration.finish();
}

/// All keys gone: the source says ASK, the target runs it.
#[test]
fn commands_on_several_keys_that_are_gone() {
    let cluster = moving();
    let client = client(&cluster);
    let slot = slot_of(0, 4);
    let (one, two) = (key_in(slot, "one"), key_in(slot, "two"));
    client
        .query::<()>(cmd("MSET").arg((&one, 1, &two, 2)))
        .unwrap();
    let migration = cluster.begin_move(slot, 0, 1);
    migration.migrate_all();
    let both: (i64, i64) = client.query(cmd("MGET").arg((&one, &two))).unwrap();
    assert_eq!(both, (1, 2));
    client
        .query::<()>(cmd("MSET").arg((&one, 3, &two, 4)))
        .unwrap();
    migration.finish();
    let both: (i64, i64) = client.query(cmd("MGET").arg((&one, &two))).unwrap();
    assert_eq!(both, (3, 4));
}
