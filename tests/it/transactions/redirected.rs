//! A server that says "not here" or "not now" to a part of a transaction has run nothing of it:
//! all of it is sent again.

use std::time::Duration;

use reslot::{Certainty, Reason, Value, cmd};

use crate::calls::{
    apart, brief, builder, connect, count, done, run, seen, send, spread_the_map, stats,
    transaction,
};
use crate::fake::{Dialect, Entry, FakeCluster, Script, key_for_slot, resp};
use crate::local_cluster::poll_until;

const SLOT: u16 = 5061;
const KEY: &str = "bar";
const CHAIN: [&str; 4] = ["MULTI", "INCR bar", "GET bar", "EXEC"];
const ASKED: [&str; 5] = ["ASKING", "MULTI", "INCR bar", "GET bar", "EXEC"];

fn dialects() -> [FakeCluster; 2] {
    [Dialect::Redis, Dialect::Valkey]
        .map(|dialect| FakeCluster::builder(2).dialect(dialect).start())
}

#[test]
fn moved_while_queueing_moves_all_of_it() {
    for cluster in dialects() {
        let client = connect(&cluster);
        cluster.assign(SLOT..=SLOT, 1);
        assert_eq!(count(&client, KEY), Ok((1, "1".into())));
        assert_eq!(seen(&cluster, 0), CHAIN);
        assert_eq!(seen(&cluster, 1), CHAIN);
        // EXECABORT hides the address; it was learned all the same.
        assert_eq!(count(&client, KEY), Ok((2, "2".into())));
        assert_eq!(seen(&cluster, 0), CHAIN);
        assert_eq!(cluster.executions(KEY), 4);
    }
}

#[test]
fn moved_on_the_first_member_only() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let moved = cluster.node(0).on("INCR").times(1).moved(SLOT, 1);
    cluster.assign(SLOT..=SLOT, 1);
    cluster
        .node(0)
        .on("GET")
        .times(1)
        .reply(resp::simple("QUEUED"));
    assert_eq!(count(&client, KEY), Ok((1, "1".into())));
    assert_eq!(moved.hits(), 1);
    assert_eq!(seen(&cluster, 1), CHAIN);
}

#[test]
fn moved_at_exec_moves_all_of_it() {
    for cluster in dialects() {
        let client = connect(&cluster);
        let gate = cluster.node(0).on("EXEC").times(1).hold();
        let call = apart(&client, |client| count(client, KEY));
        gate.wait_arrived(1);
        cluster.assign(SLOT..=SLOT, 1);
        gate.release();
        assert_eq!(done(call), Ok((1, "1".into())));
        assert_eq!(seen(&cluster, 0), CHAIN);
        assert_eq!(seen(&cluster, 1), CHAIN);
        assert_eq!(cluster.executions(KEY), 2);
    }
}

#[test]
fn ask_sends_all_of_it_behind_one_asking() {
    for cluster in dialects() {
        let client = connect(&cluster);
        cluster.begin_move(SLOT, 1);
        assert_eq!(count(&client, KEY), Ok((1, "1".into())));
        assert_eq!(
            seen(&cluster, 0),
            CHAIN,
            "the chain is ended where it began"
        );
        assert_eq!(seen(&cluster, 1), ASKED);
        // The source is in no transaction, and the map has not changed.
        assert_eq!(run(&client, "INCR b"), Ok(Value::Integer(1)));
        assert_eq!(seen(&cluster, 0)[4..], ["INCR b"]);
        assert_eq!(cluster.executions(KEY), 2);
    }
}

#[test]
fn ask_at_exec_sends_all_of_it_behind_one_asking() {
    for cluster in dialects() {
        let client = connect(&cluster);
        run(&client, "SET bar 1").unwrap();
        cluster.begin_move(SLOT, 1);
        let gate = cluster.node(0).on("EXEC").times(1).hold();
        let call = apart(&client, |client| count(client, KEY));
        gate.wait_arrived(1);
        cluster.migrate_key(KEY);
        gate.release();
        assert_eq!(done(call), Ok((2, "2".into())));
        assert_eq!(seen(&cluster, 0), [&["SET bar"], &CHAIN[..]].concat());
        assert_eq!(seen(&cluster, 1), ASKED);
    }
}

/// On each connection of node 1, members of the slot come in whole chains behind ASKING.
#[track_caller]
fn check_asked_chains(cluster: &FakeCluster) -> usize {
    let all = cluster.log().on(1).data().list();
    let own: Vec<&Entry> = all
        .iter()
        .filter(|e| e.connection == all[0].connection)
        .collect();
    assert_eq!(own.len(), all.len(), "there is one connection");
    let names: Vec<String> = own.iter().map(|entry| brief(entry)).collect();
    let starts = names
        .iter()
        .enumerate()
        .filter(|(_, name)| *name == "ASKING");
    let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
    for &at in &starts {
        assert_eq!(names[at..][..5], ASKED, "{names:?}");
    }
    let members = names.iter().filter(|name| name.ends_with(" bar")).count();
    assert_eq!(members, 2 * starts.len(), "none stands outside of a chain");
    starts.len()
}

