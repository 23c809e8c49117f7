//! Opening a connection that is ready for commands: dial, handshake, and single questions.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::clock;
use super::transport::{Connection, READ_SLICE, Transport, is_any_stopped, is_slice, stopped};
use crate::config::{Config, Protocol, ReadFrom};
use crate::proto::addr::NodeAddr;
use crate::proto::handshake::{Handshake, Progress, Setup};
use crate::proto::limits::REPLY_BYTES;
use crate::proto::resp::decode::{DecodeLimits, Decoder, Frame};
use crate::proto::resp::encode::Encoded;
use crate::proto::value::Value;

/// Opens connections as the configuration says.
pub(crate) struct Dialer {
    config: Arc<Config>,
    transport: Arc<dyn Transport>,
}

/// A connection whose handshake is done.
pub(crate) struct Open {
    pub(crate) connection: Connection,
    /// May hold pushes that came with the handshake.
    pub(crate) decoder: Decoder,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl Dialer {
    pub(crate) fn new(config: Arc<Config>, transport: Arc<dyn Transport>) -> Self {
        Self { config, transport }
    }

    /// Connects to an address that the cluster named.
    pub(crate) fn open_node(&self, addr: &NodeAddr, stop: &Receiver<()>) -> io::Result<Open> {
        self.open_node_by(addr, None, &[stop])
    }

    /// As [`open_node`](Self::open_node), for a caller that has its own deadline and gives up when
    /// any of `stops` is disconnected.
    pub(crate) fn open_node_by(
        &self,
        addr: &NodeAddr,
        deadline: Option<Instant>,
        stops: &[&Receiver<()>],
    ) -> io::Result<Open> {
        let mapped = guarded(|| self.config.address_map.apply(addr))?;
        let limit = clock::now() + self.config.connect_timeout;
        let deadline = deadline.map_or(limit, |deadline| deadline.min(limit));
        self.open(addr, &mapped, deadline, stops)
    }

    /// Connects to an address that the user gave: it is not mapped.
    pub(crate) fn open_seed(&self, addr: &NodeAddr, stop: &Receiver<()>) -> io::Result<Open> {
        let deadline = clock::now() + self.config.connect_timeout;
        self.open(addr, addr, deadline, &[stop])
    }

    fn open(
        &self,
        name: &NodeAddr,
        dial: &NodeAddr,
        deadline: Instant,
        stops: &[&Receiver<()>],
    ) -> io::Result<Open> {
        let setup = self.setup(name)?;
        let mut connection = self.transport.connect(dial, deadline, stops)?;
        connection.read.set_timeout(Some(READ_SLICE))?;
        let mut talk = Talk {
            connection,
            decoder: Decoder::new(DecodeLimits::default()),
            deadline,
            stops,
        };
        let (mut handshake, mut bytes) = Handshake::start(setup);
        loop {
            talk.write(&bytes)?;
            bytes = loop {
                let reply = talk.reply()?;
                match handshake.accept(reply).map_err(io::Error::other)? {
                    Progress::Wait => {}
                    Progress::Write(more) => break more,
                    Progress::Ready => {
                        let Talk {
                            mut connection,
                            mut decoder,
                            ..
                        } = talk;
                        // The user's limit is for what the user asks.
                        decoder.limit_reply_bytes(self.config.max_reply_bytes);
                        connection.read.set_timeout(None)?;
                        return Ok(Open {
                            connection,
                            decoder,
                        });
                    }
                }
            };
        }
    }

    /// Asks one question over an open connection.
    pub(crate) fn ask(
        &self,
        open: Open,
        question: &Encoded,
        stop: &Receiver<()>,
    ) -> io::Result<Value> {
        let Open {
            mut connection,
            mut decoder,
        } = open;
        decoder.limit_reply_bytes(REPLY_BYTES);
        connection.read.set_timeout(Some(READ_SLICE))?;
        let deadline = clock::now() + self.config.connect_timeout;
        let mut talk = Talk {
            connection,
            decoder,
            deadline,
            stops: &[stop],
        };
        talk.write(question.as_bytes())?;
        let reply = talk.reply();
        talk.connection.write.shutdown();
        reply
    }

    fn setup(&self, addr: &NodeAddr) -> io::Result<Setup> {
        let credentials = guarded(|| self.config.login.credentials(addr))?;
        let credentials = credentials.as_ref();
        Ok(Setup {
            username: credentials
                .and_then(|login| login.username())
                .map(str::to_owned),
            password: credentials.map(|login| login.secret().to_owned()),
            client_name: self.config.client_name.clone(),
            readonly: self.config.read_from != ReadFrom::Primary,
            resp2: self.config.protocol == Protocol::Resp2,
        })
    }
}

/// A user's closure that panics fails this connection and nothing else.
fn guarded<R>(call: impl FnOnce() -> R) -> io::Result<R> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|_| io::Error::other("a closure of the configuration panicked"))
}

/// Question and answer on a connection that nobody else uses yet.
struct Talk<'a> {
    connection: Connection,
    decoder: Decoder,
    deadline: Instant,
    stops: &'a [&'a Receiver<()>],
}

impl Talk<'_> {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.connection.write.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_slice(&error) => self.check()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn reply(&mut self) -> io::Result<Value> {
        loop {
            match self.decoder.next_frame().map_err(io::Error::other)? {
                Some(Frame::Reply(reply)) => return reply.map_err(io::Error::other),
                Some(Frame::Push(_)) => {}
                None => self.fill()?,
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        match self.connection.read.read(self.decoder.spare()) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection during the handshake",
            )),
            Ok(count) => {
                self.decoder.filled(count);
                Ok(())
            }
            Err(error) if is_slice(&error) => self.check(),
            Err(error) => Err(error),
        }
    }

    fn check(&self) -> io::Result<()> {
        if is_any_stopped(self.stops, Duration::ZERO) {
            return Err(stopped());
        }
        if clock::now() >= self.deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
        }
        Ok(())
    }
}
