//! Connections that one thread has for itself: for commands that block and for watched sessions.
//!
//! The thread that uses one does its own reads and writes. What is healthy afterwards goes into a
//! small pool per node.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};

use super::clock;
use super::dial::{Dialer, Open};
use super::transport::{Look, READ_SLICE, is_slice};
use crate::proto::addr::NodeAddr;
use crate::proto::outcome::Reason;
use crate::proto::resp::decode::Frame;
use crate::proto::verdict::Reply;
use crate::reply::relax::Extension;
use crate::sync::{Condvar, Mutex};

/// How long an idle connection is kept.
const IDLE_LIMIT: Duration = Duration::from_secs(60);

/// The most reads that look for the end of a connection: a server may push without end.
const LOOKS: usize = 16;

/// Idle connections kept for each node.
const IDLE_PER_NODE: usize = 8;

/// All dedicated connections of a client.
#[derive(Debug)]
pub(crate) struct Pool {
    dialer: Arc<Dialer>,
    /// Held for a look only, never while a connection is made or used.
    state: Mutex<State>,
    /// Signalled when a connection is given back.
    returned: Condvar,
    /// Disconnected when the client closes.
    closed: Receiver<()>,
}

#[derive(Debug)]
struct State {
    /// With the time at which each was given back, oldest first.
    idle: HashMap<NodeAddr, Vec<(Instant, Open)>>,
    busy: usize,
    /// Dropped when the client closes.
    keep: Option<Sender<()>>,
}

impl State {
    fn take(&mut self, addr: &NodeAddr) -> Option<Open> {
        self.idle.get_mut(addr)?.pop().map(|(_, open)| open)
    }

    /// Closes what was not used for long: its node may have left the cluster.
    fn forget_old(&mut self) {
        let now = clock::now();
        self.idle.retain(|_, idle| {
            idle.retain(|(since, _)| *since + IDLE_LIMIT > now);
            !idle.is_empty()
        });
    }
}

/// A connection in use. Dropping it gives it back if its last exchange was complete.
#[derive(Debug)]
pub(crate) struct Dedicated<'a> {
    pool: &'a Pool,
    addr: NodeAddr,
    open: Option<Open>,
    /// Something was written whose reply is not there: not to be used again.
    unfinished: bool,
}

/// Why an exchange ended early.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The deadline passed.
    Timeout,
    /// The later one passed, too, that announced maintenance had led to.
    MaintenanceTimeout,
    /// The caller cancelled.
    Cancelled,
    /// The client closes.
    Closed,
    /// The connection was lost.
    Lost(io::Error),
}

impl Broken {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Broken::Timeout => Reason::Timeout,
            Broken::MaintenanceTimeout => Reason::MaintenanceTimeout,
            Broken::Cancelled => Reason::Cancelled,
            Broken::Closed => Reason::Closed,
            Broken::Lost(_) => Reason::ConnectionLost,
        }
    }
}

/// An exchange that ended early, and whether its last byte went out.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) why: Broken,
    pub(crate) was_sent: bool,
}

/// What ends an exchange from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'a> {
    /// Of all that the caller does, and of this.
    times: [Time<'a>; 2],
    /// Disconnected when the caller cancels: all it does, or this.
    cancels: [Option<&'a Receiver<()>>; 2],
}

/// A deadline, or none.
#[derive(Clone, Copy, Debug, Default)]
struct Time<'a> {
    deadline: Option<Instant>,
    /// Makes it longer where maintenance is announced when it has passed.
    extension: Option<&'a Extension>,
}

impl<'a> Limits<'a> {
    pub(crate) fn new(
        deadline: Option<Instant>,
        cancel: Option<&'a Receiver<()>>,
        extension: Option<&'a Extension>,
    ) -> Self {
        let time = Time {
            deadline,
            extension,
        };
        Self {
            times: [time, Time::default()],
            cancels: [cancel, None],
        }
    }

    /// For a part of what has these limits, which may have some of its own. The longer time that
    /// one part is given is its own, too.
    pub(crate) fn narrowed(
        self,
        deadline: Option<Instant>,
        cancel: Option<&'a Receiver<()>>,
        extension: Option<&'a Extension>,
    ) -> Self {
        let time = Time {
            deadline,
            extension,
        };
        Self {
            times: [self.times[0], time],
            cancels: [self.cancels[0], cancel],
        }
    }

