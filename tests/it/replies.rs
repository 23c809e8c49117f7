//! Replies of every kind reach the command they answer, whatever their bytes look like.

use std::time::Duration;

use reslot::{Certainty, Reason, Value, cmd};

use crate::fake::{FakeCluster, Script, key_for_slot, resp};
use crate::run::{builder, connect, pipeline, run, send, texts};

/// Long enough for any machine; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(20);

/// Runs `GET bar` with this reply between two commands that must get their own.
fn reply(cluster: &FakeCluster, client: &reslot::Client, bytes: &[u8]) -> reslot::Result<Value> {
    let rule = cluster.on("GET").key("bar").reply(bytes);
    let mut results = pipeline(client, &["ECHO before", "GET bar", "ECHO after"]);
    rule.remove();
    let text = String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(texts(&results[..1]), ["before"], "{text:.100?}");
    assert_eq!(texts(&results[2..]), ["after"], "{text:.100?}");
    results.swap_remove(1)
}

#[test]
fn a_reply_that_is_nested_too_deeply_fails_alone() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    for level in ["*1\r\n", "%1\r\n$1\r\nk\r\n", "~1\r\n"] {
        let deep = level.repeat(100_000) + ":1\r\n";
        let error = reply(&cluster, &client, deep.as_bytes()).unwrap_err();
        assert_eq!(
            error.failure().unwrap().reason(),
            Reason::ReplyLimit,
            "{error}"
        );
        assert_eq!(error.certainty(), Certainty::Unknown);
        assert_eq!((error.server_error(), error.code()), (None, None));
        let text = "reply is nested too deeply; may have run; node";
        assert!(error.to_string().starts_with(text), "{error}");
    }
    let kept = reply(
        &cluster,
        &client,
        ("*1\r\n".repeat(100) + ":1\r\n").as_bytes(),
    )
    .unwrap();
    assert_eq!(kept.clone(), kept);
    assert!(!format!("{kept:?}").is_empty());
    assert_eq!(client.stats().total(|node| node.connects), 1);
}

#[test]
fn a_nested_reply_without_an_end_holds_nobody_past_the_deadline() {
    let cluster = FakeCluster::start(1);
    let limit = Duration::from_millis(300);
    let client = builder(&cluster).response_timeout(limit).connect().unwrap();
    cluster.on("GET").times(1).reply("*1\r\n".repeat(100_000));
    let error = run(&client, "GET bar").unwrap_err();
    assert_eq!(error.certainty(), Certainty::Unknown);
    cluster.node(0).drop_connections();
    let next = crate::run::words("GET foo").timeout(LONG);
    assert_eq!(client.query::<Value>(next).unwrap(), Value::Null);
}

#[test]
fn a_reply_over_the_limit_in_bytes_fails_alone_and_the_connection_stays() {
    let cluster = FakeCluster::start(1);
    let client = builder(&cluster).max_reply_bytes(100).connect().unwrap();
    let parts: Vec<_> = (0..30).map(|_| resp::bulk("abc")).collect();
    for large in [
        resp::bulk(vec![b'x'; 100_000]),
        resp::array(&parts),
        resp::push(&parts),
    ] {
        let pushed = large.starts_with(b">");
        let bytes = if pushed {
            [large, resp::integer(1)].concat()
        } else {
            large
        };
        match reply(&cluster, &client, &bytes) {
            Ok(value) => assert!(pushed && value == Value::Integer(1), "{value:?}"),
            Err(error) => {
                assert_eq!(error.failure().unwrap().reason(), Reason::ReplyLimit);
                assert_eq!(error.certainty(), Certainty::Unknown);
                assert!(!pushed, "a push is nobody's reply");
            }
        }
    }
    assert_eq!(
        reply(&cluster, &client, &resp::bulk("small")).unwrap(),
        Value::Bulk("small".into())
    );
    assert_eq!(client.stats().total(|node| node.connects), 1);
}

#[test]
fn malformed_replies_fail_what_is_on_their_connection_at_once() {
    for bytes in [
        "$-2\r\n",
        "*-5\r\n",
        "$abc\r\n",
        "$ 3\r\nfoo\r\n",
        "$+3\r\nfoo\r\n",
        ":12a\r\n",
        ":\r\n",
        "#x\r\n",
        "_x\r\n",
        "$3\r\nfooXX",
        ",\r\n",
        "(12x\r\n",
        "=2\r\nab\r\n",
        "*1\r\n>1\r\n+x\r\n",
    ] {
        let cluster = FakeCluster::start(1);
        let client = builder(&cluster).response_timeout(LONG).connect().unwrap();
        cluster.on("INCR").times(1).reply(bytes);
        let results = pipeline(&client, &["ECHO before", "INCR bar", "INCR foo", "INCR b"]);
        assert_eq!(
            texts(&results),
            ["before", "Unknown", "Unknown", "Unknown"],
            "{bytes:?}"
        );
        let reason = results[1].as_ref().unwrap_err().failure().unwrap().reason();
        assert_eq!(reason, Reason::ConnectionLost);
        run(&client, "INCR next").unwrap();
    }
}

