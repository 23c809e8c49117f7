//! Self tests of the scripted cluster: what a script says is what the wire shows.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::fake::{
    Accept, FakeCluster, Fields, Format, Host, Script, Topology, key_for_slot, keys_in, resp,
    slot_of,
};
use crate::local_cluster::{Reply, Wire, encode};

fn connect(cluster: &FakeCluster, node: usize) -> Wire {
    Wire::connect(cluster.node(node).addr()).expect("the node listens")
}

fn connect3(cluster: &FakeCluster, node: usize) -> Wire {
    let mut wire = connect(cluster, node);
    let hello = wire.call(&["HELLO", "3"]).expect("an answer");
    assert_eq!(hello.items()[5], Reply::Int(3));
    wire
}

/// Whether the server has closed the connection.
fn is_closed(wire: &mut Wire) -> bool {
    let closed = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
    wire.read().is_err_and(|e| closed.contains(&e.kind()))
}

#[test]
fn slots_of_keys() {
    for (key, slot) in [
        ("bar", 5061),
        ("b", 3300),
        ("foo", 12182),
        ("a", 15495),
        ("{}foo", 9500),
        ("{bar}x", 5061),
        ("123456789", 12739),
    ] {
        assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
    }
    assert_eq!(slot_of(key_for_slot(16383).as_bytes()), 16383);
    let slots = keys_in(10..=19, 5);
    let slots: Vec<u16> = slots.iter().map(|key| slot_of(key.as_bytes())).collect();
    assert_eq!(slots, [10, 12, 14, 16, 18]);
}

#[test]
fn holds_a_command_and_sees_what_comes_behind() {
    let cluster = FakeCluster::start(1);
    let gate = cluster.node(0).hold("INCR", "bar");
    let mut wire = connect(&cluster, 0);
    for command in [["INCR", "bar"], ["INCR", "b"], ["INCR", "bar"]] {
        wire.send(&command).unwrap();
    }
    gate.wait_arrived(1);
    cluster.log().on(0).commands("INCR").wait_for(3);
    assert_eq!(cluster.log().executed().count(), 0);
    gate.release_some(1);
    assert_eq!(wire.read().unwrap(), Reply::Int(1));
    assert_eq!(wire.read().unwrap(), Reply::Int(1));
    gate.wait_arrived(2);
    gate.release();
    assert_eq!(wire.read().unwrap(), Reply::Int(2));
    assert_eq!(cluster.executions("bar"), 2);
}

#[test]
fn holds_a_reply_after_the_command_ran() {
    let cluster = FakeCluster::start(1);
    let gate = cluster.on("INCR").times(1).hold_reply();
    let mut wire = connect(&cluster, 0);
    wire.send(&["INCR", "bar"]).unwrap();
    cluster.log().executed().wait_for(1);
    gate.wait_arrived(1);
    drop(gate);
    assert_eq!(wire.read().unwrap(), Reply::Int(1));
}

#[test]
fn what_was_read_does_not_run_after_a_kill() {
    let cluster = FakeCluster::start(2);
    let node = cluster.node(0);
    let gate = node.on("INCR").hold();
    let mut wire = connect(&cluster, 0);
    for _ in 0..3 {
        wire.send(&["INCR", "bar"]).unwrap();
    }
    cluster.log().commands("INCR").wait_for(3);
    gate.wait_arrived(1);
    node.kill();
    gate.release();
    assert!(is_closed(&mut wire));
    assert!(TcpStream::connect(node.addr()).is_err());
    assert!(node.connections().is_empty());

    node.listen();
    let mut wire = connect(&cluster, 0);
    assert_eq!(wire.call(&["INCR", "bar"]).unwrap(), Reply::Int(1));
    assert_eq!((node.opened(), cluster.executions("bar")), (2, 1));
}

#[test]
fn what_was_read_runs_after_the_client_left() {
    let cluster = FakeCluster::start(1);
    let gate = cluster.on("INCR").hold();
    let mut wire = connect(&cluster, 0);
    wire.send(&["INCR", "bar"]).unwrap();
    gate.wait_arrived(1);
    drop(wire);
    cluster.node(0).wait_open(0);
    gate.release();
    cluster.log().executed().wait_for(1);
}