    /// The first of its deadlines, without what makes them longer.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.times.iter().filter_map(|time| time.deadline).min()
    }

    /// When it ends, as things are.
    fn end(&self) -> Option<Instant> {
        self.times.iter().filter_map(Time::end).min()
    }

    fn cancels(&self) -> impl Iterator<Item = &'a Receiver<()>> {
        self.cancels.into_iter().flatten()
    }
}

impl Time<'_> {
    fn end(&self) -> Option<Instant> {
        let deadline = self.deadline?;
        let granted = self.extension.and_then(Extension::granted);
        Some(granted.map_or(deadline, |end| end.max(deadline)))
    }

    /// Whether some is left at a node, or while at none.
    fn check(&self, node: Option<&NodeAddr>, now: Instant) -> Result<(), Broken> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        match self.extension.and_then(|longer| longer.extend(node, now)) {
            Some(end) if now < end => Ok(()),
            Some(_) => Err(Broken::MaintenanceTimeout),
            None => Err(Broken::Timeout),
        }
    }
}

impl Pool {
    pub(crate) fn new(dialer: Arc<Dialer>) -> Self {
        let (keep, closed) = bounded(0);
        let state = State {
            idle: HashMap::new(),
            busy: 0,
            keep: Some(keep),
        };
        Self {
            dialer,
            state: Mutex::new(state),
            returned: Condvar::new(),
            closed,
        }
    }

    /// A connection to a node: an idle one that is still fit, or a new one.
    pub(crate) fn take(
        &self,
        addr: &NodeAddr,
        limits: Limits<'_>,
    ) -> Result<Dedicated<'_>, Broken> {
        let mut open = {
            let mut state = self.state.lock();
            if state.keep.is_none() {
                return Err(Broken::Closed);
            }
            state.busy += 1;
            state.forget_old();
            state.take(addr)
        };
        // From here on the guard counts the connection out again.
        let mut taken = Dedicated {
            pool: self,
            addr: addr.clone(),
            open: None,
            unfinished: true,
        };
        while let Some(mut idle) = open {
            // One on which something came that nobody asked for is not fit.
            if idle.connection.read.look() == Look::Quiet {
                taken.open = Some(idle);
                taken.unfinished = false;
                return Ok(taken);
            }
            open = self.state.lock().take(addr);
        }
        let stops: Vec<_> = std::iter::once(&self.closed)
            .chain(limits.cancels())
            .collect();
        let opened = self.dialer.open_node_by(addr, limits.end(), &stops);
        let mut open = opened.map_err(|error| {
            log::debug!("node {addr}: cannot connect: {error}");
            let ended = self.check(limits, Some(addr)).err();
            ended.unwrap_or(Broken::Lost(error))
        })?;
        open.connection
            .read
            .set_timeout(Some(READ_SLICE))
            .map_err(Broken::Lost)?;
        taken.open = Some(open);
        taken.unfinished = false;
        Ok(taken)
    }

    /// Pauses; an error if the client closes or the caller cancels meanwhile.
    pub(crate) fn pause(&self, pause: Duration, limits: Limits<'_>) -> Result<(), Broken> {
        let end = clock::now() + pause;
        let never = crossbeam_channel::never();
        let [one, other] = limits.cancels.map(|cancel| cancel.unwrap_or(&never));
        crossbeam_channel::select! {
            recv(self.closed) -> _ => return Err(Broken::Closed),
            recv(one) -> _ => return Err(Broken::Cancelled),
            recv(other) -> _ => return Err(Broken::Cancelled),
            default(limits.end().map_or(end, |other| other.min(end))
                .saturating_duration_since(clock::now())) => {}
        }
        self.check(limits, None)
    }

    /// Whether an exchange with a node may begin, or go on, or whatever is to be done without one.
    pub(crate) fn check(&self, limits: Limits<'_>, node: Option<&NodeAddr>) -> Result<(), Broken> {
        if is_gone(&self.closed) {
            Err(Broken::Closed)
        } else if limits.cancels().any(is_gone) {
            Err(Broken::Cancelled)
        } else {
            let now = clock::now();
            limits
                .times
                .iter()
                .try_for_each(|time| time.check(node, now))
        }
    }

    /// Ends all exchanges and closes all connections; waits for the threads that use them, at
    /// most until then.
    pub(crate) fn close(&self, limit: Instant) {
        let mut state = self.state.lock();
        state.keep = None;
        state.idle.clear();
        while state.busy > 0 && clock::now() < limit {
            self.returned.wait_until(&mut state, limit);
        }
    }
}

