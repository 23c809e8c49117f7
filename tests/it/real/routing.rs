//! Where commands go: slots of keys, keys of commands, commands without keys.

use std::collections::BTreeMap;

use reslot::{Certainty, Client, Cmd, Error, Misuse, Result, Route, Slot, Value, cmd};

use super::clusters::{Numbers, SOON, addr, calm, client, key_in, patient, slot_of};
use crate::local_cluster::LocalCluster;

#[test]
fn slots_of_odd_and_random_keys() {
    let client = client(calm());
    let mut keys: Vec<Vec<u8>> = [
        "{}{x}",
        "foo{}{bar}",
        "foo{}",
        "{}",
        "{}}",
        "x{}}y",
        "{}foo",
        "{foo",
        "foo}",
        "foo{{bar}}zap",
        "foo{bar}{zap}",
        "a{}b",
        "{x",
        "x}{y",
        "",
        "123456789",
        "\u{1F480}",
        "\0",
    ]
    .map(|key| key.as_bytes().to_vec())
    .to_vec();
    let mut numbers = Numbers(42);
    for _ in 0..1000 {
        let length = numbers.next() % 12;
        // Half of the bytes are braces, or hardly any key would have a tag.
        let bytes = (0..length).map(|_| match numbers.next() % 4 {
            0 => b'{',
            1 => b'}',
            _ => numbers.next() as u8,
        });
        keys.push(bytes.collect());
    }
    let mut pipeline = client.pipeline();
    for key in &keys {
        pipeline.add(cmd("CLUSTER").arg("KEYSLOT").arg(key));
    }
    let slots: Vec<u16> = pipeline.query().unwrap();
    for (key, slot) in keys.iter().zip(slots) {
        assert_eq!(Slot::of_key(key).number(), slot, "{}", key.escape_ascii());
    }
}

/// Counts its calls with the first key, and gives the number of keys.
const LIBRARY: &str = "#!lua name=routing\n\
    redis.register_function('routing_write', function(keys, args) \
      redis.call('INCR', keys[1]) return #keys end)\n\
    redis.register_function{function_name='routing_read', flags={'no-writes'}, \
      callback=function(keys, args) redis.call('GET', keys[1]) return #keys end}";

#[test]
fn scripts_are_not_routed_by_their_text() {
    let client = client(calm());
    let script = "redis.call('GET', KEYS[1]) return #KEYS";
    let sha: String = client.query(cmd("SCRIPT").arg("LOAD").arg(script)).unwrap();
    let load = cmd("FUNCTION").arg("LOAD").arg("REPLACE").arg(LIBRARY);
    let name: String = client.query(load).unwrap();
    assert_eq!(name, "routing");
    let calls = [
        ("EVAL", script),
        ("EVAL_RO", script),
        ("EVALSHA", sha.as_str()),
        ("EVALSHA_RO", sha.as_str()),
        ("FCALL", "routing_write"),
        ("FCALL_RO", "routing_read"),
    ];
    let mut pipeline = client.pipeline();
    for round in 0..50 {
        for (name, what) in calls {
            let first = format!("routing:script:{round}");
            pipeline.add(cmd(name).arg(what).arg(1).arg(&first));
            let second = format!("{{{first}}}2");
            pipeline.add(cmd(name).arg(what).arg(2).arg(&first).arg(second));
        }
    }
    let replies: Vec<i64> = pipeline.query().unwrap();
    assert!(replies.chunks(2).all(|pair| pair == [1, 2]), "{replies:?}");
    check_direct(calm(), &client);
}

/// All went to the right nodes at once, and all nodes had something to do.
#[track_caller]
fn check_direct(cluster: &LocalCluster, client: &Client) {
    let stats = client.stats();
    assert_eq!(stats.total(|node| node.moved + node.ask), 0, "{stats:?}");
    for node in 0..3 {
        let at = addr(cluster, node);
        assert!(stats.nodes[&at].sent > 20, "{at}: {stats:?}");
    }
}

