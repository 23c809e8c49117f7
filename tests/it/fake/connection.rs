//! One connection: a reader that logs what arrives, a worker that answers it in order.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use super::answer::answer;
use super::log::Entry;
use super::node::Accept;
use super::resp::{self, Parser};
use super::script::Step;
use super::session::Session;
use super::shared::{ConnectionState, Shared, State};

/// How much is read at once. Never less than a packet on loopback, or traffic would crawl.
const READ_SIZE: usize = 128 * 1024;

/// Registers the connection and starts its threads.
pub(super) fn open(shared: &Arc<Shared>, node: usize, stream: TcpStream) -> [JoinHandle<()>; 2] {
    // Without it replies would only be slower.
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    let write_lock = Arc::new(Mutex::new(()));
    let (connection, accept) = shared.update(|state| {
        state.connections.push(ConnectionState {
            node,
            stream: Some(Arc::clone(&stream)),
            write_lock: Arc::clone(&write_lock),
            open: true,
            killed: false,
            reading: true,
        });
        let connection = state.connections.len() - 1;
        if state.nodes[node].accept == Accept::CloseAtOnce {
            state.kill(connection);
        }
        (connection, state.nodes[node].accept)
    });
    let (sender, inbox) = channel();
    let reader = Reader {
        shared: Arc::clone(shared),
        node,
        connection,
        stream: Arc::clone(&stream),
        worker: sender,
        silent: accept == Accept::Silent,
    };
    let worker = Worker {
        shared: Arc::clone(shared),
        stream,
        write_lock,
        session: Session::new(node, connection),
        out: Vec::new(),
    };
    [spawn(|| reader.run()), spawn(|| worker.run(inbox))]
}

/// Writes bytes that no other write may interrupt.
pub(super) fn write_whole(stream: &TcpStream, lock: &Mutex<()>, bytes: &[u8]) -> io::Result<()> {
    let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stream = stream;
    stream.write_all(bytes)
}

struct Reader {
    shared: Arc<Shared>,
    node: usize,
    connection: usize,
    stream: Arc<TcpStream>,
    worker: Sender<Entry>,
    /// Commands are logged and go no further.
    silent: bool,
}

impl Reader {
    fn run(self) {
        let mut parser = Parser::default();
        let mut buffer = vec![0; READ_SIZE];
        while let Some((count, more)) = self.read(&mut buffer) {
            parser.feed(&buffer[..count]);
            if self.pass_on(&mut parser).is_err() || !more {
                break;
            }
        }
        self.shared
            .update(|state| state.connections[self.connection].open = false);
    }

    /// Reads something once the node wants to read: how much, and whether to go on after that.
    /// `None` at the end of the connection.
    fn read(&self, buffer: &mut [u8]) -> Option<(usize, bool)> {
        // What arrives while the node does not read has to stay in the kernel.
        let waiting = self.stream.peek(&mut [0]).ok()?;
        if waiting == 0 {
            return None;
        }
        let limit = self.shared.wait_forever(|state| {
            let own = &state.connections[self.connection];
            let node = &state.nodes[self.node];
            if own.killed {
                return Some(0);
            }
            let limit = node.bytes_until_close.unwrap_or(buffer.len());
            (own.reading && node.reading).then_some(limit)
        });
        let limit = limit.min(buffer.len());
        let mut stream = &*self.stream;
        let count = stream.read(&mut buffer[..limit]).ok()?;
        let more = self.shared.update(|state| {
            let left = state.nodes[self.node].bytes_until_close.as_mut();
            left.is_none_or(|left| {
                *left = left.saturating_sub(count);
                *left > 0
            })
        });
        (count > 0).then_some((count, more))
    }

    /// Logs the complete commands, all before the first of them is handled.
    fn pass_on(&self, parser: &mut Parser) -> Result<(), ()> {
        let mut commands = Vec::new();
        let result = loop {
            match parser.next_command() {
                Ok(Some(argv)) if argv.is_empty() => {}
                Ok(Some(argv)) => commands.push(argv),
                Ok(None) => break Ok(()),
                Err(reason) => break Err(reason),
            }
        };
        let at = Instant::now();
        let entries = self.shared.update(|state| {
            let entries = commands.into_iter().zip(state.arrived.len()..);
            let entries = entries.map(|(argv, seq)| Entry {
                seq,
                node: self.node,
                connection: self.connection,
                at,
                argv: Arc::new(argv),
            });
            let entries: Vec<Entry> = entries.collect();
            state.arrived.extend(entries.iter().cloned());
            entries
        });
        for entry in entries.into_iter().filter(|_| !self.silent) {
            self.worker.send(entry).map_err(|_| ())?;
        }
        result.map_err(|reason| {
            let reply = resp::error(&format!("ERR Protocol error: {reason}"));
            // The connection ends anyway.
            let _ = (&*self.stream).write_all(&reply);
        })
    }
}

/// The connection is over.
struct Over;

struct Worker {
    shared: Arc<Shared>,
    stream: Arc<TcpStream>,
    write_lock: Arc<Mutex<()>>,
    session: Session,
    /// Replies that wait for the next write.
    out: Vec<u8>,
}