fn is_gone(signal: &Receiver<()>) -> bool {
    signal.try_recv() == Err(TryRecvError::Disconnected)
}

impl Dedicated<'_> {
    /// Writes and reads so many replies. Nobody else writes to this connection, so the replies
    /// belong to these bytes.
    pub(crate) fn exchange(
        &mut self,
        bytes: &[u8],
        replies: usize,
        limits: Limits<'_>,
    ) -> Result<Vec<Reply>, Cut> {
        self.unfinished = true;
        self.check_step()
            .and_then(|()| self.write(bytes, limits))
            .map_err(|why| Cut {
                why,
                was_sent: false,
            })?;
        let replies = self.read(replies, limits).map_err(|why| Cut {
            why,
            was_sent: true,
        })?;
        self.unfinished = false;
        Ok(replies)
    }

    /// Whether the server has closed it, as far as this is known by now. What was pushed is taken,
    /// since the end may be behind it.
    pub(crate) fn is_closed(&mut self) -> bool {
        for _ in 0..LOOKS {
            let Some(open) = &mut self.open else {
                return true;
            };
            match open.connection.read.look() {
                Look::Quiet => return false,
                Look::Closed => return true,
                Look::Bytes => match open.connection.read.read(open.decoder.spare()) {
                    Ok(count) if count > 0 => open.decoder.filled(count),
                    Ok(_) | Err(_) => return true,
                },
            }
            if self.check_step().is_err() {
                return true;
            }
        }
        false
    }

    /// The connection is not to be used again.
    pub(crate) fn discard(&mut self) {
        self.unfinished = true;
    }

    /// A reply that nobody asked for came with the last ones: the next reply would not belong to
    /// the next command.
    fn check_step(&mut self) -> Result<(), Broken> {
        let Some(open) = &mut self.open else {
            return Err(lost());
        };
        loop {
            match open.decoder.next_frame() {
                Ok(None) => return Ok(()),
                Ok(Some(Frame::Push(_))) => {}
                Ok(Some(Frame::Reply(_))) => {
                    let error = io::Error::other("a reply that nobody asked for");
                    return Err(Broken::Lost(error));
                }
                Err(error) => return Err(Broken::Lost(io::Error::other(error))),
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8], limits: Limits<'_>) -> Result<(), Broken> {
        let Some(open) = &mut self.open else {
            return Err(lost());
        };
        loop {
            match open.connection.write.write(bytes) {
                Ok(0) => return Err(lost()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_slice(&error) => {}
                Err(error) => return Err(Broken::Lost(error)),
            }
            if bytes.is_empty() {
                return Ok(());
            }
            // Also if some were taken: a server may take them as slowly as it likes.
            self.pool.check(limits, Some(&self.addr))?;
        }
    }

    fn read(&mut self, wanted: usize, limits: Limits<'_>) -> Result<Vec<Reply>, Broken> {
        let Some(open) = &mut self.open else {
            return Err(lost());
        };
        let mut replies = VecDeque::new();
        let mut came = false;
        loop {
            let frame = open.decoder.next_frame();
            match frame.map_err(|error| Broken::Lost(io::Error::other(error)))? {
                Some(Frame::Reply(reply)) => replies.push_back(reply),
                Some(Frame::Push(_)) => {}
                None => {
                    // Not before it is known that the reply is not there: a popped element that
                    // has come must not be thrown away.
                    if std::mem::take(&mut came) {
                        self.pool.check(limits, Some(&self.addr))?;
                    }
                    match open.connection.read.read(open.decoder.spare()) {
                        Ok(0) => return Err(lost()),
                        Ok(count) => {
                            open.decoder.filled(count);
                            came = true;
                        }
                        Err(error) if is_slice(&error) => {
                            self.pool.check(limits, Some(&self.addr))?
                        }
                        Err(error) => return Err(Broken::Lost(error)),
                    }
                }
            }
            if replies.len() == wanted {
                return Ok(replies.into());
            }
        }
    }
}

fn lost() -> Broken {
    Broken::Lost(io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "closed by the server",
    ))
}

