//! Tests of the decoder by type. Those in pieces, beyond limits and at random are submodules.

mod fuzz;
mod limits;
mod pieces;
mod round_trip;

use super::*;
use crate::proto::value::ServerError;

/// Bytes of memory that a value holds beyond its own place.
pub(in crate::proto::resp) fn held_by(value: &Value) -> usize {
    let pair = |(a, b): &(Value, Value)| held_by(a) + held_by(b);
    match value {
        Value::Simple(bytes) | Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => {
            bytes.capacity()
        }
        Value::BigNumber(digits) => digits.capacity(),
        Value::Error(error) => error.line().len(),
        Value::Array(values) | Value::Set(values) => {
            values.capacity() * size_of::<Value>() + values.iter().map(held_by).sum::<usize>()
        }
        Value::Map(pairs) => {
            pairs.capacity() * 2 * size_of::<Value>() + pairs.iter().map(pair).sum::<usize>()
        }
        _ => 0,
    }
}

/// Gives the decoder all of `bytes` and adds every frame to `frames`.
fn feed(
    decoder: &mut Decoder,
    mut bytes: &[u8],
    frames: &mut Vec<Frame>,
) -> Result<(), ProtocolError> {
    while !bytes.is_empty() {
        receive(decoder, &mut bytes);
        while let Some(frame) = decoder.next_frame()? {
            frames.push(frame);
        }
    }
    Ok(())
}

/// The same, by runs of replies.
fn feed_runs(
    decoder: &mut Decoder,
    mut bytes: &[u8],
    frames: &mut Vec<Frame>,
) -> Result<(), ProtocolError> {
    let mut replies = VecDeque::new();
    while !bytes.is_empty() {
        receive(decoder, &mut bytes);
        loop {
            let push = decoder.take_replies(&mut replies);
            frames.extend(replies.drain(..).map(Frame::Reply));
            match push? {
                Some(push) => frames.push(Frame::Push(push)),
                None => break,
            }
        }
    }
    Ok(())
}

/// Gives the decoder as much as one read brings.
fn receive(decoder: &mut Decoder, bytes: &mut &[u8]) {
    let spare = decoder.spare();
    let count = spare.len().min(bytes.len());
    spare[..count].copy_from_slice(&bytes[..count]);
    decoder.filled(count);
    *bytes = &bytes[count..];
}

/// Frames of a stream that arrives in these pieces, and the error that ended it: the same whether
/// they are taken one by one or in runs of replies.
fn decode_pieces<'a>(
    limits: DecodeLimits,
    pieces: impl IntoIterator<Item = &'a [u8]> + Clone,
) -> (Vec<Frame>, Option<ProtocolError>) {
    let one_by_one = decode_by(limits, pieces.clone(), feed);
    let in_runs = decode_by(limits, pieces, feed_runs);
    // As text, because NaN differs from itself.
    assert_eq!(format!("{one_by_one:?}"), format!("{in_runs:?}"));
    one_by_one
}

type Feed = fn(&mut Decoder, &[u8], &mut Vec<Frame>) -> Result<(), ProtocolError>;

fn decode_by<'a>(
    limits: DecodeLimits,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    feed: Feed,
) -> (Vec<Frame>, Option<ProtocolError>) {
    let mut decoder = Decoder::new(limits);
    let mut frames = Vec::new();
    for piece in pieces {
        if let Err(error) = feed(&mut decoder, piece, &mut frames) {
            assert_eq!(decoder.next_frame(), Err(error), "errors are final");
            let none = decoder.take_replies(&mut VecDeque::new());
            assert_eq!(none, Err(error), "errors are final");
            return (frames, Some(error));
        }
    }
    (frames, None)
}

fn decode(bytes: &[u8]) -> (Vec<Frame>, Option<ProtocolError>) {
    decode_pieces(DecodeLimits::default(), [bytes])
}

