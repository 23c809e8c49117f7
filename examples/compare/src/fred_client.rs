//! The `fred` crate: one client, which all threads use by `block_on`.

use std::net::SocketAddr;

use fred::clients::Client;
use fred::prelude::{
    Builder, ClientLike, Config, FredResult, KeysInterface, TransactionInterface, Value,
};
use tokio::runtime::{Handle, Runtime};

use crate::contender::{Answer, Failure, Interlude, PATIENCE, Session, Work};
use crate::join::join_with;

/// The client and where it runs.
#[derive(Clone)]
pub(crate) struct FredClient {
    runtime: Handle,
    client: Client,
}

impl FredClient {
    /// Connects to a cluster.
    pub(crate) fn connect(nodes: &[SocketAddr], runtime: &Runtime) -> Result<Self, Failure> {
        let config = Config::from_url(&format!("redis-cluster://{}", nodes[0]))?;
        let _inside = runtime.enter();
        let client = Builder::from_config(config)
            .with_performance_config(|config| config.default_command_timeout = PATIENCE)
            .build()?;
        runtime.block_on(client.init())?;
        Ok(Self {
            runtime: runtime.handle().clone(),
            client,
        })
    }
}

impl Session for FredClient {
    fn run(&mut self, work: Work<'_>) -> Answer {
        let client = &self.client;
        self.runtime.block_on(async {
            if let &[key] = work.keys {
                fred_command(client, key, work.value).await?;
                return Ok(());
            }
            let pipeline = client.pipeline();
            for key in work.keys {
                fred_command(&pipeline, key, work.value).await?;
            }
            pipeline.all::<Vec<Value>>().await?;
            Ok(())
        })
    }

    fn send(&mut self, keys: &[&str], interlude: Option<Interlude<'_>>) -> Answer {
        let client = &self.client;
        let calls = keys.iter().map(|key| fred_command(client, key, None));
        self.runtime.block_on(join_with(calls, interlude))
    }

    fn transact(&mut self, keys: &[&str]) -> Answer {
        let client = &self.client;
        self.runtime.block_on(async {
            let transaction = client.multi();
            for key in keys {
                fred_command(&transaction, key, None).await?;
            }
            transaction.exec::<Vec<Value>>(true).await?;
            Ok(())
        })
    }
}

/// In a pipeline or transaction this only adds the command.
async fn fred_command<C: KeysInterface + Sync>(
    client: &C,
    key: &str,
    value: Option<&[u8]>,
) -> FredResult<Value> {
    match value {
        Some(value) => client.set(key, value, None, None, false).await,
        None => client.get(key).await,
    }
}