impl Drop for Dedicated<'_> {
    fn drop(&mut self) {
        // Who unwinds has not tidied up: keys may still be watched.
        let is_fit = !self.unfinished && !std::thread::panicking();
        let open = self.open.take().filter(|_| is_fit);
        let mut state = self.pool.state.lock();
        state.busy -= 1;
        if let Some(open) = open.filter(|_| state.keep.is_some()) {
            let idle = state.idle.entry(self.addr.clone()).or_default();
            if idle.len() < IDLE_PER_NODE {
                idle.push((clock::now(), open));
            }
        }
        drop(state);
        self.pool.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::proto::resp::decode::{DecodeLimits, Decoder};
    use crate::proto::value::Value;
    use crate::runtime::transport::Connection;
    use crate::runtime::transport::memory::{Memory, pair};

    fn pool() -> Pool {
        let (transport, _accept) = Memory::new(1024);
        let dialer = Dialer::new(Arc::new(Config::default()), Arc::new(transport));
        let pool = Pool::new(Arc::new(dialer));
        pool.state.lock().busy = 1;
        pool
    }

    /// One in use, and the server's end of it.
    fn dedicated(pool: &Pool) -> (Dedicated<'_>, Connection) {
        let (mut connection, server) = pair(1024);
        connection.read.set_timeout(Some(READ_SLICE)).unwrap();
        let open = Open {
            pushes: Vec::new(),
            connection,
            decoder: Decoder::new(DecodeLimits::default()),
        };
        let dedicated = Dedicated {
            pool,
            addr: NodeAddr::new("h", 1),
            open: Some(open),
            unfinished: false,
        };
        (dedicated, server)
    }

    #[test]
    fn an_end_behind_something_unread_is_seen() {
        const PUSH: &[u8] = b">1\r\n+news\r\n";
        for (bytes, closes, is_closed) in [
            (&b""[..], false, false),
            (b"", true, true),
            (PUSH, false, false),
            (PUSH, true, true),
            (b">1\r\n+ne", true, true),
            (b"-ERR go away\r\n", false, true),
        ] {
            let pool = pool();
            let (mut dedicated, mut server) = dedicated(&pool);
            assert!(bytes.is_empty() || server.write.write(bytes).is_ok());
            if closes {
                server.write.shutdown();
            }
            assert_eq!(dedicated.is_closed(), is_closed, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_reply_that_has_come_is_taken_however_late_it_is() {
        let pool = pool();
        let (mut dedicated, mut server) = dedicated(&pool);
        assert!(server.write.write(b"*2\r\n$1\r\nk\r\n$1\r\nx\r\n").is_ok());
        let (keep, cancel) = bounded(0);
        drop(keep);
        let limits = Limits::new(Some(clock::now()), Some(&cancel), None);
        let replies = dedicated.exchange(b"*1\r\n$5\r\nBLPOP\r\n", 1, limits);
        let popped = ["k", "x"].map(|text| Value::Bulk(text.into()));
        assert_eq!(replies.unwrap(), [Ok(Value::Array(popped.into()))]);
        // Without a reply it is over at once.
        let cut = dedicated
            .exchange(b"*1\r\n$5\r\nBLPOP\r\n", 1, limits)
            .unwrap_err();
        assert!(matches!(cut.why, Broken::Cancelled) && cut.was_sent);
    }

    #[test]
    fn a_server_that_reads_slowly_makes_no_exchange_longer() {
        let pool = pool();
        let (mut dedicated, mut server) = dedicated(&pool);
        std::thread::scope(|scope| {
            scope.spawn(move || while matches!(server.read.read(&mut [0; 64]), Ok(1..)) {});
            let limits = Limits::new(Some(clock::now()), None, None);
            let cut = dedicated.exchange(&[b'x'; 1 << 20], 1, limits).unwrap_err();
            assert!(matches!(cut.why, Broken::Timeout));
            assert!(!cut.was_sent, "it went on after its deadline");
            drop(dedicated);
        });
    }
}
