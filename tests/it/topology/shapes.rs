//! What `CLUSTER SLOTS` may look like.

use reslot::{NodeAddr, Protocol};

use crate::clients::{addr, asked, builder, connect, maps_asked};
use crate::fake::{FakeCluster, Fields, Format, Host, key_for_slot, keys_in};

/// Sets a key in each eighth of the slots and looks that nobody had to redirect.
fn check_served(cluster: &FakeCluster, client: &reslot::Client) {
    for key in keys_in(0..=16383, 8) {
        client.set(&key, "1").unwrap();
        assert_eq!(cluster.executions(&key), 1);
    }
    assert_eq!(client.stats().total(|node| node.moved), 0);
}

#[test]
fn node_entries_of_any_length_are_read() {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        for host in [Host::Ip, Host::Null, Host::Empty] {
            for fields in [
                Fields::Two,
                Fields::Three,
                Fields::Four,
                Fields::Metadata,
                Fields::Six,
            ] {
                let cluster = FakeCluster::start(2);
                cluster.set_format(&Format {
                    host: host.clone(),
                    fields,
                    rotate_replicas: false,
                });
                let client = builder(&cluster).protocol(protocol).connect().unwrap();
                check_served(&cluster, &client);
                let nodes: Vec<NodeAddr> = client.stats().nodes.into_keys().collect();
                assert_eq!(nodes.len(), 2, "{host:?} {fields:?}: {nodes:?}");
            }
        }
    }
}

#[test]
fn servers_without_resp3_are_used_with_resp2() {
    let cluster = FakeCluster::builder(2).resp2_only().start();
    let client = connect(&cluster);
    check_served(&cluster, &client);
}

#[test]
fn many_ranges_of_one_primary_are_one_node() {
    let cluster = FakeCluster::start(2);
    cluster.change(|topology| {
        for slot in (0..2000).step_by(2) {
            topology.assign(slot..=slot, 1);
        }
    });
    let client = connect(&cluster);
    for slot in 0..20 {
        client.set(key_for_slot(slot), "1").unwrap();
    }
    assert_eq!(client.stats().total(|node| node.moved), 0);
    let stats = client.stats();
    assert_eq!(stats.nodes.len(), 2);
    assert!(stats.nodes.values().all(|node| node.connects == 1));
    (0..2).for_each(|node| cluster.node(node).wait_open(1));
}

#[test]
fn a_node_known_by_two_names_is_one_node() {
    let cluster = FakeCluster::start(2);
    // Maps name the host and tell the address beside it; redirects name only the address.
    cluster.set_format(&Format {
        host: Host::Name("localhost".to_owned()),
        fields: Fields::Metadata,
        rotate_replicas: false,
    });
    let client = connect(&cluster);
    let moved = cluster.node(0).on("SET").key("bar").moved(5061, 1);
    cluster.assign(5061..=5061, 1);
    client.set("bar", "1").unwrap();
    client.set("foo", "1").unwrap();
    assert_eq!(moved.hits(), 1);
    assert_eq!(asked(&cluster, 1, "SET", "bar"), 1);
    let stats = client.stats();
    let hosts: Vec<&str> = stats.nodes.keys().map(NodeAddr::host).collect();
    assert_eq!(hosts, ["localhost"; 2]);
    cluster.node(1).wait_open(1);
}

#[test]
fn replicas_in_another_order_are_no_change() {
    let cluster = FakeCluster::builder(6).owners(2).start();
    for (replica, primary) in [(2, 0), (3, 0), (4, 1), (5, 1)] {
        cluster.replicate(replica, primary);
    }
    let format = Format {
        rotate_replicas: true,
        ..Format::default()
    };
    cluster.set_format(&format);
    let builder = builder(&cluster).read_from(reslot::ReadFrom::PreferReplica);
    let client = builder.connect().unwrap();
    let start = cluster.log().end();
    cluster.assign(5061..=5061, 1);
    client.set("bar", "1").unwrap();
    cluster
        .log()
        .commands("CLUSTER SLOTS")
        .since(start)
        .wait_for(1);
    for key in keys_in(0..=16383, 40) {
        client.set(&key, "1").unwrap();
        client.get::<String>(&key).unwrap();
    }
    assert_eq!(maps_asked(&cluster, start), 1, "one answer is enough");
    let stats = client.stats();
    assert_eq!(stats.nodes.len(), 6);
    assert!(
        stats.nodes.values().all(|node| node.connects <= 1),
        "{stats:?}"
    );
    assert_eq!(stats.nodes[&addr(&cluster, 0)].connects, 1);
}

#[test]
fn a_map_with_holes_is_used() {
    let cluster = FakeCluster::start(2);
    cluster.change(|topology| topology.unassign(10000..=16383));
    let client = connect(&cluster);
    for slot in [0, 8191, 8192, 9999] {
        client.set(key_for_slot(slot), "1").unwrap();
    }
}
