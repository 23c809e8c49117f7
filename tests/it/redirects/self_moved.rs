//! MOVED to the very node that sent it: its address leads elsewhere now, so the connection is
//! replaced, once for all that were on it.

use crate::clients::{asked, builder, get, never_refreshing};
use crate::fake::{FakeCluster, Script};

/// The number of the connection that carries commands to node 0.
fn shared_connection(cluster: &FakeCluster) -> usize {
    cluster.node(0).wait_open(1);
    cluster.node(0).connections()[0]
}

#[test]
fn replaces_the_connection_once() {
    let cluster = FakeCluster::start(1);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    let old = shared_connection(&cluster);
    let before = cluster.node(0).opened();
    let stale = cluster.on("INCR").connection(old).moved(5061, 0);
    assert_eq!(client.incr("bar").unwrap(), 1);
    assert_eq!(client.incr("bar").unwrap(), 2);
    assert_eq!(stale.hits(), 1);
    assert_eq!(cluster.node(0).opened(), before + 1);
    assert_ne!(shared_connection(&cluster), old);
}

#[test]
fn of_several_commands_replaces_the_connection_once() {
    let cluster = FakeCluster::start(1);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    let old = shared_connection(&cluster);
    let before = cluster.node(0).opened();
    let gate = cluster.gate();
    for (key, slot) in [("bar", 5061), ("b", 3300), ("foo", 12182)] {
        let moved = format!("MOVED {slot} {}", cluster.node(0).addr());
        let script = Script::new().hold(&gate).error(&moved).send();
        let rule = cluster.on("GET").key(key).connection(old);
        rule.script(script);
    }
    let pending = ["bar", "b", "foo"].map(|key| client.send::<Option<String>>(get(key)).unwrap());
    cluster.log().commands("GET").wait_for(3);
    gate.release();
    for reply in pending {
        assert_eq!(reply.wait().unwrap(), None);
    }
    assert_eq!(cluster.node(0).opened(), before + 1);
    assert_eq!(cluster.log().commands("GET").count(), 6);
}

#[test]
fn leaves_what_is_on_the_connection_its_answers() {
    let cluster = FakeCluster::start(1);
    let client = never_refreshing(builder(&cluster)).connect().unwrap();
    let old = shared_connection(&cluster);
    cluster.on("GET").key("bar").connection(old).moved(5061, 0);
    let gate = cluster.node(0).hold("INCR", "foo");
    let moved = client.send::<Option<String>>(get("bar")).unwrap();
    let other = client.send::<i64>(crate::clients::incr("foo")).unwrap();
    gate.wait_arrived(1);
    gate.release();
    assert_eq!(
        other.wait().unwrap(),
        1,
        "a write on the old connection is not cut off"
    );
    assert_eq!(moved.wait().unwrap(), None);
    assert_eq!(cluster.executions("foo"), 1);
    assert_eq!(asked(&cluster, 0, "GET", "bar"), 2);
}
