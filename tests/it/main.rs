//! Integration tests: everything that needs a socket, in one crate.

mod command_table;
