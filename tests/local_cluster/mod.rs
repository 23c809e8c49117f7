//! Real clusters on loopback, for tests and examples: starts servers, moves slots, breaks nodes.
//!
//! The server is `redis-server`, or the program named in `RESLOT_TEST_SERVER`. Nodes are numbered
//! from 0: first the primaries in order of their slots, then the replicas of the first primary,
//! those of the second and so on, then nodes without slots. A number keeps its node whatever role
//! that node takes later.
//!
//! ```no_run
//! let cluster = LocalCluster::builder().primaries(3).replicas(1).start();
//! let owner = cluster.primary_of(5061);
//! cluster.move_slot(5061, owner, (owner + 1) % 3);
//! cluster.kill(0);
//! cluster.wait_promoted(3);
//! ```
//!
//! Everything takes `&self` and may be called from several threads. What cannot be done panics and
//! names the folder with the servers' logs. Dropping the cluster kills its servers and deletes its
//! folder (after a panic the logs stay); so does the death of the whole process.
//!
//! This module knows nothing of the library under test and uses the standard library only.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "several crates include this module, and each uses another part of it"
)]

mod builder;
mod info;
mod install;
mod moving;
mod poll;
mod ports;
mod process;
mod state;
mod view;
mod wire;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use builder::Builder;
pub use info::ServerKind;
pub use install::{ensure_server, server_program};
pub use moving::SlotMove;
pub use poll::poll_until;
pub use view::Member;
pub use wire::{Reply, Wire, encode};

use process::Process;

/// How long the harness waits for the servers to do anything before it gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster of real servers.
#[derive(Debug)]
pub struct LocalCluster {
    server: String,
    folder: PathBuf,
    password: Option<String>,
    nodes: Vec<Node>,
}

impl LocalCluster {
    /// Three primaries without replicas, unless told otherwise.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// How many nodes were started.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Where a node listens.
    pub fn addr(&self, node: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.nodes[node].port).into()
    }

    /// All nodes as seeds of a client: `redis://127.0.0.1:7000,127.0.0.1:7001`.
    pub fn url(&self) -> String {
        let addrs: Vec<String> = self.indices().map(|i| self.addr(i).to_string()).collect();
        format!("redis://{}", addrs.join(","))
    }

    /// The id by which the cluster knows a node.
    pub fn id(&self, node: usize) -> &str {
        &self.nodes[node].id
    }

    /// The node that listens at this port.
    pub fn node_at(&self, port: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.port == port)
    }

    /// The node with this id.
    pub fn node_with_id(&self, id: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// The folder with one folder per node, where its log is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends one command to a node on a connection of its own.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, node: usize, args: &[A]) -> Reply {
        self.try_command(node, args)
            .unwrap_or_else(|error| self.fail(&format!("node {node} does not answer: {error}")))
    }

    /// As [`Self::command`], for nodes that may be down.
    pub fn try_command<A: AsRef<[u8]>>(&self, node: usize, args: &[A]) -> io::Result<Reply> {
        self.connect(node)?.call(args)
    }

    /// A raw connection to a node, logged in.
    pub fn connect(&self, node: usize) -> io::Result<Wire> {
        let mut wire = Wire::connect(self.addr(node))?;
        if let Some(password) = &self.password {
            wire.call(&["AUTH", password])?;
        }
        Ok(wire)
    }

    /// Kills a node (`SIGKILL`): its sockets close, nothing is saved but the cluster's state.
    pub fn kill(&self, node: usize) {
        self.nodes[node].set(Run::Down);
    }

    /// Starts a killed node again at the same port, with what it knows about the cluster but no
    /// data, and waits until it answers. A running node is killed first.
    #[track_caller]
    pub fn restart(&self, node: usize) {
        self.kill(node);
        let own = &self.nodes[node];
        let process = own.launch(&self.server, &self.folder);
        let process = process.unwrap_or_else(|error| self.fail(&format!("restart: {error}")));
        own.set(Run::Up(process));
        poll_until(PATIENCE, "the restarted node", || self.answers(node));
    }

    /// Freezes a node (`SIGSTOP`): its sockets stay open, nothing is answered. If it is killed
    /// while frozen, its peers learn of it no sooner than the kernel tells them.
    #[track_caller]
    pub fn pause(&self, node: usize) {
        self.signal(node, "STOP");
        self.nodes[node].run().pause();
    }

    /// Lets a frozen node go on (`SIGCONT`).
    #[track_caller]
    pub fn resume(&self, node: usize) {
        self.signal(node, "CONT");
        self.nodes[node].run().resume();
    }

    /// The nodes that are neither killed nor frozen.
    pub fn running(&self) -> Vec<usize> {
        self.indices()
            .filter(|&node| matches!(*self.nodes[node].run(), Run::Up(_)))
            .collect()
    }

    #[track_caller]
    fn signal(&self, node: usize, name: &str) {
        let result = match &*self.nodes[node].run() {
            Run::Up(process) | Run::Frozen(process) => process.signal(name),
            Run::Down => Err(io::Error::other("it is not running")),
        };
        result.unwrap_or_else(|error| self.fail(&format!("node {node}: {error}")));
    }

    fn answers(&self, node: usize) -> Result<(), String> {
        match self.try_command(node, &["PING"]) {
            Ok(reply) if reply.text() == "PONG" => Ok(()),
            Ok(reply) => Err(format!("node {node} answers {reply:?}")),
            Err(error) => Err(format!("node {node}: {error}")),
        }
    }

    fn indices(&self) -> std::ops::Range<usize> {
        0..self.nodes.len()
    }

    #[track_caller]
    fn fail(&self, reason: &str) -> ! {
        panic!("{reason} (logs in {})", self.folder.display())
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.set(Run::Down);
        }
        if !std::thread::panicking() {
            // What cannot be removed is in the temporary folder and hurts nobody.
            let _ = fs::remove_dir_all(&self.folder);
            return;
        }
        for node in &self.nodes {
            node.remove_data();
        }
        eprintln!(
            "logs of the servers: {}/*/server.log",
            self.folder.display()
        );
    }
}

/// One server of the cluster.
#[derive(Debug)]
struct Node {
    port: u16,
    id: String,
    folder: PathBuf,
    run: Mutex<Run>,
}

impl Node {
    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the process; the one before is killed.
    fn set(&self, run: Run) {
        *self.run() = run;
    }

    fn launch(&self, server: &str, cluster_folder: &Path) -> io::Result<Process> {
        let conf = self.folder.join("server.conf");
        Process::start(server, &conf, &self.log(), cluster_folder)
    }

    fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// Removes everything but the log.
    fn remove_data(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.path() != self.log()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// What a server process is doing.
#[derive(Debug)]
enum Run {
    Up(Process),
    /// Stopped by `SIGSTOP`.
    Frozen(Process),
    Down,
}

impl Run {
    fn pause(&mut self) {
        *self = match std::mem::replace(self, Self::Down) {
            Self::Up(process) => Self::Frozen(process),
            other => other,
        };
    }

    fn resume(&mut self) {
        *self = match std::mem::replace(self, Self::Down) {
            Self::Frozen(process) => Self::Up(process),
            other => other,
        };
    }
}
