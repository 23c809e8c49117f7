//! Pushes among replies: they answer nothing, and what is not understood does no harm.

use reslot::{Client, RefreshCause, cmd};

use super::announce::{
    announce, builder, connect, eventually, moving, plain, smigrated, smigrating,
};
use crate::fake::{FakeCluster, Script, key_for_slot, resp};

/// One of everything, five times.
fn chatter(cluster: &FakeCluster) -> Vec<u8> {
    let once = [
        smigrating(1, "1-5"),
        smigrated(cluster, 2, &[]),
        plain("MIGRATING", 3),
        plain("MIGRATED", 4),
        plain("FAILING_OVER", 5),
        plain("FAILED_OVER", 6),
        resp::push(&[resp::bulk("nobody-knows"), resp::integer(1)]),
        resp::push(&[resp::simple("SMIGRATED"), resp::simple("rubbish")]),
    ];
    once.concat().repeat(5)
}

#[test]
fn a_push_between_replies_is_no_reply() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let key = key_for_slot(1);
    client.set(&key, "value").unwrap();
    let noisy = Script::new()
        .raw(chatter(&cluster))
        .run()
        .send()
        .raw(chatter(&cluster));
    cluster.on("GET").script(noisy.clone());
    cluster.on("MULTI").script(noisy.clone());
    cluster.on("INCR").script(noisy);
    for _ in 0..3 {
        let value: Option<String> = client.get(&key).unwrap();
        assert_eq!(value.as_deref(), Some("value"));
        let (count, value): (i64, String) = client
            .transaction(|t| {
                t.add(cmd("INCR").arg(format!("{{{key}}}count")));
                t.add(cmd("GET").arg(&key));
            })
            .unwrap();
        assert!(count > 0);
        assert_eq!(value, "value");
    }
    assert_eq!(client.stats().total(|node| node.connects), 1);
}

#[test]
fn a_push_without_a_command_under_way_is_heard_at_once() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    announce(&cluster, &client, 0, &smigrating(1, "1-5"));
    let value: Option<String> = client.get(key_for_slot(1)).unwrap();
    assert_eq!(value, None);
}

#[test]
fn what_is_not_understood_refreshes_and_changes_nothing() {
    for items in [
        vec![resp::simple("SMIGRATED"), resp::integer(1)],
        vec![resp::simple("smigrated"), resp::null(3)],
        vec![
            resp::simple("SMIGRATING"),
            resp::integer(1),
            resp::simple("9-3"),
        ],
        vec![resp::simple("MOVING"), resp::integer(1), resp::simple("30")],
    ] {
        let cluster = FakeCluster::start(2);
        let client = connect(&cluster);
        let since = cluster.log().end();
        announce(&cluster, &client, 0, &resp::push(&items));
        cluster
            .log()
            .commands("CLUSTER SLOTS")
            .since(since)
            .wait_for(1);
        client.set(key_for_slot(1), "x").unwrap();
        let stats = client.stats();
        assert_eq!(stats.unreadable_announcements, 1, "{items:?}");
        assert_eq!(stats.refreshes.get(&RefreshCause::Maintenance), Some(&1));
        assert_eq!(stats.total(|node| node.moved + node.relocated), 0);
        assert_eq!(stats.total(|node| node.connects), 2);
    }
}

#[test]
fn whoever_did_not_ask_does_not_listen() {
    let cluster = FakeCluster::start(2);
    let plain = Client::builder().seed(cluster.node(0).addr().to_string());
    let client = plain.connect().unwrap();
    cluster
        .node(0)
        .push(&smigrated(&cluster, 1, &[(0, 1, "1")]));
    cluster.node(0).push(&moving(2, 0, None));
    client.set(key_for_slot(1), "x").unwrap();
    let stats = client.stats();
    assert_eq!(stats.announcements, 0);
    assert_eq!(cluster.log().on(0).commands("SET").count(), 1);
    let asking = builder(&cluster).connect().unwrap();
    cluster.node(0).push(&smigrating(3, "1"));
    eventually("the other one to hear it", || {
        asking.stats().announcements > 0
    });
    assert_eq!(client.stats().announcements, 0);
}
