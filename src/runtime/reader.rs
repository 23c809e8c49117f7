//! The reading thread of a node: makes connections, reads replies unless a caller does.
//!
//! It never waits for the write loop: it takes the lock of the in-flight list for a moment, and
//! every channel that it sends to is unbounded. It alone declares a connection lost, so no reply
//! can arrive after that was said.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, select};

use super::clock;
use super::dial::{Dialer, Open};
use super::mover::Mover;
use super::read_side::Progress;
use super::reading::Reading;
use super::records::NodeMessage;
use super::transport::is_stopped;
use super::wire::Wire;
use crate::proto::backoff::{Backoff, Random};
use crate::proto::cluster::Event;

/// Pauses between attempts to connect.
const RECONNECT: Backoff = Backoff {
    first: Duration::from_millis(20),
    most: Duration::from_secs(1),
};

/// A connection that ends sooner counts as a failed attempt: the node is not well.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// How long the thread leaves an idle connection to callers before it reads again by itself, so
/// that it notices when the connection ends.
const REST: Duration = Duration::from_millis(50);

/// What the reading thread owns.
pub(super) struct Reader {
    pub(super) wire: Arc<Wire>,
    pub(super) dialer: Arc<Dialer>,
    /// A first unit came: connect.
    pub(super) orders: Receiver<()>,
    /// Disconnected when the node ends.
    pub(super) stop: Receiver<()>,
    pub(super) mover: Mover,
}

/// Whatever ends the thread, a panic included: its write loop must not wait for it for ever.
impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(relax) = &self.wire.records.relax {
            relax.forget(self.wire.records.key);
        }
        self.wire.records.tell(NodeMessage::ReaderEnded);
    }
}

impl Reader {
    /// Keeps one connection at a time until it is stopped.
    pub(super) fn run(self, on_demand: bool) {
        if on_demand && !self.await_order() {
            return;
        }
        let mut random = Random::new(clock::seed());
        let (mut failures, mut generation, mut successor) = (0, 0, None);
        loop {
            match successor.take().map_or_else(|| self.dial(), Ok) {
                Ok(open) => {
                    failures = if self.serve(open, &mut generation) {
                        0
                    } else {
                        failures + 1
                    };
                }
                Err(_) if is_stopped(&self.stop, Duration::ZERO) => return,
                Err(error) => {
                    log::warn!("node {}: cannot connect: {error}", self.wire.records.addr);
                    let error = error.to_string().into();
                    self.wire.records.set_connect_error(Some(error));
                    failures += 1;
                }
            }
            if is_stopped(&self.stop, Duration::ZERO) {
                return;
            }
            successor = self.mover.successor(generation);
            if successor.is_some() {
                continue;
            }
            self.wire.records.report(Event::NodeDown {
                node: self.wire.records.key,
            });
            if failures > 0 && is_stopped(&self.stop, RECONNECT.pause(failures, &mut random)) {
                return;
            }
        }
    }

    fn dial(&self) -> std::io::Result<Open> {
        self.dialer.open_shared(&self.wire.records.addr, &self.stop)
    }

    fn await_order(&self) -> bool {
        select! {
            recv(self.orders) -> order => order.is_ok(),
            recv(self.stop) -> _ => false,
        }
    }

    /// Reads until the connection ends. `true` if it lived long enough to be called well.
    fn serve(&self, open: Open, generation: &mut u64) -> bool {
        let begun = clock::now();
        *generation += 1;
        self.wire.records.set_connect_error(None);
        self.wire
            .records
            .stats
            .connects
            .fetch_add(1, Ordering::Relaxed);
        let Open {
            connection,
            decoder,
            pushes,
        } = open;
        let opened = self
            .wire
            .read
            .lock()
            .open(connection.read, decoder, *generation);
        if let Err(error) = opened {
            log::warn!("node {}: {error}", self.wire.records.addr);
            return false;
        }
        let write = connection.write;
        self.wire.records.tell(NodeMessage::Connected {
            generation: *generation,
            write,
        });
        self.wire.records.report(Event::NodeUp {
            node: self.wire.records.key,
        });
        self.mover.connected(*generation);
        self.wire.read.lock().hear(&pushes, &self.wire.records);
        let why = self.read();
        let addr = &self.wire.records.addr;
        if is_stopped(&self.stop, Duration::ZERO) {
            log::debug!("node {addr}: connection closed by the client");
        } else {
            log::info!("node {addr}: connection ended: {why}");
        }
        self.wire.records.tell(NodeMessage::Lost {
            generation: *generation,
        });
        clock::now() >= begun + SHORT_LIFE
    }

    /// Reads whatever callers do not read; gives the reason of the end.
    fn read(&self) -> String {
        // Pushes may have come with the handshake.
        self.wire.read.lock().digest(&self.wire.records);
        let mut was_woken = true;
        loop {
            let why = self.wire.take_seat();
            let why = why.and_then(|reading| self.read_while_needed(reading, was_woken));
            if let Some(why) = why {
                return why;
            }
            was_woken = self.wire.records.rest(REST);
        }
    }

    /// Reads until a caller does, or a lone caller has gone who may come back and read by itself.
    /// Gives the reason of the end if that has come.
    fn read_while_needed(&self, reading: Reading<'_>, was_woken: bool) -> Option<String> {
        let mut reading = reading;
        if !was_woken {
            // Nobody came back.
            self.wire.read.lock().was_solo = false;
        }
        let mut progress = Progress::Bytes;
        loop {
            let mut side = self.wire.read.lock();
            if let Some(why) = side.fault() {
                let why = why.to_owned();
                side.close();
                return Some(why);
            }
            if let Some((moving, generation)) = side.take_moving() {
                self.mover.prepare(&moving, generation);
            }
            let is_idle = self.wire.records.state.lock().inflight.is_empty();
            if is_idle && side.is_left_to_callers() {
                drop(side);
                reading.leave();
                return None;
            }
            side.set_patient(is_idle && progress == Progress::Silence);
            progress = side.read(&self.wire.records);
            side.set_patient(false);
            drop(side);
            if progress == Progress::Bytes {
                if reading.leave() {
                    return None;
                }
                reading = self.wire.take_seat()?;
            }
        }
    }
}
