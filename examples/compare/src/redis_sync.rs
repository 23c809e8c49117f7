//! The `redis` crate, blocking. A connection cannot be shared, so each thread has its own.

use std::net::SocketAddr;

use redis::ConnectionLike;
use redis::cluster::{ClusterClient, ClusterConnection, cluster_pipe};

use crate::contender::{Answer, Failure, Interlude, Session, Work};

/// One thread's connections, one to each node.
pub(crate) struct RedisSync(ClusterConnection);

impl RedisSync {
    /// Connects to a cluster.
    pub(crate) fn connect(nodes: &[SocketAddr]) -> Result<Self, Failure> {
        let urls = nodes.iter().map(|node| format!("redis://{node}"));
        Ok(Self(ClusterClient::new(urls)?.get_connection()?))
    }
}

impl Session for RedisSync {
    fn run(&mut self, work: Work<'_>) -> Answer {
        if let &[key] = work.keys {
            redis_command(key, work.value).query::<redis::Value>(&mut self.0)?;
            return Ok(());
        }
        let mut pipeline = cluster_pipe();
        for key in work.keys {
            pipeline.add_command(redis_command(key, work.value));
        }
        pipeline.query::<Vec<redis::Value>>(&mut self.0)?;
        Ok(())
    }

    fn send(&mut self, keys: &[&str], _: Option<Interlude<'_>>) -> Answer {
        self.run(Work { keys, value: None })
    }

    /// `Pipeline::query` refuses cluster connections, which can do it all the same.
    fn transact(&mut self, keys: &[&str]) -> Answer {
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        for key in keys {
            pipeline.add_command(redis_command(key, None));
        }
        let packed = pipeline.get_packed_pipeline();
        let replies = self.0.req_packed_commands(&packed, keys.len() + 1, 1)?;
        match &replies[..] {
            [redis::Value::Array(values)] if values.len() == keys.len() => Ok(()),
            other => Err(format!("not a transaction's replies: {other:?}").into()),
        }
    }
}

/// `SET` or `GET`.
pub(crate) fn redis_command(key: &str, value: Option<&[u8]>) -> redis::Cmd {
    match value {
        Some(value) => redis::Cmd::set(key, value),
        None => redis::Cmd::get(key),
    }
}
