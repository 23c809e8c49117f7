//! Tests of the whole library against scripted and real clusters.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod calls;
mod clients;
mod command_table;
mod connection_loss;
mod fake;
mod harness;
#[path = "../local_cluster/mod.rs"]
mod local_cluster;
mod maintenance;
mod pipelines;
mod real;
mod redirects;
mod refresh;
mod relocation;
mod run;
mod seeds;
mod topology;
mod transactions;