impl Worker {
    fn run(mut self, inbox: Receiver<Entry>) {
        // `Over` is the usual end.
        let _ = self.serve_all(&inbox);
    }

    fn serve_all(&mut self, inbox: &Receiver<Entry>) -> Result<(), Over> {
        loop {
            let entry = match inbox.try_recv() {
                Ok(entry) => entry,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.flush()?;
                    let Ok(entry) = inbox.recv() else { break };
                    entry
                }
            };
            self.serve(&entry)?;
        }
        self.flush()
    }

    fn serve(&mut self, entry: &Entry) -> Result<(), Over> {
        let rules = self.look(|state| state.rules.clone())?;
        // All of them are asked, because all of them count.
        let applying: Vec<_> = rules.iter().filter(|rule| rule.applies(entry)).collect();
        match applying.first() {
            Some(rule) => self.play(rule.steps(), entry),
            None => {
                let reply = self.answer(entry)?;
                self.out.extend_from_slice(&reply);
                Ok(())
            }
        }
    }

    fn play(&mut self, steps: &[Step], entry: &Entry) -> Result<(), Over> {
        let mut reply = Vec::new();
        let mut ran = false;
        for step in steps {
            match step {
                Step::Run => {
                    reply = self.answer(entry)?;
                    ran = true;
                }
                Step::Reply(bytes) => reply.clone_from(bytes),
                Step::Compute(compute) => reply = compute(entry),
                Step::Send => self.out.extend_from_slice(&reply),
                Step::SendInPieces { size, pause } => self.send_in_pieces(&reply, *size, *pause)?,
                Step::Raw(bytes) => self.out.extend_from_slice(bytes),
                Step::Wait(duration) => {
                    self.flush()?;
                    self.wait(*duration)?;
                }
                Step::Hold(gate) => {
                    self.flush()?;
                    self.hold(*gate)?;
                }
                Step::StopReading => {
                    let own = self.session.connection;
                    self.shared
                        .update(|state| state.connections[own].reading = false);
                }
                Step::Close => {
                    self.flush()?;
                    return Err(Over);
                }
            }
        }
        if !ran {
            self.session.replaced(&entry.name(), &reply);
        }
        Ok(())
    }

    /// Runs the command by the rules of servers.
    fn answer(&mut self, entry: &Entry) -> Result<Vec<u8>, Over> {
        let session = &mut self.session;
        let own = session.connection;
        let deadline = blocking_deadline(entry);
        let attempt = self.shared.update(|state| {
            if state.connections[own].killed {
                return Some(Err(Over));
            }
            answer(state, session, entry).map(Ok)
        });
        if let Some(result) = attempt {
            return result;
        }
        self.flush()?;
        let session = &mut self.session;
        let look = |state: &mut State| {
            // Servers forget a blocked client that has left.
            if state.connections[own].killed || !state.connections[own].open {
                return Some(Err(Over));
            }
            answer(state, session, entry).map(Ok)
        };
        match deadline {
            Some(deadline) => self.shared.wait(deadline, look),
            None => Some(self.shared.wait_forever(look)),
        }
        .unwrap_or_else(|| Ok(resp::null_array(self.session.protocol)))
    }

    fn hold(&self, gate: usize) -> Result<(), Over> {
        self.shared.update(|state| state.gates[gate].arrive());
        let own = self.session.connection;
        self.shared.wait_forever(|state| {
            if state.connections[own].killed {
                return Some(Err(Over));
            }
            state.gates[gate].pass().then_some(Ok(()))
        })
    }

    /// Waits, unless the connection is closed by the node.
    fn wait(&self, duration: Duration) -> Result<(), Over> {
        let own = self.session.connection;
        let killed = self.shared.wait(Instant::now() + duration, |state| {
            state.connections[own].killed.then_some(())
        });
        killed.map_or(Ok(()), |()| Err(Over))
    }

    fn send_in_pieces(&mut self, reply: &[u8], size: usize, pause: Duration) -> Result<(), Over> {
        self.flush()?;
        let lock = Arc::clone(&self.write_lock);
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in reply.chunks(size.max(1)) {
            (&*self.stream).write_all(piece).map_err(|_| Over)?;
            self.wait(pause)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Over> {
        let bytes = std::mem::take(&mut self.out);
        if bytes.is_empty() {
            return Ok(());
        }
        write_whole(&self.stream, &self.write_lock, &bytes).map_err(|_| Over)
    }

    fn look<T>(&self, look: impl FnOnce(&State) -> T) -> Result<T, Over> {
        let state = self.shared.lock();
        if state.connections[self.session.connection].killed {
            return Err(Over);
        }
        Ok(look(&state))
    }
}

/// Whatever ends the worker ends the connection.
impl Drop for Worker {
    fn drop(&mut self) {
        self.shared
            .update(|state| state.kill(self.session.connection));
    }
}

/// When a blocking command gives up; `None`: never.
fn blocking_deadline(entry: &Entry) -> Option<Instant> {
    let seconds: f64 = entry.text(entry.argv.len() - 1).parse().ok()?;
    let limit = Duration::try_from_secs_f64(seconds).ok()?;
    (!limit.is_zero()).then(|| Instant::now() + limit)
}
