//! Tests of the whole library against scripted and real clusters.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod command_table;
mod fake;
mod harness;
#[path = "../local_cluster/mod.rs"]
mod local_cluster;
mod maintenance;
