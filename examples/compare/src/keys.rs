//! The keys and what they hold.

use std::net::SocketAddr;

use crate::bare::Bare;
use crate::contender::{Answer, Session, Work};

/// The keys of all sizes of values.
pub(crate) struct Keys {
    small: Vec<String>,
    medium: Vec<String>,
    large: Vec<String>,
}

/// Sizes of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// As [`VALUE`], of many keys.
    Small,
    /// 10 KiB, of some keys.
    Medium,
    /// 1 MiB, of few keys.
    Large,
}

/// What small keys hold.
pub(crate) const VALUE: [u8; 64] = [b'x'; 64];

impl Keys {
    /// The names alone.
    pub(crate) fn new() -> Self {
        Self {
            small: names("key", 100_000),
            medium: names("medium", 100),
            large: names("large", 10),
        }
    }

    /// Those with values of this size.
    pub(crate) fn of(&self, size: Size) -> &[String] {
        match size {
            Size::Small => &self.small,
            Size::Medium => &self.medium,
            Size::Large => &self.large,
        }
    }

    /// Gives each key its value.
    pub(crate) fn load(&self, nodes: &[SocketAddr]) -> Answer {
        load(nodes, &self.small, &VALUE)?;
        load(nodes, &self.medium, &vec![b'm'; 10 * 1024])?;
        load(nodes, &self.large, &vec![b'l'; 1024 * 1024])
    }
}

/// So many names.
pub(crate) fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("{prefix}:{number}"))
        .collect()
}

/// Gives all these keys one value.
pub(crate) fn load(nodes: &[SocketAddr], keys: &[String], value: &[u8]) -> Answer {
    let mut session = Bare::connect(nodes)?;
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    for keys in keys.chunks(1000) {
        let value = Some(value);
        session.run(Work { keys, value })?;
    }
    Ok(())
}

/// The slot of a key without a hash tag.
pub(crate) fn slot(key: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(key.as_bytes()) % 16384
}
