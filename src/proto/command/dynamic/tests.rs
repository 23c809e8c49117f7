//! Descriptions in every form that servers give, and odd ones.

use super::*;
use crate::proto::slot::Slot;
use proptest::prelude::*;

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn array<const N: usize>(items: [Value; N]) -> Value {
    Value::Array(items.into())
}

fn map(pairs: &[(&str, Value)], resp3: bool) -> Value {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (bulk(name), value.clone()));
    match resp3 {
        true => Value::Map(pairs.collect()),
        false => Value::Array(pairs.flat_map(|(name, value)| [name, value]).collect()),
    }
}

fn words(words: &str, resp3: bool) -> Value {
    let words = words.split_whitespace();
    match resp3 {
        true => Value::Set(words.map(|word| Value::Simple(word.into())).collect()),
        false => Value::Array(words.map(|word| Value::Simple(word.into())).collect()),
    }
}

/// A key specification in the two-part form of the documentation.
fn key_spec(begin: (&str, &[(&str, Value)]), find: (&str, &[i64]), resp3: bool) -> Value {
    let names = match find.0 {
        "range" => ["lastkey", "keystep", "limit"],
        _ => ["keynumidx", "firstkey", "keystep"],
    };
    let numbers = find.1.iter().copied().map(Value::Integer);
    let find_fields: Vec<_> = names.into_iter().zip(numbers).collect();
    let part = |kind: &str, fields: &[(&str, Value)]| {
        map(&[("type", bulk(kind)), ("spec", map(fields, resp3))], resp3)
    };
    let parts = [
        ("flags", words("RW", resp3)),
        ("begin_search", part(begin.0, begin.1)),
        ("find_keys", part(find.0, &find_fields)),
    ];
    map(&parts, resp3)
}

fn entry(name: &str, flags: &str, tips: &str, specs: Vec<Value>, subs: Vec<Value>) -> Value {
    let zero = Value::Integer(0);
    array([
        bulk(name),
        Value::Integer(-2),
        words(flags, true),
        zero.clone(),
        zero.clone(),
        zero,
        words("@slow", true),
        words(tips, false),
        Value::Array(specs),
        Value::Array(subs),
    ])
}

fn spec(entry: Value) -> DynamicSpec {
    DynamicSpec::from_command_info(&array([entry])).unwrap()
}

fn split(line: &str) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(' ').map(str::as_bytes)
}

fn keys(spec: &DynamicSpec, line: &str) -> String {
    let mut keys = Vec::new();
    spec.keys(split(line), |key| keys.push(String::from_utf8_lossy(key)));
    keys.join(" ")
}

#[test]
fn every_form_of_key_specification_in_both_protocols() {
    for resp3 in [false, true] {
        let index = |at| [("index", Value::Integer(at))];
        let word = |word, from| [("keyword", bulk(word)), ("startfrom", Value::Integer(from))];
        let described = |begin: (&str, &[(&str, Value)]), find| {
            spec(entry(
                "m.x",
                "write",
                "",
                vec![key_spec(begin, find, resp3)],
                vec![],
            ))
        };
        let all = described(("index", &index(1)), ("range", &[-1, 2, 0]));
        assert_eq!(keys(&all, "M.X a 1 b 2"), "a b");
        let two = described(("index", &index(2)), ("range", &[1, 1, 0]));
        assert_eq!(keys(&two, "M.X o a b c"), "a b");
        let half = described(("keyword", &word("STREAMS", 1)), ("range", &[-1, 1, 2]));
        assert_eq!(keys(&half, "M.X streams a b 0 0"), "a b");
        let behind = described(("keyword", &word("KEYS", -2)), ("range", &[-1, 1, 0]));
        assert_eq!(keys(&behind, "M.X KEYS a KEYS b c"), "b c");
        let counted = described(("index", &index(2)), ("keynum", &[0, 1, 1]));
        assert_eq!(keys(&counted, "M.X o 2 a b c"), "a b");
        assert_eq!(keys(&counted, "M.X o 9 a b c"), "");
        let unknown = described(("unknown", &[]), ("unknown", &[]));
        assert_eq!(unknown.route(split("M.X a")), Ok(Target::Any));
    }
}

