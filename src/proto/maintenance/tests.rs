//! Frames good and bad, as they may stand between any two replies.

use super::super::testing::slots;
use super::*;

fn simple(text: &str) -> Value {
    Value::Simple(text.into())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn triplet(from: &str, to: &str, slots: &str) -> Value {
    Value::Array(vec![simple(from), simple(to), simple(slots)])
}

fn migrated(triplets: Vec<Value>) -> Option<Notice> {
    Notice::parse(&[
        simple("SMIGRATED"),
        Value::Integer(7),
        Value::Array(triplets),
    ])
}

fn delta(from: &str, to: &str, numbers: &[u16]) -> Delta {
    Delta {
        from: NodeAddr::parse(from).unwrap(),
        to: NodeAddr::parse(to).unwrap(),
        slots: slots(numbers),
    }
}

#[test]
fn every_kind_in_its_known_shape() {
    let seq = Value::Integer(7);
    let seconds = Value::Integer(30);
    let cases = [
        (
            vec![
                simple("SMIGRATING"),
                seq.clone(),
                simple("123,456,789-1000"),
            ],
            Notice::Begun(Work::Slots, 7),
        ),
        (
            vec![simple("MIGRATING"), seq.clone(), seconds.clone()],
            Notice::Begun(Work::Shard, 7),
        ),
        (
            vec![simple("FAILING_OVER"), seq.clone(), seconds.clone()],
            Notice::Begun(Work::Failover, 7),
        ),
        (
            vec![simple("MIGRATED"), seq.clone()],
            Notice::Ended(Work::Shard, 7),
        ),
        (
            vec![simple("FAILED_OVER"), seq.clone()],
            Notice::Ended(Work::Failover, 7),
        ),
    ];
    for (mut push, expected) in cases {
        assert_eq!(Notice::parse(&push), Some(expected.clone()), "{push:?}");
        push.extend([bulk("later versions"), Value::Null]);
        assert_eq!(Notice::parse(&push), Some(expected), "{push:?}");
        push[0] = bulk(" smigrating ");
        assert!(Notice::parse(&push).is_some());
    }
}

#[test]
fn a_moving_names_a_new_endpoint_or_none() {
    let read = |seconds, endpoint: &[Value]| {
        let mut push = vec![simple("MOVING"), Value::Integer(1), Value::Integer(seconds)];
        push.extend_from_slice(endpoint);
        Notice::parse(&push)
    };
    let moving = |seconds, to: Option<&str>| {
        Some(Notice::Moving(Moving {
            seq: 1,
            within: Duration::from_secs(seconds),
            to: to.and_then(NodeAddr::parse),
        }))
    };
    let good = [
        (30, vec![simple("h:1")], moving(30, Some("h:1"))),
        (0, vec![bulk("::1:7000")], moving(0, Some("::1:7000"))),
        (15, vec![Value::Null], moving(15, None)),
        (15, vec![], moving(15, None)),
        (i64::MAX, vec![Value::Null], moving(600, None)),
    ];
    for (seconds, endpoint, expected) in good {
        assert_eq!(read(seconds, &endpoint), expected);
    }
    let bad = Some(Notice::Unreadable(Work::Endpoint));
    assert_eq!(read(-1, &[Value::Null]), bad);
    for endpoint in ["", "h", ":1", "?:1", "h:0"] {
        assert_eq!(read(30, &[simple(endpoint)]), bad, "{endpoint}");
    }
}

#[test]
fn neighbours_are_joined_and_the_order_is_kept() {
    let read = migrated(vec![
        triplet("a:1", "b:1", "1"),
        triplet("a:1", "b:1", " 2 , 5-6 "),
        triplet("b:1", "::1:7", "1"),
        triplet("a:1", "b:1", "9"),
    ]);
    let expected = vec![
        delta("a:1", "b:1", &[1, 2, 5, 6]),
        delta("b:1", "[::1]:7", &[1]),
        delta("a:1", "b:1", &[9]),
    ];
    assert_eq!(read, Some(Notice::SlotsMoved(7, expected)));
    assert_eq!(migrated(vec![]), Some(Notice::SlotsMoved(7, vec![])));
}

#[test]
fn what_is_not_understood_is_not_half_understood() {
    let bad = Some(Notice::Unreadable(Work::Slots));
    for list in [
        "",
        " ",
        "a",
        "a-b",
        "9-3",
        "-3",
        "3-",
        "1-2-3",
        "+1",
        "16384",
        "0-16384",
        "99999",
        "1,",
        ",1",
        "1;2",
        "NaN",
        "18446744073709551616",
    ] {
        assert_eq!(migrated(vec![triplet("a:1", "b:1", list)]), bad, "{list:?}");
        let push = [simple("SMIGRATING"), Value::Integer(1), simple(list)];
        assert_eq!(Notice::parse(&push), bad, "{list:?}");
    }
    // One bad triplet spoils the frame: half of a delta is no delta.
    let good = triplet("a:1", "b:1", "1");
    for wrong in [
        triplet("a", "b:1", "1"),
        triplet("a:1", "b:x", "1"),
        triplet("?:1", "b:1", "1"),
        triplet("a:1", ":1", "1"),
        Value::Array(vec![simple("a:1"), simple("b:1")]),
        Value::Array(vec![simple("a:1"), simple("b:1"), Value::Integer(5)]),
        // The drafts: pairs, and a flat list.
        Value::Array(vec![simple("b:1"), simple("1,2")]),
        simple("b:1"),
        Value::Null,
    ] {
        assert_eq!(
            migrated(vec![good.clone(), wrong.clone()]),
            bad,
            "{wrong:?}"
        );
    }
    let flat = [
        simple("SMIGRATED"),
        Value::Integer(1),
        simple("b:1"),
        simple("1"),
    ];
    assert_eq!(Notice::parse(&flat), bad);
    for push in [
        vec![simple("SMIGRATED")],
        vec![simple("SMIGRATED"), Value::Integer(1)],
        vec![simple("SMIGRATED"), simple("1"), Value::Array(vec![good])],
        vec![simple("SMIGRATING"), Value::Integer(1)],
        vec![
            simple("SMIGRATING"),
            Value::Integer(1),
            Value::Array(vec![]),
        ],
    ] {
        assert_eq!(Notice::parse(&push), bad, "{push:?}");
    }
}

#[test]
fn other_pushes_are_none_of_these() {
    for push in [
        vec![],
        vec![simple("invalidate"), Value::Null],
        vec![simple("message"), bulk("SMIGRATED"), bulk("x")],
        vec![Value::Integer(1)],
        vec![Value::Array(vec![])],
    ] {
        assert_eq!(Notice::parse(&push), None, "{push:?}");
    }
}

#[test]
fn a_frame_costs_no_more_than_it_is_worth() {
    let everything = ["0-16383"; 5].join(",");
    let bad = Some(Notice::Unreadable(Work::Slots));
    assert_eq!(migrated(vec![triplet("a:1", "b:1", &everything)]), bad);
    let many = vec![triplet("a:1", "b:1", "0-16383"); 5];
    assert_eq!(migrated(many), bad);
    let whole = vec![triplet("a:1", "b:1", "0-16383"); 4];
    assert!(matches!(migrated(whole), Some(Notice::SlotsMoved(7, deltas)) if deltas.len() == 1));
}