#[test]
fn payloads_that_look_like_protocol_come_back_byte_for_byte() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    let payloads: [Vec<u8>; 7] = [
        b"a\r\n$3\r\nxyz\r\n".into(),
        b"\r".into(),
        b"\r\n".into(),
        b"".into(),
        (0..=255).collect(),
        vec![b'\n'; 600_000],
        vec![b'$'; 8 << 20],
    ];
    let keys: Vec<_> = (0..7).map(|n| key_for_slot(n * 2300)).collect();
    let mut both = client.pipeline();
    for (key, payload) in keys.iter().zip(&payloads) {
        both.add(cmd("SET").arg(key).arg(&payload[..]))
            .add(cmd("GET").arg(key));
    }
    let results = both.execute().unwrap();
    for (n, payload) in payloads.iter().enumerate() {
        assert_eq!(results[2 * n], Ok(Value::Ok));
        let Ok(Value::Bulk(bytes)) = &results[2 * n + 1] else {
            panic!("{n}")
        };
        assert!(bytes == payload, "payload {n}");
    }
}

/// Every type, its bytes and its value.
fn samples() -> Vec<(&'static str, Value)> {
    use Value::*;
    vec![
        ("+OK\r\n", Ok),
        ("+PONG\r\n", Simple("PONG".into())),
        ("$5\r\na\r\nbc\r\n", Bulk("a\r\nbc".into())),
        ("$0\r\n\r\n", Bulk(Vec::new())),
        ("$-1\r\n", Null),
        ("*-1\r\n", Null),
        ("_\r\n", Null),
        ("*0\r\n", Array(vec![])),
        (":-42\r\n", Integer(-42)),
        ("#t\r\n", Boolean(true)),
        (",0.30000000000000004\r\n", Double(0.30000000000000004)),
        (",-inf\r\n", Double(f64::NEG_INFINITY)),
        (
            "(12345678901234567890\r\n",
            BigNumber("12345678901234567890".into()),
        ),
        (
            "=8\r\nmkd:abcd\r\n",
            Verbatim {
                format: *b"mkd",
                text: "abcd".into(),
            },
        ),
        (
            "=4\r\ntxt:\r\n",
            Verbatim {
                format: *b"txt",
                text: Vec::new(),
            },
        ),
        ("~1\r\n:1\r\n", Set(vec![Integer(1)])),
        ("%1\r\n+k\r\n*2\r\n_\r\n$1\r\nv\r\n", {
            Map(vec![(
                Simple("k".into()),
                Array(vec![Null, Bulk("v".into())]),
            )])
        }),
        ("|1\r\n+ttl\r\n:90\r\n$1\r\nv\r\n", Bulk("v".into())),
        (
            "|0\r\n|1\r\n+k\r\n*1\r\n:1\r\n*1\r\n|1\r\n+k\r\n+v\r\n:7\r\n",
            Array(vec![Integer(7)]),
        ),
        (">2\r\n+invalidate\r\n*1\r\n+k\r\n:3\r\n", Integer(3)),
        (
            "|1\r\n+k\r\n+v\r\n>1\r\n+unknown\r\n>0\r\n:4\r\n",
            Integer(4),
        ),
    ]
}

#[test]
fn every_type_arrives_whole_and_in_single_bytes() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    for (bytes, value) in samples() {
        assert_eq!(
            reply(&cluster, &client, bytes.as_bytes()).unwrap(),
            value,
            "{bytes:?}"
        );
    }
    for (number, (bytes, _)) in samples().into_iter().enumerate() {
        let pieces = Script::new().reply(bytes).send_in_pieces(1, Duration::ZERO);
        cluster.on("GET").key(format!("k{number}")).script(pieces);
    }
    let lines: Vec<_> = (0..samples().len()).map(|n| format!("GET k{n}")).collect();
    let values: Vec<_> = pipeline(&client, &lines)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let wanted: Vec<_> = samples().into_iter().map(|(_, value)| value).collect();
    assert_eq!(values, wanted);
    assert_eq!(client.stats().total(|node| node.connects), 1);
}

#[test]
fn an_error_in_two_pieces_stays_an_error() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let gate = cluster.gate();
    let halves = Script::new().raw("-WRONG").hold(&gate).raw("TYPE no\r\n");
    cluster.on("GET").times(1).script(halves);
    let pending = send(&client, "GET bar");
    gate.wait_arrived(1);
    let behind = send(&client, "GET foo");
    gate.release();
    assert_eq!(pending.wait().unwrap_err().code(), Some("WRONGTYPE"));
    assert_eq!(behind.wait().unwrap(), Value::Null);
}

