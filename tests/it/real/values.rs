//! Values and replies: byte-exact, in both versions of the protocol.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use reslot::{Client, Protocol, Reason, Route, Value, cmd};

use super::clusters::{Numbers, addr, builder, calm, client, key_in, slot_of};

fn clients() -> [(Protocol, Client); 2] {
    [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
        let client = builder(calm()).protocol(protocol).connect();
        (protocol, client.unwrap())
    })
}

#[test]
fn payloads_that_look_like_protocol() {
    let long = Numbers(7).bytes(600_000);
    let payloads: [&[u8]; 9] = [
        b"a\r\n$3\r\nxyz\r\n",
        b"\r",
        b"\r\n",
        b"\n",
        b"",
        b"-ERR no\r\n+OK\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"\0\xff\0",
        &long,
    ];
    for (protocol, client) in clients() {
        let key = |at: usize| format!("values:payload:{at}");
        let mut pipeline = client.pipeline();
        for (at, payload) in payloads.iter().enumerate() {
            pipeline.add(cmd("SET").arg(key(at)).arg(*payload));
            pipeline.add(cmd("GET").arg(key(at)));
            pipeline.add(cmd("ECHO").arg(format!("neighbour {at}")));
        }
        let results: Vec<Value> = pipeline.query().unwrap();
        for (at, payload) in payloads.iter().enumerate() {
            let expected = [
                Value::Ok,
                Value::Bulk(payload.to_vec()),
                Value::Bulk(format!("neighbour {at}").into_bytes()),
            ];
            assert!(
                results[at * 3..][..3] == expected,
                "{protocol:?}, payload {at}"
            );
            let got: Option<Vec<u8>> = client.get(key(at)).unwrap();
            assert!(
                got.as_deref() == Some(*payload),
                "{protocol:?}, payload {at}"
            );
        }
        let mut odd_keys = client.pipeline();
        odd_keys.add(cmd("MSET").arg(("{v}\r\n", "1", "{v}\0", "2", "{v} ", "3")));
        odd_keys.add(cmd("MGET").arg(("{v}\r\n", "{v}\0", "{v} ")));
        let (_, values): (Value, Vec<i64>) = odd_keys.query().unwrap();
        assert_eq!(values, [1, 2, 3]);
    }
}

#[test]
fn a_value_of_64_megabytes() {
    let client = builder(calm()).response_timeout(Duration::from_secs(60));
    let client = client.connect().unwrap();
    let block = Numbers(11).bytes(1 << 16);
    let mut big = Vec::with_capacity(1 << 26);
    for number in 0..1024_u32 {
        big.extend(number.to_be_bytes());
        big.extend_from_slice(&block[4..]);
    }
    let (key, small) = (key_in(slot_of(0, 1), "big"), key_in(slot_of(0, 2), "small"));
    let mut pipeline = client.pipeline();
    pipeline.add(cmd("SET").arg((&small, "before")));
    pipeline.add(cmd("SET").arg(&key).arg(&big[..]));
    pipeline.add(cmd("GET").arg(&small));
    pipeline.add(cmd("GET").arg(&key));
    pipeline.add(cmd("SET").arg((&small, "after")));
    let mut results: Vec<Value> = pipeline.query().unwrap();
    let Value::Bulk(back) = std::mem::replace(&mut results[3], Value::Null) else {
        panic!("no bulk string");
    };
    assert!(back == big, "{} bytes that differ", back.len());
    let rest = [
        Value::Ok,
        Value::Ok,
        Value::Bulk(b"before".to_vec()),
        Value::Null,
        Value::Ok,
    ];
    assert_eq!(results, rest);
    assert!(client.del(&key).unwrap());
}

