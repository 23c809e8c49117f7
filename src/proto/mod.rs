//! What is true about Redis Cluster, without a socket, thread, channel or clock.
//!
//! Nothing here can reach the outside: the current time and random seeds are arguments, events
//! come in and effects go out. That is what makes the rules testable on virtual time and over
//! all short histories. The module imports nothing from the crate but itself.

pub(crate) mod addr;
pub(crate) mod slot;
pub(crate) mod value;

pub(crate) mod command;
pub(crate) mod limits;
pub(crate) mod maintenance;
pub(crate) mod outcome;
pub(crate) mod resp;

pub(crate) mod backoff;
pub(crate) mod redirect;
pub(crate) mod refresh;
pub(crate) mod topology;
pub(crate) mod unit;
pub(crate) mod verdict;

pub(crate) mod cluster;
pub(crate) mod handshake;
pub(crate) mod inflight;
pub(crate) mod outbox;
pub(crate) mod queue;

#[cfg(test)]
pub(crate) mod testing;
