//! Commands on sorted sets.

use crate::client::Client;
use crate::cmd::cmd;
use crate::convert::{FromValue, ToArgs};
use crate::error::Result;

/// Sorted sets. Ranks count from 0, lowest score first; negative ones from the end.
impl Client {
    /// `ZADD`: adds a member or changes its score; whether it is new.
    pub fn zadd(&self, key: impl AsRef<[u8]>, score: f64, member: impl ToArgs) -> Result<bool> {
        self.query(cmd("ZADD").key(key).arg(score).single(member))
    }

    /// `ZADD`: adds members or changes their scores, given as pairs of score and member; how many
    /// are new.
    pub fn zadd_all(&self, key: impl AsRef<[u8]>, pairs: impl ToArgs) -> Result<u64> {
        self.query(cmd("ZADD").key(key).arg(pairs))
    }

    /// `ZREM`: removes one or several members; how many there were.
    pub fn zrem(&self, key: impl AsRef<[u8]>, members: impl ToArgs) -> Result<u64> {
        self.query(cmd("ZREM").key(key).arg(members))
    }

    /// `ZSCORE`: a member's score; `None` if the key or the member is missing.
    pub fn zscore(&self, key: impl AsRef<[u8]>, member: impl ToArgs) -> Result<Option<f64>> {
        self.query(cmd("ZSCORE").key(key).single(member))
    }

    /// `ZRANK`: a member's rank; `None` if the key or the member is missing.
    pub fn zrank(&self, key: impl AsRef<[u8]>, member: impl ToArgs) -> Result<Option<u64>> {
        self.query(cmd("ZRANK").key(key).single(member))
    }

    /// `ZINCRBY`: adds to a member's score, which begins at 0; the new score.
    pub fn zincr_by(&self, key: impl AsRef<[u8]>, by: f64, member: impl ToArgs) -> Result<f64> {
        self.query(cmd("ZINCRBY").key(key).arg(by).single(member))
    }

    /// `ZRANGE`: the members of the ranks `start` to `stop`, both included.
    pub fn zrange<T: FromValue>(
        &self,
        key: impl AsRef<[u8]>,
        start: i64,
        stop: i64,
    ) -> Result<Vec<T>> {
        self.query(cmd("ZRANGE").key(key).arg((start, stop)))
    }

    /// `ZRANGE … WITHSCORES`: like [`zrange`](Client::zrange), each member with its score.
    pub fn zrange_with_scores<T: FromValue>(
        &self,
        key: impl AsRef<[u8]>,
        start: i64,
        stop: i64,
    ) -> Result<Vec<(T, f64)>> {
        self.query(cmd("ZRANGE").key(key).arg((start, stop, "WITHSCORES")))
    }

    /// `ZCARD`: the number of members; 0 if there is no such key.
    pub fn zcard(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.query(cmd("ZCARD").key(key))
    }
}
