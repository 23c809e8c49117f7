//! Each method against the command that it sends and the reply that it reads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::Builder;
use crate::error::{Error, Misuse};
use crate::proto::resp::decode::{DecodeLimits, Decoder, Frame};
use crate::runtime::transport::Connection;
use crate::runtime::transport::memory::Memory;

/// Runs one method against one reply and compares both sides of the exchange.
#[track_caller]
fn check<T: PartialEq + Debug>(
    call: impl FnOnce(&Client) -> Result<T>,
    line: &str,
    reply: Value,
    expected: T,
) {
    let (outcome, sent) = exchange(call, reply);
    assert_eq!(outcome, Ok(expected), "{line}");
    let words: Vec<&str> = line.split(' ').collect();
    let mut wire = format!("*{}\r\n", words.len());
    for word in words {
        wire += &format!("${}\r\n{word}\r\n", word.len());
    }
    assert_eq!(sent, wire, "{line}");
}

/// Calls a client of a single server in memory, which gives one reply to whatever comes after the
/// connection is set up. Gives the outcome and the bytes of that command.
fn exchange<T>(call: impl FnOnce(&Client) -> Result<T>, reply: Value) -> (Result<T>, String) {
    let (transport, accept) = Memory::new(1 << 20);
    let config = Builder::default().seed("single:1").build().unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut sent = Vec::new();
            for (_, connection) in accept {
                sent.extend(serve(connection, &reply));
            }
            String::from_utf8(sent).unwrap()
        });
        let client = Client::start_over(config, Arc::new(transport)).unwrap();
        let outcome = call(&client);
        drop(client);
        (outcome, server.join().unwrap())
    })
}

/// Serves one connection until its end; gives the bytes of all commands that are not set-up.
fn serve(mut connection: Connection, reply: &Value) -> Vec<u8> {
    let mut decoder = Decoder::new(DecodeLimits::default());
    let mut sent = Vec::new();
    loop {
        while let Some(Frame::Reply(Ok(command))) = decoder.next_frame().unwrap() {
            let mut answer = Vec::new();
            let mut wire = Vec::new();
            encode(&command, &mut wire);
            match &command {
                Value::Array(words) if words[0] == bulk("CLUSTER") => {
                    answer = b"-ERR This instance has cluster support disabled\r\n".to_vec();
                }
                Value::Array(words) if words[0] == bulk("HELLO") => answer = b"%0\r\n".to_vec(),
                Value::Array(words) if words[0] == bulk("CLIENT") => answer = b"+OK\r\n".to_vec(),
                _ => {
                    sent.extend(wire);
                    encode(reply, &mut answer);
                }
            }
            connection.write.write(&answer).unwrap();
        }
        match connection.read.read(decoder.spare()) {
            Ok(count) if count > 0 => decoder.filled(count),
            _ => return sent,
        }
    }
}

