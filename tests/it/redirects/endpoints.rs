//! The ways in which servers write the address of a node: in redirects and in maps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reslot::{Certainty, NodeAddr, Reason};

use crate::clients::{addr, asked, builder, connect, never_refreshing, seen, value};
use crate::fake::{FakeCluster, Fields, Format, Host};

fn hosts(host: Host) -> Format {
    Format {
        host,
        ..Format::default()
    }
}

#[test]
fn without_a_host_mean_the_host_that_answered() {
    for host in [Host::Null, Host::Empty] {
        let cluster = FakeCluster::builder(3).owners(2).start();
        let client = never_refreshing(builder(&cluster)).connect().unwrap();
        cluster.set_format(&hosts(host));
        cluster.assign(3300..=3300, 1);
        client.set("b", "1").unwrap();
        assert_eq!(seen(&cluster, 1), ["SET b 1"]);
        cluster.begin_move(5061, 2);
        client.set("bar", "1").unwrap();
        assert_eq!(seen(&cluster, 2), ["ASKING", "SET bar 1"]);
    }
}

#[test]
fn without_a_host_name_nodes_once_in_maps_and_redirects() {
    for fields in [Fields::Three, Fields::Metadata] {
        let cluster = FakeCluster::start(2);
        let host = Host::Null;
        let format = Format {
            host,
            fields,
            ..Format::default()
        };
        cluster.set_format(&format);
        let client = connect(&cluster);
        cluster.assign(5061..=5061, 1);
        client.set("bar", "1").unwrap();
        client.set("foo", "1").unwrap();
        assert_eq!(seen(&cluster, 1), ["SET bar 1", "SET foo 1"]);
        let nodes: Vec<NodeAddr> = client.stats().nodes.into_keys().collect();
        let mut wanted = vec![addr(&cluster, 0), addr(&cluster, 1)];
        wanted.sort();
        assert_eq!(nodes, wanted);
        cluster.node(1).wait_open(1);
    }
}

#[test]
fn of_ipv6_are_cut_at_the_last_colon_and_name_one_node() {
    let cluster = FakeCluster::builder(3).owners(2).ipv6().start();
    cluster.set_format(&hosts(Host::Ip6));
    let client = connect(&cluster);
    let port = cluster.node(1).port();
    let both = [format!("::1:{port}"), format!("[::1]:{port}")];
    for (index, endpoint) in both.iter().enumerate() {
        let (bar, b) = (format!("{{bar}}{index}"), format!("{{b}}{index}"));
        let node = cluster.node(0);
        node.on("GET")
            .key(&bar)
            .error(&format!("MOVED 5061 {endpoint}"));
        node.on("GET")
            .key(&b)
            .error(&format!("ASK 3300 {endpoint}"));
    }
    cluster
        .node(1)
        .on("GET")
        .reply(crate::fake::resp::bulk("six"));
    for key in ["{b}0", "{b}1", "{bar}0"] {
        assert_eq!(value(&client, key).as_deref(), Some("six"), "{key}");
    }
    client.set("foo", "1").unwrap();
    let known = client.stats().nodes;
    let six = NodeAddr::new("::1", port);
    assert_eq!(
        known
            .keys()
            .filter(|node| node.port() == port)
            .collect::<Vec<_>>(),
        [&six]
    );
    assert_eq!(known[&six].connects, 1);
}

#[test]
fn that_are_unknown_are_not_guessed_and_end_in_the_budget() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster).max_redirects(3).connect().unwrap();
    let line = format!("MOVED 5061 ?:{}", cluster.node(1).port());
    cluster.node(0).on("SET").key("bar").error(&line);
    let error = client.set("bar", "1").unwrap_err();
    assert_eq!(error.failure().unwrap().reason(), Reason::TooManyRedirects);
    assert_eq!(error.certainty(), Certainty::Refused);
    assert_eq!(error.server_error().unwrap().line(), line);
    assert_eq!(asked(&cluster, 0, "SET", "bar"), 4);
    assert_eq!(
        seen(&cluster, 1),
        [""; 0],
        "its port on this host was not tried"
    );
}

#[test]
fn that_are_unknown_are_found_by_the_map() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let format = Format {
        host: Host::Unknown,
        fields: Fields::Metadata,
        ..Format::default()
    };
    cluster.set_format(&format);
    cluster.assign(5061..=5061, 1);
    client.set("bar", "1").unwrap();
    assert_eq!(cluster.executions("bar"), 1);
    assert_eq!(seen(&cluster, 1), ["SET bar 1"]);
    assert_eq!(client.stats().nodes.len(), 2);
}

#[test]
fn that_are_unknown_for_a_while_are_waited_for() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let line = format!("ASK 5061 ?:{}", cluster.node(1).port());
    let rule = cluster.node(0).on("SET").key("bar").times(4).error(&line);
    client.set("bar", "1").unwrap();
    assert_eq!(rule.hits(), 4);
    assert_eq!(seen(&cluster, 1), [""; 0]);
}

/// All addresses that the cluster tells are inner ones; the map leads to the real ones.
#[test]
fn behind_a_translation_are_translated_everywhere() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    cluster.set_format(&hosts(Host::Name("10.255.0.1".to_owned())));
    let dialled = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&dialled);
    let builder = builder(&cluster).address_map(move |addr| {
        told.lock().unwrap().push(addr.clone());
        NodeAddr::new("127.0.0.1", addr.port())
    });
    // A dial to the inner address would hang for so long.
    let client = builder.connect_timeout(Duration::from_secs(20)).connect();
    let client = client.unwrap();
    client.set("foo", "1").unwrap();
    cluster.assign(3300..=3300, 1);
    client.set("b", "1").unwrap();
    cluster.begin_move(5061, 2);
    client.set("bar", "1").unwrap();
    assert_eq!(seen(&cluster, 1), ["SET foo 1", "SET b 1"]);
    assert_eq!(seen(&cluster, 2), ["ASKING", "SET bar 1"]);
    let hosts: Vec<String> = client
        .stats()
        .nodes
        .keys()
        .map(|n| n.host().into())
        .collect();
    assert_eq!(
        hosts, ["10.255.0.1"; 3],
        "nodes go by the names that the cluster uses"
    );
    let dialled = dialled.lock().unwrap();
    assert!(
        dialled.iter().all(|addr| addr.host() == "10.255.0.1"),
        "{dialled:?}"
    );
}

#[test]
fn are_translated_anew_for_each_connection() {
    let cluster = FakeCluster::builder(2).owners(1).start();
    let target = Arc::new(Mutex::new(cluster.node(0).port()));
    let now = Arc::clone(&target);
    let builder = never_refreshing(builder(&cluster));
    let builder = builder.address_map(move |_| NodeAddr::new("127.0.0.1", *now.lock().unwrap()));
    let client = builder.connect().unwrap();
    client.set("bar", "1").unwrap();
    // The address behind the name changes; the old one dies.
    cluster.assign(0..=16383, 1);
    *target.lock().unwrap() = cluster.node(1).port();
    cluster.node(0).kill();
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
    assert_eq!(seen(&cluster, 1), ["GET bar"]);
}
