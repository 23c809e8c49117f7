//! Opening a connection that is ready for commands: dial, handshake, and single questions.

use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::clock;
use super::transport::{Connection, READ_SLICE, Transport, is_any_stopped, is_slice, stopped};
use crate::config::{Config, Maintenance, Protocol, ReadFrom};
use crate::proto::addr::NodeAddr;
use crate::proto::handshake::{Announcements, Handshake, Progress, Setup};
use crate::proto::limits::REPLY_BYTES;
use crate::proto::resp::decode::{DecodeLimits, Decoder, Frame};
use crate::proto::resp::encode::Encoded;
use crate::proto::resp::fault::ProtocolError;
use crate::proto::value::Value;
use crate::reply::relax::Relax;

/// The most pushes of a handshake that are kept.
const PUSHES: usize = 16;

/// Opens connections as the configuration says.
pub(crate) struct Dialer {
    config: Arc<Config>,
    transport: Arc<dyn Transport>,
    /// Where nodes note what they announce; `None` if they are not asked to.
    relax: Option<Arc<Relax>>,
}

/// A connection whose handshake is done.
pub(crate) struct Open {
    pub(crate) connection: Connection,
    /// May hold pushes that came with the handshake.
    pub(crate) decoder: Decoder,
    /// What was pushed before that.
    pub(crate) pushes: Vec<Vec<Value>>,
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
        let relax = config.wants_announcements();
        let relax = relax.then(|| Arc::new(Relax::new(config.relaxed_timeout)));
        Self {
            config,
            transport,
            relax,
        }
    }

    /// Where nodes note what they announce.
    pub(crate) fn relax(&self) -> Option<Arc<Relax>> {
        self.relax.clone()
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
        self.open(addr, &mapped, deadline, stops, false)
    }

    /// As [`open_node`](Self::open_node), for a connection that somebody always listens to: it
    /// asks for announcements if they are wanted.
    pub(crate) fn open_shared(&self, addr: &NodeAddr, stop: &Receiver<()>) -> io::Result<Open> {
        let mapped = guarded(|| self.config.address_map.apply(addr))?;
        let deadline = clock::now() + self.config.connect_timeout;
        self.open(addr, &mapped, deadline, &[stop], self.relax.is_some())
    }

    /// Connects to an address that the user gave: it is not mapped.
    pub(crate) fn open_seed(&self, addr: &NodeAddr, stop: &Receiver<()>) -> io::Result<Open> {
        let deadline = clock::now() + self.config.connect_timeout;
        self.open(addr, addr, deadline, &[stop], false)
    }

    fn open(
        &self,
        name: &NodeAddr,
        dial: &NodeAddr,
        deadline: Instant,
        stops: &[&Receiver<()>],
        announcements: bool,
    ) -> io::Result<Open> {
        let mut setup = self.setup(name)?;
        let mut connection = self.transport.connect(dial, deadline, stops)?;
        setup.announcements = announcements.then(|| Announcements {
            endpoint: endpoint_type(connection.peer),
            required: self.config.maintenance == Maintenance::On,
        });
        connection.read.set_timeout(Some(READ_SLICE))?;
        let mut talk = Talk {
            connection,
            decoder: Decoder::new(DecodeLimits::default()),
            pushes: Vec::new(),
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
                            pushes,
                            ..
                        } = talk;
                        // The user's limit is for what the user asks.
                        decoder.limit_reply_bytes(self.config.max_reply_bytes);
                        connection.read.set_timeout(None)?;
                        return Ok(Open {
                            connection,
                            decoder,
                            pushes,
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
            pushes,
        } = open;
        decoder.limit_reply_bytes(REPLY_BYTES);
        connection.read.set_timeout(Some(READ_SLICE))?;
        let deadline = clock::now() + self.config.connect_timeout;
        let mut talk = Talk {
            connection,
            decoder,
            pushes,
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
            announcements: None,
        })
    }
}

