//! Deadlines while maintenance is announced: longer for whoever waits, never shorter, not for ever.

use std::time::Duration;

use reslot::{Certainty, Client, Error, Reason, Value, cmd};

use super::announce::{
    announce, builder, connect, eventually, pass, plain, smigrated, smigrating, timed,
};
use crate::fake::{FakeCluster, Gate, Script, key_for_slot};

const CONFIGURED: Duration = Duration::from_millis(300);
const RELAXED: Duration = Duration::from_millis(1500);

/// A client of a cluster of two, whose first node never answers a GET.
fn silent() -> (FakeCluster, Client) {
    let cluster = FakeCluster::start(2);
    cluster.node(0).on("GET").ignore();
    let client = builder(&cluster)
        .response_timeout(CONFIGURED)
        .relaxed_timeout(RELAXED)
        .retry_reads(false)
        .connect()
        .unwrap();
    (cluster, client)
}

fn get(client: &Client) -> Result<Option<String>, Error> {
    client.get(key_for_slot(1))
}

#[track_caller]
fn times_out_after(client: &Client, least: Duration, reason: Reason) {
    let key = key_for_slot(1);
    let (result, time) = timed(|| client.get::<Option<String>>(key));
    let error = result.unwrap_err();
    assert_eq!(error.failure().unwrap().reason(), reason);
    assert!(error.is_timeout());
    assert_eq!(error.certainty(), Certainty::Unknown);
    // Nobody is late because of a longer time than this; a busy machine may be.
    let most = least + Duration::from_secs(6);
    assert!(least <= time && time < most, "{time:?}");
}

#[test]
fn a_silent_server_has_longer_while_it_announced_so() {
    let (cluster, client) = silent();
    times_out_after(&client, CONFIGURED, Reason::Timeout);
    let ends: [(Vec<u8>, Vec<u8>); 3] = [
        (smigrating(1, "1-5"), smigrated(&cluster, 1, &[])),
        (plain("MIGRATING", 1), plain("MIGRATED", 1)),
        (plain("FAILING_OVER", 2), plain("FAILED_OVER", 3)),
    ];
    for (begin, end) in ends {
        announce(&cluster, &client, 0, &begin);
        times_out_after(&client, RELAXED, Reason::MaintenanceTimeout);
        announce(&cluster, &client, 0, &end);
        times_out_after(&client, CONFIGURED, Reason::Timeout);
    }
}

#[test]
fn a_caller_that_waits_already_gets_longer() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster)
        .response_timeout(CONFIGURED)
        .relaxed_timeout(Duration::from_secs(10))
        .connect()
        .unwrap();
    let key = key_for_slot(1);
    client.set(&key, "x").unwrap();
    let gate = cluster.node(0).hold("GET", &key);
    std::thread::scope(|scope| {
        let single = scope.spawn(|| get(&client));
        let pending = client.send::<Option<String>>(cmd("GET").arg(&key)).unwrap();
        let pipeline = scope.spawn(|| {
            let mut pipeline = client.pipeline();
            pipeline.add(cmd("GET").arg(&key));
            pipeline.query::<(String,)>()
        });
        cluster.log().commands("GET").wait_for(3);
        announce(&cluster, &client, 0, &smigrating(1, "1"));
        pass(2 * CONFIGURED);
        let pending = pending.wait_timeout(CONFIGURED).unwrap_err();
        gate.release();
        assert_eq!(single.join().unwrap().unwrap().as_deref(), Some("x"));
        assert_eq!(pipeline.join().unwrap().unwrap().0, "x");
        assert_eq!(pending.wait().unwrap().as_deref(), Some("x"));
    });
}

#[test]
fn a_queued_command_has_longer_too() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster)
        .response_timeout(CONFIGURED)
        .relaxed_timeout(Duration::from_secs(10))
        .connect()
        .unwrap();
    let stuck = format!("{{{}}}stuck", key_for_slot(2));
    cluster.node(0).stop_reading();
    std::thread::scope(|scope| {
        let large = scope.spawn(|| client.set(&stuck, vec![b'x'; 40 << 20]));
        eventually("the first bytes to leave", || {
            client.stats().total(|node| node.bytes_out) > 1 << 16
        });
        let queued = client
            .send::<i64>(cmd("INCR").arg(key_for_slot(1)))
            .unwrap();
        announce(&cluster, &client, 0, &smigrating(1, "1"));
        pass(2 * CONFIGURED);
        cluster.node(0).resume_reading();
        large.join().unwrap().unwrap();
        assert_eq!(queued.wait().unwrap(), 1);
    });
}

