//! Making a client: good seeds, bad seeds, and none that leads to a cluster.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use reslot::{Client, Error};

use crate::clients::{LONG, addr, maps_asked, value};
use crate::fake::{Accept, FakeCluster};

/// An address where nobody listens.
fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn reasons(error: Error) -> Vec<String> {
    let Error::Connect(reasons) = error else {
        panic!("{error}")
    };
    reasons
}

#[test]
fn all_down_end_in_one_error_that_names_each_reason() {
    let cluster = FakeCluster::start(1);
    let silent = cluster.node(0).addr().to_string();
    cluster.node(0).set_accept(Accept::Silent);
    // From a block of addresses that lead nowhere.
    let seeds = [refusing(), silent, "192.0.2.1:7000".to_owned()];
    let since = Instant::now();
    let limit = Duration::from_millis(300);
    let builder = Client::builder().seeds(&seeds).connect_timeout(limit);
    let reasons = reasons(builder.connect_deadline(LONG).connect().unwrap_err());
    assert_eq!(reasons.len(), 3, "{reasons:?}");
    for seed in &seeds {
        let named = reasons
            .iter()
            .filter(|reason| reason.contains(seed.as_str()));
        assert_eq!(named.count(), 1, "{seed}: {reasons:?}");
    }
    assert!(
        since.elapsed() < LONG,
        "no thread was waited for without limit"
    );
    cluster.node(0).wait_open(0);
}

#[test]
fn what_does_not_speak_redis_is_asked_about() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let seed = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
        // Nothing may be left unread, or the answer is lost with the connection.
        stream.read_to_end(&mut Vec::new()).ok();
    });
    let builder = Client::builder().seed(&seed).connect_deadline(LONG);
    let reasons = reasons(builder.connect().unwrap_err());
    let text = "unknown reply type 0x48: is this a Redis port, without TLS?";
    assert_eq!(reasons, [format!("{seed}: {text}")]);
    server.join().unwrap();
}

#[test]
fn the_deadline_for_all_holds() {
    let cluster = FakeCluster::start(1);
    cluster.node(0).set_accept(Accept::Silent);
    let since = Instant::now();
    let builder = Client::builder().seed(cluster.node(0).addr().to_string());
    let builder = builder
        .connect_timeout(LONG * 2)
        .connect_deadline(Duration::from_millis(200));
    reasons(builder.connect().unwrap_err());
    assert!(since.elapsed() < LONG, "{:?}", since.elapsed());
    cluster.node(0).wait_open(0);
}

#[test]
fn one_that_hangs_does_not_delay_the_others() {
    let cluster = FakeCluster::builder(2).owners(1).start();
    cluster.node(1).set_accept(Accept::Silent);
    let since = Instant::now();
    let seeds = [1, 0].map(|node| cluster.node(node).addr().to_string());
    let builder = Client::builder().seeds(seeds).connect_timeout(LONG * 2);
    let client = builder.connect_deadline(LONG * 2).connect().unwrap();
    client.set("bar", "1").unwrap();
    assert!(since.elapsed() < LONG, "{:?}", since.elapsed());
    client.close(Duration::from_secs(1)).unwrap();
    cluster.node(1).wait_open(0);
    cluster.node(0).wait_open(0);
}

#[test]
fn one_good_among_bad_is_enough() {
    let cluster = FakeCluster::start(2);
    let good = cluster.node(1).addr().to_string();
    let seeds = [refusing(), good, refusing()];
    let client = Client::builder().seeds(seeds).connect().unwrap();
    client.set("bar", "1").unwrap();
    client.set("foo", "1").unwrap();
}

#[test]
fn that_are_no_cluster_say_so_in_the_servers_words() {
    let cluster = FakeCluster::start(2);
    let line = "ERR This instance has cluster support disabled";
    cluster.on("CLUSTER SLOTS").error(line);
    let reasons = reasons(Client::connect(&cluster.url()).unwrap_err());
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(
        reasons.iter().all(|reason| reason.contains(line)),
        "{reasons:?}"
    );
    assert_eq!(maps_asked(&cluster, 0), 2, "each is asked once");
    cluster.nodes().iter().for_each(|node| node.wait_open(0));
}

#[test]
fn a_single_server_is_used_as_it_is() {
    let cluster = FakeCluster::start(1);
    cluster
        .on("CLUSTER SLOTS")
        .error("ERR This instance has cluster support disabled");
    let client = Client::connect(&cluster.url()).unwrap();
    client.set("bar", "1").unwrap();
    client.set("foo", "2").unwrap();
    assert_eq!(value(&client, "bar").as_deref(), Some("1"));
}

#[test]
fn the_wrong_password_is_told_in_the_servers_words() {
    let cluster = FakeCluster::builder(1).password("right").start();
    for (password, word) in [(None, "NOAUTH"), (Some("wrong"), "WRONGPASS")] {
        let mut builder = Client::builder().seed(cluster.node(0).addr().to_string());
        if let Some(password) = password {
            builder = builder.password(password);
        }
        let reasons = reasons(builder.connect().unwrap_err());
        assert!(reasons[0].contains(word), "{reasons:?}");
        assert!(!reasons[0].contains("wrong "), "{reasons:?}");
    }
    let builder = Client::builder().seed(cluster.node(0).addr().to_string());
    let client = builder.password("right").connect().unwrap();
    client.set("bar", "1").unwrap();
}

#[test]
fn a_lazy_client_waits_with_its_first_command() {
    let cluster = FakeCluster::start(2);
    let gate = cluster.on("CLUSTER SLOTS").times(1).hold();
    let builder = Client::builder().seed(cluster.node(0).addr().to_string());
    let connecting = std::thread::spawn(move || builder.lazy(true).connect().unwrap());
    gate.wait_arrived(1);
    gate.release();
    let client = connecting.join().unwrap();
    assert_eq!(
        cluster.node(1).opened(),
        0,
        "no node is dialled before it is needed"
    );
    client.set("foo", "1").unwrap();
    assert_eq!(cluster.node(1).opened(), 1);
    assert!(client.stats().nodes.contains_key(&addr(&cluster, 1)));
}

#[test]
fn closing_while_connecting_ends_everything() {
    let cluster = FakeCluster::start(2);
    cluster.node(1).set_accept(Accept::Silent);
    let seed = cluster.node(0).addr().to_string();
    let builder = Client::builder()
        .seed(seed)
        .connect_timeout(Duration::from_millis(200));
    let client = builder.connect().unwrap();
    let waiting = client
        .send::<Option<String>>(crate::clients::get("foo"))
        .unwrap();
    client.close(Duration::from_millis(50)).unwrap();
    let error = waiting.wait().unwrap_err();
    assert!(matches!(error, Error::Closed(_)), "{error}");
    cluster.nodes().iter().for_each(|node| node.wait_open(0));
    assert!(matches!(client.set("bar", "1"), Err(Error::Closed(_))));
}