/// The only reply in `bytes`.
fn reply(bytes: impl AsRef<[u8]>) -> Value {
    let bytes = bytes.as_ref();
    match decode(bytes) {
        (mut frames, None) if frames.len() == 1 => match frames.remove(0) {
            Frame::Reply(Ok(value)) => value,
            other => panic!("{other:?}"),
        },
        other => panic!("{} gives {other:?}", String::from_utf8_lossy(bytes)),
    }
}

fn bulk(bytes: &str) -> Value {
    Value::Bulk(bytes.into())
}

fn simple(bytes: &str) -> Value {
    Value::Simple(bytes.into())
}

fn error(line: &str) -> Value {
    Value::Error(ServerError::new(line))
}

fn verbatim(format: &[u8; 3], text: &str) -> Value {
    Value::Verbatim {
        format: *format,
        text: text.into(),
    }
}

use Value::{Array, BigNumber, Boolean, Double, Integer, Map, Null, Ok as Okay, Set};

#[test]
fn every_type() {
    let table = [
        ("+OK\r\n", Okay),
        ("+ok\r\n", simple("ok")),
        ("+\r\n", simple("")),
        ("-ERR no\r\n", error("ERR no")),
        ("-\r\n", error("")),
        ("$3\r\nfoo\r\n", bulk("foo")),
        ("$0\r\n\r\n", bulk("")),
        ("$-1\r\n", Null),
        ("*-1\r\n", Null),
        ("_\r\n", Null),
        ("*0\r\n", Array(vec![])),
        ("*2\r\n$-1\r\n$-1\r\n", Array(vec![Null, Null])),
        ("*2\r\n_\r\n$0\r\n\r\n", Array(vec![Null, bulk("")])),
        ("*2\r\n*-1\r\n*0\r\n", Array(vec![Null, Array(vec![])])),
        (
            "*2\r\n-E a\r\n$1\r\ns\r\n",
            Array(vec![error("E a"), bulk("s")]),
        ),
        ("#t\r\n", Boolean(true)),
        ("#f\r\n", Boolean(false)),
        ("!7\r\nE a\r\nbc\r\n", error("E a\r\nbc")),
        ("=4\r\ntxt:\r\n", verbatim(b"txt", "")),
        ("=8\r\nmkd:abcd\r\n", verbatim(b"mkd", "abcd")),
        ("~2\r\n:1\r\n:1\r\n", Set(vec![Integer(1), Integer(1)])),
        ("~0\r\n", Set(vec![])),
        ("%0\r\n", Map(vec![])),
        ("%1\r\n+a\r\n%1\r\n:1\r\n_\r\n", {
            Map(vec![(simple("a"), Map(vec![(Integer(1), Null)]))])
        }),
        ("$22\r\na\r\n$3\r\nxyz\r\n\r\r\n\0\n+OK\r\n\r\n", {
            bulk("a\r\n$3\r\nxyz\r\n\r\r\n\0\n+OK\r\n")
        }),
    ];
    for (bytes, value) in table {
        assert_eq!(reply(bytes), value, "{bytes}");
    }
    let lossy = reply(b"-ERR \xff\r\n");
    assert_eq!(lossy, error("ERR \u{fffd}"));
}

#[test]
fn integers_are_exact() {
    let table = [
        ("9223372036854775807", Integer(i64::MAX)),
        ("-9223372036854775808", Integer(i64::MIN)),
        (
            "9223372036854775808",
            BigNumber("9223372036854775808".into()),
        ),
        (
            "-9223372036854775809",
            BigNumber("-9223372036854775809".into()),
        ),
        ("9007199254740991", Integer(9007199254740991)),
        ("+5", Integer(5)),
        ("-0", Integer(0)),
        ("0000000000000000000000007", Integer(7)),
    ];
    for (digits, value) in table {
        assert_eq!(reply(format!(":{digits}\r\n")), value, "{digits}");
    }
    for digits in ["3492890328409238509324850943850943825024385", "-12", "0"] {
        assert_eq!(reply(format!("({digits}\r\n")), BigNumber(digits.into()));
    }
    assert_eq!(reply("(+12\r\n"), BigNumber("12".into()));
}

