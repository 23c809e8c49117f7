//! The limit that a blocking program can reach with connections of its own: raw sockets, a fixed
//! slot table, write to each node, then read from each. No redirects, nothing shared, and values
//! are skipped, not copied.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::contender::{Answer, Interlude, Session, Work};

/// One thread's connections, one to each node.
pub(crate) struct Bare {
    nodes: Vec<Node>,
}

struct Node {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
    waiting: usize,
    line: Vec<u8>,
}

/// The most bytes read at once, over all nodes: what single replies need is far less, and with many
/// nodes and threads the buffers must not fill the memory.
const READ_BYTES: usize = 3 * 64 * 1024;

impl Bare {
    /// Connects to these nodes, which serve equal ranges of the slots, in order.
    pub(crate) fn connect(nodes: &[SocketAddr]) -> io::Result<Self> {
        let capacity = READ_BYTES / nodes.len().max(3);
        let connect = |addr: &SocketAddr| {
            let stream = TcpStream::connect(addr)?;
            stream.set_nodelay(true)?;
            Ok(Node {
                stream: BufReader::with_capacity(capacity, stream),
                out: Vec::new(),
                waiting: 0,
                line: Vec::new(),
            })
        };
        let nodes = nodes.iter().map(connect).collect::<io::Result<_>>()?;
        Ok(Self { nodes })
    }

    fn node(&mut self, key: &str) -> &mut Node {
        let nodes = self.nodes.len();
        let slot = crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % 16384;
        &mut self.nodes[(usize::from(slot) * nodes + nodes - 1) / 16384]
    }

    /// Writes to each node, then reads from each.
    fn exchange(&mut self) -> Answer {
        for node in &mut self.nodes {
            if node.waiting > 0 {
                node.stream.get_mut().write_all(&node.out)?;
                node.out.clear();
            }
        }
        for node in &mut self.nodes {
            for _ in 0..std::mem::take(&mut node.waiting) {
                node.skip_reply()?;
            }
        }
        Ok(())
    }
}

impl Session for Bare {
    fn run(&mut self, work: Work<'_>) -> Answer {
        for &key in work.keys {
            let node = self.node(key);
            match work.value {
                Some(value) => node.set(key, value),
                None => node.get(key)?,
            }
        }
        self.exchange()
    }

    fn send(&mut self, keys: &[&str], _: Option<Interlude<'_>>) -> Answer {
        self.run(Work { keys, value: None })
    }

    fn transact(&mut self, keys: &[&str]) -> Answer {
        let node = self.node(keys[0]);
        node.say(b"*1\r\n$5\r\nMULTI\r\n");
        for key in keys {
            node.get(key)?;
        }
        node.say(b"*1\r\n$4\r\nEXEC\r\n");
        self.exchange()
    }
}

impl Node {
    /// One command without key.
    fn say(&mut self, command: &[u8]) {
        self.out.extend_from_slice(command);
        self.waiting += 1;
    }

    fn get(&mut self, key: &str) -> io::Result<()> {
        self.out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$");
        write!(self.out, "{}\r\n{key}\r\n", key.len())?;
        self.waiting += 1;
        Ok(())
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        let header = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n", key.len());
        self.out.extend_from_slice(header.as_bytes());
        let length = format!("${}\r\n", value.len());
        self.out.extend_from_slice(length.as_bytes());
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
        self.waiting += 1;
    }

    fn skip_reply(&mut self) -> Answer {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line)?;
        let line = String::from_utf8_lossy(&self.line);
        match line.split_at_checked(1) {
            Some(("$", length)) => {
                let length: u64 = length.trim_end().parse()?;
                self.skip(length + 2)
            }
            Some(("*", count)) => {
                let count: u64 = count.trim_end().parse()?;
                (0..count).try_for_each(|_| self.skip_reply())
            }
            Some(("+", _)) => Ok(()),
            _ => Err(format!("not a value: {line:?}").into()),
        }
    }

    fn skip(&mut self, bytes: u64) -> Answer {
        let skipped = io::copy(&mut self.stream.by_ref().take(bytes), &mut io::sink())?;
        if skipped == bytes {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
        }
    }
}
