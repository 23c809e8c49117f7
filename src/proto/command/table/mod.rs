//! The table of commands, by group. Order does not matter.

use super::spec::Spec;

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