/// Which of its names a server is to tell: one that can be reached from where this one can.
fn endpoint_type(peer: Option<IpAddr>) -> &'static str {
    let is_private = match peer {
        None => return "none",
        Some(IpAddr::V4(ip)) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
        Some(IpAddr::V6(ip)) => {
            // Unique local (fc00::/7) and link local (fe80::/10) addresses.
            let first = ip.segments()[0];
            ip.is_loopback() || first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80
        }
    };
    if is_private {
        "internal-ip"
    } else {
        "external-ip"
    }
}

/// A user's closure that panics fails this connection and nothing else.
fn guarded<R>(call: impl FnOnce() -> R) -> io::Result<R> {
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|_| io::Error::other("a closure of the configuration panicked"))
}

/// What a new connection says first is the least likely to be a defect of a Redis server.
fn not_redis(error: ProtocolError) -> io::Error {
    io::Error::other(match error {
        ProtocolError::UnknownType(_) => format!("{error}: is this a Redis port, without TLS?"),
        _ => error.to_string(),
    })
}

/// Question and answer on a connection that nobody else uses yet.
struct Talk<'a> {
    connection: Connection,
    decoder: Decoder,
    /// What was pushed so far, at most [`PUSHES`].
    pushes: Vec<Vec<Value>>,
    deadline: Instant,
    stops: &'a [&'a Receiver<()>],
}

impl Talk<'_> {
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.connection.write.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_slice(&error) => {}
                Err(error) => return Err(error),
            }
            self.check()?;
        }
        Ok(())
    }

    fn reply(&mut self) -> io::Result<Value> {
        let mut is_first = true;
        loop {
            match self.decoder.next_frame().map_err(not_redis)? {
                Some(Frame::Reply(reply)) => {
                    return reply.map_err(|_| io::Error::other("the reply is too large"));
                }
                Some(Frame::Push(push)) if self.pushes.len() < PUSHES => self.pushes.push(push),
                Some(Frame::Push(_)) => {}
                None => {
                    // Also if something has come: a server may say other things for ever.
                    if !std::mem::take(&mut is_first) {
                        self.check()?;
                    }
                    self.fill()?;
                }
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
            Err(error) if is_slice(&error) => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::transport::memory::pair;
    use crate::runtime::transport::{Look, ReadHalf};

    #[test]
    fn a_private_address_asks_for_private_ones() {
        for (ip, expected) in [
            ("127.0.0.1", "internal-ip"),
            ("10.1.2.3", "internal-ip"),
            ("172.31.0.1", "internal-ip"),
            ("192.168.0.1", "internal-ip"),
            ("169.254.0.1", "internal-ip"),
            ("::1", "internal-ip"),
            ("fd00::1", "internal-ip"),
            ("fe80::1", "internal-ip"),
            ("172.32.0.1", "external-ip"),
            ("8.8.8.8", "external-ip"),
            ("2001:db8::1", "external-ip"),
        ] {
            assert_eq!(endpoint_type(ip.parse().ok()), expected, "{ip}");
        }
        assert_eq!(endpoint_type(None), "none");
    }

    /// Pushes and pushes, and answers at last.
    struct Chatty(usize);

    impl ReadHalf for Chatty {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes: &[u8] = match self.0.checked_sub(1) {
                Some(left) => {
                    self.0 = left;
                    b">1\r\n+news\r\n"
                }
                None => b"+OK\r\n",
            };
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok(bytes.len())
        }

        fn look(&mut self) -> Look {
            Look::Bytes
        }

        fn set_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_server_that_says_other_things_makes_no_attempt_longer() {
        let (keep, stop) = crossbeam_channel::bounded(0);
        let later = clock::now() + Duration::from_secs(600);
        drop(keep);
        for (deadline, stops, fails) in [
            (later, &[][..], false),
            (clock::now(), &[], true),
            (later, &[&stop], true),
        ] {
            let (mut connection, _server) = pair(1024);
            connection.read = Box::new(Chatty(1000));
            let mut talk = Talk {
                connection,
                decoder: Decoder::new(DecodeLimits::default()),
                pushes: Vec::new(),
                deadline,
                stops,
            };
            assert_eq!(talk.reply().is_err(), fails);
        }
    }
}