#[test]
fn keys_behind_keywords_are_found() {
    let client = client(calm());
    let mut pipeline = client.pipeline();
    for round in 0..100 {
        let key = |name: &str| format!("routing:{name}{{{round}}}");
        let (stream, other) = (key("s"), key("t"));
        pipeline.add(cmd("XADD").arg(&stream).arg(("*", "f", "v")));
        let group = cmd("XGROUP").arg("CREATE").arg(&stream).arg(("g", 0));
        pipeline.add(group);
        let read = cmd("XREAD").arg(("COUNT", 1)).arg("STREAMS");
        pipeline.add(read.arg((&stream, &other)).arg((0, 0)));
        let group = cmd("xreadgroup").arg(("group", "g", "c", "count", 1));
        pipeline.add(group.arg(("noack", "streams")).arg(&stream).arg(">"));
        pipeline.add(cmd("XINFO").arg("STREAM").arg(&stream));
        pipeline.add(cmd("XINFO").arg("GROUPS").arg(&stream));
        pipeline.add(cmd("OBJECT").arg("ENCODING").arg(&stream));
        let usage = cmd("MEMORY").arg("USAGE").arg(&stream);
        pipeline.add(usage.arg(("SAMPLES", 5)));
        pipeline.add(cmd("ZADD").arg(key("z")).arg((1, "m")));
        let union = cmd("ZUNIONSTORE").arg(key("u")).arg(2);
        let union = union.arg((key("z"), key("y"))).arg("WEIGHTS").arg((2, 3));
        pipeline.add(union);
        pipeline.add(cmd("BITOP").arg("NOT").arg(key("b")).arg(key("a")));
        pipeline.add(cmd("PFADD").arg(key("p")).arg("x"));
        pipeline.add(cmd("PFDEBUG").arg("GETREG").arg(key("p")));
        pipeline.add(cmd("LMPOP").arg(2).arg((key("l"), key("m"))).arg("LEFT"));
        pipeline.add(cmd("SORT").arg(key("l")).arg("STORE").arg(key("n")));
    }
    for (at, result) in pipeline.execute().unwrap().into_iter().enumerate() {
        assert!(result.is_ok(), "{at}: {result:?}");
    }
    check_direct(calm(), &client);
    for help in ["XINFO", "OBJECT", "XGROUP", "FUNCTION", "CLUSTER"] {
        let lines: Vec<String> = client.query(cmd(help).arg("HELP")).unwrap();
        assert!(lines.len() > 3, "{lines:?}");
    }
    let one = Route::Node(addr(calm(), 0));
    let advice = cmd("MEMORY").arg("DOCTOR").route(one);
    let advice: String = client.query(advice).unwrap();
    assert!(!advice.is_empty());
}

#[test]
fn a_bad_key_count_is_the_servers_to_refuse() {
    let client = client(calm());
    let mut pipeline = client.pipeline();
    let one: i64 = client.query(cmd("EVAL").arg(("return 1", 0))).unwrap();
    let stray = cmd("EVAL").arg(("return 1", 0, "{bar}notakey"));
    assert_eq!((one, client.query(stray).unwrap()), (1, 1));
    let script = "return 1";
    let bad: Vec<(Cmd, &str)> = vec![
        (cmd("EVAL").arg((script, -1, "k")), "can't be negative"),
        (
            cmd("EVAL").arg((script, 3, "k")),
            "greater than number of args",
        ),
        (cmd("EVAL").arg((script, "x", "k")), "not an integer"),
        (cmd("EVAL").arg(script), "wrong number of arguments"),
        (cmd("EVAL"), "wrong number of arguments"),
        (cmd("ZUNIONSTORE").arg(("d", "99999999999", "a")), "ERR "),
        (cmd("ZUNIONSTORE").arg(("d", 5, "a")), "syntax error"),
        (cmd("LMPOP").arg((0, "LEFT")), "ERR "),
        (cmd("LMPOP").arg((0, "l", "LEFT")), "greater than 0"),
        (cmd("XREAD").arg(("COUNT", 1)), "ERR "),
        (cmd("XREAD").arg("STREAMS"), "wrong number of arguments"),
        (cmd("XREAD").arg(("STREAMS", "a", "b", 0)), "Unbalanced"),
        (cmd("GET"), "wrong number of arguments"),
        (cmd("OBJECT"), "wrong number of arguments"),
        (cmd("OBJECT").arg("NONSENSE"), "unknown subcommand"),
        (cmd("XGROUP").arg("CREATE"), "wrong number of arguments"),
        (cmd("MSET").arg("routing:odd"), "wrong number of arguments"),
    ];
    for (number, (command, text)) in bad.iter().enumerate() {
        check_refused(client.query(command.clone()), text);
        let key = format!("routing:good:{number}");
        pipeline.add(cmd("SET").arg((&key, number)));
        pipeline.add(command.clone());
        pipeline.add(cmd("GET").arg(key));
    }
    let mut results = pipeline.execute().unwrap().into_iter();
    for (number, (_, text)) in bad.iter().enumerate() {
        assert_eq!(results.next(), Some(Ok(Value::Ok)));
        check_refused(results.next().unwrap(), text);
        let value = Value::Bulk(number.to_string().into_bytes());
        assert_eq!(results.next(), Some(Ok(value)));
    }
    // The servers' own finder has no keys here either; some answer, some refuse.
    let migrate: Result<Value> = client.query(cmd("MIGRATE").arg(("h", "p")));
    assert!(migrate.is_err(), "{migrate:?}");
}