#[test]
fn calls_on_connections_of_their_own_have_longer_too() {
    for announced in [true, false] {
        let cluster = FakeCluster::start(2);
        let client = builder(&cluster)
            .response_timeout(CONFIGURED)
            .relaxed_timeout(Duration::from_secs(10))
            .connect()
            .unwrap();
        let key = key_for_slot(1);
        let gates = ["BLPOP", "EXEC"].map(|name| cluster.node(0).on(name).hold());
        if announced {
            announce(&cluster, &client, 0, &smigrating(1, "1"));
        }
        let blpop = || cmd("BLPOP").arg(format!("{{{key}}}list")).arg("0.01");
        let (blocked, impatient, watched) = std::thread::scope(|scope| {
            let blocked = scope.spawn(|| client.query::<Value>(blpop()));
            let impatient = scope.spawn(|| client.query::<Value>(blpop().timeout(CONFIGURED)));
            let watched = scope.spawn(|| {
                client.watch(&[&key], |session| {
                    session.transaction::<(i64,)>(|t| {
                        t.add(cmd("INCR").arg(&key));
                    })
                })
            });
            if announced {
                gates[0].wait_arrived(2);
                gates[1].wait_arrived(1);
                pass(3 * CONFIGURED);
                gates.iter().for_each(Gate::release);
            }
            let calls = (blocked.join(), impatient.join(), watched.join());
            (calls.0.unwrap(), calls.1.unwrap(), calls.2.unwrap())
        });
        if announced {
            assert_eq!(blocked, Ok(Value::Null));
            assert_eq!(impatient, Ok(Value::Null));
            assert_eq!(watched, Ok((1,)));
        } else {
            for error in [blocked.err(), impatient.err(), watched.err()] {
                let error = error.unwrap();
                assert_eq!(error.failure().unwrap().reason(), Reason::Timeout);
            }
        }
    }
}

#[test]
fn the_longer_time_of_a_connection_of_its_own_ends_too() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster)
        .response_timeout(CONFIGURED)
        .relaxed_timeout(RELAXED)
        .connect()
        .unwrap();
    cluster.node(0).on("BLPOP").ignore();
    announce(&cluster, &client, 0, &plain("FAILING_OVER", 1));
    let key = key_for_slot(1);
    let (result, time) = timed(|| client.query::<Value>(cmd("BLPOP").arg(key).arg("0.01")));
    let error = result.unwrap_err();
    let reason = error.failure().unwrap().reason();
    assert_eq!(reason, Reason::MaintenanceTimeout);
    assert_eq!(error.certainty(), Certainty::Unknown);
    assert!(time >= RELAXED, "{time:?}");
}

#[test]
fn who_waits_for_room_has_longer_too() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster)
        .response_timeout(CONFIGURED)
        .relaxed_timeout(Duration::from_secs(10))
        .queue_commands(1)
        .connect()
        .unwrap();
    let incr = || cmd("INCR").arg(key_for_slot(1));
    let gate = cluster.node(0).on("INCR").times(1).hold();
    let first = client.send::<i64>(incr().timeout(None)).unwrap();
    gate.wait_arrived(1);
    let error = client.query::<i64>(incr()).unwrap_err();
    assert_eq!(error.failure().unwrap().reason(), Reason::QueueFull);
    std::thread::scope(|scope| {
        announce(&cluster, &client, 0, &smigrating(1, "1"));
        let second = scope.spawn(|| client.query::<i64>(incr()));
        pass(2 * CONFIGURED);
        assert!(!second.is_finished());
        gate.release();
        assert_eq!(first.wait(), Ok(1));
        assert_eq!(second.join().unwrap(), Ok(2));
    });
}

#[test]
fn a_longer_time_is_not_made_shorter() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster)
        .response_timeout(2 * CONFIGURED)
        .relaxed_timeout(Duration::from_millis(50))
        .connect()
        .unwrap();
    let gate = cluster.node(0).on("GET").hold();
    announce(&cluster, &client, 0, &smigrating(1, "1"));
    let key = key_for_slot(1);
    let (result, time) = timed(|| client.get::<Option<String>>(key));
    let error = result.unwrap_err();
    assert_eq!(
        error.failure().unwrap().reason(),
        Reason::MaintenanceTimeout
    );
    assert!(time >= 2 * CONFIGURED, "{time:?}");
    let unlimited = cmd("GET").arg(key_for_slot(1)).timeout(None);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.query::<Option<String>>(unlimited));
        pass(3 * CONFIGURED);
        assert!(!waiting.is_finished());
        gate.release();
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn an_end_with_the_same_number_is_no_copy_of_the_beginning() {
    let (cluster, client) = silent();
    announce(&cluster, &client, 0, &smigrating(7, "1"));
    announce(&cluster, &client, 0, &smigrated(&cluster, 7, &[]));
    times_out_after(&client, CONFIGURED, Reason::Timeout);
}

#[test]
fn a_beginning_that_comes_after_its_end_does_not_count() {
    let (cluster, client) = silent();
    announce(&cluster, &client, 0, &smigrated(&cluster, 7, &[]));
    announce(&cluster, &client, 0, &smigrating(6, "1"));
    times_out_after(&client, CONFIGURED, Reason::Timeout);
    announce(&cluster, &client, 0, &smigrating(8, "1"));
    times_out_after(&client, RELAXED, Reason::MaintenanceTimeout);
}

