//! What runs: threads, sockets, channels, the clock. It moves bytes, units and time between them
//! and the core, and decides nothing.
//!
//! | thread | owns | inbox | ends when | joined by |
//! |---|---|---|---|---|
//! | coordinator | the cluster's mind, all node threads | events, parked units, control | the client closes | the client |
//! | write loop, one per node | the queue, the writing half | units and messages | told to end | the coordinator |
//! | reader, one per node | the reading half | the socket | its stop is dropped | its write loop |
//! | topology, one per query | a connection of its own | the socket | it was answered, or stopped | the coordinator |
//!
//! Callers run on threads of their own: they read the routes, push into one inbox, and wait on one
//! reply cell. Each connection belongs to one reader and one write loop; what both need is the
//! list of units on the wire.

pub(crate) mod clock;
pub(crate) mod coordinator;
pub(crate) mod dial;
pub(crate) mod load;
pub(crate) mod node;
mod query;
mod reader;
pub(crate) mod routes;
pub(crate) mod thread;
pub(crate) mod transport;
