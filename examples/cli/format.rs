//! Replies as text, the way redis-cli writes them.

use reslot::Value;

/// How replies are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// For people: strings quoted, types named, elements numbered.
    Quoted,
    /// For programs: bytes as they are, one element a line.
    Raw,
}

impl Style {
    /// A reply, with a newline at its end.
    pub(crate) fn format(self, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Style::Quoted => quoted(&mut out, value, ""),
            Style::Raw => raw(&mut out, value),
        }
        out.push(b'\n');
        out
    }

    /// A failure, with a newline at its end.
    pub(crate) fn error(self, message: &str) -> Vec<u8> {
        match self {
            Style::Quoted => format!("(error) {message}\n").into_bytes(),
            Style::Raw => format!("{message}\n").into_bytes(),
        }
    }
}

fn raw(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => {}
        Value::Bulk(bytes) => out.extend_from_slice(bytes),
        Value::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Double(number) => out.extend_from_slice(double(*number).as_bytes()),
        Value::Error(error) => out.extend_from_slice(error.line().as_bytes()),
        Value::Array(items) | Value::Set(items) => {
            for (index, item) in items.iter().enumerate() {
                new_line(out, index);
                raw(out, item);
            }
        }
        Value::Map(pairs) => {
            for (index, (key, item)) in pairs.iter().enumerate() {
                new_line(out, index);
                raw(out, key);
                out.push(b' ');
                raw(out, item);
            }
        }
        other => quoted(out, other, ""),
    }
}

fn new_line(out: &mut Vec<u8>, index: usize) {
    if index > 0 {
        out.push(b'\n');
    }
}

/// Appends a reply whose lines but the first begin with `indent`.
fn quoted(out: &mut Vec<u8>, value: &Value, indent: &str) {
    match value {
        Value::Null => out.extend_from_slice(b"(nil)"),
        Value::Ok => out.extend_from_slice(b"OK"),
        Value::Simple(text) | Value::Verbatim { text, .. } => out.extend_from_slice(text),
        Value::Bulk(bytes) => escaped(out, bytes),
        Value::Integer(number) => out.extend_from_slice(format!("(integer) {number}").as_bytes()),
        Value::Double(number) => {
            out.extend_from_slice(format!("(double) {}", double(*number)).as_bytes());
        }
        Value::Boolean(answer) => out.extend_from_slice(format!("({answer})").as_bytes()),
        Value::BigNumber(digits) => out.extend_from_slice(digits.as_bytes()),
        Value::Error(error) => out.extend_from_slice(format!("(error) {error}").as_bytes()),
        Value::Array(items) => list(out, items, ')', "array", indent),
        Value::Set(items) => list(out, items, '~', "set", indent),
        Value::Map(pairs) => map(out, pairs, indent),
        // The type may get more variants.
        other => out.extend_from_slice(format!("{other:?}").as_bytes()),
    }
}

fn list(out: &mut Vec<u8>, items: &[Value], mark: char, kind: &str, indent: &str) {
    if items.is_empty() {
        out.extend_from_slice(format!("(empty {kind})").as_bytes());
    }
    for (index, item) in items.iter().enumerate() {
        let inner = number(out, index, items.len(), mark, indent);
        quoted(out, item, &inner);
    }
}

fn map(out: &mut Vec<u8>, pairs: &[(Value, Value)], indent: &str) {
    if pairs.is_empty() {
        out.extend_from_slice(b"(empty hash)");
    }
    for (index, (key, item)) in pairs.iter().enumerate() {
        let inner = number(out, index, pairs.len(), '#', indent);
        quoted(out, key, &inner);
        out.extend_from_slice(b" => ");
        quoted(out, item, &inner);
    }
}

/// Begins an element with its number, and gives the indent of what is inside it.
fn number(out: &mut Vec<u8>, index: usize, count: usize, mark: char, indent: &str) -> String {
    if index > 0 {
        out.extend_from_slice(format!("\n{indent}").as_bytes());
    }
    let digits = count.to_string().len();
    out.extend_from_slice(format!("{:>digits$}{mark} ", index + 1).as_bytes());
    format!("{indent}{:width$}", "", width = digits + 2)
}

fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

/// As the protocol writes it; Rust would write `NaN`.
fn double(number: f64) -> String {
    if number.is_nan() {
        "nan".into()
    } else {
        number.to_string()
    }
}
