//! What a server remembers about one connection.

use super::log::Entry;

/// The state of a connection between commands.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) node: usize,
    pub(super) connection: usize,
    /// 2 or 3.
    pub(super) protocol: u8,
    pub(super) authenticated: bool,
    pub(super) readonly: bool,
    /// Set by `ASKING`: holds for the next command, or up to the end of a transaction.
    pub(super) asking: bool,
    pub(super) transaction: Option<Transaction>,
    /// Keys with the version that they had when they were watched.
    pub(super) watched: Vec<(Vec<u8>, u64)>,
}

/// A transaction that is being queued.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) queue: Vec<Entry>,
    /// A command was refused, so `EXEC` will be.
    pub(super) refused: bool,
}

impl Session {
    pub(super) fn new(node: usize, connection: usize) -> Self {
        Self {
            node,
            connection,
            protocol: 2,
            authenticated: false,
            readonly: false,
            asking: false,
            transaction: None,
            watched: Vec::new(),
        }
    }

    /// Forgets the effect of `ASKING` after a command other than `ASKING` itself.
    pub(super) fn end_command(&mut self, name: &str) {
        if self.transaction.is_none() && name != "ASKING" {
            self.asking = false;
        }
    }

    /// Takes note that a script answered a command which the node did not run, so that the
    /// connection goes on as if a server had given this reply.
    pub(super) fn replaced(&mut self, name: &str, reply: &[u8]) {
        if matches!(name, "EXEC" | "DISCARD") {
            self.transaction = None;
        } else if let Some(transaction) = &mut self.transaction {
            transaction.refused |= reply.starts_with(b"-");
        }
        if name == "ASKING" {
            self.asking = reply.starts_with(b"+");
        }
        self.end_command(name);
    }
}