#[test]
fn nothing_comes_in_kinds_that_are_told_apart() {
    for (protocol, client) in clients() {
        let key = |name: &str| format!("values:none:{name}{{n}}");
        client.set(key("empty"), "").unwrap();
        let missing = (key("m1"), key("m2"), key("empty"));
        let values: Vec<Option<String>> = client.query(cmd("MGET").arg(missing)).unwrap();
        assert_eq!(values, [None, None, Some(String::new())], "{protocol:?}");
        let value = |command| client.query::<Value>(command).unwrap();
        assert_eq!(value(cmd("GET").arg(key("m1"))), Value::Null);
        assert_eq!(value(cmd("GET").arg(key("empty"))), Value::Bulk(vec![]));
        assert_eq!(
            value(cmd("LRANGE").arg((key("m1"), 0, -1))),
            Value::Array(vec![])
        );
        // A null array in RESP2.
        assert_eq!(value(cmd("LPOP").arg((key("m1"), 2))), Value::Null);
        assert_eq!(value(cmd("LMPOP").arg((1, key("m1"), "LEFT"))), Value::Null);
        let lua = |script: &str| value(cmd("EVAL").arg((script, 1, key("m1"))));
        assert_eq!(lua("return {}"), Value::Array(vec![]));
        assert_eq!(lua("return false"), Value::Null);
        assert_eq!(lua("return ''"), Value::Bulk(vec![]));
        let mixed = Value::Array(vec![Value::Null, Value::Bulk(vec![]), Value::Array(vec![])]);
        assert_eq!(lua("return {false, '', {}}"), mixed);
        let scores = cmd("ZMSCORE").arg((key("m1"), "a", "b"));
        assert_eq!(
            client.query::<Vec<Option<f64>>>(scores).unwrap(),
            [None, None]
        );
        let none: Option<Vec<String>> = client.query(cmd("LPOP").arg((key("m1"), 2))).unwrap();
        assert_eq!(none, None);
        assert!(client.query::<String>(cmd("GET").arg(key("m1"))).is_err());
    }
}

#[test]
fn typed_replies_are_the_same_in_both_protocols() {
    for (protocol, client) in clients() {
        let key = |name: &str| format!("values:{protocol:?}:{name}");
        client.hset_all(key("h"), [("a", 1), ("b", 2)]).unwrap();
        let map: HashMap<String, i64> = client.hget_all(key("h")).unwrap();
        assert_eq!(map, HashMap::from([("a".into(), 1), ("b".into(), 2)]));

        let scores = [
            ("low", "-inf"),
            ("tenth", "0.1"),
            ("huge", "1e300"),
            ("top", "+inf"),
        ];
        for (member, score) in scores {
            let added: i64 = client
                .query(cmd("ZADD").arg((key("z"), score, member)))
                .unwrap();
            assert_eq!(added, 1);
            let expected: f64 = score.parse().unwrap();
            assert_eq!(client.zscore(key("z"), member).unwrap(), Some(expected));
        }
        let all: Vec<(String, f64)> = client.zrange_with_scores(key("z"), 0, -1).unwrap();
        let expected = scores.map(|(member, score)| (member.to_owned(), score.parse().unwrap()));
        assert_eq!(all, expected, "{protocol:?}");
        assert_eq!(client.zscore(key("z"), "missing").unwrap(), None);

        client.sadd(key("s"), ["x", "y"]).unwrap();
        let members: HashSet<String> = client.smembers(key("s")).unwrap();
        assert_eq!(members, HashSet::from(["x".into(), "y".into()]));
        let are: Vec<bool> = client
            .query(cmd("SMISMEMBER").arg((key("s"), "x", "q")))
            .unwrap();
        assert_eq!(
            (are, client.sismember(key("s"), "y").unwrap()),
            (vec![true, false], true)
        );

        client.set(key("n"), i64::MAX).unwrap();
        assert_eq!(client.get(key("n")).unwrap(), Some(i64::MAX));
        let error = client.incr(key("n")).unwrap_err();
        assert!(error.to_string().contains("overflow"), "{error}");
        client.set(key("n"), i64::MIN).unwrap();
        assert_eq!(client.incr_by(key("n"), 0).unwrap(), i64::MIN);
        client.set(key("f"), 1.5).unwrap();
        assert_eq!(client.incr_by_float(key("f"), 0.25).unwrap(), 1.75);

        let one = Route::Node(addr(calm(), 1));
        let info: String = client
            .query(cmd("INFO").arg("server").route(one.clone()))
            .unwrap();
        assert!(info.starts_with("# Server\r\n"), "{protocol:?}: {info:.40}");
        let list: String = client.query(cmd("CLIENT").arg("LIST").route(one)).unwrap();
        assert!(list.starts_with("id="), "{protocol:?}: {list:.40}");
        let nodes: String = client.query(cmd("CLUSTER").arg("NODES")).unwrap();
        assert!(nodes.contains(calm().id(0)));
        let stream: String = client
            .query(cmd("XADD").arg((key("x"), "1-1", "f", "v")))
            .unwrap();
        assert_eq!(stream, "1-1");
        let read = cmd("XREAD").arg(("STREAMS", key("x"), 0));
        type Entries = Vec<(String, Vec<String>)>;
        let entries: Vec<(String, Entries)> = client.query(read).unwrap();
        assert_eq!(
            entries[0].1,
            [("1-1".to_owned(), vec!["f".into(), "v".into()])]
        );
        client.query::<()>(cmd("DEL").arg(key("z"))).unwrap();
    }
}

