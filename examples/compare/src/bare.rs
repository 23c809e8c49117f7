//! The limit that a blocking program can reach with connections of its own: raw sockets, a fixed
//! slot table, write to each node, then read from each. No redirects, nothing shared, and values
//! are skipped, not copied.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::contender::{Answer, Session, Work};

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

impl Bare {
    /// Connects to these nodes, which serve equal ranges of the slots, in order.
    pub(crate) fn connect(nodes: &[SocketAddr]) -> io::Result<Self> {
        let connect = |addr: &SocketAddr| {
            let stream = TcpStream::connect(addr)?;
            stream.set_nodelay(true)?;
            Ok(Node {
                stream: BufReader::with_capacity(64 * 1024, stream),
                out: Vec::new(),
                waiting: 0,
                line: Vec::new(),
            })
        };
        let nodes = nodes.iter().map(connect).collect::<io::Result<_>>()?;
        Ok(Self { nodes })
    }
}

impl Session for Bare {
    fn run(&mut self, work: Work<'_>) -> Answer {
        let nodes = self.nodes.len();
        for &key in work.keys {
            let slot = crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % 16384;
            let node = &mut self.nodes[(usize::from(slot) * nodes + nodes - 1) / 16384];
            match work.value {
                Some(value) => {
                    let header = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n", key.len());
                    node.out.extend_from_slice(header.as_bytes());
                    let length = format!("${}\r\n", value.len());
                    node.out.extend_from_slice(length.as_bytes());
                    node.out.extend_from_slice(value);
                }
                None => {
                    node.out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$");
                    write!(node.out, "{}\r\n{key}", key.len())?;
                }
            }
            node.out.extend_from_slice(b"\r\n");
            node.waiting += 1;
        }
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

impl Node {
    fn skip_reply(&mut self) -> Answer {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line)?;
        let line = String::from_utf8_lossy(&self.line);
        match line.split_at_checked(1) {
            Some(("$", length)) => {
                let length: u64 = length.trim_end().parse()?;
                self.skip(length + 2)
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
