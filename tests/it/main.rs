//! Tests of the whole library against scripted and real clusters.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod asked;
mod backpressure;
mod blocking;
mod calls;
mod cancel;
mod cancel_queued;
mod cancel_written;
mod clients;
mod command_table;
mod connection_loss;
mod fake;
mod handshake;
mod harness;
#[path = "../local_cluster/mod.rs"]
mod local_cluster;
mod logging;
mod login;
mod maintenance;
mod pipelines;
mod real;
mod redirects;
mod refresh;
mod refusals;
mod relocation;
mod replies;
mod run;
mod seeds;
mod shutdown;
mod stale_routes;
mod stated;
mod timeouts;
mod topology;
mod transactions;
mod unreachable;
mod watch;
mod watch_certainty;