#[test]
fn a_blocked_client_that_left_takes_nothing() {
    let cluster = FakeCluster::start(1);
    let mut wire = connect(&cluster, 0);
    wire.send(&["BLPOP", "bar", "0"]).unwrap();
    cluster.log().commands("BLPOP").wait_for(1);
    drop(wire);
    cluster.node(0).wait_open(0);
    let mut wire = connect(&cluster, 0);
    assert_eq!(wire.call(&["RPUSH", "bar", "x"]).unwrap(), Reply::Int(1));
    let rest = wire.call(&["LRANGE", "bar", "0", "-1"]).unwrap();
    assert_eq!(rest.items().len(), 1);
}

#[test]
fn rules_apply_in_order_and_by_number() {
    let cluster = FakeCluster::start(2);
    let node = cluster.node(0);
    let first = node.on("GET").key("bar").times(2).error("LOADING wait");
    node.on("GET").nth(4).reply(resp::bulk("fourth"));
    node.on("GET").after(4).times(1).moved(5061, 1);
    let mut wire = connect(&cluster, 0);
    let mut get = || wire.call(&["GET", "bar"]).unwrap();
    let moved = Reply::Error(format!("MOVED 5061 {}", cluster.node(1).addr()));
    let loading = Reply::Error("LOADING wait".into());
    assert_eq!((get(), get()), (loading.clone(), loading));
    assert_eq!((get(), get()), (Reply::Nil, Reply::bulk("fourth")));
    assert_eq!(get(), moved);
    assert_eq!((get(), first.hits()), (Reply::Nil, 2));
    let rule = node.on_any().ignore();
    rule.remove();
    assert_eq!(get(), Reply::Nil);
}

#[test]
fn a_scripted_refusal_spoils_the_transaction() {
    let cluster = FakeCluster::start(2);
    cluster.node(0).on("SET").times(1).moved(5061, 1);
    let mut wire = connect(&cluster, 0);
    let mut say = |words: &[&str]| wire.call(words).unwrap();
    assert!(say(&["MULTI"]).is_ok());
    assert!(say(&["SET", "bar", "1"]).text().starts_with("MOVED"));
    assert_eq!(say(&["GET", "bar"]).text(), "QUEUED");
    assert!(say(&["EXEC"]).text().starts_with("EXECABORT"));
    assert_eq!(say(&["GET", "bar"]), Reply::Nil);
}

#[test]
fn closes_before_and_after_running_and_answering() {
    let cluster = FakeCluster::start(1);
    let node = cluster.node(0);
    node.on("INCR").key("bar").close();
    node.on("INCR").key("b").run_and_close();
    node.on("INCR").answer_and_close();
    let close = |key, answered: bool| {
        let mut wire = connect(&cluster, 0);
        wire.send(&["INCR", key]).unwrap();
        assert!(!answered || wire.read().unwrap() == Reply::Int(1));
        assert!(is_closed(&mut wire), "{key}");
    };
    close("bar", false);
    close("b", false);
    close("foo", true);
    let ran = cluster.log().executed().texts();
    assert_eq!(ran, ["INCR b", "INCR foo"]);
}

#[test]
fn closes_within_a_command() {
    let cluster = FakeCluster::start(1);
    let big = vec![b'x'; 1 << 20];
    let command = encode(&[b"SET", b"bar".as_slice(), &big]);
    cluster.node(0).close_after_bytes(command.len() / 2);
    let mut wire = connect(&cluster, 0);
    // Fails or not, depending on when the close is seen.
    let _ = wire.send_raw(&command);
    assert!(is_closed(&mut wire));
    cluster.node(0).read_on();
    let mut wire = connect(&cluster, 0);
    assert!(
        wire.call(&[b"SET", b"bar".as_slice(), &big])
            .unwrap()
            .is_ok()
    );
    assert_eq!(cluster.executions("bar"), 1);
}

#[test]
fn stops_reading_until_buffers_are_full() {
    let cluster = FakeCluster::start(1);
    let mut wire = connect(&cluster, 0);
    assert_eq!(wire.call(&["PING"]).unwrap().text(), "PONG");
    cluster.node(0).stop_reading();
    wire.set_timeout(Duration::from_millis(100)).unwrap();
    let command = encode(&[b"SET", b"bar".as_slice(), &vec![b'x'; 32 << 20]]);
    assert!(wire.send_raw(&command).is_err());
    assert_eq!(cluster.log().commands("SET").count(), 0);
    cluster.node(0).resume_reading();
    // The rest was never sent, so the command stays incomplete.
    drop(wire);
    cluster.node(0).wait_open(0);

    cluster
        .on("PING")
        .script(Script::new().run().send().stop_reading());
    let mut wire = connect(&cluster, 0);
    wire.call(&["PING"]).unwrap();
    wire.set_timeout(Duration::from_millis(50)).unwrap();
    assert!(wire.call(&["GET", "bar"]).is_err());
    cluster.node(0).resume_reading();
    wire.set_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(wire.read().unwrap(), Reply::Nil);
}

