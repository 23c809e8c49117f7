//! The `redis` crate, async: one connection, which all threads use by `block_on`.

use std::net::SocketAddr;

use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;

use crate::contender::{Answer, Failure, Interlude, PATIENCE, Session, Work};
use crate::join::join_with;
use crate::redis_sync::redis_command;

/// The connection and where it runs.
#[derive(Clone)]
pub(crate) struct RedisAsync {
    runtime: Handle,
    connection: ClusterConnection,
}

impl RedisAsync {
    /// Connects to a cluster.
    pub(crate) fn connect(nodes: &[SocketAddr], runtime: &Runtime) -> Result<Self, Failure> {
        let urls = nodes.iter().map(|node| format!("redis://{node}"));
        let client = ClusterClient::new(urls)?;
        let connection = runtime.block_on(client.get_async_connection())?;
        Ok(Self {
            runtime: runtime.handle().clone(),
            connection,
        })
    }

    /// A pipeline must be of one slot, so this awaits single commands together.
    fn join(&self, work: Work<'_>, interlude: Option<Interlude<'_>>) -> Answer {
        let call = async |key: &&str| {
            let command = redis_command(key, work.value);
            command
                .query_async::<redis::Value>(&mut self.connection.clone())
                .await
        };
        let calls = work.keys.iter().map(call);
        self.runtime.block_on(join_with(calls, interlude))
    }
}

impl Session for RedisAsync {
    fn run(&mut self, work: Work<'_>) -> Answer {
        self.join(work, None)
    }

    fn send(&mut self, keys: &[&str], interlude: Option<Interlude<'_>>) -> Answer {
        self.join(Work { keys, value: None }, interlude)
    }

    fn transact(&mut self, keys: &[&str]) -> Answer {
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        for key in keys {
            pipeline.add_command(redis_command(key, None));
        }
        let Self {
            runtime,
            connection,
        } = self;
        runtime.block_on(async {
            let replies = pipeline.query_async::<Vec<redis::Value>>(connection);
            timeout(PATIENCE, replies).await??;
            Ok(())
        })
    }
}
