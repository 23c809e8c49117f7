//! A minimal RESP client: one blocking connection, independent of the library under test.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection to one server.
#[derive(Debug)]
pub struct Wire {
    stream: BufReader<TcpStream>,
}

impl Wire {
    /// Connects; reads and writes give up after five seconds.
    pub fn connect(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        let mut wire = Self {
            stream: BufReader::new(stream),
        };
        wire.set_timeout(Duration::from_secs(5))?;
        Ok(wire)
    }

    /// Changes how long reads and writes may take.
    pub fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(timeout))?;
        self.stream.get_ref().set_write_timeout(Some(timeout))
    }

    /// Sends a command and reads one reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.read()
    }

    /// Sends a command without reading its reply.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        self.send_raw(&encode(args))
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads one reply. `UnexpectedEof` tells that the server closed the connection.
    pub fn read(&mut self) -> io::Result<Reply> {
        let line = self.read_line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| bad(&line))?;
        match kind {
            "+" => Ok(Reply::Simple(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => rest.parse().map(Reply::Int).map_err(|_| bad(&line)),
            "_" => Ok(Reply::Nil),
            "#" | "," | "(" => Ok(Reply::Simple(rest.to_owned())),
            "$" | "=" => self.read_bulk(length(rest, &line)?),
            "*" | "~" => self.read_many(length(rest, &line)?),
            "%" => self.read_many(length(rest, &line)?.map(|pairs| pairs * 2)),
            ">" => match self.read_many(length(rest, &line)?)? {
                Reply::Array(items) => Ok(Reply::Push(items)),
                _ => Err(bad(&line)),
            },
            _ => Err(bad(&line)),
        }
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.len() - 2);
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn read_bulk(&mut self, length: Option<usize>) -> io::Result<Reply> {
        let Some(length) = length else {
            return Ok(Reply::Nil);
        };
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Bulk(bytes))
    }

    fn read_many(&mut self, length: Option<usize>) -> io::Result<Reply> {
        let Some(length) = length else {
            return Ok(Reply::Nil);
        };
        let items: io::Result<Vec<Reply>> = (0..length).map(|_| self.read()).collect();
        items.map(Reply::Array)
    }
}

/// What a server answered. RESP3 types that have no use in the harness are folded into these:
/// a map is a flat array, a double or boolean is its text.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status such as `OK`.
    Simple(String),
    /// An error, without the leading dash.
    Error(String),
    /// A whole number.
    Int(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// Null of any kind.
    Nil,
    /// An array, set or flattened map.
    Array(Vec<Reply>),
    /// An out-of-band message (RESP3).
    Push(Vec<Reply>),
}

impl Reply {
    /// A bulk string with this text.
    pub fn bulk(text: &str) -> Self {
        Self::Bulk(text.as_bytes().to_vec())
    }

    /// Whether it is the status `OK`.
    pub fn is_ok(&self) -> bool {
        *self == Self::Simple("OK".into())
    }

    /// The text of an error.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }

    /// The text of a status, error, number or bulk string; empty for anything else.
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) | Self::Error(text) => text.clone(),
            Self::Int(number) => number.to_string(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nil | Self::Array(_) | Self::Push(_) => String::new(),
        }
    }

    /// The elements of an array; none for anything else.
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::Array(items) | Self::Push(items) => items,
            _ => &[],
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Int(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Nil => write!(f, "nil"),
            Self::Array(items) => f.debug_list().entries(items).finish(),
            Self::Push(items) => {
                write!(f, "push")?;
                f.debug_list().entries(items).finish()
            }
        }
    }
}

/// The bytes of a command as clients send it.
pub fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The length in a header; `None` for the nulls of RESP2.
fn length(digits: &str, line: &str) -> io::Result<Option<usize>> {
    if digits == "-1" {
        return Ok(None);
    }
    digits.parse().map(Some).map_err(|_| bad(line))
}

fn bad(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {line:?}"))
}