#[test]
fn old_servers_give_positions_only() {
    let old = |first: i64, last: i64, step: i64| {
        let numbers = [first, last, step].map(Value::Integer);
        let [first, last, step] = numbers;
        let flags = words("readonly", false);
        spec(array([
            bulk("m.x"),
            Value::Integer(-2),
            flags,
            first,
            last,
            step,
        ]))
    };
    assert_eq!(keys(&old(1, -1, 2), "M.X a 1 b 2"), "a b");
    assert_eq!(keys(&old(2, 3, 1), "M.X o a b c"), "a b");
    assert_eq!(keys(&old(0, 0, 0), "M.X a"), "");
    assert_eq!(old(1, 1, 1).access(split("M.X a")), Access::ReadOnly);
    assert_eq!(
        old(1, 1, 1).route(split("M.X bar")),
        Ok(Target::Slot(Slot::of_key(b"bar")))
    );
}

#[test]
fn subcommands_answer_for_themselves() {
    let second = [("index", Value::Integer(2))];
    let key = key_spec(("index", &second), ("range", &[0, 1, 0]), true);
    let get = entry("m|get", "readonly", "", vec![key], vec![]);
    let stop = entry("m|stop", "admin", "", vec![], vec![]);
    let wait = entry("m|wait", "write blocking", "", vec![], vec![]);
    let container = spec(entry("m", "", "", vec![], vec![get, stop, wait]));
    assert_eq!(keys(&container, "M GET k"), "k");
    assert_eq!(container.access(split("M GET k")), Access::ReadOnly);
    assert!(matches!(
        container.route(split("M STOP")),
        Ok(Target::NamedNode(_))
    ));
    assert_eq!(container.blocking(split("M wait")), Some(Blocking::Forever));
    assert_eq!(container.blocking(split("M GET k")), None);
    assert_eq!(container.route(split("M")), Ok(Target::Any));
}

#[test]
fn what_may_change_the_connection_goes_nowhere_by_itself() {
    let Value::Array(mut fields) = entry("m.x", "noscript", "", vec![], vec![]) else {
        unreachable!("an entry is an array");
    };
    fields[6] = words("@slow @connection", true);
    let unfit = spec(Value::Array(fields));
    assert!(matches!(
        unfit.route(split("M.X")),
        Ok(Target::NamedNode(_))
    ));
}

#[test]
fn tips_fan_out() {
    let tips = "request_policy:all_shards response_policy:agg_sum";
    let count = spec(entry("m.count", "readonly", tips, vec![], vec![]));
    let all = Ok(Target::AllPrimaries(Aggregate::Sum));
    assert_eq!(count.route(split("M.COUNT")), all);
}

#[test]
fn unknown_to_the_server_as_well() {
    for reply in [
        Value::Null,
        array([Value::Null]),
        array([]),
        array([array([])]),
    ] {
        assert_eq!(DynamicSpec::from_command_info(&reply), None);
    }
}

/// Numbers at the edges of what arithmetic can take.
fn edge() -> impl Strategy<Value = i64> {
    prop::sample::select(&[i64::MIN, -3, -2, -1, 0, 1, 2, 3, i64::MAX - 1, i64::MAX][..])
}

proptest! {
    #[test]
    fn odd_descriptions_never_panic(
        (begin, from, find) in (edge(), edge(), prop::array::uniform3(edge())),
        (by_word, counted) in any::<(bool, bool)>(),
        args in prop::collection::vec("[12k]", 0..6),
    ) {
        let index = [("index", Value::Integer(begin))];
        let word = [("keyword", bulk("k")), ("startfrom", Value::Integer(from))];
        let begin = match by_word {
            true => ("keyword", &word[..]),
            false => ("index", &index[..]),
        };
        let find = (if counted { "keynum" } else { "range" }, &find[..]);
        let spec = spec(entry("m.x", "", "", vec![key_spec(begin, find, true)], vec![]));
        let args = args.iter().map(String::as_bytes);
        let _ = spec.route(args);
    }
}
