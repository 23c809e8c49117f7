//! A blocking Redis Cluster client for programs that do not use async.
//!
//! One [`Client`] is shared by all threads of a program. Their commands are pipelined on one
//! connection per node; each command is redirected by itself, and when a slot moves, the commands
//! that wait for it move along. Every error tells by its [`Certainty`] whether its command may have
//! run.
//!
//! ```no_run
//! use reslot::{Client, cmd};
//!
//! let client = Client::connect("redis://127.0.0.1:7000")?;
//! client.set("k", "v")?;
//! let value: Option<String> = client.get("k")?;
//! let hits: i64 = client.query(cmd("INCRBY").arg("hits").arg(3))?;
//! # Ok::<(), reslot::Error>(())
//! ```
//!
//! # Logging
//!
//! The client logs through the [`log`](https://docs.rs/log) crate; without a logger of the program
//! nothing is written. `error`: no thread can be started, or a defect of the client. `warn`: a node
//! cannot be connected to (each attempt, at most about one a second), or was silent for so long
//! that its connection was closed. `info`: the shared connection to a node ended, maintenance was
//! announced. `debug`: refreshes of the slot map, what the client closes itself, and trouble of
//! connections that blocking commands and watched sessions use. Nothing logs keys, values or
//! passwords.
//!
//! # Architecture
//!
//! ```text
//!  caller threads              coordinator thread             per node: two OS threads
//!  ──────────────              ──────────────────             ─────────────────────────
//!  Client                      slot map, redirects, pauses,   write loop: owns the queue,
//!    routes by a snapshot ───▶ refreshes, slots on the move, ◀▶  writes the socket
//!    queues at the node        life of the nodes              reader: matches replies to
//!    waits on its reply cell                                    what was written
//! ```
//!
//! * What you call stands at the root, one file per noun.
//! * `proto` is what is true about Redis Cluster. It has no socket, thread, channel or clock, so
//!   its rules are tested on virtual time and over all short histories. It imports nothing else.
//! * `runtime` is what runs. It moves bytes, units and time, and decides nothing.
//!
//! The way of a command: `cmd` → `request` (where may it go?) → `runtime::routes` → the write loop,
//! or the calling thread itself if the node is idle → `proto::inflight` → `proto::verdict` → its
//! `reply` cell, or `proto::cluster` if it is redirected.

mod client;
mod cmd;
mod commands;
mod pending;
mod permission;
mod pipeline;
mod transaction;
mod watch;

mod blocking;
mod cancel;
mod fan_out;
mod learned;
mod request;

mod config;
mod convert;
mod error;
mod stats;
mod url;

mod proto;
mod reply;
mod runtime;
mod sync;

#[doc(hidden)]
pub mod internals;

pub use cancel::CancelToken;
pub use client::Client;
pub use cmd::{Cmd, Route, cmd};
pub use commands::Ttl;
pub use config::{Builder, Credentials, Maintenance, Protocol, ReadFrom, WhenFull};
pub use convert::{Args, FromValue, ToArgs};
pub use error::{Error, Misuse, Result};
pub use pending::{Cancelled, Pending};
pub use pipeline::{Pipeline, Report};
pub use proto::addr::NodeAddr;
pub use proto::outcome::{Certainty, Failure, Reason};
pub use proto::refresh::RefreshCause;
pub use proto::slot::Slot;
pub use proto::value::{ServerError, Value};
pub use stats::{NodeStats, Stats};
pub use transaction::Transaction;
pub use watch::{WatchOptions, Watched};

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
