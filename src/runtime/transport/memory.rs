//! Connections in memory, through the same trait as TCP: tests that need no port.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{Connection, Look, ReadHalf, Transport, WRITE_SLICE, WriteHalf};
use crate::proto::addr::NodeAddr;
use crate::runtime::clock;
use crate::sync::{Condvar, Mutex};

/// A transport whose other ends come out of a channel.
pub(crate) struct Memory {
    accepted: Sender<(NodeAddr, Connection)>,
    /// Bytes that one direction holds before its writer is kept waiting.
    capacity: usize,
}

impl Memory {
    /// The transport, and where the server's ends of its connections appear.
    pub(crate) fn new(capacity: usize) -> (Self, Receiver<(NodeAddr, Connection)>) {
        let (accepted, accept) = unbounded();
        (Self { accepted, capacity }, accept)
    }
}

impl Transport for Memory {
    fn connect(&self, addr: &NodeAddr, _: Instant, _: &[&Receiver<()>]) -> io::Result<Connection> {
        let (here, there) = pair(self.capacity);
        let refused = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        self.accepted.send((addr.clone(), there)).map_err(refused)?;
        Ok(here)
    }
}

/// Two ends of one connection.
pub(crate) fn pair(capacity: usize) -> (Connection, Connection) {
    let (up, down) = (Pipe::new(capacity), Pipe::new(capacity));
    (end(&up, &down), end(&down, &up))
}

fn end(out: &Arc<Pipe>, back: &Arc<Pipe>) -> Connection {
    let write = MemoryWrite {
        out: Arc::clone(out),
        back: Arc::clone(back),
    };
    let read = MemoryRead {
        pipe: Arc::clone(back),
        out: Arc::clone(out),
        timeout: None,
    };
    Connection {
        read: Box::new(read),
        write: Box::new(write),
        peer: None,
    }
}

/// One direction.
struct Pipe {
    state: Mutex<PipeState>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    closed: bool,
}

impl Pipe {
    fn new(capacity: usize) -> Arc<Self> {
        let state = Mutex::new(PipeState::default());
        Arc::new(Self {
            state,
            changed: Condvar::new(),
            capacity,
        })
    }

    fn look(&self) -> Look {
        let state = self.state.lock();
        match (state.bytes.is_empty(), state.closed) {
            (false, _) => Look::Bytes,
            (true, true) => Look::Closed,
            (true, false) => Look::Quiet,
        }
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

struct MemoryRead {
    pipe: Arc<Pipe>,
    out: Arc<Pipe>,
    timeout: Option<Duration>,
}

impl ReadHalf for MemoryRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let deadline = self.timeout.map(|timeout| clock::now() + timeout);
        let mut state = self.pipe.state.lock();
        while state.bytes.is_empty() && !state.closed {
            match deadline {
                None => self.pipe.changed.wait(&mut state),
                Some(deadline) => {
                    if self
                        .pipe
                        .changed
                        .wait_until(&mut state, deadline)
                        .timed_out()
                    {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                }
            }
        }
        let count = buffer.len().min(state.bytes.len());
        for (to, from) in buffer.iter_mut().zip(state.bytes.drain(..count)) {
            *to = from;
        }
        drop(state);
        self.pipe.changed.notify_all();
        Ok(count)
    }

    fn look(&mut self) -> Look {
        self.pipe.look()
    }

    fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.timeout = timeout;
        Ok(())
    }
}

impl Drop for MemoryRead {
    fn drop(&mut self) {
        self.pipe.close();
        self.out.close();
    }
}

struct MemoryWrite {
    out: Arc<Pipe>,
    back: Arc<Pipe>,
}

impl WriteHalf for MemoryWrite {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.out.state.lock();
        if state.bytes.len() >= self.out.capacity && !state.closed {
            let slice = clock::now() + WRITE_SLICE;
            self.out.changed.wait_until(&mut state, slice);
        }
        if state.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = self
            .out
            .capacity
            .saturating_sub(state.bytes.len())
            .min(bytes.len());
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.bytes.extend(&bytes[..room]);
        drop(state);
        self.out.changed.notify_all();
        Ok(room)
    }

    fn look(&self) -> Look {
        self.back.look()
    }

    fn shutdown(&self) {
        self.out.close();
        self.back.close();
    }
}