#[test]
fn accepts_in_different_ways() {
    let cluster = FakeCluster::start(1);
    let node = cluster.node(0);
    node.set_accept(Accept::CloseAtOnce);
    assert!(is_closed(&mut connect(&cluster, 0)));
    node.set_accept(Accept::Silent);
    let mut wire = connect(&cluster, 0);
    wire.set_timeout(Duration::from_millis(50)).unwrap();
    assert!(wire.call(&["PING"]).is_err());
    assert_eq!(cluster.log().commands("PING").count(), 1);
    node.set_accept(Accept::Serve);
    node.stop_listening();
    assert!(TcpStream::connect(node.addr()).is_err());
    assert_eq!(node.connections().len(), 1);
    node.listen();
    assert!(connect(&cluster, 0).call(&["PING"]).is_ok());
}

#[test]
fn pushes_never_land_inside_a_reply() {
    let cluster = FakeCluster::start(1);
    let node = cluster.node(0);
    node.on("GET").in_pieces(1);
    let mut wire = connect3(&cluster, 0);
    wire.call(&["SET", "bar", &"x".repeat(1000)]).unwrap();
    let push = resp::push(&[resp::bulk("invalidate"), resp::null(3)]);
    let mut pushes = 0;
    thread::scope(|scope| {
        scope.spawn(|| (0..200).for_each(|_| node.push(&push)));
        for _ in 0..20 {
            wire.send(&["GET", "bar"]).unwrap();
            let reply = loop {
                match wire.read().unwrap() {
                    Reply::Push(_) => pushes += 1,
                    reply => break reply,
                }
            };
            assert_eq!(reply.text().len(), 1000);
        }
    });
    while pushes < 200 {
        assert!(matches!(wire.read().unwrap(), Reply::Push(_)));
        pushes += 1;
    }
}

