//! What runs: threads, sockets, channels, the clock. It moves bytes, units and time between them
//! and the core, and decides nothing.
//!
//! | thread | owns | ends when | joined by |
//! |---|---|---|---|
//! | coordinator | the cluster's mind, all nodes | the client closes | the client |
//! | write, one per node | queue, writing half | told to end | the coordinator |
//! | read, one per node | reading half | its stop is dropped | its write loop |
//! | move, one per announced move | a connection | connected or stopped | its reader |
//! | topology, one per query | a connection | answered or stopped | the coordinator |
//!
//! Callers run on threads of their own: they read the routes, push into one inbox, and wait on one
//! reply cell. Each connection is written by one thread at a time (its write loop, or the caller of
//! a unit that nothing waits in front of) and read by one at a time (a caller that waits, or else
//! its reading thread); what both need is the list of units on the wire.

pub(crate) mod clock;
pub(crate) mod coordinator;
pub(crate) mod dedicated;
pub(crate) mod dial;
pub(crate) mod direct;
mod drive;
pub(crate) mod load;
mod mover;
pub(crate) mod node;
mod query;
mod read_side;
mod reader;
mod reading;
pub(crate) mod records;
mod rest;
pub(crate) mod routes;
mod seat;
mod settings;
pub(crate) mod thread;
pub(crate) mod transport;
pub(crate) mod wire;
mod write_loop;
