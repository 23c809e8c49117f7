//! Commands that a model server can read back: each names its place, its slot and its keys.

use std::sync::Arc;

use super::{Ledger, TestTicket, slot};
use crate::proto::unit::{Batch, Body, Bytes, Facts, Target, Unit};

/// What one command does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) slot: u16,
    pub(crate) keys: Vec<u8>,
    pub(crate) write: bool,
}

/// In place of a slot: the command has no keys, so any node runs it.
pub(crate) const ANY: u16 = u16::MAX;

impl Command {
    pub(crate) fn write(slot: u16, key: u8) -> Self {
        Self {
            slot,
            keys: vec![key],
            write: true,
        }
    }

    pub(crate) fn read(slot: u16, key: u8) -> Self {
        Self {
            write: false,
            ..Self::write(slot, key)
        }
    }

    fn facts(&self) -> Facts {
        let target = if self.slot == ANY {
            Target::Any
        } else {
            Target::Slot(slot(self.slot))
        };
        Facts::new(target, !self.write)
    }

    fn line(&self, kind: char, place: usize) -> String {
        let keys: Vec<String> = self.keys.iter().map(u8::to_string).collect();
        let write = if self.write { 'w' } else { 'r' };
        format!("{kind} {place} {} {} {write}\n", self.slot, keys.join(","))
    }
}

/// A unit of one command.
pub(crate) fn single(ledger: &Ledger, command: &Command) -> Unit<TestTicket> {
    let line = command.line('C', ledger.len());
    let body = Body::One(Bytes::Own(line.into_bytes(), 0), command.facts());
    Unit::new(ledger.ticket(1), body, None)
}

/// A unit of one command whose bytes are padded to a length.
pub(crate) fn padded(ledger: &Ledger, command: &Command, length: usize) -> Unit<TestTicket> {
    let line = command.line('C', ledger.len());
    let mut line = line.trim_end().to_owned();
    line.push(' ');
    line.extend(std::iter::repeat_n('x', length - line.len() - 1));
    line.push('\n');
    let body = Body::One(Bytes::Own(line.into_bytes(), 0), command.facts());
    Unit::new(ledger.ticket(1), body, None)
}

/// A chain with these members, which are of one slot.
pub(crate) fn transaction(ledger: &Ledger, members: &[Command]) -> Unit<TestTicket> {
    let place = ledger.len();
    let mut text = format!("M {place}\n");
    for member in members {
        text.push_str(&member.line('Q', place));
    }
    text.push_str(&format!("E {place}\n"));
    let body = Body::Chain {
        bytes: Bytes::Own(text.into_bytes(), 0),
        members: members.len(),
        target: members[0].facts().target,
    };
    Unit::new(ledger.ticket(1), body, None)
}

/// A part of a pipeline.
pub(crate) fn pipeline(ledger: &Ledger, commands: &[Command]) -> Unit<TestTicket> {
    let first = ledger.len();
    let mut batch = Batch::with_room(0);
    for (command, place) in commands.iter().zip(first..) {
        batch.push(command.line('C', place).as_bytes(), command.facts());
    }
    let body = Body::Part(Arc::new(batch), 0..commands.len());
    Unit::new(ledger.ticket(commands.len()), body, None)
}

/// A line as the server reads it, with the place of its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Asking,
    One(usize, Command),
    Multi(usize),
    Member(usize, Command),
    Exec(usize),
}

/// Reads the stream of one connection. Foreign bytes within a chain, or between ASKING and its
/// command, fail the test.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    buffer: Vec<u8>,
    open: Option<usize>,
    asking: bool,
}

const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

impl Parser {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether everything was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The next line, once all of it is there.
    pub(crate) fn next_line(&mut self) -> Option<Line> {
        if self.buffer.first() == Some(&ASKING[0]) {
            if self.buffer.len() < ASKING.len() {
                return None;
            }
            let asking: Vec<u8> = self.buffer.drain(..ASKING.len()).collect();
            assert_eq!(asking, ASKING);
            assert!(self.open.is_none(), "ASKING within a chain");
            assert!(!self.asking, "an ASKING without its command");
            self.asking = true;
            return Some(Line::Asking);
        }
        let end = self.buffer.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        let line = String::from_utf8(line).expect("ASCII");
        Some(self.read(line.trim_end()))
    }

    fn read(&mut self, line: &str) -> Line {
        self.asking = false;
        let mut words = line.split(' ');
        let kind = words.next().expect("a kind");
        let place: usize = words.next().expect("a place").parse().expect("a number");
        match self.open {
            Some(open) => assert!(
                open == place && matches!(kind, "Q" | "E"),
                "{line:?} within the chain {open}"
            ),
            None => assert!(matches!(kind, "C" | "M"), "{line:?} outside a chain"),
        }
        match kind {
            "M" => {
                self.open = Some(place);
                Line::Multi(place)
            }
            "E" => {
                self.open = None;
                Line::Exec(place)
            }
            _ => {
                let slot = words.next().expect("a slot").parse().expect("a number");
                let keys = words.next().expect("keys").split(',');
                let keys = keys.map(|key| key.parse().expect("a key")).collect();
                let write = words.next() == Some("w");
                let command = Command { slot, keys, write };
                if kind == "Q" {
                    Line::Member(place, command)
                } else {
                    Line::One(place, command)
                }
            }
        }
    }
}
