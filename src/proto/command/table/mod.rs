//! The table of commands, by group. Order does not matter.

use super::spec::Spec;

/// Why a command needs its node named, and how that is done.
macro_rules! on_one_node {
    ($why:literal) => {
        concat!($why, ": name the node by `Cmd::route(Route::Node(addr))`")
    };
}

/// Why a command may not change a connection, and what to do instead.
macro_rules! shared {
    ($instead:literal) => {
        concat!("changes a connection that all callers share", $instead)
    };
}

mod cluster;
mod collections;
mod connection;
mod server;
mod strings;

pub(super) const GROUPS: [&[Spec]; 5] = [
    strings::COMMANDS,
    collections::COMMANDS,
    server::COMMANDS,
    cluster::COMMANDS,
    connection::COMMANDS,
];
