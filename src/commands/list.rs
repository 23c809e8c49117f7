//! Commands on lists.

use crate::client::Client;
use crate::cmd::cmd;
use crate::convert::{FromValue, ToArgs};
use crate::error::Result;

/// Lists. Positions count from 0; negative ones from the end, -1 being the last.
impl Client {
    /// `LPUSH`: adds one or several values to the front, one after the other; the new length.
    pub fn lpush(&self, key: impl AsRef<[u8]>, values: impl ToArgs) -> Result<u64> {
        self.query(cmd("LPUSH").key(key).arg(values))
    }

    /// `RPUSH`: adds one or several values to the end; the new length.
    pub fn rpush(&self, key: impl AsRef<[u8]>, values: impl ToArgs) -> Result<u64> {
        self.query(cmd("RPUSH").key(key).arg(values))
    }

    /// `LPOP`: takes the first value; `None` if there is none.
    pub fn lpop<T: FromValue>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>> {
        self.query(cmd("LPOP").key(key))
    }

    /// `RPOP`: takes the last value; `None` if there is none.
    pub fn rpop<T: FromValue>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>> {
        self.query(cmd("RPOP").key(key))
    }

    /// `LRANGE`: the values from `start` to `stop`, both included.
    pub fn lrange<T: FromValue>(
        &self,
        key: impl AsRef<[u8]>,
        start: i64,
        stop: i64,
    ) -> Result<Vec<T>> {
        self.query(cmd("LRANGE").key(key).arg((start, stop)))
    }

    /// `LTRIM`: keeps only the values from `start` to `stop`, both included.
    pub fn ltrim(&self, key: impl AsRef<[u8]>, start: i64, stop: i64) -> Result<()> {
        self.query(cmd("LTRIM").key(key).arg((start, stop)))
    }

    /// `LLEN`: the length; 0 if there is no such key.
    pub fn llen(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.query(cmd("LLEN").key(key))
    }
}
