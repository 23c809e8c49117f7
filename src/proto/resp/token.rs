//! One line of RESP: a whole scalar, or the header of a string or an aggregate.

use super::fault::ProtocolError;
use crate::proto::value::{ServerError, Value};

/// What a line says.
#[derive(Debug)]
pub(super) enum Token<'a> {
    /// A complete value.
    Scalar(Scalar<'a>),
    /// A string of this length follows.
    Text(Text, u64),
    /// This many elements follow; in maps and attributes, twice as many.
    Aggregate(Aggregate, u64),
}

/// A value that is one line. Nothing is allocated for it yet, as it may not be kept.
#[derive(Debug)]
pub(super) enum Scalar<'a> {
    Null,
    Ok,
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    BigNumber(&'a str),
    Double(f64),
    Boolean(bool),
}

/// What a string with a length becomes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Text {
    Bulk,
    Error,
    Verbatim,
}

/// What elements become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Array,
    Set,
    Map,
    Push,
    /// Data about the reply that follows. It is read past and never counts.
    Attribute,
}

impl<'a> Token<'a> {
    /// Reads a line, given without its end.
    #[inline]
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, ProtocolError> {
        let Some((&kind, rest)) = line.split_first() else {
            return Err(ProtocolError::LineEnd);
        };
        Ok(match kind {
            b'$' | b'*' if rest == b"-1" => Token::Scalar(Scalar::Null),
            b'$' => Token::Text(Text::Bulk, length(kind, rest)?),
            b'*' => Token::Aggregate(Aggregate::Array, length(kind, rest)?),
            b'!' => Token::Text(Text::Error, length(kind, rest)?),
            b'=' => match length(kind, rest)? {
                0..4 => return Err(ProtocolError::Verbatim),
                len => Token::Text(Text::Verbatim, len),
            },
            b'%' => Token::Aggregate(Aggregate::Map, length(kind, rest)?),
            b'~' => Token::Aggregate(Aggregate::Set, length(kind, rest)?),
            b'>' => Token::Aggregate(Aggregate::Push, length(kind, rest)?),
            b'|' => Token::Aggregate(Aggregate::Attribute, length(kind, rest)?),
            _ => Token::Scalar(Scalar::parse(kind, rest)?),
        })
    }

    /// Refuses a first byte with which no line begins, so that nothing waits for the rest.
    #[inline]
    pub(super) fn check_kind(kind: u8) -> Result<(), ProtocolError> {
        match kind {
            b'$' | b'*' | b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' | b'!' | b'=' | b'%'
            | b'~' | b'>' | b'|' => Ok(()),
            _ => Err(unknown(kind)),
        }
    }
}

impl<'a> Scalar<'a> {
    #[inline]
    fn parse(kind: u8, rest: &'a [u8]) -> Result<Self, ProtocolError> {
        Ok(match kind {
            b'+' if rest == b"OK" => Scalar::Ok,
            b'+' => Scalar::Simple(rest),
            b'-' => Scalar::Error(rest),
            b':' => integer(rest)?,
            b'_' if rest.is_empty() => Scalar::Null,
            b'_' => return Err(ProtocolError::Null),
            b'#' => Scalar::Boolean(boolean(rest)?),
            b',' => Scalar::Double(double(rest)?),
            b'(' => Scalar::BigNumber(number(rest).ok_or(ProtocolError::BigNumber)?),
            _ => return Err(unknown(kind)),
        })
    }

    #[inline]
    pub(super) fn into_value(self) -> Value {
        match self {
            Scalar::Null => Value::Null,
            Scalar::Ok => Value::Ok,
            Scalar::Simple(text) => Value::Simple(text.to_vec()),
            Scalar::Error(line) => Value::Error(error(line)),
            Scalar::Integer(integer) => Value::Integer(integer),
            Scalar::BigNumber(digits) => Value::BigNumber(digits.to_owned()),
            Scalar::Double(double) => Value::Double(double),
            Scalar::Boolean(boolean) => Value::Boolean(boolean),
        }
    }
}

impl Text {
    /// The value of a string that was received.
    pub(super) fn into_value(self, mut bytes: Vec<u8>) -> Result<Value, ProtocolError> {
        Ok(match self {
            Text::Bulk => Value::Bulk(bytes),
            Text::Error => Value::Error(error(&bytes)),
            Text::Verbatim => {
                let [a, b, c, b':', ..] = bytes[..] else {
                    return Err(ProtocolError::Verbatim);
                };
                bytes.drain(..4);
                Value::Verbatim {
                    format: [a, b, c],
                    text: bytes,
                }
            }
        })
    }
}

impl Aggregate {
    /// How many values an aggregate of this length contains. Lengths are below 2⁶³.
    pub(super) fn values(self, length: u64) -> u64 {
        match self {
            Aggregate::Map | Aggregate::Attribute => 2 * length,
            Aggregate::Array | Aggregate::Set | Aggregate::Push => length,
        }
    }
}

fn unknown(kind: u8) -> ProtocolError {
    match kind {
        b';' | b'.' => ProtocolError::Streamed(kind),
        _ => ProtocolError::UnknownType(kind),
    }
}

/// Digits and nothing else, below 2⁶³.
#[inline]
fn length(kind: u8, digits: &[u8]) -> Result<u64, ProtocolError> {
    if digits.is_empty() {
        return Err(ProtocolError::Length);
    }
    let mut length = 0_i64;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return Err(match digits {
                b"?" => ProtocolError::Streamed(kind),
                _ => ProtocolError::Length,
            });
        }
        length = length
            .checked_mul(10)
            .and_then(|length| length.checked_add(i64::from(digit - b'0')))
            .ok_or(ProtocolError::Length)?;
    }
    Ok(length.unsigned_abs())
}

/// An optional sign and digits. What `i64` cannot hold becomes a big number.
fn integer(text: &[u8]) -> Result<Scalar<'_>, ProtocolError> {
    let text = number(text).ok_or(ProtocolError::Integer)?;
    Ok(match text.parse() {
        Ok(integer) => Scalar::Integer(integer),
        Err(_) => Scalar::BigNumber(text),
    })
}

/// The text if it is an optional sign and at least one digit; without the sign if that is a plus.
fn number(text: &[u8]) -> Option<&str> {
    let (text, digits) = match text {
        [b'+', digits @ ..] => (digits, digits),
        [b'-', digits @ ..] => (text, digits),
        digits => (digits, digits),
    };
    let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| valid)
}

fn boolean(text: &[u8]) -> Result<bool, ProtocolError> {
    match text {
        b"t" => Ok(true),
        b"f" => Ok(false),
        _ => Err(ProtocolError::Boolean),
    }
}

/// A double, correctly rounded. Before version 7.2, servers print infinities and NaN as their C
/// library does: `-nan`, `nan(0x8)`.
fn double(text: &[u8]) -> Result<f64, ProtocolError> {
    let text = std::str::from_utf8(text).map_err(|_| ProtocolError::Double)?;
    match text.parse() {
        Ok(double) => Ok(double),
        Err(_) => nan_with_payload(text).ok_or(ProtocolError::Double),
    }
}

fn nan_with_payload(text: &str) -> Option<f64> {
    let (nan, payload) = text.strip_suffix(')')?.split_once('(')?;
    let valid = payload
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let nan: f64 = nan.parse().ok()?;
    (valid && nan.is_nan()).then_some(nan)
}

/// An error. What is not UTF-8 in it is replaced: it is text for people.
fn error(text: &[u8]) -> ServerError {
    ServerError::new(String::from_utf8_lossy(text))
}