#[test]
fn asked_transactions_stay_whole_among_other_commands() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.begin_move(SLOT, 1);
    let calls: Vec<_> = (0..8)
        .map(|number| {
            apart(&client, move |client| {
                for _ in 0..25 {
                    if number % 2 == 0 {
                        count(client, KEY).unwrap();
                    } else {
                        run(client, "INCR foo").unwrap();
                        count(client, "a").unwrap();
                    }
                }
            })
        })
        .collect();
    calls.into_iter().for_each(done);
    assert_eq!(check_asked_chains(&cluster), 100);
    assert_eq!(run(&client, "INCR foo"), Ok(Value::Integer(101)));
    assert_eq!(count(&client, KEY), Ok((101, "101".into())));
}

/// `MULTI, INCR {bar}1, INCR {bar}2, EXEC`.
fn two(client: &reslot::Client) -> reslot::Result<(i64, i64)> {
    client.transaction(|t| {
        t.add(cmd("INCR").arg("{bar}1"))
            .add(cmd("INCR").arg("{bar}2"));
    })
}

#[test]
fn tryagain_waits_until_the_keys_are_together() {
    for cluster in dialects() {
        let client = connect(&cluster);
        run(&client, "MSET {bar}1 10 {bar}2 20").unwrap();
        cluster.begin_move(SLOT, 1);
        let gate = cluster.node(0).on("EXEC").times(1).hold();
        let call = apart(&client, two);
        gate.wait_arrived(1);
        cluster.migrate_key("{bar}1");
        gate.release();
        // Both have been seen to fail: one after it was queued, one at once.
        poll_until(crate::calls::LONG, "a second TRYAGAIN", || {
            match stats(&cluster, &client, 0).tryagain + stats(&cluster, &client, 1).tryagain {
                count if count >= 2 => Ok(()),
                count => Err(format!("{count}")),
            }
        });
        assert_eq!(cluster.log().executed().commands("INCR").count(), 0);
        cluster.migrate_key("{bar}2");
        assert_eq!(done(call), Ok((11, 21)));
        assert_eq!(cluster.log().executed().commands("INCR").count(), 2);
        assert_eq!(cluster.log().executed().on(1).commands("INCR").count(), 2);
    }
}

#[test]
fn tryagain_and_clusterdown_at_any_place_are_waited_for() {
    for refusal in [
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN The cluster is down",
    ] {
        for place in ["MULTI", "INCR", "EXEC"] {
            let cluster = FakeCluster::start(2);
            let client = connect(&cluster);
            cluster.node(0).on(place).times(1).error(refusal);
            if place == "MULTI" {
                // A server that refuses MULTI would run the members.
                cluster.node(0).on("INCR").times(1).error(refusal);
                cluster.node(0).on("GET").times(1).error(refusal);
                cluster
                    .node(0)
                    .on("EXEC")
                    .times(1)
                    .error("ERR EXEC without MULTI");
            }
            assert_eq!(
                count(&client, KEY),
                Ok((1, "1".into())),
                "{refusal} at {place}"
            );
            assert_eq!(cluster.log().on(0).commands("EXEC").count(), 2);
            assert_eq!(cluster.executions(KEY), 2, "{refusal} at {place}");
        }
    }
}

#[test]
fn the_budget_counts_transactions_and_not_members() {
    for budget in [0, 2] {
        let cluster = FakeCluster::start(2);
        let client = builder(&cluster).max_redirects(budget).connect().unwrap();
        for (node, other) in [(0, 1), (1, 0)] {
            for member in ["INCR", "GET"] {
                cluster.node(node).on(member).key(KEY).moved(SLOT, other);
            }
        }
        let failure = count(&client, KEY).unwrap_err();
        assert_eq!(
            failure.failure().unwrap().reason(),
            Reason::TooManyRedirects
        );
        assert_eq!(failure.certainty(), Certainty::Refused);
        assert_eq!(failure.code(), Some("MOVED"));
        assert_eq!(failure.attempts(), budget + 1);
        let sent = cluster.log().commands("MULTI").count();
        assert_eq!(sent, usize::try_from(budget).unwrap() + 1);
    }
}

