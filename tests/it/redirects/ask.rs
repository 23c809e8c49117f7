//! ASK: for one command only, behind an ASKING of its own, and forgotten at once.

use std::thread;

use crate::clients::{
    addr, asked, builder, connect, get, incr, maps_asked, never_refreshing, seen, value,
};
use crate::fake::{Entry, FakeCluster, keys_in, resp, slot_of};
use crate::local_cluster::poll_until;

/// On every connection to the node, each command of the slot comes right behind an ASKING, and
/// nothing else does. Gives the number of ASKINGs.
fn check_pairs(cluster: &FakeCluster, node: usize, slot: u16) -> usize {
    let all = cluster.log().on(node).list();
    let mut connections: Vec<usize> = all.iter().map(|entry| entry.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    let mut pairs = 0;
    for connection in connections {
        let own: Vec<&Entry> = all.iter().filter(|e| e.connection == connection).collect();
        let foreign = |entry: &Entry| {
            let keyed = !["ASKING", "HELLO", "CLIENT", "CLUSTER"].contains(&&*entry.name());
            keyed && slot_of(&entry.argv[1]) == slot
        };
        for (index, entry) in own.iter().enumerate() {
            let after_asking = index > 0 && own[index - 1].is("ASKING");
            assert_eq!(foreign(entry), after_asking, "{entry:?} among {own:#?}");
            pairs += usize::from(after_asking);
        }
        assert!(!own.last().unwrap().is("ASKING"), "a lone ASKING: {own:#?}");
    }
    pairs
}

#[test]
fn sends_asking_and_the_command_and_learns_nothing() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let start = cluster.log().end();
    cluster.begin_move(5061, 1);
    for _ in 0..2 {
        assert_eq!(value(&client, "bar"), None);
    }
    assert_eq!(
        seen(&cluster, 0),
        ["GET bar", "GET bar"],
        "the owner is asked first each time"
    );
    assert_eq!(
        seen(&cluster, 1),
        ["ASKING", "GET bar", "ASKING", "GET bar"]
    );
    check_pairs(&cluster, 1, 5061);
    assert_eq!(maps_asked(&cluster, start), 0);
    assert_eq!(client.stats().nodes[&addr(&cluster, 0)].ask, 2);
}

#[test]
fn concerns_only_keys_that_have_left() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let start = cluster.log().end();
    client.set("k1{bar}", "1").unwrap();
    client.set("k2{bar}", "2").unwrap();
    cluster.begin_move(5061, 1);
    cluster.migrate_key("k1{bar}");
    for _ in 0..50 {
        assert_eq!(value(&client, "k1{bar}").as_deref(), Some("1"));
        assert_eq!(value(&client, "k2{bar}").as_deref(), Some("2"));
    }
    assert_eq!(asked(&cluster, 0, "GET", "k2{bar}"), 50);
    assert_eq!(asked(&cluster, 1, "GET", "k2{bar}"), 0);
    assert_eq!(asked(&cluster, 0, "GET", "k1{bar}"), 50);
    assert_eq!(check_pairs(&cluster, 1, 5061), 50);
    assert_eq!(maps_asked(&cluster, start), 0);
}

#[test]
fn leads_to_a_node_that_owns_nothing_yet() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.begin_move(5061, 2);
    client.set("bar", "1").unwrap();
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    assert_eq!(check_pairs(&cluster, 2, 5061), 2);
    assert_eq!(cluster.node(2).opened(), 1, "both over one connection");
}

#[test]
fn and_other_commands_do_not_come_between_each_other() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.begin_move(5061, 1);
    let others = keys_in(8192..=16383, 16);
    thread::scope(|scope| {
        for (index, other) in others.iter().enumerate() {
            let client = &client;
            scope.spawn(move || {
                for _ in 0..30 {
                    client.incr(format!("{{bar}}{index}")).unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..30 {
                    client.incr(other).unwrap();
                }
            });
        }
    });
    assert_eq!(check_pairs(&cluster, 1, 5061), 16 * 30);
    for (index, other) in others.iter().enumerate() {
        assert_eq!(cluster.executions(format!("{{bar}}{index}")), 30);
        assert_eq!(cluster.executions(other), 30);
    }
}

#[test]
fn in_a_pipeline_gives_each_command_its_own_asking() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    for (key, value) in [("k1{bar}", "1"), ("k2{bar}", "2"), ("k3{bar}", "3")] {
        client.set(key, value).unwrap();
    }
    cluster.begin_move(5061, 1);
    cluster.migrate_key("k1{bar}");
    cluster.migrate_key("k3{bar}");
    let mut pipeline = client.pipeline();
    let keys = ["k1{bar}", "k3{bar}", "k2{bar}"];
    for key in keys {
        pipeline.add(get(key));
    }
    let values: Vec<String> = pipeline.query().unwrap();
    assert_eq!(values, ["1", "3", "2"]);
    let wanted = ["ASKING", "GET k1{bar}", "ASKING", "GET k3{bar}"];
    assert_eq!(seen(&cluster, 1), wanted);
    for key in keys {
        assert_eq!(asked(&cluster, 0, "GET", key), 1);
    }
}