/// The server can make every type of the protocol.
#[test]
fn every_type_of_the_protocol() {
    let client = client(calm());
    let node = || Route::Node(addr(calm(), 0));
    let debug = |what: &str| cmd("DEBUG").arg(("PROTOCOL", what)).route(node());
    let value = |what| client.query::<Value>(debug(what)).unwrap();
    assert_eq!(value("string"), Value::Bulk(b"Hello World".to_vec()));
    assert_eq!(value("integer"), Value::Integer(12345));
    assert_eq!(value("double"), Value::Double("3.141".parse().unwrap()));
    assert_eq!(value("null"), Value::Null);
    assert_eq!(
        (value("true"), value("false")),
        (Value::Boolean(true), Value::Boolean(false))
    );
    let numbers: Vec<Value> = (0..3).map(Value::Integer).collect();
    assert_eq!(value("array"), Value::Array(numbers.clone()));
    assert_eq!(value("set"), Value::Set(numbers));
    let pairs = (0..3).map(|at| (Value::Integer(at), Value::Boolean(at == 1)));
    assert_eq!(value("map"), Value::Map(pairs.collect()));
    let big = "1234567999999999999999999999999999999";
    assert_eq!(value("bignum"), Value::BigNumber(big.into()));
    let Value::Verbatim { format, text } = value("verbatim") else {
        panic!("no verbatim string");
    };
    assert_eq!((&format, &text[..8]), (b"txt", &b"This is "[..]));
    // Neither takes the place of a reply.
    for what in ["attrib", "push"] {
        let mut pipeline = client.pipeline();
        for number in 0..20 {
            pipeline.add(debug(what));
            pipeline.add(cmd("ECHO").arg(number).route(node()));
        }
        let results = pipeline.execute().unwrap();
        for (at, pair) in results.chunks(2).enumerate() {
            assert!(pair[0].is_ok(), "{what}: {:?}", pair[0]);
            let echo = Value::Bulk(at.to_string().into_bytes());
            assert_eq!(pair[1], Ok(echo), "{what}");
        }
    }
}

#[test]
fn an_error_leaves_no_reply_unread() {
    let threads = 4;
    let client = client(calm());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let client = &client;
            scope.spawn(move || {
                for round in 0..50 {
                    let key = |name: &str| format!("values:unread:{name}{{{thread}}}");
                    let mut pipeline = client.pipeline();
                    let wrong = || cmd("LPUSH").arg((key("s"), "x"));
                    let at = round % 4;
                    for place in 0..4 {
                        if place == at {
                            pipeline.add(wrong());
                        }
                        pipeline.add(cmd("SET").arg((key("s"), place + round)));
                    }
                    pipeline.add(wrong()).add(cmd("GET").arg(key("s")));
                    // At the start of the first round there is no string yet.
                    client.set(key("s"), round).unwrap();
                    let mut results = pipeline.execute().unwrap();
                    let last = Value::Bulk((3 + round).to_string().into_bytes());
                    assert_eq!(results.pop(), Some(Ok(last)));
                    for place in [5, at] {
                        let error = results.remove(place).unwrap_err();
                        assert_eq!(error.code(), Some("WRONGTYPE"));
                    }
                    assert!(results.iter().all(|result| *result == Ok(Value::Ok)));
                }
            });
        }
    });
}

