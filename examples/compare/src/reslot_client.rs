//! This library: one client, which all threads use.

use std::net::SocketAddr;
use std::thread;

use reslot::{Client, Cmd, Value, cmd};

use crate::contender::{Answer, Failure, Interlude, Session, Work};

/// The client.
#[derive(Clone)]
pub(crate) struct ReslotClient(Client);

impl ReslotClient {
    /// Connects to a cluster.
    pub(crate) fn connect(nodes: &[SocketAddr]) -> Result<Self, Failure> {
        let seeds = nodes.iter().map(ToString::to_string);
        Ok(Self(Client::builder().seeds(seeds).connect()?))
    }
}

impl Session for ReslotClient {
    fn run(&mut self, work: Work<'_>) -> Answer {
        if let &[key] = work.keys {
            self.0.query::<Value>(command(key, work.value))?;
            return Ok(());
        }
        let mut pipeline = self.0.pipeline();
        for key in work.keys {
            pipeline.add(command(key, work.value));
        }
        for result in pipeline.execute()? {
            result?;
        }
        Ok(())
    }

    fn send(&mut self, keys: &[&str], interlude: Option<Interlude<'_>>) -> Answer {
        let send = |key: &&str| self.0.send::<Value>(command(key, None));
        let pending = keys.iter().map(send).collect::<reslot::Result<Vec<_>>>()?;
        if let Some(Interlude { pause, act }) = interlude {
            thread::sleep(pause);
            act();
        }
        for pending in pending {
            pending.wait()?;
        }
        Ok(())
    }

    fn transact(&mut self, keys: &[&str]) -> Answer {
        self.0.transaction::<Vec<Value>>(|transaction| {
            for key in keys {
                transaction.add(command(key, None));
            }
        })?;
        Ok(())
    }
}

fn command(key: &str, value: Option<&[u8]>) -> Cmd {
    match value {
        Some(value) => cmd("SET").arg(key).arg(value),
        None => cmd("GET").arg(key),
    }
}
