//! Commands on sets.

use std::collections::HashSet;
use std::hash::Hash;

use crate::client::Client;
use crate::cmd::cmd;
use crate::convert::{FromValue, ToArgs};
use crate::error::Result;

/// Sets.
impl Client {
    /// `SADD`: adds one or several members; how many are new.
    pub fn sadd(&self, key: impl AsRef<[u8]>, members: impl ToArgs) -> Result<u64> {
        self.query(cmd("SADD").key(key).arg(members))
    }

    /// `SREM`: removes one or several members; how many there were.
    pub fn srem(&self, key: impl AsRef<[u8]>, members: impl ToArgs) -> Result<u64> {
        self.query(cmd("SREM").key(key).arg(members))
    }

    /// `SMEMBERS`: all members; empty if there is no such key.
    pub fn smembers<T>(&self, key: impl AsRef<[u8]>) -> Result<HashSet<T>>
    where
        T: FromValue + Eq + Hash,
    {
        self.query(cmd("SMEMBERS").key(key))
    }

    /// `SISMEMBER`: whether the member is there.
    pub fn sismember(&self, key: impl AsRef<[u8]>, member: impl ToArgs) -> Result<bool> {
        self.query(cmd("SISMEMBER").key(key).single(member))
    }

    /// `SCARD`: the number of members; 0 if there is no such key.
    pub fn scard(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.query(cmd("SCARD").key(key))
    }

    /// `SPOP`: takes a member at random; `None` if there is none.
    pub fn spop<T: FromValue>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>> {
        self.query(cmd("SPOP").key(key))
    }
}
