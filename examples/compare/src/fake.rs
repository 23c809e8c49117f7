//! A cluster of many nodes that costs hardly more than its sockets: one thread, which answers each
//! `GET` with the same value and knows just enough else for clients to believe in it.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};

use crate::contender::Answer;

/// The most bytes read at once.
const READ_BYTES: usize = 4096;

/// What every `GET` gives.
const VALUE: [u8; 64] = [b'f'; 64];

const INFO: &str = "redis_version:7.0.15\r\nredis_mode:cluster\r\ncluster_enabled:1\r\n\
                    cluster_state:ok\r\nrole:master\r\n";

/// In the child: prints the ports of so many nodes, and serves them until its input ends, which it
/// does at the latest when the parent ends.
pub(crate) fn serve(count: usize) -> Answer {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(|| {
        // An input that cannot be read has ended, too.
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    runtime.block_on(async {
        let mut listeners = Vec::new();
        for _ in 0..count {
            listeners.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?);
        }
        let addrs: Result<Vec<_>, _> = listeners.iter().map(TcpListener::local_addr).collect();
        let addrs = addrs?;
        let ports: Vec<String> = addrs.iter().map(|addr| addr.port().to_string()).collect();
        let replies = Arc::new(Replies::new(&addrs));
        for listener in listeners {
            tokio::spawn(accept(listener, Arc::clone(&replies)));
        }
        println!("{}", ports.join(" "));
        std::future::pending().await
    })
}

async fn accept(listener: TcpListener, replies: Arc<Replies>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(talk(stream, Arc::clone(&replies)));
    }
}

/// Serves one connection. Why it ends is of no interest.
async fn talk(stream: TcpStream, replies: Arc<Replies>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut input, mut output) = (Vec::new(), Vec::new());
    while read(&stream, &mut input).await? > 0 {
        let mut done = 0;
        while let Some((words, length)) = parse(&input[done..]) {
            output.extend_from_slice(replies.to(words));
            done += length;
        }
        input.drain(..done);
        write_all(&stream, &output).await?;
        output.clear();
    }
    Ok(())
}

/// Reads what has come; 0 at the end.
async fn read(stream: &TcpStream, input: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        let mut piece = [0; READ_BYTES];
        match stream.try_read(&mut piece) {
            Ok(length) => {
                input.extend_from_slice(&piece[..length]);
                return Ok(length);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn write_all(stream: &TcpStream, mut output: &[u8]) -> io::Result<()> {
    while !output.is_empty() {
        match stream.try_write(output) {
            Ok(length) => output = &output[length..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The first two words of a command, and the bytes of all of it; `None` until it is complete.
fn parse(input: &[u8]) -> Option<([&[u8]; 2], usize)> {
    let (count, mut at) = header(input, 0)?;
    let mut words: [&[u8]; 2] = [b"", b""];
    for number in 0..count {
        let (length, start) = header(input, at)?;
        let end = start + length;
        let word = input.get(start..end)?;
        at = end + 2;
        if at > input.len() {
            return None;
        }
        if let Some(place) = words.get_mut(number) {
            *place = word;
        }
    }
    Some((words, at))
}

/// The number of a line such as `$3`, and where the next line begins.
fn header(input: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = input.get(at + 1..)?;
    let end = line.windows(2).position(|two| two == b"\r\n")?;
    let digits = line[..end].iter();
    let number = digits.fold(0, |sum, digit| {
        sum * 10 + usize::from(digit.wrapping_sub(b'0'))
    });
    Some((number, at + 1 + end + 2))
}

/// What is answered, ready to be sent.
struct Replies {
    value: Vec<u8>,
    slots: Vec<u8>,
    hello2: Vec<u8>,
    hello3: Vec<u8>,
    info: Vec<u8>,
}

impl Replies {
    fn new(nodes: &[SocketAddr]) -> Self {
        let count = nodes.len();
        let mut slots = format!("*{count}\r\n");
        for (at, node) in nodes.iter().enumerate() {
            let (first, last) = (16384 * at / count, 16384 * (at + 1) / count - 1);
            slots += &format!(
                "*3\r\n:{first}\r\n:{last}\r\n*3\r\n$9\r\n{}\r\n:{}\r\n$40\r\n{at:040}\r\n",
                node.ip(),
                node.port()
            );
        }
        let hello = |map: &str, version: u8| {
            let named = "$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n";
            format!("{map}\r\n{named}$5\r\nproto\r\n:{version}\r\n").into_bytes()
        };
        let value = String::from_utf8_lossy(&VALUE);
        Self {
            value: format!("${}\r\n{value}\r\n", VALUE.len()).into_bytes(),
            slots: slots.into_bytes(),
            hello2: hello("*6", 2),
            hello3: hello("%3", 3),
            info: format!("${}\r\n{INFO}\r\n", INFO.len()).into_bytes(),
        }
    }

    fn to(&self, [name, argument]: [&[u8]; 2]) -> &[u8] {
        let is = |word: &str, text: &[u8]| text.eq_ignore_ascii_case(word.as_bytes());
        if is("GET", name) {
            return &self.value;
        }
        match () {
            () if is("HELLO", name) && argument == b"3" => &self.hello3,
            () if is("HELLO", name) => &self.hello2,
            () if is("CLUSTER", name) && is("SLOTS", argument) => &self.slots,
            () if is("CLUSTER", name) && is("INFO", argument) => &self.info,
            () if is("CLUSTER", name) => b"-ERR unknown subcommand\r\n",
            () if is("INFO", name) => &self.info,
            () if is("PING", name) => b"+PONG\r\n",
            () if is("CLIENT", name) && is("ID", argument) => b":1\r\n",
            () if is("COMMAND", name) => b"*0\r\n",
            // CLIENT SETNAME, READONLY and the like.
            () => b"+OK\r\n",
        }
    }
}
