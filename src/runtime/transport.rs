//! Byte streams: TCP, and pairs in memory for tests.

#[cfg(test)]
pub(crate) mod memory;

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::clock;
use crate::proto::addr::NodeAddr;

/// How long a write may block before the write loop looks at its inbox again.
const WRITE_SLICE: Duration = Duration::from_millis(10);

/// How long a read during the handshake may block before it looks for a stop.
pub(crate) const READ_SLICE: Duration = Duration::from_millis(50);

/// The half of a connection that is read.
pub(crate) trait ReadHalf: Send {
    /// Blocks until something is there, the other side closed (0), or the timeout passed
    /// (`WouldBlock` or `TimedOut`).
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// What a read would find, without waiting and without taking it.
    fn look(&mut self) -> Look;

    /// Limits how long a read blocks.
    fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()>;
}

/// What a look at a connection finds. Nothing behind unread bytes can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// It is open and silent.
    Quiet,
    /// Something has come.
    Bytes,
    /// The other side has closed it, or it is broken.
    Closed,
}

/// The half of a connection that is written.
pub(crate) trait WriteHalf: Send {
    /// Writes what the kernel takes within a short slice of time; `WouldBlock` or `TimedOut` if
    /// it takes nothing.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// What a read would find, without taking it. Never blocks.
    fn look(&self) -> Look;

    /// Ends both directions; a read that blocks in the other half returns.
    fn shutdown(&self);
}

/// An open connection.
pub(crate) struct Connection {
    pub(crate) read: Box<dyn ReadHalf>,
    pub(crate) write: Box<dyn WriteHalf>,
    /// The address that the name led to; `None` if there is no such thing.
    pub(crate) peer: Option<IpAddr>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

/// Opens connections.
pub(crate) trait Transport: Send + Sync {
    /// Opens a connection before the deadline, unless one of `stops` is disconnected first. Names
    /// are resolved anew each time.
    fn connect(
        &self,
        addr: &NodeAddr,
        deadline: Instant,
        stops: &[&Receiver<()>],
    ) -> io::Result<Connection>;
}

/// TCP: no delay, keepalive, short write slices.
#[derive(Debug)]
pub(crate) struct Tcp {
    pub(crate) keepalive: Option<Duration>,
}

impl Transport for Tcp {
    fn connect(
        &self,
        addr: &NodeAddr,
        deadline: Instant,
        stops: &[&Receiver<()>],
    ) -> io::Result<Connection> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for socket_addr in (addr.host(), addr.port()).to_socket_addrs()? {
            match self.dial(socket_addr, deadline, stops) {
                Ok(stream) => return split(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl Tcp {
    /// Connects without blocking for longer than a stop may take to be noticed.
    fn dial(
        &self,
        addr: SocketAddr,
        deadline: Instant,
        stops: &[&Receiver<()>],
    ) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        let begun = socket.connect(&addr.into());
        if let Err(error) = begun {
            let in_progress = error.kind() == io::ErrorKind::WouldBlock
                || error.raw_os_error() == Some(EINPROGRESS);
            if !in_progress {
                return Err(error);
            }
            await_connected(&socket, deadline, stops)?;
        }
        socket.set_nonblocking(false)?;
        socket.set_tcp_nodelay(true)?;
        if let Some(idle) = self.keepalive {
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle))?;
        }
        socket.set_write_timeout(Some(WRITE_SLICE))?;
        Ok(socket.into())
    }
}

/// `connect` goes on in the background (Linux and the BSDs differ in the number).
const EINPROGRESS: i32 = if cfg!(target_os = "linux") { 115 } else { 36 };

/// Look at received bytes without taking them, and without waiting for any (the numbers of Linux
/// and of the BSDs).
const MSG_PEEK: i32 = 2;
const MSG_DONTWAIT: i32 = if cfg!(target_os = "linux") {
    0x40
} else {
    0x80
};

/// Waits for the end of a connect in the background. The standard library has no poll, so this
/// looks again after short, growing pauses; on a local network the first look succeeds.
fn await_connected(socket: &Socket, deadline: Instant, stops: &[&Receiver<()>]) -> io::Result<()> {
    let mut pause = Duration::from_micros(20);
    loop {
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        if socket.peer_addr().is_ok() {
            return Ok(());
        }
        let left = deadline.saturating_duration_since(clock::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "connect timeout"));
        }
        if is_any_stopped(stops, pause.min(left)) {
            return Err(stopped());
        }
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// Waits for a while; `true` if the stop came.
pub(crate) fn is_stopped(stop: &Receiver<()>, pause: Duration) -> bool {
    use crossbeam_channel::RecvTimeoutError;
    !matches!(stop.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
}

/// Waits for a while, which must be short; `true` if one of the stops came.
pub(crate) fn is_any_stopped(stops: &[&Receiver<()>], pause: Duration) -> bool {
    let (first, rest) = match stops {
        [] => return false,
        [first, rest @ ..] => (first, rest),
    };
    is_stopped(first, pause) || rest.iter().any(|stop| is_stopped(stop, Duration::ZERO))
}

pub(crate) fn stopped() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the client is stopping")
}

/// Whether a read or write just ran into its time slice.
pub(crate) fn is_slice(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn split(stream: TcpStream) -> io::Result<Connection> {
    let write = TcpWrite(stream.try_clone()?);
    Ok(Connection {
        peer: stream.peer_addr().ok().map(|peer| peer.ip()),
        read: Box::new(TcpRead(stream)),
        write: Box::new(write),
    })
}

struct TcpRead(TcpStream);

impl ReadHalf for TcpRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }

    fn look(&mut self) -> Look {
        look(&self.0)
    }

    fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        SockRef::from(&self.0).set_read_timeout(timeout)
    }
}

struct TcpWrite(TcpStream);

/// What a read would find, without taking it.
fn look(stream: &TcpStream) -> Look {
    let flags = MSG_PEEK | MSG_DONTWAIT;
    let peeked = SockRef::from(stream).recv_with_flags(&mut [MaybeUninit::uninit()], flags);
    match peeked {
        Ok(count) if count > 0 => Look::Bytes,
        Err(error) if is_slice(&error) => Look::Quiet,
        Ok(_) | Err(_) => Look::Closed,
    }
}

impl WriteHalf for TcpWrite {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn look(&self) -> Look {
        look(&self.0)
    }

    fn shutdown(&self) {
        // It may be closed already; then there is nothing to do.
        drop(self.0.shutdown(Shutdown::Both));
    }
}
