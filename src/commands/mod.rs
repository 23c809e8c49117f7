//! The most used commands on one key, as methods of [`Client`] with typed replies.
//!
//! Keys are byte strings: `impl AsRef<[u8]>`. Values, fields and members are anything that
//! [`ToArgs`] turns into one argument; where a method takes several, any list does. A method's
//! types are those of single values, fields and members; several come as a `Vec`, a set or a map.
//! [`Client::query`] reads the same replies as any other collection. Times are [`Duration`]s: they
//! are sent in whole milliseconds, rounded up. All other commands go through [`Client::query`].

mod hash;
mod list;
mod set;
mod sorted_set;

use std::time::Duration;

use crate::client::Client;
use crate::cmd::cmd;
use crate::convert::{FromValue, ToArgs};
use crate::error::Result;
use crate::proto::value::Value;

/// How long a key will live: the reply of [`Client::ttl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ttl {
    /// There is no such key.
    Missing,
    /// The key does not expire.
    Forever,
    /// The key expires after this time; exact to the millisecond.
    Left(Duration),
}

impl FromValue for Ttl {
    fn from_value(value: Value) -> Result<Self> {
        let reply = i64::from_value(value)?;
        Ok(match u64::try_from(reply) {
            Ok(millis) => Ttl::Left(Duration::from_millis(millis)),
            Err(_) if reply == -1 => Ttl::Forever,
            Err(_) => Ttl::Missing,
        })
    }
}

/// Whole milliseconds, rounded up: a short time must not become none.
fn millis(time: Duration) -> u128 {
    time.as_nanos().div_ceil(1_000_000)
}

/// Strings and counters.
impl Client {
    /// `GET`: the value; `None` if there is no such key.
    pub fn get<T: FromValue>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>> {
        self.query(cmd("GET").key(key))
    }

    /// `SET`: stores the value. An old value goes, whatever its type, and so does its expiry.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl ToArgs) -> Result<()> {
        self.query(cmd("SET").key(key).single(value))
    }

    /// `SET … PX`: stores the value with a time to live, in whole milliseconds, rounded up; it must
    /// not be zero.
    pub fn set_ex(&self, key: impl AsRef<[u8]>, value: impl ToArgs, ttl: Duration) -> Result<()> {
        self.query(cmd("SET").key(key).single(value).arg(("PX", millis(ttl))))
    }

    /// `SET … NX`: stores the value if there is no such key; whether it did.
    pub fn set_nx(&self, key: impl AsRef<[u8]>, value: impl ToArgs) -> Result<bool> {
        let done: Option<()> = self.query(cmd("SET").key(key).single(value).arg("NX"))?;
        Ok(done.is_some())
    }

    /// `GETDEL`: the value, which is deleted; `None` if there was no such key.
    pub fn getdel<T: FromValue>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>> {
        self.query(cmd("GETDEL").key(key))
    }

    /// `GETEX … PX`: the value, which gets a new time to live, in whole milliseconds, rounded up;
    /// `None` if there is no such key.
    pub fn getex<T: FromValue>(&self, key: impl AsRef<[u8]>, ttl: Duration) -> Result<Option<T>> {
        self.query(cmd("GETEX").key(key).arg(("PX", millis(ttl))))
    }

    /// `APPEND`: adds to the end of the value; the new length in bytes.
    pub fn append(&self, key: impl AsRef<[u8]>, value: impl ToArgs) -> Result<u64> {
        self.query(cmd("APPEND").key(key).single(value))
    }

    /// `STRLEN`: the value's length in bytes; 0 if there is no such key.
    pub fn strlen(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.query(cmd("STRLEN").key(key))
    }

    /// `INCR`: adds 1 to the number, which begins at 0; the new number.
    pub fn incr(&self, key: impl AsRef<[u8]>) -> Result<i64> {
        self.query(cmd("INCR").key(key))
    }

    /// `INCRBY`: adds to the number, which begins at 0; the new number.
    pub fn incr_by(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64> {
        self.query(cmd("INCRBY").key(key).arg(by))
    }

    /// `INCRBYFLOAT`: adds to the number, which begins at 0; the new number.
    pub fn incr_by_float(&self, key: impl AsRef<[u8]>, by: f64) -> Result<f64> {
        self.query(cmd("INCRBYFLOAT").key(key).arg(by))
    }

    /// `DECR`: takes 1 from the number, which begins at 0; the new number.
    pub fn decr(&self, key: impl AsRef<[u8]>) -> Result<i64> {
        self.query(cmd("DECR").key(key))
    }

    /// `DECRBY`: takes from the number, which begins at 0; the new number.
    pub fn decr_by(&self, key: impl AsRef<[u8]>, by: i64) -> Result<i64> {
        self.query(cmd("DECRBY").key(key).arg(by))
    }
}

/// Keys of any type.
impl Client {
    /// `DEL`: deletes the key; whether there was one.
    pub fn del(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.query(cmd("DEL").key(key))
    }

    /// `UNLINK`: deletes the key and frees its memory later; whether there was one.
    pub fn unlink(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.query(cmd("UNLINK").key(key))
    }

    /// `EXISTS`: whether there is such a key.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.query(cmd("EXISTS").key(key))
    }

    /// `PEXPIRE`: sets the time to live; whether there is such a key. Zero deletes it.
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: Duration) -> Result<bool> {
        self.query(cmd("PEXPIRE").key(key).arg(millis(ttl)))
    }

    /// `PERSIST`: takes the expiry away; whether there was one.
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.query(cmd("PERSIST").key(key))
    }

    /// `PTTL`: how long the key will live, to the millisecond.
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Result<Ttl> {
        self.query(cmd("PTTL").key(key))
    }

    /// `TYPE`: the type's name, such as `string`; `none` if there is no such key.
    pub fn type_of(&self, key: impl AsRef<[u8]>) -> Result<String> {
        self.query(cmd("TYPE").key(key))
    }
}

#[cfg(test)]
mod tests;
