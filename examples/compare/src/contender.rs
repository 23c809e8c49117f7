//! Who is compared, behind one trait.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use fred::prelude::{Builder, ClientLike, Config, FredResult, KeysInterface};
use futures_util::future::try_join_all;
use redis::cluster::{ClusterClient, ClusterConnection, cluster_pipe};
use redis::cluster_async;
use reslot::cmd;
use tokio::runtime::Runtime;

use crate::bare::Bare;

/// What a thread uses.
pub(crate) trait Session: Send {
    /// Runs one command per key, all at once, and waits for all replies.
    fn run(&mut self, work: Work<'_>) -> Answer;
}

/// Commands to run.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    /// One key for each command.
    pub(crate) keys: &'a [&'a str],
    /// `SET` to this value, or else `GET`.
    pub(crate) value: Option<&'a [u8]>,
}

/// Whether all commands succeeded.
pub(crate) type Answer = Result<(), Failure>;

/// Why it did not work.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Contender {
    /// Raw sockets.
    Bare,
    /// The `redis` crate, blocking: a connection per thread.
    RedisSync,
    /// The `redis` crate, async: one connection, used by `block_on` from threads.
    RedisAsync,
    /// The `fred` crate: one client, used by `block_on` from threads.
    Fred,
    /// One client for all threads.
    Reslot,
}

/// How long the async clients may wait, which may do so for ever; as with reslot.
const PATIENCE: Duration = Duration::from_secs(5);

impl Contender {
    /// All, in the order of the table.
    pub(crate) const ALL: [Contender; 5] = [
        Contender::Bare,
        Contender::RedisSync,
        Contender::RedisAsync,
        Contender::Fred,
        Contender::Reslot,
    ];

    /// The name, as in `--only`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Contender::Bare => "bare",
            Contender::RedisSync => "redis-sync",
            Contender::RedisAsync => "redis-async",
            Contender::Fred => "fred",
            Contender::Reslot => "reslot",
        }
    }

    /// Connects for so many threads.
    pub(crate) fn open(
        self,
        nodes: &[SocketAddr],
        threads: usize,
        runtime: &Runtime,
    ) -> Result<Vec<Box<dyn Session>>, Failure> {
        let urls = nodes.iter().map(|node| format!("redis://{node}"));
        match self {
            Contender::Bare => each(threads, || Ok(Bare::connect(nodes)?)),
            Contender::RedisSync => {
                let client = ClusterClient::new(urls)?;
                each(threads, || Ok(RedisSync(client.get_connection()?)))
            }
            Contender::RedisAsync => {
                let client = ClusterClient::new(urls)?;
                let connection = runtime.block_on(client.get_async_connection())?;
                let handle = runtime.handle();
                each(threads, || {
                    Ok(RedisAsync(handle.clone(), connection.clone()))
                })
            }
            Contender::Fred => {
                let seeds = nodes.iter().map(ToString::to_string).collect::<Vec<_>>();
                let config = Config::from_url(&format!("redis-cluster://{}", seeds[0]))?;
                let _inside = runtime.enter();
                let client = Builder::from_config(config)
                    .with_performance_config(|config| config.default_command_timeout = PATIENCE)
                    .build()?;
                runtime.block_on(client.init())?;
                let handle = runtime.handle();
                each(threads, || Ok(Fred(handle.clone(), client.clone())))
            }
            Contender::Reslot => {
                let seeds = nodes.iter().map(ToString::to_string);
                let client = reslot::Client::builder().seeds(seeds).connect()?;
                each(threads, || Ok(Reslot(client.clone())))
            }
        }
    }
}

fn each<S: Session + 'static>(
    threads: usize,
    open: impl Fn() -> Result<S, Failure>,
) -> Result<Vec<Box<dyn Session>>, Failure> {
    let boxed = |_| Ok(Box::new(open()?) as Box<dyn Session>);
    (0..threads).map(boxed).collect()
}

struct RedisSync(ClusterConnection);

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
}

struct RedisAsync(tokio::runtime::Handle, cluster_async::ClusterConnection);

impl Session for RedisAsync {
    /// A pipeline must be of one slot, so this awaits single commands together.
    fn run(&mut self, work: Work<'_>) -> Answer {
        let call = async |key: &&str| {
            let command = redis_command(key, work.value);
            command
                .query_async::<redis::Value>(&mut self.1.clone())
                .await
        };
        self.0.block_on(async {
            let all = try_join_all(work.keys.iter().map(call));
            tokio::time::timeout(PATIENCE, all).await??;
            Ok(())
        })
    }
}

fn redis_command(key: &str, value: Option<&[u8]>) -> redis::Cmd {
    match value {
        Some(value) => redis::Cmd::set(key, value),
        None => redis::Cmd::get(key),
    }
}

struct Fred(tokio::runtime::Handle, fred::clients::Client);

impl Session for Fred {
    fn run(&mut self, work: Work<'_>) -> Answer {
        let client = &self.1;
        self.0.block_on(async {
            if let &[key] = work.keys {
                fred_command(client, key, work.value).await?;
                return Ok(());
            }
            let pipeline = client.pipeline();
            for key in work.keys {
                fred_command(&pipeline, key, work.value).await?;
            }
            pipeline.all::<Vec<fred::types::Value>>().await?;
            Ok(())
        })
    }
}

/// In a pipeline this only adds the command.
async fn fred_command<C: KeysInterface + Sync>(
    client: &C,
    key: &str,
    value: Option<&[u8]>,
) -> FredResult<fred::types::Value> {
    match value {
        Some(value) => client.set(key, value, None, None, false).await,
        None => client.get(key).await,
    }
}

struct Reslot(reslot::Client);

impl Session for Reslot {
    fn run(&mut self, work: Work<'_>) -> Answer {
        let command = |key: &str| match work.value {
            Some(value) => cmd("SET").arg(key).arg(value),
            None => cmd("GET").arg(key),
        };
        if let &[key] = work.keys {
            self.0.query::<reslot::Value>(command(key))?;
            return Ok(());
        }
        let mut pipeline = self.0.pipeline();
        for key in work.keys {
            pipeline.add(command(key));
        }
        for result in pipeline.execute()? {
            result?;
        }
        Ok(())
    }
}