fn encode(value: &Value, out: &mut Vec<u8>) {
    let mut aggregate = |kind, items: Vec<&Value>, length| {
        out.extend(format!("{kind}{length}\r\n").bytes());
        items.into_iter().for_each(|item| encode(item, out));
    };
    match value {
        Value::Array(items) => return aggregate('*', items.iter().collect(), items.len()),
        Value::Set(items) => return aggregate('~', items.iter().collect(), items.len()),
        Value::Map(pairs) => {
            let items = pairs.iter().flat_map(|(key, value)| [key, value]).collect();
            return aggregate('%', items, pairs.len());
        }
        _ => {}
    }
    match value {
        Value::Null => out.extend(b"_\r\n"),
        Value::Ok => out.extend(b"+OK\r\n"),
        Value::Simple(text) => out.extend([b"+", text.as_slice(), b"\r\n"].concat()),
        Value::Bulk(bytes) => {
            out.extend(format!("${}\r\n", bytes.len()).bytes());
            out.extend([bytes.as_slice(), b"\r\n"].concat());
        }
        Value::Integer(number) => out.extend(format!(":{number}\r\n").bytes()),
        Value::Double(number) => out.extend(format!(",{number}\r\n").bytes()),
        Value::Boolean(yes) => out.extend(format!("#{}\r\n", if *yes { 't' } else { 'f' }).bytes()),
        other => panic!("no test needs to encode {other:?}"),
    }
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn int(number: i64) -> Value {
    Value::Integer(number)
}

fn list<const N: usize>(items: [&str; N]) -> Value {
    Value::Array(items.map(bulk).into())
}

#[test]
fn strings() {
    let second = Duration::from_secs(1);
    let v = || Some("v".to_string());
    check(|c| c.get::<String>("k"), "GET k", bulk("v"), v());
    check(|c| c.get::<String>("k"), "GET k", Value::Null, None);
    check(|c| c.get(b"k"), "GET k", bulk(""), Some(String::new()));
    check(|c| c.set("k", 1.5), "SET k 1.5", Value::Ok, ());
    check(
        |c| c.set_ex("k", "v", second),
        "SET k v PX 1000",
        Value::Ok,
        (),
    );
    check(|c| c.set_nx("k", "v"), "SET k v NX", Value::Ok, true);
    check(|c| c.set_nx("k", "v"), "SET k v NX", Value::Null, false);
    check(|c| c.getdel::<String>("k"), "GETDEL k", bulk("v"), v());
    check(|c| c.getex("k", second), "GETEX k PX 1000", bulk("v"), v());
    check(|c| c.append("k", "v"), "APPEND k v", int(2), 2);
    check(|c| c.strlen("k"), "STRLEN k", int(2), 2);
    check(|c| c.incr("k"), "INCR k", int(-1), -1);
    check(|c| c.incr_by("k", -3), "INCRBY k -3", int(-3), -3);
    check(
        |c| c.incr_by_float("k", 0.1),
        "INCRBYFLOAT k 0.1",
        bulk("0.1"),
        0.1,
    );
    check(|c| c.decr("k"), "DECR k", int(-1), -1);
    check(|c| c.decr_by("k", 2), "DECRBY k 2", int(-2), -2);
}

#[test]
fn keys_of_any_type() {
    let (half, short) = (Duration::from_millis(500), Duration::from_nanos(1));
    check(|c| c.del(String::from("k")), "DEL k", int(1), true);
    check(|c| c.unlink("k"), "UNLINK k", int(0), false);
    check(|c| c.exists(vec![b'k']), "EXISTS k", int(1), true);
    check(|c| c.expire("k", half), "PEXPIRE k 500", int(1), true);
    check(|c| c.expire("k", short), "PEXPIRE k 1", int(0), false);
    check(
        |c| c.expire("k", Duration::ZERO),
        "PEXPIRE k 0",
        int(1),
        true,
    );
    check(|c| c.persist("k"), "PERSIST k", int(0), false);
    check(|c| c.ttl("k"), "PTTL k", int(-2), Ttl::Missing);
    check(|c| c.ttl("k"), "PTTL k", int(-1), Ttl::Forever);
    check(|c| c.ttl("k"), "PTTL k", int(500), Ttl::Left(half));
    let hash = Value::Simple(b"hash".to_vec());
    check(|c| c.type_of("k"), "TYPE k", hash, "hash".to_string());
}

#[test]
fn hashes() {
    let pairs = BTreeMap::from([("f".to_string(), 1), ("g".to_string(), 2)]);
    let expected = HashMap::from_iter(pairs.clone());
    let resp2 = list(["f", "1", "g", "2"]);
    let resp3 = Value::Map(vec![(bulk("f"), bulk("1")), (bulk("g"), bulk("2"))]);
    check(|c| c.hget("k", "f"), "HGET k f", bulk("1"), Some(1));
    check(|c| c.hset("k", "f", 1), "HSET k f 1", int(1), true);
    check(|c| c.hset_all("k", &pairs), "HSET k f 1 g 2", int(2), 2);
    check(|c| c.hget_all("k"), "HGETALL k", resp2, expected.clone());
    check(|c| c.hget_all("k"), "HGETALL k", resp3, expected);
    let some = Value::Array(vec![bulk("1"), Value::Null]);
    check(
        |c| c.hmget("k", ["f", "g"]),
        "HMGET k f g",
        some,
        vec![Some(1), None],
    );
    check(|c| c.hdel("k", ["f", "g"]), "HDEL k f g", int(1), 1);
    check(|c| c.hdel("k", "f"), "HDEL k f", int(1), 1);
    check(|c| c.hexists("k", "f"), "HEXISTS k f", int(0), false);
    check(|c| c.hlen("k"), "HLEN k", int(0), 0);
    check(|c| c.hincr_by("k", "f", 5), "HINCRBY k f 5", int(6), 6);
}

#[test]
fn lists_and_sets() {
    let both = || vec!["a".to_string(), "b".to_string()];
    check(|c| c.lpush("k", "a"), "LPUSH k a", int(1), 1);
    check(|c| c.rpush("k", both()), "RPUSH k a b", int(2), 2);
    check(|c| c.lpop::<String>("k"), "LPOP k", Value::Null, None);
    check(|c| c.rpop("k"), "RPOP k", bulk("a"), Some("a".to_string()));
    check(
        |c| c.lrange("k", 0, -1),
        "LRANGE k 0 -1",
        list(["a", "b"]),
        both(),
    );
    check(
        |c| c.lrange("k", 0, 1),
        "LRANGE k 0 1",
        list(["1", "2"]),
        vec![1_u8, 2],
    );
    check(|c| c.ltrim("k", 0, 9), "LTRIM k 0 9", Value::Ok, ());
    check(|c| c.llen("k"), "LLEN k", int(2), 2);
    check(|c| c.sadd("k", ["a", "b"]), "SADD k a b", int(2), 2);
    check(|c| c.srem("k", "a"), "SREM k a", int(1), 1);
    let set = Value::Set(vec![bulk("a"), bulk("b")]);
    check(
        |c| c.smembers("k"),
        "SMEMBERS k",
        set,
        HashSet::from_iter(both()),
    );
    let expected = HashSet::from_iter(both());
    check(
        |c| c.smembers("k"),
        "SMEMBERS k",
        list(["a", "b"]),
        expected,
    );
    check(|c| c.sismember("k", "a"), "SISMEMBER k a", int(1), true);
    check(|c| c.scard("k"), "SCARD k", int(1), 1);
    check(|c| c.spop("k"), "SPOP k", bulk("7"), Some(7));
}

#[test]
fn sorted_sets() {
    let inf = f64::INFINITY;
    check(|c| c.zadd("k", inf, "m"), "ZADD k inf m", int(1), true);
    check(
        |c| c.zadd_all("k", [(1, "m"), (2, "n")]),
        "ZADD k 1 m 2 n",
        int(2),
        2,
    );
    check(|c| c.zrem("k", "m"), "ZREM k m", int(1), 1);
    check(
        |c| c.zscore("k", "m"),
        "ZSCORE k m",
        bulk("-inf"),
        Some(-inf),
    );
    check(
        |c| c.zscore("k", "m"),
        "ZSCORE k m",
        Value::Double(0.5),
        Some(0.5),
    );
    check(|c| c.zrank("k", "m"), "ZRANK k m", Value::Null, None);
    check(
        |c| c.zincr_by("k", 0.5, "m"),
        "ZINCRBY k 0.5 m",
        bulk("1"),
        1.0,
    );
    check(
        |c| c.zrange("k", 0, 1),
        "ZRANGE k 0 1",
        list(["m"]),
        vec!["m".to_string()],
    );
    let resp2 = list(["m", "1.5", "n", "inf"]);
    let pair = |name, score| Value::Array(vec![bulk(name), Value::Double(score)]);
    let resp3 = Value::Array(vec![pair("m", 1.5), pair("n", inf)]);
    let line = "ZRANGE k 0 -1 WITHSCORES";
    for shape in [resp2, resp3] {
        let expected = vec![("m".to_string(), 1.5), ("n".to_string(), inf)];
        check(|c| c.zrange_with_scores("k", 0, -1), line, shape, expected);
    }
    check(|c| c.zcard("k"), "ZCARD k", int(2), 2);
}

#[test]
fn a_value_of_several_arguments_is_misuse_and_not_sent() {
    let (outcome, sent) = exchange(|client| client.set("k", ["v", "XX"]), Value::Ok);
    assert!(matches!(outcome, Err(Error::Misuse(Misuse::Invalid(_)))));
    assert_eq!(sent, "");
}
