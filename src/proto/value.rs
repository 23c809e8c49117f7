//! Replies: what a server can answer, in RESP2 and RESP3.

use std::fmt;

/// A reply of the server.
///
/// RESP2 and RESP3 share it: what RESP2 cannot express (maps, sets, doubles, booleans) simply does
/// not occur there. Attributes are read and dropped; pushes are never replies.
///
/// `Debug` shows strings as text, and what is not UTF-8 as an escaped byte string.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Null: a missing key, a timed out blocking command, a transaction whose WATCH was lost.
    Null,
    /// `+OK`.
    Ok,
    /// Any other simple string.
    Simple(Vec<u8>),
    /// A bulk string: bytes of any kind.
    Bulk(Vec<u8>),
    /// A signed 64-bit integer.
    Integer(i64),
    /// A double (RESP3), exact.
    Double(f64),
    /// A boolean (RESP3).
    Boolean(bool),
    /// An integer of any size (RESP3), as its decimal digits.
    BigNumber(String),
    /// Text with a three-letter format such as `txt` or `mkd` (RESP3).
    Verbatim {
        /// The three letters.
        format: [u8; 3],
        /// The text, without the format.
        text: Vec<u8>,
    },
    /// An array.
    Array(Vec<Value>),
    /// A set (RESP3), in the order sent.
    Set(Vec<Value>),
    /// A map (RESP3), in the order sent.
    Map(Vec<(Value, Value)>),
    /// An error inside a reply, such as a failed command of a transaction.
    Error(ServerError),
}

impl Value {
    /// What kind of value it is, for messages that must not show its content.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Ok => "OK",
            Value::Simple(_) => "simple string",
            Value::Bulk(_) => "bulk string",
            Value::Integer(_) => "integer",
            Value::Double(_) => "double",
            Value::Boolean(_) => "boolean",
            Value::BigNumber(_) => "big number",
            Value::Verbatim { .. } => "verbatim string",
            Value::Array(_) => "array",
            Value::Set(_) => "set",
            Value::Map(_) => "map",
            Value::Error(_) => "error",
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("Null"),
            Value::Ok => f.write_str("Ok"),
            Value::Simple(text) => f.debug_tuple("Simple").field(&Text(text)).finish(),
            Value::Bulk(bytes) => f.debug_tuple("Bulk").field(&Text(bytes)).finish(),
            Value::Integer(number) => f.debug_tuple("Integer").field(number).finish(),
            Value::Double(number) => f.debug_tuple("Double").field(number).finish(),
            Value::Boolean(answer) => f.debug_tuple("Boolean").field(answer).finish(),
            Value::BigNumber(digits) => f.debug_tuple("BigNumber").field(digits).finish(),
            Value::Verbatim { format, text } => f
                .debug_struct("Verbatim")
                .field("format", &Text(format))
                .field("text", &Text(text))
                .finish(),
            Value::Array(items) => f.debug_tuple("Array").field(items).finish(),
            Value::Set(items) => f.debug_tuple("Set").field(items).finish(),
            Value::Map(pairs) => f.debug_tuple("Map").field(pairs).finish(),
            Value::Error(error) => f.debug_tuple("Error").field(error).finish(),
        }
    }
}

/// Bytes that are most likely text.
struct Text<'a>(&'a [u8]);

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.0) {
            Ok(text) => write!(f, "{text:?}"),
            Err(_) => write!(f, "b\"{}\"", self.0.escape_ascii()),
        }
    }
}

/// An error reply: a code such as `WRONGTYPE`, and a text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerError {
    line: Box<str>,
}

impl ServerError {
    /// From the whole line, without the leading `-`.
    pub fn new(line: impl Into<Box<str>>) -> Self {
        Self { line: line.into() }
    }

    /// The first word, such as `WRONGTYPE` or `ERR`.
    pub fn code(&self) -> &str {
        self.line.split(' ').next().unwrap_or("")
    }

    /// The whole line as the server sent it, code included.
    pub fn line(&self) -> &str {
        &self.line
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.line)
    }
}

impl std::error::Error for ServerError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_strings_as_text() {
        let cases = [
            (Value::Bulk("grün\n".into()), r#"Bulk("grün\n")"#),
            (Value::Bulk(vec![b'a', 0, 255]), r#"Bulk(b"a\x00\xff")"#),
            (Value::Simple("PONG".into()), r#"Simple("PONG")"#),
            (
                Value::Array(vec![Value::Null, Value::Integer(1)]),
                "Array([Null, Integer(1)])",
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(format!("{value:?}"), expected);
        }
    }
}
