//! Replies as Rust values: the trait, and scalars.

use std::str::FromStr;

use crate::error::{Error, Result};
use crate::proto::outcome::{Certainty, Failure, Reason};
use crate::proto::value::{ServerError, Value};

/// A type that replies can be read as.
///
/// | type | reads |
/// |---|---|
/// | [`Value`] | everything, as it came |
/// | `()` | everything without an error inside, and drops it |
/// | `bool` | booleans, `1` and `0`, `OK` |
/// | integers | integers and their decimal text; out of range is an error, nothing wraps |
/// | `f32`, `f64` | doubles, integers and their text, with `inf` and `nan` in any spelling |
/// | `String`, `Box<str>`, `Vec<u8>` | strings of any kind, and the text of numbers |
/// | `Option<T>` | `None` for null, else `T`; nothing else reads null, and empty is not null |
/// | `Vec<T>`, `Box<[T]>`, `[T; N]`, sets | lists; a map as key, value, key, value, … |
/// | `Vec` of tuples | a list of lists, or a flat list cut into rows; of pairs: also a map |
/// | maps | a map, a list of pairs, or a flat list of keys and values |
/// | tuples | a list (or map) of exactly that many elements |
/// | `Result<T, ServerError>` | an error inside a reply, else `T` |
///
/// So a reply reads the same in RESP2 and RESP3: `HGETALL` as a map or `Vec` of pairs, `ZRANGE …
/// WITHSCORES` as `Vec<(String, f64)>`. `Vec<u8>` is a byte string; from a list it is the list's
/// numbers.
///
/// Payloads are moved out of the reply, not copied.
///
/// # Errors
///
/// [`Error::Conversion`] if the reply is of another kind. An error inside the reply, such as that
/// of one command of a transaction, becomes [`Error::Server`] unless the type has room for it
/// ([`Value`], `Result<T, ServerError>`).
pub trait FromValue: Sized {
    /// Reads a reply.
    fn from_value(value: Value) -> Result<Self>;

    /// Reads a list. Only `u8` (byte strings) and tuples (rows) differ from one element after the
    /// other: without specialisation this method is how `Vec<u8>` and `Vec<i64>` can both exist.
    #[doc(hidden)]
    fn vec_from_value(value: Value) -> Result<Vec<Self>> {
        super::containers::elements(value, "a list")?
            .map(Self::from_value)
            .collect()
    }
}

/// The error for a reply that is not what was wanted.
///
/// It names the kind of the reply, and its content only if that is short and no stored data. An
/// error inside the reply takes precedence: it is why the wanted value is not there.
pub(super) fn mismatch(wanted: &'static str, value: Value) -> Error {
    if let Value::Error(cause) = value {
        let mut failure = Failure::new(Reason::Server, Certainty::Unknown);
        failure.cause = Some(cause);
        return Error::Server(failure);
    }
    Error::Conversion {
        wanted,
        reply: describe(&value).into(),
    }
}

/// Longest simple string that an error message quotes.
const QUOTED: usize = 32;

fn describe(value: &Value) -> String {
    let kind = value.kind();
    match value {
        Value::Simple(text) if text.len() <= QUOTED && text.iter().all(u8::is_ascii_graphic) => {
            format!("{kind} {}", String::from_utf8_lossy(text))
        }
        Value::Integer(number) => format!("{kind} {number}"),
        Value::Boolean(answer) => format!("{kind} {answer}"),
        Value::Simple(bytes) | Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => {
            format!("{kind} of {} bytes", bytes.len())
        }
        Value::BigNumber(digits) => format!("{kind} of {} bytes", digits.len()),
        Value::Array(items) | Value::Set(items) => format!("{kind} of {}", items.len()),
        Value::Map(pairs) => format!("{kind} of {} pairs", pairs.len()),
        Value::Null | Value::Ok | Value::Double(_) | Value::Error(_) => kind.into(),
    }
}

impl FromValue for Value {
    fn from_value(value: Value) -> Result<Self> {
        Ok(value)
    }
}

impl FromValue for () {
    fn from_value(value: Value) -> Result<Self> {
        match first_error(value) {
            Some(cause) => Err(mismatch("()", Value::Error(cause))),
            None => Ok(()),
        }
    }
}

/// The first error anywhere in a reply. Recursive: the decoder bounds the nesting.
fn first_error(value: Value) -> Option<ServerError> {
    match value {
        Value::Error(error) => Some(error),
        Value::Array(items) | Value::Set(items) => items.into_iter().find_map(first_error),
        Value::Map(pairs) => pairs
            .into_iter()
            .find_map(|(key, item)| first_error(key).or_else(|| first_error(item))),
        _ => None,
    }
}

