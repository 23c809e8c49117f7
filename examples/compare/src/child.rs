//! This program once more, for what needs a process of its own.
//!
//! A child is started with a hidden argument, which names what it does, and prints its result.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::contender::{Answer, Contender, Failure};
use crate::{fake, idle, memory};

const FAKE: &str = "--child-fake";
const IDLE: &str = "--child-idle";
const MEMORY: &str = "--child-memory";

/// Does what a child is for; `None` if this process is none.
pub(crate) fn run(args: &[String]) -> Option<Answer> {
    let (name, rest) = args.split_first()?;
    match name.as_str() {
        FAKE => Some(number(rest, 0).and_then(fake::serve)),
        IDLE => Some(number(rest, 1).and_then(|seconds| {
            let ports: Vec<&str> = rest.iter().skip(2).map(String::as_str).collect();
            idle::child(contender(rest)?, seconds as u64, &nodes(&ports)?)
        })),
        MEMORY => {
            let server = rest.get(1).map_or("redis-server", String::as_str);
            Some(contender(rest).and_then(|contender| memory::child(contender, server)))
        }
        _ => None,
    }
}

/// A child under way. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Waits for its end and returns what it printed.
    pub(crate) fn result(mut self) -> Result<String, Failure> {
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        match self.child.wait()? {
            status if status.success() => Ok(text.trim().to_owned()),
            status => Err(format!("the child process failed: {status}").into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a cluster of so many nodes that are not real; returns where they listen.
pub(crate) fn start_fake(count: usize) -> Result<(Running, Vec<SocketAddr>), Failure> {
    let mut running = start(&[FAKE, &count.to_string()])?;
    let mut line = String::new();
    running.output.read_line(&mut line)?;
    let ports: Vec<&str> = line.split_whitespace().collect();
    if ports.len() != count {
        return Err("the cluster that is not real does not start".into());
    }
    Ok((running, nodes(&ports)?))
}

/// Starts a client that does nothing for so many seconds.
pub(crate) fn start_idle(
    contender: Contender,
    seconds: u64,
    nodes: &[SocketAddr],
) -> Result<Running, Failure> {
    let ports: Vec<String> = nodes.iter().map(|node| node.port().to_string()).collect();
    let seconds = seconds.to_string();
    let mut args = vec![IDLE, contender.name(), &seconds];
    args.extend(ports.iter().map(String::as_str));
    start(&args)
}

/// Starts a client that queues commands for a server that does not answer.
pub(crate) fn start_memory(contender: Contender, server: &str) -> Result<Running, Failure> {
    start(&[MEMORY, contender.name(), server])
}

fn start(args: &[&str]) -> Result<Running, Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("a child without output")?;
    let output = BufReader::new(output);
    Ok(Running { child, output })
}

fn contender(args: &[String]) -> Result<Contender, Failure> {
    let found = args.first().and_then(|name| Contender::named(name));
    found.ok_or_else(|| "a child for no client".into())
}

fn number(args: &[String], at: usize) -> Result<usize, Failure> {
    let text = args.get(at).ok_or("a child without number")?;
    Ok(text.parse()?)
}

fn nodes(ports: &[&str]) -> Result<Vec<SocketAddr>, Failure> {
    let node = |port: &&str| Ok((Ipv4Addr::LOCALHOST, port.parse()?).into());
    ports.iter().map(node).collect()
}
