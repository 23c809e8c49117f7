//! Who is compared, behind one trait.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::bare::Bare;
use crate::fred_client::FredClient;
use crate::redis_async::RedisAsync;
use crate::redis_sync::RedisSync;
use crate::reslot_client::ReslotClient;

/// What a thread uses.
pub(crate) trait Session: Send {
    /// Runs one command per key, all at once, and waits for all replies.
    fn run(&mut self, work: Work<'_>) -> Answer;

    /// Hands over one `GET` per key without waiting for any, lets the interlude pass, and waits for
    /// all. A client that cannot do so has no interlude, and runs a pipeline.
    fn send(&mut self, keys: &[&str], interlude: Option<Interlude<'_>>) -> Answer;

    /// Runs one `GET` per key in a transaction. All keys are of one slot.
    fn transact(&mut self, keys: &[&str]) -> Answer;
}

/// Commands to run.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    /// One key for each command.
    pub(crate) keys: &'a [&'a str],
    /// `SET` to this value, or else `GET`.
    pub(crate) value: Option<&'a [u8]>,
}

/// What happens between handing commands over and waiting for them.
pub(crate) struct Interlude<'a> {
    /// How long the client has to put everything where it belongs.
    pub(crate) pause: Duration,
    /// What is done then.
    pub(crate) act: &'a mut (dyn FnMut() + Send),
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
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

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

    /// The one with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|contender| contender.name() == name)
    }

    /// Connects for so many threads.
    pub(crate) fn open(
        self,
        nodes: &[SocketAddr],
        threads: usize,
        runtime: &Runtime,
    ) -> Result<Vec<Box<dyn Session>>, Failure> {
        match self {
            Contender::Bare => each(threads, || Ok(Bare::connect(nodes)?)),
            Contender::RedisSync => each(threads, || RedisSync::connect(nodes)),
            Contender::RedisAsync => {
                let client = RedisAsync::connect(nodes, runtime)?;
                each(threads, || Ok(client.clone()))
            }
            Contender::Fred => {
                let client = FredClient::connect(nodes, runtime)?;
                each(threads, || Ok(client.clone()))
            }
            Contender::Reslot => {
                let client = ReslotClient::connect(nodes)?;
                each(threads, || Ok(client.clone()))
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
