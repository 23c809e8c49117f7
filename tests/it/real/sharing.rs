//! Threads of all kinds that share the connections: each gets its own replies, and nobody waits for
//! one that has come.

use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use reslot::{Client, cmd};

use super::clusters::{calm, client, key_in, slot_of};

const ROUNDS: usize = 300;

/// More commands than a caller needs to write them by itself, on each node.
const BATCH: usize = 90;

/// A thread that waits for ever must not make the test do so, too.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one thread does again and again; `name` is its own.
type Work = fn(&Client, &str, usize);

fn one_at_a_time(client: &Client, name: &str, round: usize) {
    let key = key_in(slot_of((round % 3) as u16, 7), name);
    client.set(&key, round).unwrap();
    assert_eq!(client.get(&key).unwrap(), Some(round));
}

fn pipelines(client: &Client, name: &str, round: usize) {
    let mut pipeline = client.pipeline();
    for at in 0..BATCH {
        pipeline.add(cmd("ECHO").arg(format!("{name} {round} {at}")));
        let key = key_in(slot_of((at % 3) as u16, at as u16), name);
        pipeline.add(cmd("SET").arg((&key, at, "GET")));
    }
    let replies = pipeline.execute().unwrap();
    for (at, reply) in replies.iter().step_by(2).enumerate() {
        let text = format!("{name} {round} {at}");
        assert_eq!(reply, &Ok(reslot::Value::Bulk(text.into_bytes())));
    }
    assert!(replies.iter().all(Result::is_ok));
}

/// Nobody can be asked to read for these until they are waited for.
fn handed_over(client: &Client, name: &str, round: usize) {
    let pending = (0..BATCH).map(|at| {
        let text = format!("{name} {round} {at}");
        (client.send::<String>(cmd("ECHO").arg(&text)).unwrap(), text)
    });
    for (pending, text) in pending.collect::<Vec<_>>() {
        assert_eq!(pending.wait().unwrap(), text);
    }
}

/// Its deadline is too near for reading. It may pass, if the machine is slow.
fn hurried(client: &Client, name: &str, round: usize) {
    let text = format!("{name} {round}");
    let short = Duration::from_millis(40);
    if let Ok(reply) = client.query::<String>(cmd("ECHO").arg(&text).timeout(short)) {
        assert_eq!(reply, text);
    }
}

#[test]
fn threads_of_all_kinds_get_their_own_replies() {
    let client = client(calm());
    let work: [Work; 8] = [
        one_at_a_time,
        one_at_a_time,
        pipelines,
        pipelines,
        pipelines,
        pipelines,
        handed_over,
        hurried,
    ];
    let (ended, ends) = mpsc::channel();
    let all = Arc::new(Barrier::new(work.len()));
    for (number, work) in work.into_iter().enumerate() {
        let (client, ended, all) = (client.clone(), ended.clone(), Arc::clone(&all));
        std::thread::spawn(move || {
            let name = format!("kind{number}");
            for round in 0..ROUNDS {
                work(&client, &name, round);
                // Nobody else's commands help out whoever is left behind.
                all.wait();
            }
            ended.send(number).unwrap();
        });
    }
    drop(ended);
    let mut through: Vec<usize> = std::iter::from_fn(|| ends.recv_timeout(PATIENCE).ok()).collect();
    through.sort_unstable();
    assert_eq!(through, (0..work.len()).collect::<Vec<_>>());
}