#[test]
fn whose_target_says_moved_is_followed_and_learned() {
    let cluster = FakeCluster::start(3);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.node(0).on("INCR").key("bar").ask(5061, 1);
    cluster.assign(5061..=5061, 2);
    assert_eq!(client.incr("bar").unwrap(), 1);
    assert_eq!(client.incr("bar").unwrap(), 2);
    assert_eq!(seen(&cluster, 0), ["INCR bar"]);
    assert_eq!(seen(&cluster, 1), ["ASKING", "INCR bar"]);
    assert_eq!(seen(&cluster, 2), ["INCR bar", "INCR bar"]);
}

#[test]
fn whose_target_asks_again_is_followed() {
    let cluster = FakeCluster::start(3);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.node(0).on("GET").ask(5061, 1);
    cluster.node(1).on("GET").ask(5061, 2);
    cluster.node(2).on("GET").reply(resp::bulk("found"));
    assert_eq!(value(&client, "bar").as_deref(), Some("found"));
    assert_eq!(seen(&cluster, 1), ["ASKING", "GET bar"]);
    assert_eq!(seen(&cluster, 2), ["ASKING", "GET bar"]);
}

#[test]
fn round_in_circles_ends_in_the_budget() {
    let cluster = FakeCluster::start(2);
    let builder = never_refreshing(builder(&cluster)).max_redirects(5);
    let client = builder.connect().unwrap();
    cluster.node(0).on("GET").ask(5061, 1);
    cluster.node(1).on("GET").ask(5061, 0);
    let error = client.get::<String>("bar").unwrap_err();
    let reason = error.failure().unwrap().reason();
    assert_eq!(reason, reslot::Reason::TooManyRedirects, "{error}");
    assert_eq!(cluster.log().commands("GET").count(), 6);
    check_pairs(&cluster, 1, 5061);
}

#[test]
fn whose_connection_dies_after_asking_says_asking_again() {
    let cluster = FakeCluster::start(2);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.begin_move(5061, 1);
    cluster.node(1).on("ASKING").times(1).answer_and_close();
    assert_eq!(value(&client, "bar"), None);
    assert_eq!(cluster.log().executed().key("bar").count(), 1);
    assert_eq!(check_pairs(&cluster, 1, 5061), 2);
    assert_eq!(asked(&cluster, 0, "GET", "bar"), 1);
}

#[test]
fn whose_connection_dies_leaves_a_write_in_doubt() {
    let cluster = FakeCluster::start(2);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.begin_move(5061, 1);
    cluster.node(1).on("INCR").times(1).run_and_close();
    let error = client.incr("bar").unwrap_err();
    assert_eq!(error.certainty(), reslot::Certainty::Unknown, "{error}");
    assert_eq!(cluster.executions("bar"), 1);
    assert_eq!(client.incr("bar").unwrap(), 2);
    check_pairs(&cluster, 1, 5061);
}

#[test]
fn that_is_refused_as_asking_is_judged_by_the_command() {
    let cluster = FakeCluster::start(2);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.begin_move(5061, 1);
    cluster
        .node(1)
        .on("ASKING")
        .times(1)
        .error("LOADING still reading");
    // Without the flag the target redirects back, and the owner asks again.
    assert_eq!(client.incr("bar").unwrap(), 1);
    assert_eq!(asked(&cluster, 0, "INCR", "bar"), 2);
    assert_eq!(check_pairs(&cluster, 1, 5061), 2);
    assert_eq!(cluster.executions("bar"), 1);
}

/// The target reads nothing, so the command sent by ASK still waits there when the slot goes to a
/// third node: it goes along as a plain command and leaves no ASKING behind.
#[test]
fn that_still_waits_moves_on_with_its_slot() {
    let cluster = FakeCluster::start(3);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    cluster.begin_move(5061, 1);
    cluster.node(1).stop_reading();
    let other = crate::fake::key_for_slot(8000);
    let large = reslot::cmd("SET").arg(&other).arg(vec![b'x'; 48 << 20]);
    let blocked = client.send::<()>(large).unwrap();
    let waiting = client.send::<Option<String>>(get("bar")).unwrap();
    poll_until(crate::fake::PATIENCE, "the command to be queued", || {
        let queued = client.stats().nodes[&addr(&cluster, 1)].queued;
        (queued == 1)
            .then_some(())
            .ok_or(format!("{queued} queued"))
    });
    cluster.assign(5061..=5061, 2);
    assert_eq!(client.query::<i64>(incr("{bar}n")).unwrap(), 1);
    assert_eq!(waiting.wait().unwrap(), None);
    let own = cluster.log().on(2).data().commands("GET").list();
    assert_eq!(own.len(), 1);
    assert_eq!(cluster.log().on(2).commands("ASKING").count(), 0);
    cluster.node(1).resume_reading();
    blocked.wait().unwrap();
    assert_eq!(value(&client, crate::fake::key_for_slot(8001)), None);
    let names: Vec<String> = cluster
        .log()
        .on(1)
        .data()
        .list()
        .iter()
        .map(Entry::name)
        .collect();
    assert_eq!(names, ["SET", "GET"]);
}
