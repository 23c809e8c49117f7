//! Blocking commands against real clusters, while nodes change their roles and slots their owners.

use std::thread;
use std::time::Duration;

use reslot::{CancelToken, Certainty, Client, Cmd, Error, Result, Value, cmd};

use super::clusters::{SOON, calm, client, key_in, moving, replicated, slot_of};
use crate::local_cluster::{LocalCluster, poll_until};

fn blpop(key: &str, seconds: u32) -> Cmd {
    cmd("BLPOP").arg(key).arg(seconds)
}

fn rpush(client: &Client, key: &str, element: &str) -> i64 {
    client.query(cmd("RPUSH").arg(key).arg(element)).unwrap()
}

/// Waits until so many clients are blocked on a node.
fn await_blocked(cluster: &LocalCluster, node: usize, count: usize) {
    poll_until(SOON, "blocked clients", || {
        let info = cluster.command(node, &["INFO", "clients"]).text();
        let blocked = info
            .lines()
            .find_map(|line| line.strip_prefix("blocked_clients:"));
        match blocked {
            Some(blocked) if blocked == count.to_string() => Ok(()),
            other => Err(format!("{other:?} instead of {count}")),
        }
    });
}

type Popped = Result<(String, String)>;

/// Runs BLPOP on a thread; `meanwhile` runs once it is blocked at the owner of the slot.
fn while_blocked(
    cluster: &LocalCluster,
    client: &Client,
    slot: u16,
    meanwhile: impl FnOnce(&str),
) -> Popped {
    let key = key_in(slot, "blocked");
    thread::scope(|scope| {
        let call = scope.spawn(|| client.query(blpop(&key, 20)));
        await_blocked(cluster, cluster.primary_of(slot), 1);
        meanwhile(&key);
        call.join().unwrap()
    })
}

#[test]
fn a_call_survives_the_failover_of_its_node() {
    let cluster = replicated();
    let client = client(&cluster);
    let slot = slot_of(1, 720);
    let popped = while_blocked(&cluster, &client, slot, |key| {
        let primary = cluster.primary_of(slot);
        let replica = cluster.replicas_of(primary)[0];
        cluster.failover(replica);
        await_blocked(&cluster, replica, 1);
        assert_eq!(rpush(&client, key, "x"), 1);
    });
    assert_eq!(popped, Ok((key_in(slot, "blocked"), "x".into())));
}

#[test]
fn a_call_follows_its_slot() {
    let cluster = moving();
    let client = client(&cluster);
    let slot = slot_of(0, 721);
    let popped = while_blocked(&cluster, &client, slot, |key| {
        cluster.move_slot(slot, 0, 1);
        await_blocked(&cluster, 1, 1);
        assert_eq!(rpush(&client, key, "x"), 1);
    });
    assert_eq!(popped, Ok((key_in(slot, "blocked"), "x".into())));
    cluster.move_slot(slot, 1, 0);
}

#[test]
fn calls_that_end_early_take_no_element() {
    let cluster = calm();
    let client = client(cluster);
    let key = key_in(slot_of(0, 722), "early");
    let token = CancelToken::new();
    let failure = thread::scope(|scope| {
        let command = blpop(&key, 20).cancel_token(&token);
        let call = scope.spawn(|| client.query::<Value>(command));
        await_blocked(cluster, 0, 1);
        token.cancel();
        call.join().unwrap().unwrap_err()
    });
    assert!(matches!(failure, Error::Cancelled(_)), "{failure:?}");
    await_blocked(cluster, 0, 0);
    let short = blpop(&key, 20).timeout(Duration::from_millis(600));
    let failure = client.query::<Value>(short).unwrap_err();
    assert!(failure.is_timeout(), "{failure:?}");
    // Unless this machine is very slow, the server was the first to end it.
    if failure.certainty() == Certainty::Unknown {
        await_blocked(cluster, 0, 0);
    }
    assert_eq!(rpush(&client, &key, "x"), 1);
    assert_eq!(client.query::<i64>(cmd("LLEN").arg(&key)), Ok(1));
    assert_eq!(client.query(blpop(&key, 1)), Ok((key, "x".to_owned())));
}

#[test]
fn calls_of_all_kinds_are_in_nobodys_way() {
    let cluster = calm();
    let client = client(cluster);
    let slot = slot_of(1, 723);
    let key = |name: &str| key_in(slot, name);
    let blocking = [
        blpop(&key("list"), 20),
        cmd("BZPOPMIN").arg(key("sorted")).arg(20),
        cmd("BLMOVE")
            .arg(key("from"))
            .arg(key("to"))
            .arg("LEFT")
            .arg("RIGHT")
            .arg(20),
        cmd("BLMPOP").arg(20).arg(1).arg(key("many")).arg("LEFT"),
        cmd("XREAD")
            .arg("BLOCK")
            .arg(20_000)
            .arg("STREAMS")
            .arg(key("stream"))
            .arg("$"),
    ];
    thread::scope(|scope| {
        let calls: Vec<_> = blocking
            .into_iter()
            .map(|command| scope.spawn(|| client.query::<Value>(command)))
            .collect();
        await_blocked(cluster, 1, 5);
        for number in 1..=200 {
            let count: i64 = client.query(cmd("INCR").arg(key("count"))).unwrap();
            assert_eq!(count, number);
        }
        await_blocked(cluster, 1, 5);
        for name in ["list", "from", "many"] {
            rpush(&client, &key(name), "x");
        }
        let add = cmd("ZADD").arg(key("sorted")).arg(1).arg("x");
        client.query::<i64>(add).unwrap();
        let add = cmd("XADD").arg(key("stream")).arg("*").arg("f").arg("x");
        client.query::<String>(add).unwrap();
        for call in calls {
            assert_ne!(call.join().unwrap().unwrap(), Value::Null);
        }
    });
}