#[test]
fn overlapping_windows_have_their_own_ends() {
    let (cluster, client) = silent();
    announce(&cluster, &client, 0, &smigrating(1, "1"));
    announce(&cluster, &client, 0, &plain("FAILING_OVER", 2));
    announce(&cluster, &client, 0, &smigrated(&cluster, 1, &[]));
    times_out_after(&client, RELAXED, Reason::MaintenanceTimeout);
    announce(&cluster, &client, 0, &plain("FAILED_OVER", 2));
    times_out_after(&client, CONFIGURED, Reason::Timeout);
}

#[test]
fn other_nodes_are_not_concerned() {
    let (cluster, client) = silent();
    announce(&cluster, &client, 1, &plain("FAILING_OVER", 1));
    times_out_after(&client, CONFIGURED, Reason::Timeout);
}

#[test]
fn an_end_that_is_not_understood_is_an_end() {
    let (cluster, client) = silent();
    announce(&cluster, &client, 0, &smigrating(1, "1"));
    announce(
        &cluster,
        &client,
        0,
        &smigrated(&cluster, 2, &[(0, 1, "99999")]),
    );
    times_out_after(&client, CONFIGURED, Reason::Timeout);
}

#[test]
fn a_connection_made_during_a_migration_is_relaxed_at_once() {
    let before = Script::new().raw(smigrating(1, "1")).run().send();
    let after = Script::new().run().send().raw(smigrating(1, "1"));
    for script in [before, after] {
        let cluster = FakeCluster::start(2);
        cluster.node(0).on("GET").ignore();
        cluster
            .node(0)
            .on("CLIENT MAINT_NOTIFICATIONS")
            .script(script);
        let client = builder(&cluster)
            .response_timeout(CONFIGURED)
            .relaxed_timeout(RELAXED)
            .connect()
            .unwrap();
        times_out_after(&client, RELAXED, Reason::MaintenanceTimeout);
    }
}

#[test]
fn a_transaction_half_written_at_the_deadline_is_not_torn() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster)
        .response_timeout(Duration::from_millis(100))
        .relaxed_timeout(Duration::from_millis(200))
        .connect()
        .unwrap();
    let key = key_for_slot(1);
    cluster.node(0).stop_reading();
    std::thread::scope(|scope| {
        let large = scope.spawn(|| {
            client.transaction::<(reslot::Value, i64)>(|t| {
                t.add(
                    cmd("SET")
                        .arg(format!("{{{key}}}a"))
                        .arg(vec![b'x'; 40 << 20]),
                );
                t.add(cmd("INCR").arg(format!("{{{key}}}b")));
            })
        });
        announce(&cluster, &client, 0, &smigrating(1, "1"));
        let error = large.join().unwrap().unwrap_err();
        assert_eq!(
            error.failure().unwrap().reason(),
            Reason::MaintenanceTimeout
        );
        pass(Duration::from_millis(400));
    });
    cluster.node(0).resume_reading();
    let other = cmd("INCR")
        .arg(format!("{{{key}}}c"))
        .timeout(Duration::from_secs(20));
    assert_eq!(client.query::<i64>(other).unwrap(), 1);
    let seen = cluster.log().on(0).data().list();
    let names: Vec<String> = seen.iter().map(|entry| entry.name()).collect();
    assert_eq!(names, ["MULTI", "SET", "INCR", "EXEC", "INCR"]);
}

#[test]
fn the_default_is_ten_seconds() {
    let cluster = FakeCluster::start(1);
    cluster.on("GET").delay(Duration::from_millis(6500));
    let client = connect(&cluster);
    announce(&cluster, &client, 0, &plain("MIGRATING", 1));
    assert_eq!(get(&client).unwrap(), None);
}

#[test]
fn a_longer_time_of_one_command_of_a_session_is_none_of_the_next() {
    let cluster = FakeCluster::start(2);
    let client = builder(&cluster)
        .response_timeout(Duration::from_secs(30))
        .relaxed_timeout(Duration::from_secs(10))
        .connect()
        .unwrap();
    let key = key_for_slot(1);
    let first = cluster.node(0).on("GET").times(1).hold();
    cluster.node(0).on("GET").ignore();
    announce(&cluster, &client, 0, &smigrating(1, "1"));
    let get = || cmd("GET").arg(&key).timeout(CONFIGURED);
    std::thread::scope(|scope| {
        let session = scope.spawn(|| {
            client.watch(&[&key], |session| {
                let _: Value = session.query(get())?;
                announce(&cluster, &client, 0, &smigrated(&cluster, 1, &[]));
                session.query::<Value>(get())
            })
        });
        first.wait_arrived(1);
        pass(3 * CONFIGURED);
        first.release();
        let error = session.join().unwrap().unwrap_err();
        assert_eq!(error.failure().unwrap().reason(), Reason::Timeout);
    });
}
