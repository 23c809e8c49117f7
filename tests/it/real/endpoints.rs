//! How a cluster names its nodes: not at all, by name, by IPv6 address.

use std::time::Duration;

use reslot::{Client, NodeAddr, cmd};

use super::clusters::{SOON, client, key_in, patient, slot_of};
use crate::local_cluster::{LocalCluster, poll_until};

fn set_config(cluster: &LocalCluster, name: &str, value: &str) {
    for node in 0..3 {
        let reply = cluster.command(node, &["CONFIG", "SET", name, value]);
        assert!(reply.is_ok(), "{name} {value}: {reply:?}");
    }
}

const TYPE: &str = "cluster-preferred-endpoint-type";

/// A client that knows one node, by IP address.
fn client_of_one(cluster: &LocalCluster) -> Client {
    let seed = cluster.addr(0).to_string();
    Client::builder().seed(seed).connect().unwrap()
}

fn use_all(client: &Client, name: &str) {
    for node in 0..3 {
        let key = key_in(slot_of(node, 7), name);
        client.set(&key, node).unwrap();
        assert_eq!(client.get(&key).unwrap(), Some(node));
    }
}

/// Redirects by MOVED and by ASK between nodes, with the client's map out of date.
fn follow_redirects(cluster: &LocalCluster, client: &Client, name: &str) {
    let slot = slot_of(0, 8);
    let key = key_in(slot, name);
    client.set(&key, "1").unwrap();
    let migration = cluster.begin_move(slot, 0, 1);
    migration.migrate_keys(&[&key]);
    assert_eq!(client.get(&key).unwrap(), Some(1));
    migration.finish();
    assert_eq!(client.incr(&key).unwrap(), 2);
    cluster.move_slot(slot, 1, 2);
    assert_eq!(client.incr(&key).unwrap(), 3);
    cluster.move_slot(slot, 2, 0);
    assert_eq!(client.incr(&key).unwrap(), 4);
    assert!(client.del(&key).unwrap());
}

#[test]
fn without_a_host_it_is_the_same_host() {
    let cluster = patient();
    set_config(&cluster, TYPE, "unknown-endpoint");
    let client = client_of_one(&cluster);
    use_all(&client, "unknown");
    follow_redirects(&cluster, &client, "unknown");
    assert!(client.stats().total(|node| node.moved + node.ask) >= 2);
    set_config(&cluster, TYPE, "ip");
    follow_redirects(&cluster, &client, "known");
    let stats = client.stats();
    assert_eq!(
        (stats.nodes.len(), stats.total(|node| node.connects)),
        (3, 3),
        "{stats:?}"
    );
}

/// Names are preferred but nobody has one: `?` in the map and in redirects.
#[test]
fn an_unknown_host_is_not_guessed() {
    let cluster = patient();
    let old = client(&cluster);
    set_config(&cluster, TYPE, "hostname");
    wait_for_host(&cluster, "?");
    let new = client_of_one(&cluster);
    let slot = slot_of(0, 9);
    let key = key_in(slot, "nameless");
    for client in [&old, &new] {
        use_all(client, "nameless");
        client.set(&key, 1).unwrap();
        cluster.move_slot(slot, 0, 1);
        assert_eq!(client.incr(&key).unwrap(), 2);
        cluster.move_slot(slot, 1, 0);
        assert_eq!(client.incr(&key).unwrap(), 3);
    }
    // Where an ASK leads cannot be known; the command waits, and is found when the move is over.
    let migration = cluster.begin_move(slot, 0, 1);
    migration.migrate_all();
    let short = cmd("GET").arg(&key).timeout(Duration::from_millis(300));
    let error = new.query::<i64>(short).unwrap_err();
    assert_eq!(error.code(), Some("ASK"), "{error}");
    let pending = new
        .send::<i64>(cmd("INCR").arg(&key).timeout(SOON))
        .unwrap();
    migration.finish();
    assert_eq!(pending.wait().unwrap(), 4);
    cluster.move_slot(slot, 1, 0);
    set_config(&cluster, TYPE, "ip");
    let stats = new.stats();
    assert_eq!(stats.nodes.len(), 3, "{stats:?}");
    assert!(
        stats.nodes.keys().all(|addr| addr.host() == "127.0.0.1"),
        "{stats:?}"
    );
}

#[test]
fn a_name_and_an_address_are_one_node() {
    let cluster = patient();
    let old = client(&cluster);
    use_all(&old, "named");
    set_config(&cluster, "cluster-announce-hostname", "localhost");
    set_config(&cluster, TYPE, "hostname");
    wait_for_host(&cluster, "localhost");
    let new = client_of_one(&cluster);
    for client in [&old, &new] {
        use_all(client, "named");
        follow_redirects(&cluster, client, "named");
    }
    assert!(
        new.stats()
            .nodes
            .keys()
            .any(|addr| addr.host() == "localhost")
    );
    // Back to addresses, with clients that have learned names.
    set_config(&cluster, TYPE, "ip");
    for client in [&old, &new] {
        follow_redirects(&cluster, client, "numbered");
        // A redirect to a name that no map has told yet makes a node of its own, until one does.
        poll_until(SOON, "three nodes", || {
            let stats = client.stats();
            let seen = (stats.nodes.len(), stats.total(|node| node.connects));
            (seen == (3, 3)).then_some(()).ok_or(format!("{stats:?}"))
        });
    }
    set_config(&cluster, "cluster-announce-hostname", "");
}

/// Waits until all nodes name all nodes so.
fn wait_for_host(cluster: &LocalCluster, host: &str) {
    poll_until(SOON, "the new names", || {
        for node in 0..3 {
            let slots = cluster.command(node, &["CLUSTER", "SLOTS"]);
            let named = |range: &crate::local_cluster::Reply| range.items()[2].items()[0].text();
            let hosts: Vec<String> = slots.items().iter().map(named).collect();
            if hosts.iter().any(|name| name != host) {
                return Err(format!("node {node}: {hosts:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn ipv6_addresses_without_brackets() {
    let cluster = patient();
    let address = NodeAddr::new("::1", cluster.addr(0).port());
    if std::net::TcpStream::connect(("::1", address.port())).is_err() {
        eprintln!("no IPv6 on this machine");
        return;
    }
    set_config(&cluster, "cluster-announce-ip", "::1");
    wait_for_host(&cluster, "::1");
    let client = Client::connect(&format!("redis://{address}")).unwrap();
    use_all(&client, "six");
    follow_redirects(&cluster, &client, "six");
    let stats = client.stats();
    assert_eq!(stats.nodes.len(), 3, "{stats:?}");
    assert!(
        stats.nodes.keys().all(|addr| addr.host() == "::1"),
        "{stats:?}"
    );
    assert!(stats.total(|node| node.moved + node.ask) >= 2);
    set_config(&cluster, "cluster-announce-ip", "127.0.0.1");
    wait_for_host(&cluster, "127.0.0.1");
}
