//! A blocking Redis Cluster client.

mod blocking;
mod cancel;
mod client;
mod cmd;
mod commands;
mod config;
mod convert;
mod error;
mod fan_out;
#[doc(hidden)]
pub mod internals;
mod learned;
mod pending;
mod pipeline;
mod proto;
mod reply;
mod request;
mod runtime;
mod stats;
mod sync;
mod transaction;
mod url;
mod watch;

pub use cancel::CancelToken;
pub use client::Client;
pub use cmd::{Cmd, Route, cmd};
pub use commands::Ttl;
pub use config::{Builder, Credentials, Maintenance, Protocol, ReadFrom, WhenFull};
pub use convert::{Args, FromValue, ToArgs};
pub use error::{Error, Misuse, Result};
pub use pending::{Cancelled, Pending};
pub use pipeline::Pipeline;
pub use proto::addr::NodeAddr;
pub use proto::outcome::{Certainty, Failure, Reason};
pub use proto::refresh::RefreshCause;
pub use proto::slot::Slot;
pub use proto::value::{ServerError, Value};
pub use stats::{NodeStats, Stats};
pub use transaction::Transaction;
pub use watch::Watched;

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