#[test]
fn long_and_deep_replies() {
    let client = client(calm());
    let key = key_in(slot_of(1, 0), "deep");
    let other = key_in(slot_of(1, 1), "neighbour");
    client.set(&other, "here").unwrap();
    let long = "local t = {} for i = 1, 200000 do t[i] = i end return t";
    let numbers: Vec<i64> = client.query(cmd("EVAL").arg((long, 1, &key))).unwrap();
    assert!(numbers.into_iter().eq(1..=200_000));
    // A chain of tables, each in the one before.
    let nested = "local t = 'end' for i = 1, tonumber(ARGV[1]) do t = {t} end return t";
    let eval = |depth: u32| cmd("EVAL").arg((nested, 1, &key, depth));
    let mut value: Value = client.query(eval(100)).unwrap();
    for level in 0..100 {
        let Value::Array(mut items) = value else {
            panic!("{value:?} at level {level}");
        };
        value = items.pop().unwrap();
    }
    assert_eq!(value, Value::Bulk(b"end".to_vec()));
    // Deeper than is kept: this command fails, its neighbours do not, the connection stays.
    for depth in [1000, 5000] {
        let mut pipeline = client.pipeline();
        pipeline.add(cmd("GET").arg(&other));
        pipeline.add(eval(depth));
        pipeline.add(cmd("GET").arg(&other));
        let results = pipeline.execute().unwrap();
        let here = Ok(Value::Bulk(b"here".to_vec()));
        assert_eq!((&results[0], &results[2]), (&here, &here));
        let error = results[1].as_ref().unwrap_err();
        assert_eq!(error.failure().unwrap().reason(), Reason::ReplyLimit);
        assert_eq!(error.certainty(), reslot::Certainty::Unknown);
    }
    assert_eq!(client.stats().total(|node| node.connects), 3);
}

/// A script may begin its errors with any code. That proves nothing: it ran.
#[test]
fn a_script_whose_error_looks_like_a_refusal_runs_once() {
    let client = client(calm());
    let count = key_in(slot_of(1, 0), "runs");
    let script = "redis.call('INCR', KEYS[1]) return redis.error_reply(ARGV[1])";
    let lines = [
        "TRYAGAIN lock is held",
        "CLUSTERDOWN not now",
        "LOADING later",
        "MASTERDOWN away",
        "READONLY mode",
        "UNBLOCKED by hand",
        "NOSCRIPT here",
        "CROSSSLOT keys",
        "NOAUTH for this",
        "NOPERM for this",
        "EXECABORT by choice",
    ];
    let eval = |line: &str| cmd("EVAL").arg((script, 1, &count, line));
    let mut runs = 0;
    for line in lines {
        let single = client.query::<Value>(eval(line)).unwrap_err();
        let mut pipeline = client.pipeline();
        pipeline.add(cmd("GET").arg(&count)).add(eval(line));
        let piped = pipeline.execute().unwrap().remove(1).unwrap_err();
        let watched = client.watch(&[&count], |session| session.query::<Value>(eval(line)));
        for error in [single, piped, watched.unwrap_err()] {
            runs += 1;
            assert_eq!(error.server_error().unwrap().line(), line);
            assert_eq!(error.certainty(), reslot::Certainty::Unknown, "{line}");
        }
        assert_eq!(client.get::<i64>(&count).unwrap(), Some(runs), "{line}");
    }
    let unknown = client.query::<Value>(cmd("EVALSHA").arg(("0".repeat(40), 1, &count)));
    assert_eq!(unknown.unwrap_err().certainty(), reslot::Certainty::Refused);
}
