//! The wire format: replies to send, commands to read.

/// A status such as `+OK`.
pub fn simple(text: &str) -> Vec<u8> {
    format!("+{text}\r\n").into_bytes()
}

/// An error; the text has no leading dash.
pub fn error(text: &str) -> Vec<u8> {
    format!("-{text}\r\n").into_bytes()
}

/// A whole number.
pub fn integer(number: i64) -> Vec<u8> {
    format!(":{number}\r\n").into_bytes()
}

/// A string of bytes.
pub fn bulk(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let mut reply = format!("${}\r\n", bytes.len()).into_bytes();
    reply.extend_from_slice(bytes);
    reply.extend_from_slice(b"\r\n");
    reply
}

/// Nothing, in place of a string.
pub fn null(protocol: u8) -> Vec<u8> {
    if protocol == 3 { "_\r\n" } else { "$-1\r\n" }.into()
}

/// Nothing, in place of an array.
pub fn null_array(protocol: u8) -> Vec<u8> {
    if protocol == 3 { "_\r\n" } else { "*-1\r\n" }.into()
}

/// An array of replies.
pub fn array<R: AsRef<[u8]>>(items: &[R]) -> Vec<u8> {
    aggregate(b'*', items.len(), items)
}

/// A map of keys and values in turn: a flat array in RESP2.
pub fn map<R: AsRef<[u8]>>(protocol: u8, items: &[R]) -> Vec<u8> {
    if protocol == 3 {
        aggregate(b'%', items.len() / 2, items)
    } else {
        array(items)
    }
}

/// An out-of-band message of RESP3.
pub fn push<R: AsRef<[u8]>>(items: &[R]) -> Vec<u8> {
    aggregate(b'>', items.len(), items)
}

fn aggregate<R: AsRef<[u8]>>(kind: u8, count: usize, items: &[R]) -> Vec<u8> {
    let mut reply = vec![kind];
    reply.extend_from_slice(format!("{count}\r\n").as_bytes());
    for item in items {
        reply.extend_from_slice(item.as_ref());
    }
    reply
}

/// Cuts a stream of bytes into commands.
#[derive(Debug, Default)]
pub struct Parser {
    buffer: Vec<u8>,
    /// How much of the buffer was handed out.
    used: usize,
}

impl Parser {
    /// Adds bytes that arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next command, if all of it has arrived.
    pub fn next_command(&mut self) -> Result<Option<Vec<Vec<u8>>>, String> {
        let mut rest = &self.buffer[self.used..];
        let Some(count) = header(&mut rest, b'*')? else {
            return Ok(None);
        };
        let mut argv = Vec::new();
        for _ in 0..count {
            let Some(length) = header(&mut rest, b'$')? else {
                return Ok(None);
            };
            if rest.len() < length + 2 {
                return Ok(None);
            }
            argv.push(rest[..length].to_vec());
            rest = &rest[length + 2..];
        }
        self.used = self.buffer.len() - rest.len();
        Ok(Some(argv))
    }
}

/// Takes a line such as `*3` off `bytes`; `None` if it is not complete.
fn header(bytes: &mut &[u8], kind: u8) -> Result<Option<usize>, String> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let line = &bytes[..end];
    let number = line.strip_prefix(&[kind]).and_then(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        digits.parse().ok()
    });
    *bytes = &bytes[end + 2..];
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(format!(
            "expected '{}', got '{}'",
            char::from(kind),
            line.escape_ascii()
        )),
    }
}
