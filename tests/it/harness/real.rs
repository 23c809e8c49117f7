//! Self tests of the real cluster harness.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::local_cluster::{LocalCluster, Reply, ServerKind, poll_until};

/// The slot of `bar`, in the first third.
const BAR: u16 = 5061;

#[test]
fn starts_and_tells_about_itself() {
    let cluster = LocalCluster::builder().primaries(3).replicas(1).start();
    assert_eq!(cluster.len(), 6);
    assert_eq!(cluster.primary_of(BAR), 0);
    assert_eq!(cluster.primary_of(16383), 2);
    assert_eq!(cluster.replicas_of(1), [4]);
    assert!(cluster.is_primary(1) && !cluster.is_primary(4));
    assert_eq!(cluster.url().matches("127.0.0.1:").count(), 6);
    assert!(cluster.server_version() >= (7, 0, 0));

    cluster.reset_stats();
    let moved = cluster.command(1, &["GET", "bar"]);
    let expected = format!("MOVED {BAR} {}", cluster.addr(0));
    assert_eq!(moved.error(), Some(expected.as_str()));
    assert_eq!(cluster.errorstats(1)["MOVED"], 1);
    assert!(cluster.command(0, &["SET", "bar", "1"]).is_ok());
    assert_eq!(cluster.commandstats(0)["set"], 1);
}

#[test]
fn moves_a_slot_there_and_back() {
    let cluster = LocalCluster::builder().primaries(3).start();
    for number in 0..250 {
        let key = format!("{{bar}}{number}");
        assert!(cluster.command(0, &["SET", &key, "value"]).is_ok());
    }
    for _ in 0..3 {
        cluster.move_slot(BAR, 0, 1);
        assert_eq!(cluster.primary_of(BAR), 1);
        cluster.move_slot(BAR, 1, 0);
        assert_eq!(cluster.primary_of(BAR), 0);
    }
    let count = cluster.command(0, &["CLUSTER", "COUNTKEYSINSLOT", "5061"]);
    assert_eq!(count, Reply::Int(250));
}

#[test]
fn stops_in_the_middle_of_a_move() {
    let cluster = LocalCluster::builder().primaries(3).start();
    cluster.command(0, &["MSET", "a{bar}", "1", "b{bar}", "2"]);
    let moving = cluster.begin_move(BAR, 0, 2);
    moving.migrate_keys(&["a{bar}"]);
    let ask = format!("ASK {BAR} {}", cluster.addr(2));
    assert_eq!(
        cluster.command(0, &["GET", "a{bar}"]).error(),
        Some(ask.as_str())
    );
    assert_eq!(cluster.command(0, &["GET", "b{bar}"]), Reply::bulk("2"));
    let both = cluster.command(0, &["MGET", "a{bar}", "b{bar}"]);
    assert!(both.text().starts_with("TRYAGAIN"), "{both:?}");
    moving.migrate_all();
    moving.finish();
    assert_eq!(cluster.command(2, &["GET", "b{bar}"]), Reply::bulk("2"));
}

#[test]
fn moves_slots_at_once_where_the_server_can() {
    let cluster = LocalCluster::builder().primaries(2).start();
    if !cluster.supports_atomic_migration() {
        let old = cluster.server_version() < (9, 0, 0);
        assert!(old || cluster.server_kind() == ServerKind::Redis);
        return;
    }
    cluster.command(0, &["SET", "bar", "1"]);
    cluster.move_slot_atomic(5000..=5100, 0, 1);
    assert_eq!(cluster.primary_of(BAR), 1);
    assert_eq!(cluster.command(1, &["GET", "bar"]), Reply::bulk("1"));
    cluster.move_slot_atomic(5000..=5100, 1, 0);
    assert_eq!(cluster.primary_of(BAR), 0);
}

#[test]
fn breaks_and_mends_nodes() {
    let cluster = LocalCluster::builder().primaries(3).replicas(1).start();
    cluster.command(0, &["SET", "bar", "1"]);
    cluster.command(0, &["WAIT", "1", "1000"]);

    cluster.failover(3);
    assert_eq!(cluster.primary_of(BAR), 3);
    cluster.wait_ready();

    cluster.kill(3);
    assert_eq!(cluster.running(), [0, 1, 2, 4, 5]);
    assert!(cluster.try_command(3, &["PING"]).is_err());
    cluster.wait_promoted(0);
    assert_eq!(cluster.command(0, &["GET", "bar"]), Reply::bulk("1"));

    cluster.restart(3);
    cluster.wait_ready();
    assert_eq!(cluster.replicas_of(0), [3]);

    cluster.pause(1);
    let mut wire = cluster.connect(1).expect("the kernel still accepts");
    wire.set_timeout(Duration::from_millis(50)).unwrap();
    assert!(wire.call(&["PING"]).is_err());
    cluster.wait_promoted(4);
    cluster.resume(1);
    cluster.wait_ready();
    assert!(!cluster.is_primary(1));
}

#[test]
fn starts_with_options() {
    let builder = LocalCluster::builder().primaries(2).replicas(1).spares(1);
    let builder = builder.password("secret").full_coverage(false);
    let cluster = builder.config("maxmemory 50mb").start();
    let maximum = cluster.command(4, &["CONFIG", "GET", "maxmemory"]);
    assert_eq!(maximum.items()[1].text(), "52428800");
    cluster.command(0, &["SET", "bar", "1"]);
    cluster.move_slot(BAR, 0, 4);
    assert_eq!(cluster.primary_of(BAR), 4);
    assert_eq!(cluster.command(4, &["GET", "bar"]), Reply::bulk("1"));
}

#[test]
fn leaves_only_logs_after_a_panic() {
    let cluster = LocalCluster::builder().primaries(1).start();
    let (addr, folder) = (cluster.addr(0), cluster.folder().to_owned());
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _cluster = cluster;
        panic!("on purpose");
    }));
    assert!(result.is_err());
    assert!(TcpStream::connect(addr).is_err());
    let files: Vec<_> = folder.join("node-0").read_dir().unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Runs the next test in a process of its own and kills that process.
#[test]
fn servers_die_with_the_test_process() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "harness::real::is_killed", "--nocapture"])
        .env("RESLOT_TEST_WAIT_TO_BE_KILLED", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).find_map(|line| {
        Some(line.split_once("running ")?.1.to_owned()).filter(|t| t.contains('/'))
    });
    child.kill().unwrap();
    child.wait().unwrap();

    let told = told.expect("the child tells its address and folder");
    let (addr, folder) = told.split_once(' ').unwrap();
    let addr: SocketAddr = addr.parse().unwrap();
    poll_until(Duration::from_secs(5), "the server to be gone", || {
        let open = TcpStream::connect(addr).is_ok();
        let exists = std::fs::exists(folder).unwrap();
        (!open && !exists)
            .then_some(())
            .ok_or(format!("{open} {exists}"))
    });
}

#[test]
fn is_killed() {
    if std::env::var_os("RESLOT_TEST_WAIT_TO_BE_KILLED").is_none() {
        return;
    }
    let cluster = LocalCluster::builder().primaries(1).start();
    println!("running {} {}", cluster.addr(0), cluster.folder().display());
    // Ends only when the parent closes the pipe, which it does by ending itself.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