#[test]
fn doubles_are_exact() {
    let table = [
        ("0.30000000000000004", 0.30000000000000004),
        ("1.7976931348623157e+308", f64::MAX),
        ("5e-324", f64::from_bits(1)),
        ("0.000000000000000001", 1e-18),
        ("8275.35", 8275.35),
        ("99.99", 99.99),
        ("-0", -0.0),
        ("3", 3.0),
        ("1e+100", 1e100),
        ("1E5", 1e5),
        (".5", 0.5),
        ("10.", 10.0),
        ("0.10000000000000001", 0.1),
        ("1.0000000000000001e+300", 1e300),
        ("inf", f64::INFINITY),
        ("-inf", f64::NEG_INFINITY),
        ("+inf", f64::INFINITY),
        ("Inf", f64::INFINITY),
        ("infinity", f64::INFINITY),
    ];
    for (text, double) in table {
        let Double(read) = reply(format!(",{text}\r\n")) else {
            panic!("{text}");
        };
        assert_eq!(read.to_bits(), double.to_bits(), "{text}");
    }
    for text in [
        "nan",
        "-nan",
        "NAN",
        "NaN",
        "nan(0x8)",
        "-nan(0x8)",
        "nan()",
    ] {
        let frames = decode(format!("*1\r\n,{text}\r\n+PONG\r\n").as_bytes()).0;
        let [Frame::Reply(Ok(Array(values))), pong] = &frames[..] else {
            panic!("{text}: {frames:?}");
        };
        assert!(
            matches!(values[..], [Double(nan)] if nan.is_nan()),
            "{text}"
        );
        assert_eq!(*pong, Frame::Reply(Ok(simple("PONG"))));
    }
}

#[test]
fn malformed_bytes_end_the_stream_at_once() {
    use ProtocolError as E;
    let table: &[(&str, E)] = &[
        ("$-2\r\n", E::Length),
        ("$-0\r\n", E::Length),
        ("$-01\r\n", E::Length),
        ("$\r\n", E::Length),
        ("$abc\r\n", E::Length),
        ("$ 3\r\nfoo\r\n", E::Length),
        ("$+3\r\nfoo\r\n", E::Length),
        ("$3 \r\nfoo\r\n", E::Length),
        ("$9223372036854775808\r\n", E::Length),
        ("*99999999999999999999\r\n", E::Length),
        ("*-5\r\n", E::Length),
        ("*1a\r\n", E::Length),
        ("%-1\r\n", E::Length),
        ("~-1\r\n", E::Length),
        (">-1\r\n", E::Length),
        ("|-1\r\n", E::Length),
        ("!-1\r\n", E::Length),
        ("=-1\r\n", E::Length),
        (":12a\r\n", E::Integer),
        (":\r\n", E::Integer),
        (":-\r\n", E::Integer),
        (":+-1\r\n", E::Integer),
        (": 1\r\n", E::Integer),
        (":1.0\r\n", E::Integer),
        ("(12x\r\n", E::BigNumber),
        ("(\r\n", E::BigNumber),
        ("#x\r\n", E::Boolean),
        ("#\r\n", E::Boolean),
        ("#true\r\n", E::Boolean),
        ("_x\r\n", E::Null),
        (",\r\n", E::Double),
        (",.\r\n", E::Double),
        (",1,5\r\n", E::Double),
        (", 1\r\n", E::Double),
        (",inf(1)\r\n", E::Double),
        (",nan(\r\n", E::Double),
        (",\u{e9}\r\n", E::Double),
        ("=2\r\nab\r\n", E::Verbatim),
        ("=0\r\n\r\n", E::Verbatim),
        ("=5\r\nabcde\r\n", E::Verbatim),
        ("$3\r\nfooXX", E::StringEnd),
        ("$3\r\nfoo\rX", E::StringEnd),
        ("$0\r\n$0\r\n", E::StringEnd),
        ("+a\rb\r\n", E::LineEnd),
        ("+a\nb\r\n", E::LineEnd),
        ("$3\nfoo\n", E::LineEnd),
        ("*1\r\n>1\r\n+x\r\n", E::NestedPush),
        (">1\r\n>1\r\n+x\r\n", E::NestedPush),
        ("|1\r\n+k\r\n>0\r\n", E::NestedPush),
        ("$?\r\n", E::Streamed(b'$')),
        ("*?\r\n", E::Streamed(b'*')),
        (";3\r\nabc\r\n", E::Streamed(b';')),
        (".\r\n", E::Streamed(b'.')),
        ("H", E::UnknownType(b'H')),
        ("\r\n", E::UnknownType(b'\r')),
        ("*1\r\n\0", E::UnknownType(0)),
    ];
    for (bytes, error) in table {
        let stream = format!("+OK\r\n{bytes}");
        let ok = Frame::Reply(Ok(Okay));
        assert_eq!(
            decode(stream.as_bytes()),
            (vec![ok], Some(*error)),
            "{bytes:?}"
        );
        let single = stream.as_bytes().chunks(1);
        let in_bytes = decode_pieces(DecodeLimits::default(), single);
        assert_eq!(in_bytes.1, Some(*error), "{bytes:?} byte by byte");
    }
    let long = vec![b'+'; DecodeLimits::default().line_bytes + 2];
    assert_eq!(decode(&long).1, Some(E::LineTooLong));
    assert_eq!(E::UnknownType(0x15).to_string(), "unknown reply type 0x15");
}

