//! Tables of replies, in the shapes of both protocols, and what each type makes of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Debug;

use super::*;

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn simple(text: &str) -> Value {
    Value::Simple(text.into())
}

fn int(number: i64) -> Value {
    Value::Integer(number)
}

fn list(items: impl Into<Vec<Value>>) -> Value {
    Value::Array(items.into())
}

fn bulks<const N: usize>(items: [&str; N]) -> Value {
    list(items.map(bulk))
}

#[track_caller]
fn reads<T: FromValue + PartialEq + Debug>(value: Value, expected: T) {
    assert_eq!(T::from_value(value.clone()), Ok(expected), "{value:?}");
}

#[track_caller]
fn refuses<T: FromValue + Debug>(value: Value, text: &str) {
    let hint = match value {
        Value::Null => "; use Option for what may be missing",
        _ => "",
    };
    let error = T::from_value(value).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot read the reply as {text}{hint}")
    );
}

#[test]
fn booleans() {
    for yes in [
        Value::Boolean(true),
        int(1),
        Value::Ok,
        bulk("1"),
        simple("1"),
    ] {
        reads(yes, true);
    }
    for no in [Value::Boolean(false), int(0), bulk("0")] {
        reads(no, false);
    }
    refuses::<bool>(int(2), "bool: integer 2");
    refuses::<bool>(bulk(""), "bool: bulk string of 0 bytes");
    refuses::<bool>(Value::Null, "bool: null");
}

#[test]
fn integers_near_the_edge() {
    for value in [
        int(i64::MAX),
        bulk("9223372036854775807"),
        simple("+9223372036854775807"),
    ] {
        reads(value, i64::MAX);
    }
    reads(int(i64::MIN), i64::MIN);
    reads(bulk("-9223372036854775808"), i64::MIN);
    reads(bulk("9223372036854775808"), 9_223_372_036_854_775_808_u64);
    reads(
        Value::BigNumber("9223372036854775808".into()),
        u64::MAX / 2 + 1,
    );
    reads(bulk("-0"), 0);
    reads(bulk("0000000000000000000000007"), 7);
    reads(int(255), 255_u8);
    reads(int(-128), -128_i8);
    reads(Value::Boolean(true), 1);
    reads(Value::Double(3.0), 3);
    refuses::<i64>(bulk("9223372036854775808"), "i64: bulk string of 19 bytes");
    refuses::<u8>(int(256), "u8: integer 256");
    refuses::<u64>(int(-1), "u64: integer -1");
    refuses::<i8>(int(-129), "i8: integer -129");
    refuses::<usize>(bulk("-1"), "usize: bulk string of 2 bytes");
    for bad in ["", "-", "+", " 1", "1 ", "1.0", "0x1", "1e2", "١"] {
        assert!(i64::from_value(bulk(bad)).is_err(), "{bad}");
    }
    for bad in [0.5, 1e300, f64::NAN, f64::INFINITY, 9.1e15] {
        assert!(i64::from_value(Value::Double(bad)).is_err(), "{bad}");
    }
}

