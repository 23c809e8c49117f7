//! Splits a line into words, with the quotes of redis-cli.
//!
//! * `"…"`: `\n \r \t \b \a`, `\xHH` for any byte; any other character after a backslash is itself.
//! * `'…'`: everything is itself, but `\'` is a quote.
//! * A closing quote must be followed by a space or the end of the line.

use std::iter::Peekable;

/// The words of a line; none for a blank line and for a comment, which begins with `#`.
pub(crate) fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut words = Vec::new();
    let mut rest = line.iter().copied().peekable();
    loop {
        while rest.next_if(u8::is_ascii_whitespace).is_some() {}
        match rest.peek() {
            None => return Ok(words),
            Some(b'#') if words.is_empty() => return Ok(words),
            Some(_) => words.push(word(&mut rest)?),
        }
    }
}

fn word(rest: &mut Peekable<impl Iterator<Item = u8>>) -> Result<Vec<u8>, &'static str> {
    let mut word = Vec::new();
    while let Some(byte) = rest.next_if(|byte| !byte.is_ascii_whitespace()) {
        match byte {
            b'"' => double_quoted(rest, &mut word)?,
            b'\'' => single_quoted(rest, &mut word)?,
            _ => {
                word.push(byte);
                continue;
            }
        }
        if rest.peek().is_some_and(|next| !next.is_ascii_whitespace()) {
            return Err("a closing quote must be followed by a space");
        }
    }
    Ok(word)
}

fn double_quoted(
    rest: &mut impl Iterator<Item = u8>,
    word: &mut Vec<u8>,
) -> Result<(), &'static str> {
    const OPEN: &str = "a double quote is not closed";
    loop {
        match rest.next().ok_or(OPEN)? {
            b'"' => return Ok(()),
            b'\\' => match rest.next().ok_or(OPEN)? {
                b'n' => word.push(b'\n'),
                b'r' => word.push(b'\r'),
                b't' => word.push(b'\t'),
                b'b' => word.push(0x08),
                b'a' => word.push(0x07),
                b'x' => {
                    let mut digit = || rest.next().and_then(|byte| (byte as char).to_digit(16));
                    let (high, low) = (digit(), digit());
                    let byte = high.zip(low).map(|(high, low)| (high * 16 + low) as u8);
                    word.push(byte.ok_or("\\x must be followed by two hexadecimal digits")?);
                }
                other => word.push(other),
            },
            byte => word.push(byte),
        }
    }
}

fn single_quoted(
    rest: &mut Peekable<impl Iterator<Item = u8>>,
    word: &mut Vec<u8>,
) -> Result<(), &'static str> {
    loop {
        match rest.next().ok_or("a single quote is not closed")? {
            b'\'' => return Ok(()),
            b'\\' if rest.next_if_eq(&b'\'').is_some() => word.push(b'\''),
            byte => word.push(byte),
        }
    }
}