#[test]
fn attributes_take_no_place() {
    let popular = "|1\r\n$14\r\nkey-popularity\r\n*2\r\n$7\r\nkey:123\r\n:90\r\n";
    let table = [
        (format!("{popular}$3\r\nfoo\r\n"), bulk("foo")),
        (format!("{popular}-ERR no\r\n"), error("ERR no")),
        (format!("{popular}{popular}|0\r\n:1\r\n"), Integer(1)),
        (format!("*1\r\n{popular}:1\r\n"), Array(vec![Integer(1)])),
        (
            format!("{popular}*1\r\n|0\r\n:1\r\n"),
            Array(vec![Integer(1)]),
        ),
        (format!("%1\r\n{popular}+k\r\n{popular}:1\r\n"), {
            Map(vec![(simple("k"), Integer(1))])
        }),
        (
            format!("|1\r\n{popular}+k\r\n{popular}*1\r\n{popular}+v\r\n:1\r\n"),
            Integer(1),
        ),
    ];
    for (bytes, value) in table {
        assert_eq!(reply(&bytes), value, "{bytes}");
    }
    let before_push = format!("{popular}>1\r\n{popular}+x\r\n{popular}");
    assert_eq!(
        decode(before_push.as_bytes()),
        (vec![Frame::Push(vec![simple("x")])], None)
    );
}

#[test]
fn pushes_stand_between_replies() {
    let invalidate = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
    let message = ">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\nc\r\n$1\r\nx\r\n";
    let others = [
        ">2\r\n$10\r\ninvalidate\r\n_\r\n",
        ">0\r\n",
        ">1\r\n+unknown\r\n",
        message,
    ];
    let mut stream = invalidate.to_owned();
    for number in 0..100 {
        stream += &format!("$3\r\n{:03}\r\n{invalidate}{}", number, others[number % 4]);
    }
    let (frames, end) = decode(stream.as_bytes());
    assert_eq!(end, None);
    let (replies, pushes): (Vec<_>, Vec<_>) = frames
        .into_iter()
        .partition(|frame| matches!(frame, Frame::Reply(_)));
    assert_eq!(pushes.len(), 201);
    assert_eq!(
        pushes[0],
        Frame::Push(vec![bulk("invalidate"), Array(vec![bulk("k")])])
    );
    for (number, reply) in replies.into_iter().enumerate() {
        assert_eq!(reply, Frame::Reply(Ok(bulk(&format!("{number:03}")))));
    }
}