#[test]
fn replies_that_come_late_are_awaited_before_the_next_attempt() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.assign(SLOT..=SLOT, 1);
    // The MOVED of the first member is sent, then the server pauses.
    let gate = cluster.node(0).hold("GET", KEY);
    let call = apart(&client, |client| count(client, KEY));
    gate.wait_arrived(1);
    let behind = send(&client, "INCR b");
    cluster.log().on(0).commands("INCR").key("b").wait_for(1);
    assert_eq!(seen(&cluster, 1), [""; 0]);
    gate.release();
    assert_eq!(done(call), Ok((1, "1".into())));
    assert_eq!(behind.wait(), Ok(Value::Integer(1)));
    assert_eq!(run(&client, "GET b"), Ok(Value::Bulk("1".into())));
}

#[test]
fn a_redirect_beside_another_error_is_not_followed_but_learned() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.assign(SLOT..=SLOT, 1);
    let failure = transaction(&client, &["INCR bar 1", "GET bar"]).unwrap_err();
    assert_eq!(failure.code(), Some("ERR"), "{failure}");
    assert_eq!(failure.certainty(), Certainty::Refused);
    let members = failure.failure().unwrap().members();
    let codes: Vec<_> = members
        .iter()
        .map(|(at, error)| (*at, error.code()))
        .collect();
    assert_eq!(codes, [(0, "ERR"), (1, "MOVED")]);
    assert_eq!(cluster.log().commands("MULTI").count(), 1);
    poll_until(crate::calls::LONG, "the learned route", || {
        match stats(&cluster, &client, 0).moved {
            1 => Ok(()),
            count => Err(format!("{count}")),
        }
    });
    spread_nothing(&cluster);
    assert_eq!(count(&client, KEY), Ok((1, "1".into())));
    assert_eq!(cluster.log().on(1).commands("MULTI").count(), 1);
}

/// No node tells its map any more.
fn spread_nothing(cluster: &FakeCluster) {
    cluster.on("CLUSTER SLOTS").error("ERR not now");
}

#[test]
fn a_redirect_for_another_slot_is_not_followed() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster.node(0).on("INCR").key(KEY).times(1).moved(1, 1);
    let failure = count(&client, KEY).unwrap_err();
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert_eq!(cluster.log().commands("MULTI").count(), 1);
    assert_eq!(count(&client, KEY), Ok((1, "1".into())));
}

#[test]
fn tryagain_for_ever_ends_at_the_deadline_with_nothing_applied() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    cluster
        .node(0)
        .on("EXEC")
        .error("TRYAGAIN Multiple keys request during rehashing of slot");
    let result = client.transaction::<Value>(|t| {
        t.add(cmd("INCR").arg(KEY))
            .timeout(Duration::from_millis(200));
    });
    let failure = result.unwrap_err();
    assert!(failure.is_timeout(), "{failure}");
    assert_eq!(failure.certainty(), Certainty::Refused);
    assert_eq!(failure.code(), Some("TRYAGAIN"));
    assert_eq!(cluster.executions(KEY), 0);
}

#[test]
fn a_slot_that_moves_under_many_transactions_loses_and_doubles_none() {
    let cluster = FakeCluster::start(4);
    let client = connect(&cluster);
    let key = key_for_slot(5);
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let key = key.clone();
            apart(&client, move |client| {
                for _ in 0..50 {
                    let (number, text) = count(client, &key).unwrap();
                    assert_eq!(text, number.to_string(), "nobody gets between INCR and GET");
                }
            })
        })
        .collect();
    for round in 0..8 {
        let executed = cluster.log().executed().commands("INCR").count();
        cluster
            .log()
            .executed()
            .commands("INCR")
            .wait_for((executed + 5).min(200));
        let owner = cluster.topology().owner(5).unwrap();
        cluster.begin_move(5, (owner + 1) % 3);
        if round % 2 == 0 && executed > 0 {
            cluster.migrate_key(&key);
        }
        let executed = cluster.log().executed().commands("INCR").count();
        cluster
            .log()
            .executed()
            .commands("INCR")
            .wait_for((executed + 5).min(200));
        cluster.finish_move(5);
    }
    calls.into_iter().for_each(done);
    assert_eq!(
        run(&client, &format!("GET {key}")),
        Ok(Value::Bulk("200".into()))
    );
    spread_the_map(&cluster, &client);
}

#[test]
fn a_script_of_another_error_in_exec_is_not_taken_for_a_redirect() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let inner = [resp::error("MOVED 5061 127.0.0.1:1"), resp::bulk("1")];
    let script = Script::new().reply(resp::array(&inner)).send();
    cluster.node(0).on("EXEC").times(1).script(script);
    let replies = transaction(&client, &["INCR bar", "GET bar"]).unwrap();
    assert_eq!(replies[0].as_ref().unwrap_err().code(), "MOVED");
    assert_eq!(replies[1], Ok(Value::Bulk("1".into())));
    assert_eq!(cluster.log().commands("MULTI").count(), 1);
}