#[test]
fn null_and_empty_are_told_apart_in_both_protocols_and_by_types() {
    for resp2_only in [false, true] {
        let nodes = FakeCluster::builder(1);
        let cluster = if resp2_only {
            nodes.resp2_only()
        } else {
            nodes
        }
        .start();
        let client = connect(&cluster);
        client.set("empty", "").unwrap();
        assert_eq!(client.get::<String>("empty").unwrap(), Some(String::new()));
        assert_eq!(client.get::<String>("none").unwrap(), None);
        let both: Vec<Option<String>> = client
            .query(cmd("MGET").arg("{e}none").arg("{e}none"))
            .unwrap();
        assert_eq!(both, [None, None]);
        let list = || cmd("LRANGE").arg("l").arg(0).arg(-1);
        cluster.on("LRANGE").times(1).reply("*-1\r\n");
        let none: Option<Vec<String>> = client.query(list()).unwrap();
        assert_eq!(none, None);
        let list: Option<Vec<String>> = client.query(list()).unwrap();
        assert_eq!(list, Some(Vec::new()));
        let strict = client.query::<String>(cmd("GET").arg("none"));
        assert!(
            matches!(strict, Err(reslot::Error::Conversion { .. })),
            "{strict:?}"
        );
    }
}

#[test]
fn numbers_are_exact_through_types() {
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    let number = |bytes: &str| {
        let rule = cluster.on("GET").reply(bytes);
        let value = client.query::<f64>(cmd("GET").arg("bar"));
        rule.remove();
        value.unwrap()
    };
    for text in [
        "0.30000000000000004",
        "1.7976931348623157e+308",
        "5e-324",
        "99.99",
        "-0",
        "3",
    ] {
        let wanted: f64 = text.parse().unwrap();
        assert_eq!(
            number(&format!(",{text}\r\n")).to_bits(),
            wanted.to_bits(),
            "{text}"
        );
        let bulk = format!("${}\r\n{text}\r\n", text.len());
        assert_eq!(number(&bulk).to_bits(), wanted.to_bits(), "{text}");
    }
    for (text, wanted) in [("inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY)] {
        assert_eq!(number(&format!(",{text}\r\n")), wanted);
        assert_eq!(number(&format!("${}\r\n{text}\r\n", text.len())), wanted);
    }
    for nan in [",nan\r\n", ",-nan\r\n", ",nan(0x8)\r\n", "$3\r\nnan\r\n"] {
        assert!(number(nan).is_nan(), "{nan:?}");
    }
    let rule = cluster
        .on("INCR")
        .times(1)
        .reply(":9223372036854775808\r\n");
    assert!(client.incr("bar").is_err(), "never wrapped");
    rule.remove();
    cluster
        .on("INCR")
        .times(1)
        .reply(":-9223372036854775808\r\n");
    assert_eq!(client.incr("bar").unwrap(), i64::MIN);
}

#[test]
fn errors_anywhere_in_a_pipeline_leave_no_reply_behind() {
    let cluster = FakeCluster::start(2);
    let client = connect(&cluster);
    run(&client, "SET bar known").unwrap();
    let bad = "RPUSH bar x";
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let client = &client;
            scope.spawn(move || {
                let own = format!("{{bar}}{thread}");
                let line = format!("SET {own} v{thread}");
                let get = format!("GET {own}");
                for round in 0..100 {
                    let mut lines = vec![&*line, &*get, "ECHO x"];
                    lines.insert(round % 4, bad);
                    let results = texts(&pipeline(client, &lines));
                    let mut wanted = vec!["OK".to_owned(), format!("v{thread}"), "x".to_owned()];
                    wanted.insert(round % 4, "Unknown".to_owned());
                    assert_eq!(results, wanted);
                    assert_eq!(client.get::<String>("bar").unwrap().unwrap(), "known");
                }
            });
        }
    });
}

#[test]
fn what_is_wrong_with_a_command_is_found_before_it_is_counted() {
    struct Panics;
    impl reslot::ToArgs for Panics {
        fn write_args(&self, _: &mut reslot::Args<'_>) {
            panic!("on purpose")
        }
    }
    let cluster = FakeCluster::start(1);
    let client = connect(&cluster);
    for round in 1..=20 {
        let built = std::panic::catch_unwind(|| cmd("SET").arg("k").arg(Panics));
        assert!(built.is_err());
        let lines = [
            "INCR bar",
            "MSET foo 1 bar 2",
            "INCR foo",
            "SUBSCRIBE c",
            "INCR b",
        ];
        let results = pipeline(&client, &lines);
        assert!(matches!(
            results[1],
            Err(reslot::Error::Misuse(reslot::Misuse::CrossSlot { .. }))
        ));
        let count = round.to_string();
        let wanted = [&*count, "NotSent", &*count, "NotSent", &*count];
        assert_eq!(texts(&results), wanted);
    }
}