#[track_caller]
fn check_refused(result: Result<Value>, text: &str) {
    let error = result.expect_err(text);
    let line = error.server_error().expect(text).line();
    assert!(line.contains(text), "{line:?} instead of {text:?}");
}

#[test]
fn a_destination_in_another_slot_is_cross_slot() {
    let client = client(calm());
    let (a, b) = ("routing:{foo}", "routing:{bar}");
    let search = ("FROMLONLAT", 0, 0, "BYRADIUS", 1, "m");
    let commands = [
        cmd("BITOP").arg(("AND", a, b)),
        cmd("ZUNIONSTORE").arg((a, 1, b)).arg(("WEIGHTS", 2)),
        cmd("ZINTERSTORE").arg((a, 1, b)),
        cmd("ZDIFFSTORE").arg((a, 1, b)),
        cmd("ZRANGESTORE").arg((a, b, 0, -1)),
        cmd("GEOSEARCHSTORE").arg((a, b)).arg(search),
        cmd("SORT").arg((a, "LIMIT", 0, 1, "STORE", b)),
        cmd("GEORADIUS").arg((a, 1, 2, 3, "m", "STORE", b)),
        cmd("GEORADIUSBYMEMBER").arg((a, "x", 3, "m", "STOREDIST", b)),
        cmd("SUNIONSTORE").arg((a, b)),
        cmd("SDIFFSTORE").arg((a, b)),
        cmd("COPY").arg((a, b)),
        cmd("RENAME").arg((a, b)),
        cmd("RENAMENX").arg((a, b)),
        cmd("LMOVE").arg((a, b, "LEFT", "LEFT")),
        cmd("RPOPLPUSH").arg((a, b)),
        cmd("SMOVE").arg((a, b, "m")),
        cmd("PFMERGE").arg((a, b)),
        cmd("MSET").arg((a, 1, b, 2)),
        cmd("MSETNX").arg((a, 1, b, 2)),
        cmd("MGET").arg((a, b)),
        cmd("DEL").arg((a, b)),
        cmd("EVAL").arg(("return 1", 2, a, b)),
        cmd("XREAD").arg(("STREAMS", a, b, 0, 0)),
    ];
    let before = client.stats().total(|node| node.sent);
    for command in commands {
        let name = command.name().to_owned();
        let result: Result<Value> = client.query(command.clone());
        let (foo, bar) = (Slot::of_key(b"foo"), Slot::of_key(b"bar"));
        match result {
            Err(Error::Misuse(Misuse::CrossSlot { command, slots })) => {
                assert_eq!(command, name);
                assert!([(foo, bar), (bar, foo)].contains(&slots), "{slots:?}");
            }
            other => panic!("{name}: {other:?}"),
        }
        // In a pipeline it concerns no neighbour.
        let mut pipeline = client.pipeline();
        pipeline.add(cmd("ECHO").arg("before")).add(command);
        pipeline.add(cmd("ECHO").arg("after"));
        let results = pipeline.execute().unwrap();
        let good: Vec<bool> = results.iter().map(Result::is_ok).collect();
        assert_eq!(good, [true, false, true], "{name}: {results:?}");
    }
    let sent = client.stats().total(|node| node.sent) - before;
    assert_eq!(sent, 48, "nothing but the neighbours was sent");
}

