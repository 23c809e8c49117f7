//! Tests of the whole library against scripted and real clusters.

mod harness;
#[path = "../local_cluster/mod.rs"]
mod local_cluster;