#[test]
fn a_script_mixes_steps() {
    let cluster = Arc::new(FakeCluster::start(1));
    let script = Script::new()
        .raw(resp::push(&[resp::bulk("first")]))
        .wait(Duration::from_millis(30))
        .compute(|entry| resp::bulk(entry.text(1)))
        .send();
    cluster.on("GET").script(script);
    let mut wire = connect3(&cluster, 0);
    let start = Instant::now();
    wire.send(&["GET", "bar"]).unwrap();
    assert!(matches!(wire.read().unwrap(), Reply::Push(_)));
    assert_eq!(wire.read().unwrap(), Reply::bulk("bar"));
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[test]
fn moves_slots_and_keys() {
    let cluster = FakeCluster::builder(3).owners(2).start();
    cluster.replicate(2, 1);
    let mut wires: Vec<Wire> = (0..3).map(|node| connect(&cluster, node)).collect();
    wires[0].call(&["SET", "bar", "1"]).unwrap();
    cluster.assign(5061..=5061, 1);
    let moved = wires[0].call(&["GET", "bar"]).unwrap();
    assert_eq!(
        moved.text(),
        format!("MOVED 5061 {}", cluster.node(1).addr())
    );
    assert_eq!(wires[1].call(&["GET", "bar"]).unwrap(), Reply::bulk("1"));
    assert!(wires[2].call(&["READONLY"]).unwrap().is_ok());
    assert_eq!(wires[2].call(&["GET", "bar"]).unwrap(), Reply::bulk("1"));

    cluster.promote(2);
    assert_eq!(cluster.topology().replicas(2), [1]);
    assert_eq!(wires[2].call(&["INCR", "bar"]).unwrap(), Reply::Int(2));
    assert!(wires[1].call(&["GET", "bar"]).unwrap().error().is_some());

    cluster.change(|topology| topology.unassign(5061..=5061));
    let down = wires[2].call(&["GET", "bar"]).unwrap();
    assert_eq!(down.error(), Some("CLUSTERDOWN Hash slot not served"));
    let mut stale = Topology::empty();
    stale.assign(0..=16383, 1);
    cluster.set_view(0, stale);
    assert!(
        wires[0]
            .call(&["GET", "bar"])
            .unwrap()
            .text()
            .starts_with("MOVED")
    );
    assert_eq!(
        wires[0].call(&["CLUSTER", "SLOTS"]).unwrap().items().len(),
        1
    );
    cluster.clear_view(0);
    assert_eq!(
        wires[0].call(&["CLUSTER", "SLOTS"]).unwrap().items().len(),
        4 - 1
    );
}

#[test]
fn tells_maps_in_all_shapes() {
    let cluster = FakeCluster::builder(2).owners(1).start();
    cluster.replicate(1, 0);
    let port = cluster.node(0).port();
    let mut wires = [connect(&cluster, 0), connect3(&cluster, 0)];
    for (fields, count) in [
        (Fields::Two, 2),
        (Fields::Three, 3),
        (Fields::Four, 4),
        (Fields::Metadata, 4),
        (Fields::Six, 6),
    ] {
        for (host, text) in [
            (Host::Ip, "127.0.0.1"),
            (Host::Null, ""),
            (Host::Unknown, "?"),
        ] {
            let rotate_replicas = false;
            cluster.set_format(&Format {
                host,
                fields,
                rotate_replicas,
            });
            for wire in &mut wires {
                let slots = wire.call(&["CLUSTER", "SLOTS"]).unwrap();
                let range = slots.items()[0].items();
                assert_eq!((range.len(), range[1].clone()), (4, Reply::Int(16383)));
                let node = range[2].items();
                assert_eq!((node.len(), node[0].text()), (count, text.into()));
                assert_eq!(node[1], Reply::Int(port.into()));
            }
        }
    }
    let moved = connect(&cluster, 1).call(&["GET", "bar"]).unwrap();
    assert_eq!(moved.text(), format!("MOVED 5061 ?:{port}"));
}

#[test]
fn serves_special_builds() {
    let cluster = FakeCluster::builder(1).resp2_only().ipv6().start();
    let addr = format!("[::1]:{}", cluster.node(0).port());
    let mut wire = Wire::connect(addr.parse().unwrap()).unwrap();
    assert!(wire.call(&["HELLO", "3"]).unwrap().error().is_some());
    assert_eq!(wire.call(&["GET", "bar"]).unwrap(), Reply::Nil);

    let cluster = FakeCluster::builder(1).password("secret").start();
    let mut wire = connect(&cluster, 0);
    let mut code = |words: &[&str]| {
        let text = wire.call(words).unwrap().text();
        text.split(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!(code(&["GET", "bar"]), "NOAUTH");
    assert_eq!(code(&["HELLO", "3"]), "NOAUTH");
    assert_eq!(code(&["AUTH", "wrong"]), "WRONGPASS");
    assert_eq!(
        code(&["HELLO", "2", "AUTH", "default", "wrong"]),
        "WRONGPASS"
    );
    assert_eq!(code(&["HELLO", "2", "AUTH", "default", "secret"]), "");
    assert_eq!(code(&["SET", "bar", "1"]), "OK");
    wire.send_raw(b"no command\r\n").unwrap();
    assert!(wire.read().unwrap().error().is_some());
    assert!(is_closed(&mut wire));
}

#[test]
fn blocked_pop_ends_when_the_slot_leaves() {
    let cluster = FakeCluster::start(2);
    let mut wire = connect(&cluster, 0);
    wire.send(&["BLPOP", "bar", "0"]).unwrap();
    cluster.log().commands("BLPOP").wait_for(1);
    cluster.assign(5061..=5061, 1);
    assert!(wire.read().unwrap().text().starts_with("MOVED 5061"));

    let mut other = connect(&cluster, 1);
    wire = connect(&cluster, 1);
    wire.send(&["BLPOP", "bar", "5"]).unwrap();
    other.call(&["RPUSH", "bar", "1"]).unwrap();
    assert_eq!(wire.read().unwrap().items()[1], Reply::bulk("1"));
}

#[test]
fn many_connections_at_once() {
    let cluster = FakeCluster::start(2);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut wire = connect(&cluster, 0);
                (0..50).for_each(|_| wire.send(&["INCR", "bar"]).unwrap());
                (0..50).for_each(|_| assert!(matches!(wire.read(), Ok(Reply::Int(_)))));
            });
        }
    });
    assert_eq!(cluster.executions("bar"), 800);
    let log = cluster.log().data();
    assert_eq!(log.count(), 800);
    assert!(
        log.list()
            .iter()
            .enumerate()
            .all(|(place, entry)| entry.seq == place)
    );
    cluster.node(0).wait_open(0);
}