#[test]
fn cross_slot_of_the_server_is_tried_once() {
    let client = client(calm());
    // A stated route outranks what the client knows, so only the server can find this.
    let route = Route::Key(b"foo".to_vec());
    let command = cmd("MGET").arg(("foo", "bar")).route(route);
    let error = client.query::<Value>(command).unwrap_err();
    assert_eq!(error.code(), Some("CROSSSLOT"));
    assert_eq!(error.certainty(), Certainty::Refused);
    assert_eq!(error.failure().unwrap().attempts(), 1);
    assert_eq!(client.stats().total(|node| node.sent), 1);
}

#[test]
fn commands_that_change_the_shared_connection_are_refused() {
    let client = client(calm());
    let key = key_in(slot_of(0, 0), "routing:shared");
    client.set(&key, "mine").unwrap();
    for line in [
        "RESET",
        "QUIT",
        "SELECT 1",
        "SELECT 0",
        "HELLO 2",
        "AUTH x",
        "MONITOR",
        "SUBSCRIBE c",
        "SSUBSCRIBE c",
        "READONLY",
        "READWRITE",
        "ASKING",
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH k",
        "UNWATCH",
        "CLIENT REPLY OFF",
        "CLIENT REPLY SKIP",
        "CLIENT TRACKING ON",
        "CLIENT SETNAME x",
        "CLIENT NO-EVICT ON",
        "SYNC",
        "PSYNC ? -1",
        "client reply off",
        "Multi",
    ] {
        let mut words = line.split(' ');
        let command = cmd(words.next().unwrap()).arg(words.collect::<Vec<_>>());
        let result: Result<Value> = client.query(command.clone());
        let refused = matches!(result, Err(Error::Misuse(Misuse::Refused { .. })));
        assert!(refused, "{line}: {result:?}");
        let node = Route::Node(addr(calm(), 0));
        let result: Result<Value> = client.query(command.route(node));
        let refused = matches!(result, Err(Error::Misuse(Misuse::Refused { .. })));
        assert!(refused, "{line} to a named node: {result:?}");
    }
    assert_eq!(client.get(&key).unwrap(), Some("mine".to_owned()));
    assert_eq!(client.stats().total(|node| node.connects), 3);
}

#[test]
fn commands_that_the_client_does_not_know() {
    let client = client(calm());
    let result: Result<Value> = client.query(cmd("NOSUCHCOMMAND").arg("k"));
    check_refused(result, "unknown command");
    // The second time the server is not asked what it is.
    let before = client.stats().total(|node| node.sent);
    let result: Result<Value> = client.query(cmd("nosuchcommand").arg("k"));
    check_refused(result, "unknown command");
    assert_eq!(client.stats().total(|node| node.sent) - before, 1);
}

#[test]
fn commands_for_one_node() {
    let client = client(calm());
    let mut ids = BTreeMap::new();
    for node in 0..3 {
        let route = Route::Node(addr(calm(), node));
        let id: String = client
            .query(cmd("CLUSTER").arg("MYID").route(route))
            .unwrap();
        assert_eq!(id, calm().id(node));
        ids.insert(addr(calm(), node), id);
    }
    let all = cmd("CLUSTER").arg("MYID").route(Route::AllPrimaries);
    let all: Vec<String> = client.query(all).unwrap();
    assert_eq!(all, ids.into_values().collect::<Vec<_>>());
    let nowhere = Route::Node(reslot::NodeAddr::new("127.0.0.1", 1));
    let error = client
        .query::<Value>(cmd("PING").route(nowhere))
        .unwrap_err();
    assert_eq!(error.failure().unwrap().reason(), reslot::Reason::NodeGone);
}

/// Keyless commands, and questions about unknown commands, go to any node that is there.
#[test]
fn keyless_commands_do_not_wait_for_a_dead_node() {
    let cluster = patient();
    let client = client(&cluster);
    cluster.kill(1);
    client.set(key_in(slot_of(0, 0), "keyless"), 1).unwrap();
    let begun = std::time::Instant::now();
    for number in 0..30 {
        // The very first may be on the connection that breaks.
        let ping: Result<String> = client.query(cmd("PING").timeout(SOON));
        assert!(number == 0 || ping.is_ok(), "{number}: {ping:?}");
        let one: Result<i64> = client.query(cmd("EVAL").arg(("return 1", 0)));
        assert!(number == 0 || one.is_ok(), "{number}: {one:?}");
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    cluster.restart(1);
    cluster.wait_ready();
}
