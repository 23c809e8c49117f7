//! Commands on hashes.

use std::collections::HashMap;
use std::hash::Hash;

use crate::client::Client;
use crate::cmd::cmd;
use crate::convert::{FromValue, ToArgs};
use crate::error::Result;

/// Hashes.
impl Client {
    /// `HGET`: a field's value; `None` if the key or the field is missing.
    pub fn hget<T: FromValue>(
        &self,
        key: impl AsRef<[u8]>,
        field: impl ToArgs,
    ) -> Result<Option<T>> {
        self.query(cmd("HGET").key(key).single(field))
    }

    /// `HSET`: stores one field; whether it is new (`false`: its old value was replaced).
    pub fn hset(
        &self,
        key: impl AsRef<[u8]>,
        field: impl ToArgs,
        value: impl ToArgs,
    ) -> Result<bool> {
        self.query(cmd("HSET").key(key).single(field).single(value))
    }

    /// `HSET`: stores several fields, given as a map or a list of pairs; how many are new.
    pub fn hset_all(&self, key: impl AsRef<[u8]>, pairs: impl ToArgs) -> Result<u64> {
        self.query(cmd("HSET").key(key).arg(pairs))
    }

    /// `HGETALL`: all fields and values; empty if there is no such key.
    pub fn hget_all<F, V>(&self, key: impl AsRef<[u8]>) -> Result<HashMap<F, V>>
    where
        F: FromValue + Eq + Hash,
        V: FromValue,
    {
        self.query(cmd("HGETALL").key(key))
    }

    /// `HMGET`: the values of the fields, in their order; `None` for each missing one.
    pub fn hmget<T: FromValue>(
        &self,
        key: impl AsRef<[u8]>,
        fields: impl ToArgs,
    ) -> Result<Vec<Option<T>>> {
        self.query(cmd("HMGET").key(key).arg(fields))
    }

    /// `HDEL`: deletes one or several fields; how many there were.
    pub fn hdel(&self, key: impl AsRef<[u8]>, fields: impl ToArgs) -> Result<u64> {
        self.query(cmd("HDEL").key(key).arg(fields))
    }

    /// `HEXISTS`: whether the field is there.
    pub fn hexists(&self, key: impl AsRef<[u8]>, field: impl ToArgs) -> Result<bool> {
        self.query(cmd("HEXISTS").key(key).single(field))
    }

    /// `HLEN`: the number of fields; 0 if there is no such key.
    pub fn hlen(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.query(cmd("HLEN").key(key))
    }

    /// `HINCRBY`: adds to a field's number, which begins at 0; the new number.
    pub fn hincr_by(&self, key: impl AsRef<[u8]>, field: impl ToArgs, by: i64) -> Result<i64> {
        self.query(cmd("HINCRBY").key(key).single(field).arg(by))
    }
}
