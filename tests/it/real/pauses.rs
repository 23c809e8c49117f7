//! A node that is there and does not answer: `SIGSTOP`.

use std::time::{Duration, Instant};

use reslot::{Cancelled, Certainty, Reason, Value, cmd};

use super::clusters::{SOON, client, key_in, patient, slot_of};

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a_timed_out_write_runs_at_most_once() {
    let cluster = patient();
    let client = client(&cluster);
    let (key, other) = (
        key_in(slot_of(0, 0), "once"),
        key_in(slot_of(0, 1), "other"),
    );
    client.set(&key, 0).unwrap();
    client.set(&other, "mine").unwrap();
    for round in 1..=3 {
        cluster.pause(0);
        let begun = Instant::now();
        let error = client
            .query::<i64>(cmd("INCR").arg(&key).timeout(SHORT))
            .unwrap_err();
        assert!(begun.elapsed() >= SHORT && begun.elapsed() < SOON);
        assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
        assert_eq!(error.failure().unwrap().reason(), Reason::Timeout);
        // The next one waits for the node, and gets its own reply and not that of INCR.
        let pending = client.send::<String>(cmd("GET").arg(&other)).unwrap();
        let pending = pending.wait_timeout(SHORT).expect_err("the node is frozen");
        cluster.resume(0);
        assert_eq!(pending.wait().unwrap(), "mine");
        assert_eq!(client.get(&other).unwrap(), Some("mine".to_owned()));
        // The frozen server had it in its socket.
        assert_eq!(client.get(&key).unwrap(), Some(round));
    }
    assert_eq!(client.stats().total(|node| node.connects), 3);
}

#[test]
fn one_frozen_node_costs_a_pipeline_only_its_own_results() {
    let cluster = patient();
    let client = client(&cluster);
    let keys: Vec<String> = (0..20)
        .map(|at| key_in(slot_of(at % 3, at), "part"))
        .collect();
    for key in &keys {
        client.set(key, key).unwrap();
    }
    cluster.pause(1);
    let mut pipeline = client.pipeline();
    pipeline.timeout(SHORT);
    for (at, key) in keys.iter().enumerate() {
        // Writes and reads.
        pipeline.add(match at % 2 {
            0 => cmd("GET").arg(key),
            _ => cmd("APPEND").arg((key, "")),
        });
    }
    let begun = Instant::now();
    let results = pipeline.execute().unwrap();
    let took = begun.elapsed();
    cluster.resume(1);
    assert!(took >= SHORT && took < Duration::from_secs(3), "{took:?}");
    for (at, (key, result)) in keys.iter().zip(results).enumerate() {
        let expected = match at % 2 {
            0 => Value::Bulk(key.clone().into_bytes()),
            _ => Value::Integer(key.len() as i64),
        };
        match (at % 3, result) {
            (1, Err(error)) => {
                assert_eq!(
                    error.failure().unwrap().reason(),
                    Reason::Timeout,
                    "{error}"
                );
            }
            (0 | 2, result) => assert_eq!(result, Ok(expected)),
            (_, result) => panic!("{at}: {result:?}"),
        }
    }
    for key in &keys {
        assert_eq!(client.get(key).unwrap().as_ref(), Some(key));
    }
}

#[test]
fn other_nodes_are_as_fast_as_before() {
    let cluster = patient();
    let client = client(&cluster);
    cluster.pause(2);
    let waiting: Vec<_> = (0..1000)
        .map(|at| {
            let command = cmd("SET").arg((key_in(slot_of(2, at % 50), "frozen"), at));
            client.send::<Value>(command).unwrap()
        })
        .collect();
    let begun = Instant::now();
    for at in 0..500 {
        let key = key_in(slot_of(at % 2, at % 50), "free");
        client.query::<()>(cmd("SET").arg((key, at))).unwrap();
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    cluster.resume(2);
    for pending in waiting {
        assert_eq!(pending.wait(), Ok(Value::Ok));
    }
}

#[test]
fn cancelling_and_closing_do_not_wait_for_a_frozen_node() {
    let cluster = patient();
    let client = client(&cluster);
    let (key, big) = (
        key_in(slot_of(0, 0), "cancel"),
        key_in(slot_of(0, 1), "big"),
    );
    client.set(&key, 0).unwrap();
    cluster.pause(0);
    let incr = || {
        client
            .send::<i64>(cmd("INCR").arg(&key).timeout(None))
            .unwrap()
    };
    let written = incr();
    // More than the sockets' buffers hold, so what follows stays in the queue.
    let value = vec![b'x'; 64 << 20];
    let stuck = client
        .send::<Value>(cmd("SET").arg(&big).arg(value))
        .unwrap();
    let queued: Vec<_> = (0..10).map(|_| incr()).collect();
    let begun = Instant::now();
    let answers: Vec<_> = queued.into_iter().map(reslot::Pending::cancel).collect();
    assert_eq!(answers, [Cancelled::NotSent; 10]);
    assert_eq!(written.cancel(), Cancelled::Unknown);
    let closer = client.clone();
    closer.close(SHORT).unwrap();
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(stuck.wait().is_err());
    assert!(matches!(
        client.get::<i64>(&key),
        Err(reslot::Error::Closed(_))
    ));
    cluster.resume(0);
    // At most the one that had been written ran.
    let count = cluster.command(0, &["GET", &key]).text();
    assert!(count == "0" || count == "1", "{count}");
}
