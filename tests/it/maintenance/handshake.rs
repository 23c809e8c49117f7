//! Who is asked for announcements, and what a refusal means.

use std::collections::BTreeSet;
use std::time::Duration;

use reslot::{Client, Error, Maintenance, Protocol};

use super::announce::{announce, builder, connect, smigrated};
use crate::fake::{FakeCluster, key_for_slot};

const REQUEST: &str = "CLIENT MAINT_NOTIFICATIONS";

#[test]
fn each_node_is_asked_after_hello_and_before_commands() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    client.set(key_for_slot(1), "x").unwrap();
    let asked = cluster.log().commands(REQUEST).list();
    let nodes: BTreeSet<usize> = asked.iter().map(|entry| entry.node).collect();
    assert_eq!((asked.len(), nodes.len()), (2, 2));
    for entry in &asked {
        assert_eq!(entry.text(2), "ON");
        assert_eq!(entry.text(3), "moving-endpoint-type");
        assert_eq!(entry.text(4), "internal-ip");
        let texts = cluster.log().connection(entry.connection).texts();
        let at = |word: &str| texts.iter().position(|text| text.starts_with(word));
        assert!(at("HELLO 3") < at(REQUEST), "{texts:?}");
        assert!(at("SET").is_none_or(|set| Some(set) > at(REQUEST)));
    }
}

#[test]
fn topology_connections_are_not_asked() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    announce(&cluster, &client, 0, &smigrated(&cluster, 1, &[]));
    // One at the start, by the seed's name, and one of a refresh.
    for entry in cluster.log().commands("CLUSTER SLOTS").wait_for(2) {
        let on_it = cluster.log().connection(entry.connection);
        assert_eq!(on_it.commands(REQUEST).count(), 0);
    }
}

#[test]
fn off_and_resp2_do_not_ask() {
    let cluster = FakeCluster::start(2);
    let off = builder(&cluster).maintenance(Maintenance::Off);
    let resp2 = builder(&cluster)
        .maintenance(Maintenance::Auto)
        .protocol(Protocol::Resp2);
    for builder in [off, resp2] {
        let client = builder.connect().unwrap();
        client.set(key_for_slot(1), "x").unwrap();
    }
    assert_eq!(cluster.log().commands(REQUEST).count(), 0);
    let old = FakeCluster::builder(1).resp2_only().start();
    let client = builder(&old).maintenance(Maintenance::Auto).connect();
    client.unwrap().set(key_for_slot(1), "x").unwrap();
    assert_eq!(old.log().commands(REQUEST).count(), 0);
}

#[test]
fn a_refusal_matters_only_if_announcements_are_required() {
    let cluster = FakeCluster::start(1);
    cluster
        .on(REQUEST)
        .error("ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.");
    let auto = builder(&cluster).maintenance(Maintenance::Auto);
    let client = auto.connect().unwrap();
    client.set(key_for_slot(1), "x").unwrap();
    assert_eq!(cluster.log().commands(REQUEST).count(), 1);

    // The cluster is found, but no connection to a node is of use.
    let required = builder(&cluster).response_timeout(Duration::from_millis(300));
    let client = required.connect().unwrap();
    let error = client.set(key_for_slot(1), "y").unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    let value: Option<String> = cluster_value(&cluster);
    assert_eq!(value.as_deref(), Some("x"));
}

fn cluster_value(cluster: &FakeCluster) -> Option<String> {
    let plain = Client::builder().seed(cluster.node(0).addr().to_string());
    plain.connect().unwrap().get(key_for_slot(1)).unwrap()
}