impl FromValue for bool {
    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Boolean(answer) => Ok(answer),
            Value::Integer(1) | Value::Ok => Ok(true),
            Value::Integer(0) => Ok(false),
            Value::Bulk(ref text) | Value::Simple(ref text) => match text.as_slice() {
                b"1" => Ok(true),
                b"0" => Ok(false),
                _ => Err(mismatch("bool", value)),
            },
            other => Err(mismatch("bool", other)),
        }
    }
}

macro_rules! integers {
    ($($number:ident)*) => {$(
        impl FromValue for $number {
            fn from_value(value: Value) -> Result<Self> {
                integer(value, stringify!($number))
            }
        }
    )*};
}

integers!(i8 i16 i32 i64 i128 isize u16 u32 u64 u128 usize);

impl FromValue for u8 {
    fn from_value(value: Value) -> Result<Self> {
        integer(value, "u8")
    }

    fn vec_from_value(value: Value) -> Result<Vec<u8>> {
        match value {
            Value::Array(items) | Value::Set(items) => {
                items.into_iter().map(u8::from_value).collect()
            }
            other => string(other, "bytes"),
        }
    }
}

fn integer<N>(value: Value, wanted: &'static str) -> Result<N>
where
    N: TryFrom<i64> + FromStr,
{
    let number = match &value {
        Value::Integer(number) => N::try_from(*number).ok(),
        Value::Boolean(answer) => N::try_from(i64::from(*answer)).ok(),
        Value::Double(double) => whole(*double).and_then(|number| N::try_from(number).ok()),
        Value::BigNumber(digits) => digits.parse().ok(),
        Value::Bulk(text) | Value::Simple(text) | Value::Verbatim { text, .. } => {
            std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse().ok())
        }
        _ => None,
    };
    number.ok_or_else(|| mismatch(wanted, value))
}

/// A double that stands for exactly one integer: RESP3 sends some integers as doubles.
fn whole(double: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    let exact = double.fract() == 0.0 && double.abs() <= EXACT;
    exact.then_some(double as i64)
}

macro_rules! floats {
    ($($number:ident)*) => {$(
        impl FromValue for $number {
            fn from_value(value: Value) -> Result<Self> {
                let number = match &value {
                    Value::Double(double) => {
                        let near = *double as $number;
                        (near.is_finite() || !double.is_finite()).then_some(near)
                    }
                    Value::Integer(number) => Some(*number as $number),
                    Value::BigNumber(digits) => float(digits.as_bytes()),
                    Value::Bulk(text) | Value::Simple(text) | Value::Verbatim { text, .. } => {
                        float(text)
                    }
                    _ => None,
                };
                number.ok_or_else(|| mismatch(stringify!($number), value))
            }
        }
    )*};
}

floats!(f32 f64);

/// Reads a float as C prints it. Rust knows `inf` and `nan` with sign and in any case; only
/// the form `nan(0x8)` of older servers is missing. Digits beyond the range are refused: Rust
/// would read them as infinity.
fn float<N: FromStr + From<f32> + Into<f64> + Copy>(text: &[u8]) -> Option<N> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(number) = text.parse::<N>() {
        let finite = text.contains(|c: char| c.is_ascii_digit());
        return (!finite || number.into().is_finite()).then_some(number);
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (word, rest) = unsigned.split_at_checked(3)?;
    let payload = rest.starts_with('(') && rest.ends_with(')');
    (word.eq_ignore_ascii_case("nan") && payload).then(|| N::from(f32::NAN))
}

impl FromValue for String {
    fn from_value(value: Value) -> Result<Self> {
        let bytes = string(value, "String")?;
        String::from_utf8(bytes).map_err(|error| Error::Conversion {
            wanted: "String",
            reply: format!("{} bytes that are not UTF-8", error.as_bytes().len()).into(),
        })
    }
}

impl FromValue for Box<str> {
    fn from_value(value: Value) -> Result<Self> {
        String::from_value(value).map(String::into_boxed_str)
    }
}

/// The bytes of a string, or of the text of a number.
fn string(value: Value, wanted: &'static str) -> Result<Vec<u8>> {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) | Value::Verbatim { text: bytes, .. } => {
            Ok(bytes)
        }
        Value::Ok => Ok(b"OK".to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        Value::Double(number) if number.is_nan() => Ok(b"nan".to_vec()),
        Value::Double(number) => Ok(number.to_string().into_bytes()),
        Value::Boolean(answer) => Ok(u8::from(answer).to_string().into_bytes()),
        Value::BigNumber(digits) => Ok(digits.into_bytes()),
        other => Err(mismatch(wanted, other)),
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Null => Ok(None),
            other => T::from_value(other).map(Some),
        }
    }
}

impl<T: FromValue> FromValue for std::result::Result<T, ServerError> {
    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Error(error) => Ok(Err(error)),
            other => T::from_value(other).map(Ok),
        }
    }
}

#[cfg(test)]
mod tests;