#[test]
fn floats_in_every_spelling() {
    let exact = [
        ("0.30000000000000004", 0.300_000_000_000_000_04),
        ("1.7976931348623157e+308", f64::MAX),
        ("5e-324", 5e-324),
        ("0.000000000000000001", 1e-18),
        ("8275.35", 8275.35),
        ("-0", -0.0),
        ("3", 3.0),
        ("1E5", 1e5),
        (".5", 0.5),
        ("10.", 10.0),
        ("0.10000000000000001", 0.1),
        ("inf", f64::INFINITY),
        ("+inf", f64::INFINITY),
        ("Inf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
        ("-INF", f64::NEG_INFINITY),
        ("infinity", f64::INFINITY),
    ];
    for (text, number) in exact {
        for value in [bulk(text), simple(text), Value::Double(number)] {
            let read = f64::from_value(value).unwrap();
            assert_eq!(read.to_bits(), number.to_bits(), "{text}");
        }
    }
    for text in ["nan", "-nan", "NAN", "nan(0x8)", "-NaN(ind)"] {
        assert!(f64::from_value(bulk(text)).unwrap().is_nan(), "{text}");
        assert!(f32::from_value(bulk(text)).unwrap().is_nan(), "{text}");
    }
    for bad in [
        "", "x", "nan(", "nanx", "na", "ñan()", "1,5", "1 ", "0x10", "1e400",
    ] {
        assert!(f64::from_value(bulk(bad)).is_err(), "{bad}");
    }
    reads(int(-3), -3.0);
    reads(Value::BigNumber("1000000000000000000000".into()), 1e21);
    reads(Value::Double(0.1), 0.1_f32);
    reads(Value::Double(f64::INFINITY), f32::INFINITY);
    refuses::<f32>(Value::Double(1e300), "f32: double");
    refuses::<f32>(bulk("1e300"), "f32: bulk string of 5 bytes");
    refuses::<f64>(Value::Null, "f64: null");
}

#[test]
fn strings_of_any_kind() {
    let text = |text: &str| text.to_string();
    reads(bulk("é"), text("é"));
    reads(bulk(""), text(""));
    reads(simple("QUEUED"), text("QUEUED"));
    reads(Value::Ok, text("OK"));
    reads(int(-7), text("-7"));
    reads(Value::Double(0.1), text("0.1"));
    reads(Value::Double(f64::NEG_INFINITY), text("-inf"));
    reads(Value::Double(f64::NAN), text("nan"));
    reads(Value::Boolean(true), text("1"));
    reads(Value::BigNumber("123".into()), text("123"));
    let verbatim = Value::Verbatim {
        format: *b"txt",
        text: b"some".to_vec(),
    };
    reads(verbatim, text("some"));
    reads(bulk("a"), Box::<str>::from("a"));
    refuses::<String>(
        Value::Bulk(vec![0xff, 0]),
        "String: 2 bytes that are not UTF-8",
    );
    refuses::<String>(Value::Null, "String: null");
    refuses::<String>(bulks(["a"]), "String: array of 1");
}

#[test]
fn payloads_are_moved() {
    let bytes = b"some bytes".to_vec();
    let place = bytes.as_ptr();
    let read = Vec::<u8>::from_value(Value::Bulk(bytes)).unwrap();
    assert_eq!(read.as_ptr(), place);
    let text = String::from_value(Value::Bulk(read)).unwrap();
    assert_eq!(text.as_ptr(), place);
}

#[test]
fn byte_strings_and_lists_share_vec() {
    reads(Value::Bulk(vec![0xff, 0]), vec![0xff_u8, 0]);
    reads(bulks(["1", "2"]), vec![1_u8, 2]);
    reads(bulks(["1", "2"]), vec![1_i64, 2]);
    reads(bulks(["a", "b"]), vec![b"a".to_vec(), b"b".to_vec()]);
    reads(bulk("ab"), Box::<[u8]>::from(*b"ab"));
    reads(bulk("ab"), *b"ab");
    reads(bulks(["1", "2"]), [1, 2]);
    reads(bulks(["1", "2"]), HashSet::from([1_u8, 2]));
    refuses::<Vec<u8>>(Value::Null, "bytes: null");
    refuses::<Vec<i64>>(bulk("ab"), "a list: bulk string of 2 bytes");
    refuses::<[i64; 3]>(bulks(["1"]), "[i64; 3]: list of 1");
}

#[test]
fn four_kinds_of_nothing() {
    reads(Value::Null, None::<String>);
    reads(bulk(""), Some(String::new()));
    reads(Value::Null, None::<Vec<String>>);
    reads(list([]), Some(Vec::<String>::new()));
    reads(
        list([Value::Null, bulk("")]),
        vec![None, Some(String::new())],
    );
    reads(list([]), HashMap::<String, String>::new());
    reads(list([]), Vec::<(String, String)>::new());
    refuses::<Vec<String>>(Value::Null, "a list: null");
    refuses::<HashMap<String, i64>>(Value::Null, "a map: null");
    refuses::<(String,)>(list([]), "a tuple of 1: list of 0");
}

#[test]
fn lists_and_sets() {
    let set = Value::Set(vec![bulk("b"), bulk("a")]);
    reads(set.clone(), vec!["b".to_string(), "a".into()]);
    reads(set.clone(), BTreeSet::from(["a".to_string(), "b".into()]));
    reads(set, HashSet::from(["a".to_string(), "b".into()]));
    let map = Value::Map(vec![(bulk("a"), int(1)), (bulk("b"), int(2))]);
    reads(
        map.clone(),
        vec!["a".to_string(), "1".into(), "b".into(), "2".into()],
    );
    reads(map, vec![bulk("a"), int(1), bulk("b"), int(2)]);
    refuses::<BTreeSet<i64>>(int(1), "a set: integer 1");
}

#[test]
fn pairs_in_every_shape() {
    let shapes = [
        bulks(["m", "1.5", "n", "inf"]),
        list([bulks(["m", "1.5"]), bulks(["n", "inf"])]),
        list([
            list([bulk("m"), Value::Double(1.5)]),
            list([bulk("n"), Value::Double(f64::INFINITY)]),
        ]),
        Value::Map(vec![
            (bulk("m"), Value::Double(1.5)),
            (bulk("n"), Value::Double(f64::INFINITY)),
        ]),
    ];
    let pairs = vec![("m".to_string(), 1.5), ("n".to_string(), f64::INFINITY)];
    for shape in shapes {
        reads(shape.clone(), pairs.clone());
        reads(shape.clone(), HashMap::<_, _>::from_iter(pairs.clone()));
        reads(shape.clone(), BTreeMap::from_iter(pairs.clone()));
        reads(shape, [pairs[0].clone(), pairs[1].clone()]);
    }
    refuses::<Vec<(String, String)>>(bulks(["a"]), "rows of 2: list of 1");
    refuses::<BTreeMap<String, String>>(bulks(["a", "b", "c"]), "a map: list of 3");
    refuses::<Vec<(String, String)>>(bulk("a"), "rows of 2: bulk string of 1 bytes");
}

#[test]
fn rows_of_nested_replies() {
    type Streams = Vec<(String, Vec<(String, BTreeMap<String, i64>)>)>;
    let entries = || list([list([bulk("1-0"), bulks(["f", "1"])])]);
    let expected: Streams = vec![(
        "s".into(),
        vec![("1-0".into(), BTreeMap::from([("f".to_string(), 1)]))],
    )];
    reads(list([list([bulk("s"), entries()])]), expected.clone());
    reads(Value::Map(vec![(bulk("s"), entries())]), expected);
    // A flat map of lists is not taken for rows.
    let flat = list([bulk("a"), bulks(["1", "2"]), bulk("b"), bulks(["3", "4"])]);
    let lists = BTreeMap::from([("a".to_string(), vec![1, 2]), ("b".into(), vec![3, 4])]);
    reads(flat, lists);
}

#[test]
fn tuples_have_exact_length() {
    reads(bulks(["0", "a"]), (0, "a".to_string()));
    let scan = list([bulk("17"), bulks(["f", "1", "g", "2"])]);
    let pairs = vec![("f".to_string(), 1), ("g".to_string(), 2)];
    reads(scan, (17_u64, pairs));
    let map = Value::Map(vec![(bulk("maxmemory"), bulk("0"))]);
    reads(map, ("maxmemory".to_string(), 0));
    let twelve = list(Vec::from_iter((1..=12).map(int)));
    reads(twelve.clone(), (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
    refuses::<(i64, i64)>(
        twelve,
        "a tuple of 2: array of 12"
            .replace("array", "list")
            .as_str(),
    );
    refuses::<(i64, i64)>(Value::Null, "a tuple of 2: null");
}

#[test]
fn errors_inside_a_reply() {
    let error = ServerError::new("WRONGTYPE no");
    let reply = || list([int(1), Value::Error(error.clone())]);
    reads::<Vec<std::result::Result<i64, ServerError>>>(reply(), vec![Ok(1), Err(error.clone())]);
    reads(reply(), vec![int(1), Value::Error(error.clone())]);

    #[track_caller]
    fn fails<T: FromValue + Debug>(value: Value) {
        let failure = T::from_value(value).unwrap_err();
        assert!(matches!(failure, Error::Server(_)), "{failure}");
        assert_eq!(failure.code(), Some("WRONGTYPE"));
        assert_eq!(failure.certainty(), Certainty::Unknown);
    }
    fails::<Vec<i64>>(reply());
    fails::<Vec<u8>>(reply());
    fails::<(i64, i64)>(reply());
    fails::<(i64, i64, i64)>(reply());
    fails::<BTreeMap<i64, i64>>(reply());
    fails::<Vec<(i64, i64, i64)>>(reply());
    fails::<BTreeSet<i64>>(reply());
    fails::<Vec<Option<String>>>(reply());
    fails::<()>(reply());
    fails::<()>(Value::Map(vec![(int(1), list([reply()]))]));
}

#[test]
fn unit_takes_anything_else() {
    for value in [Value::Null, Value::Ok, bulk("x"), list([int(1)])] {
        reads(value, ());
    }
    reads(Value::Null, None::<()>);
    reads(Value::Ok, Some(()));
}

#[test]
fn error_texts_show_no_stored_bytes() {
    refuses::<i64>(simple("QUEUED"), "i64: simple string QUEUED");
    let long = "x".repeat(33);
    refuses::<i64>(simple(&long), "i64: simple string of 33 bytes");
    refuses::<i64>(simple("a\u{7}"), "i64: simple string of 2 bytes");
    refuses::<i64>(bulk("secret"), "i64: bulk string of 6 bytes");
    refuses::<i64>(Value::Ok, "i64: OK");
    refuses::<Vec<i64>>(Value::Boolean(true), "a list: boolean true");
    refuses::<i64>(
        Value::BigNumber("1".repeat(30)),
        "i64: big number of 30 bytes",
    );
    refuses::<i64>(Value::Map(vec![(int(1), int(2))]), "i64: map of 1 pairs");
    refuses::<i64>(Value::Set(vec![]), "i64: set of 0");
}
