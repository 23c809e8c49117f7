//! Tables for each type, and numbers that must survive the way out and back.

use super::*;
use crate::convert::FromValue;
use crate::proto::value::Value;
use proptest::prelude::*;

/// The arguments of a value, as text.
fn args(value: impl ToArgs) -> Vec<String> {
    let (mut out, mut longest) = (Encoded::new(b"X"), 0);
    value.write_args(&mut Args::new(&mut out, &mut longest));
    let text = |arg: &[u8]| String::from_utf8(arg.to_vec()).unwrap();
    out.args().skip(1).map(text).collect()
}

#[test]
fn bytes_are_one_argument() {
    let shared: Arc<str> = "a".into();
    assert_eq!(args("a"), ["a"]);
    assert_eq!(args(String::from("a")), ["a"]);
    assert_eq!(args(shared), ["a"]);
    assert_eq!(args(Box::<str>::from("a")), ["a"]);
    assert_eq!(args(Cow::Borrowed("a")), ["a"]);
    assert_eq!(args(Cow::Borrowed(&b"ab"[..])), ["ab"]);
    assert_eq!(args(&b"ab"[..]), ["ab"]);
    assert_eq!(args(b"ab"), ["ab"]);
    assert_eq!(args(*b"ab"), ["ab"]);
    assert_eq!(args(b"ab".to_vec()), ["ab"]);
    assert_eq!(args(Vec::<u8>::new()), [""]);
    assert_eq!(args('é'), ["é"]);
}

#[test]
fn other_lists_are_one_argument_each() {
    assert_eq!(args(vec![1, 2]), ["1", "2"]);
    assert_eq!(args([1_u16, 2]), ["1", "2"]);
    assert_eq!(args(&["a", "b"][..]), ["a", "b"]);
    assert_eq!(args(vec![b"ab".to_vec(), b"c".to_vec()]), ["ab", "c"]);
    assert_eq!(args([(1, "a"), (2, "b")]), ["1", "a", "2", "b"]);
    assert_eq!(args(Vec::<i64>::new()), [""; 0]);
    assert_eq!(args([Some("a"), None]), ["a"]);
    assert_eq!(args(BTreeSet::from([2_u8, 1])), ["1", "2"]);
    assert_eq!(args(HashSet::from(["a"])), ["a"]);
    assert_eq!(
        args(BTreeMap::from([("a", 1), ("b", 2)])),
        ["a", "1", "b", "2"]
    );
    assert_eq!(args(HashMap::from([("a", 1)])), ["a", "1"]);
    assert_eq!(
        args((1, "a", 2.5, true, Some(1_u8), 'c', *b"ab", [3])).join(" "),
        "1 a 2.5 1 1 c ab 3"
    );
    assert_eq!(args(("a",)), ["a"]);
}

#[test]
fn integers_of_all_sizes() {
    assert_eq!(args(7_u8), ["7"]);
    assert_eq!(args((false, true)), ["0", "1"]);
    assert_eq!(args(i64::MIN), ["-9223372036854775808"]);
    assert_eq!(args(u64::MAX), ["18446744073709551615"]);
    assert_eq!(args(u128::MAX), ["340282366920938463463374607431768211455"]);
    assert_eq!(
        args(i128::MIN),
        ["-170141183460469231731687303715884105728"]
    );
}

#[test]
fn floats_are_short_and_exact() {
    let cases = [
        (0.1, "0.1"),
        (3.0, "3"),
        (-0.0, "-0"),
        (0.300_000_000_000_000_04, "0.30000000000000004"),
        (8275.35, "8275.35"),
        (1e300, "1e300"),
        (5e-324, "5e-324"),
        (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        (f64::MIN, "-1.7976931348623157e308"),
        (1e16, "10000000000000000"),
        (1e17, "1e17"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ];
    for (number, text) in cases {
        assert_eq!(args(number), [text]);
    }
    assert_eq!(args(0.1_f32), ["0.1"]);
    assert_eq!(args(f32::MAX), ["3.4028235e38"]);
}

#[test]
fn own_types_build_on_others() {
    struct Point(f64, f64);
    impl ToArgs for Point {
        fn write_args(&self, args: &mut Args<'_>) {
            args.bytes(b"point");
            args.integer(2);
            (self.0, self.1).write_args(args);
        }
    }
    assert_eq!(args([Point(1.0, 2.0)]), ["point", "2", "1", "2"]);
}

fn back<T: ToArgs + FromValue>(value: &T) -> T {
    let text = args(value).concat();
    T::from_value(Value::Bulk(text.into_bytes())).unwrap()
}

proptest! {
    #[test]
    fn integers_round_trip(a: i64, b: u64, c: i128, d: u128, e: i8, f: u8, g: i16, h: u32) {
        prop_assert_eq!((back(&a), back(&b), back(&c), back(&d)), (a, b, c, d));
        prop_assert_eq!((back(&e), back(&f), back(&g), back(&h)), (e, f, g, h));
    }

    #[test]
    fn floats_round_trip_bit_by_bit(bits: u64, small: u32) {
        let (double, single) = (f64::from_bits(bits), f32::from_bits(small));
        prop_assume!(!double.is_nan() && !single.is_nan());
        prop_assert_eq!(back(&double).to_bits(), bits);
        prop_assert_eq!(back(&single).to_bits(), small);
    }
}
