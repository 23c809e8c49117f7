//! Transactions against real clusters: sums that must not change, and what EXEC answers.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use reslot::{Certainty, Client, Result, Value, cmd};

use super::clusters::{SOON, builder, calm, client, key_in, moving, replicated, slot_of};
use crate::local_cluster::LocalCluster;

const TOTAL: i64 = 1000;
const THREADS: usize = 8;

/// Two accounts of one slot.
struct Bank {
    left: String,
    right: String,
    transfers: AtomicI64,
    stop: AtomicBool,
}

impl Bank {
    fn open(client: &Client, slot: u16) -> Self {
        let (left, right) = (key_in(slot, "left"), key_in(slot, "right"));
        let set = cmd("MSET").arg(&left).arg(TOTAL).arg(&right).arg(0);
        client.query::<()>(set).unwrap();
        Self {
            left,
            right,
            transfers: AtomicI64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Moves one unit; the balances afterwards.
    fn transfer(&self, client: &Client) -> Result<(i64, i64)> {
        client.transaction(|t| {
            t.add(cmd("DECR").arg(&self.left));
            t.add(cmd("INCR").arg(&self.right));
        })
    }

    /// Moves one unit back, by what it has read.
    fn return_one(&self, client: &Client) -> Result<(i64, i64)> {
        client.watch(&[&self.left, &self.right], |session| {
            let get = cmd("MGET").arg(&self.left).arg(&self.right);
            let (left, right): (i64, i64) = session.query(get)?;
            let next = (left + 1, right - 1);
            session.transaction::<()>(|t| {
                let set = cmd("MSET").arg(&self.left).arg(next.0);
                t.add(set.arg(&self.right).arg(next.1));
            })?;
            Ok(next)
        })
    }

    /// Transfers until told to stop; each one sees all the money.
    fn run(&self, client: &Client, number: usize) {
        while !self.stop.load(Ordering::Relaxed) {
            let result = match number % 4 {
                0 => self.return_one(client),
                _ => self.transfer(client),
            };
            match result {
                Ok((left, right)) => assert_eq!(left + right, TOTAL),
                Err(error) => assert_eq!(error.certainty(), Certainty::Unknown, "{error}"),
            }
            self.transfers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for a few more transfers.
    fn go_on(&self) {
        let until = self.transfers.load(Ordering::Relaxed) + 20;
        crate::local_cluster::poll_until(SOON, "transfers", || {
            match self.transfers.load(Ordering::Relaxed) {
                count if count >= until => Ok(()),
                count => Err(format!("{count} of {until}")),
            }
        });
    }

    #[track_caller]
    fn check(&self, client: &Client) {
        let get = cmd("MGET").arg(&self.left).arg(&self.right);
        let (left, right): (i64, i64) = client.query(get).unwrap();
        assert_eq!(left + right, TOTAL);
    }
}

/// Lets threads end also if the one that waits for them panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Moves a slot to the primary of another shard.
fn pass_on(cluster: &LocalCluster, slot: u16) {
    let from = cluster.primary_of(slot);
    let other = (1..3).map(|node| cluster.primary_of(slot_of(node, 0)));
    let to = other
        .chain([cluster.primary_of(slot_of(0, 0))])
        .find(|&node| node != from)
        .expect("three shards");
    cluster.move_slot(slot, from, to);
}

#[test]
fn keep_the_sum_while_slots_move_and_primaries_step_down() {
    let cluster = replicated();
    let slot = slot_of(0, 700);
    let client = builder(&cluster).response_timeout(SOON).connect().unwrap();
    let bank = Bank::open(&client, slot);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (bank, client) = (&bank, &client);
            scope.spawn(move || bank.run(client, number));
        }
        let _stop = StopOnDrop(&bank.stop);
        for round in 0..9 {
            pass_on(&cluster, slot);
            bank.go_on();
            if round % 3 == 1 {
                // A replica that has just changed its primary is not listed at once.
                cluster.wait_ready();
                let primary = cluster.primary_of(slot);
                cluster.failover(cluster.replicas_of(primary)[0]);
                bank.go_on();
            }
        }
    });
    bank.check(&client);
    let home = cluster.primary_of(slot_of(0, 0));
    let owner = cluster.primary_of(slot);
    if owner != home {
        cluster.move_slot(slot, owner, home);
    }
    bank.check(&client);
}

#[test]
fn and_watched_sessions_work_on_a_node_that_only_imports_the_slot() {
    let cluster = moving();
    let client = client(&cluster);
    let slot = slot_of(0, 710);
    let bank = Bank::open(&client, slot);
    let motion = cluster.begin_move(slot, 0, 1);
    motion.migrate_all();
    assert_eq!(bank.transfer(&client), Ok((TOTAL - 1, 1)));
    assert_eq!(bank.return_one(&client), Ok((TOTAL, 0)));
    // A foreign write in between is noticed there, too.
    let mut runs = 0;
    let result: Result<(i64,)> = client.watch(&[&bank.left], |session| {
        runs += 1;
        if runs == 1 {
            bank.transfer(&client).unwrap();
        }
        session.transaction(|t| {
            t.add(cmd("INCR").arg(&bank.left));
        })
    });
    assert_eq!((result, runs), (Ok((TOTAL,)), 2));
    motion.finish();
    assert_eq!(bank.transfer(&client), Ok((TOTAL - 1, 2)));
    cluster.move_slot(slot, 1, 0);
}

#[test]
fn wait_for_keys_that_are_on_two_nodes() {
    let cluster = moving();
    let client = client(&cluster);
    let slot = slot_of(0, 711);
    let bank = Bank::open(&client, slot);
    let motion = cluster.begin_move(slot, 0, 1);
    motion.migrate_keys(&[&bank.left]);
    thread::scope(|scope| {
        let call = scope.spawn(|| bank.transfer(&client));
        crate::local_cluster::poll_until(SOON, "TRYAGAIN", || {
            match client.stats().total(|node| node.tryagain) {
                0 => Err("not yet".into()),
                _ => Ok(()),
            }
        });
        motion.migrate_all();
        assert_eq!(call.join().unwrap(), Ok((TOTAL - 1, 1)));
    });
    motion.finish();
    bank.check(&client);
    cluster.move_slot(slot, 1, 0);
}

#[test]
fn give_each_command_its_reply_and_run_keyless_ones_in_place() {
    let client = client(calm());
    let key = key_in(slot_of(1, 712), "text");
    client.set(&key, "s").unwrap();
    let (first, second): (std::result::Result<i64, reslot::ServerError>, String) = client
        .transaction(|t| {
            t.add(cmd("LPUSH").arg(&key).arg("x"))
                .add(cmd("GET").arg(&key));
        })
        .unwrap();
    assert_eq!(first.unwrap_err().code(), "WRONGTYPE");
    assert_eq!(second, "s");
    let replies: Vec<Value> = client
        .transaction(|t| {
            t.add(cmd("SET").arg(&key).arg(1)).add(cmd("DBSIZE"));
            t.add(cmd("PING")).add(cmd("TIME"));
        })
        .unwrap();
    assert_eq!(
        (&replies[0], &replies[2]),
        (&Value::Ok, &Value::Simple("PONG".into()))
    );
    assert!(matches!(replies[1], Value::Integer(count) if count > 0));
    assert!(matches!(&replies[3], Value::Array(parts) if parts.len() == 2));
}

#[test]
fn that_are_aborted_are_told_apart_from_empty_ones() {
    let client = client(calm());
    let key = key_in(slot_of(1, 713), "watched");
    let empty: Vec<Value> = client.transaction(|_| ()).unwrap();
    assert!(empty.is_empty());
    let (mut runs, timeout) = (0, Duration::from_millis(200));
    let short = builder(calm()).response_timeout(timeout).connect().unwrap();
    let aborted: Result<Vec<Value>> = short.watch(&[&key], |session| {
        runs += 1;
        client.query::<i64>(cmd("INCR").arg(&key)).unwrap();
        session.transaction(|t| {
            t.add(cmd("GET").arg(&key));
        })
    });
    let failure = aborted.unwrap_err();
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert!(runs > 1, "{runs}");
    let failure = client
        .transaction::<Value>(|t| {
            t.add(cmd("SET").arg(&key)).add(cmd("INCR").arg(&key));
        })
        .unwrap_err();
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert_eq!(client.get::<i64>(&key).unwrap(), Some(runs));
}
