//! The library against real clusters: every test is named after what goes wrong in clients.
//!
//! Starting a cluster costs seconds, so most tests share one: see [`clusters`]. Tests that break
//! something have their cluster for themselves while they run, and leave it whole.

mod blocked;
mod clusters;
mod endpoints;
mod failover;
mod fan_out;
mod load;
mod login;
mod outages;
mod pauses;
mod replicas;
mod resharding;
mod routing;
mod sharing;
mod slot_moves;
mod transfers;
mod values;
