//! A scripted Redis Cluster inside the test process.
//!
//! [`FakeCluster::start`] opens real sockets on loopback. Without further words the nodes behave
//! like servers: they hold keys, know who owns which slot, redirect what is not theirs, queue
//! transactions, and follow the rules of `ASKING` and of slots in motion. On top of that a test
//! can script any deviation: a reply of its own, a delay, a command held until released, a
//! connection cut at a given place. Everything that arrives is logged before it is handled.
//!
//! ```no_run
//! let cluster = FakeCluster::start(2);
//! let key = key_for_slot(5061);
//! cluster.node(0).on("GET").key(&key).times(1).error("LOADING still reading");
//! let gate = cluster.node(1).hold("GET", "foo");
//! // … let the client work …
//! gate.wait_arrived(1);
//! gate.release();
//! assert_eq!(cluster.log().on(0).commands("GET").count(), 2);
//! ```
//!
//! Threads of a connection: a *reader* logs commands as they arrive, a *worker* answers them in
//! order, so that commands behind a held one are still seen. The words of this module: *node*,
//! numbered from 0; *connection*, numbered over all nodes in the order they were accepted; *rule*,
//! a condition with a *script*; *script*, the steps that answer one command; *view*, the slot map
//! in the eyes of one node.
//!
//! Dropping the cluster closes its sockets and joins its threads. Uses the standard library only.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "written as a library for tests, which use one part of it here and another there"
)]

mod answer;
mod command;
mod connection;
mod keys;
mod log;
mod node;
mod placement;
pub mod resp;
mod route;
mod rule;
mod script;
mod server;
mod session;
mod shared;
mod store;
mod topology;

pub use keys::{key_for_slot, key_in, keys_in, slot_of};
pub use log::{Entry, Log};
pub use node::{Accept, Node};
pub use rule::{On, Rule};
pub use script::{Gate, Script};
pub use server::{Builder, Dialect, FakeCluster};
pub use topology::{Fields, Format, Host, Topology};

use std::time::Duration;

/// How long the waiting methods wait before they fail the test.
pub const PATIENCE: Duration = Duration::from_secs(10);
