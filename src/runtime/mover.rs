//! The next connection of a node whose server announced that the present one is to be left.
//!
//! It is made before the present one is left, by a short-lived thread. Then the write loop stops
//! writing, waits for what is on the wire, and closes; and the reading thread goes on with what was
//! made instead of connecting.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::clock;
use super::dial::{Dialer, Open};
use super::records::NodeMessage;
use super::thread::Thread;
use super::transport::is_stopped;
use super::wire::Wire;
use crate::proto::addr::NodeAddr;
use crate::proto::maintenance::Moving;

/// Pause between attempts to reach the new endpoint.
const RETRY: Duration = Duration::from_millis(250);

/// What a reading thread keeps for moves.
pub(super) struct Mover {
    wire: Arc<Wire>,
    dialer: Arc<Dialer>,
    /// Disconnected when the node ends.
    stop: Receiver<()>,
    /// The number of the present connection.
    present: Arc<AtomicU64>,
    /// A connection made in advance.
    made: (Sender<Successor>, Receiver<Successor>),
    /// Makes one. It ends by itself, or with `stop`.
    thread: RefCell<Option<Thread>>,
}

/// A connection that takes over from another one.
struct Successor {
    /// The number of the one that it replaces.
    of: u64,
    open: Open,
}

impl Mover {
    pub(super) fn new(wire: &Arc<Wire>, dialer: &Arc<Dialer>, stop: &Receiver<()>) -> Self {
        Self {
            wire: Arc::clone(wire),
            dialer: Arc::clone(dialer),
            stop: stop.clone(),
            present: Arc::new(AtomicU64::new(0)),
            made: bounded(1),
            thread: RefCell::new(None),
        }
    }

    /// A connection of this number is in use from now on.
    pub(super) fn connected(&self, generation: u64) {
        self.present.store(generation, Ordering::SeqCst);
        if let Some(relax) = &self.wire.records.relax {
            relax.reconnected(self.wire.records.key);
        }
    }

    /// The connection that was made to replace this one, if there is one.
    pub(super) fn successor(&self, of: u64) -> Option<Open> {
        let successor = self.made.1.try_recv().ok();
        successor.filter(|made| made.of == of).map(|made| made.open)
    }

    /// Starts to make the next connection, unless that is under way.
    pub(super) fn prepare(&self, moving: &Moving, of: u64) {
        let mut thread = self.thread.borrow_mut();
        let under_way = thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if under_way || !self.made.1.is_empty() {
            return;
        }
        let order = Order {
            addr: moving
                .to
                .as_ref()
                .unwrap_or(&self.wire.records.addr)
                .clone(),
            // The same name leads to the new place only after a while.
            pause: match moving.to {
                Some(_) => Duration::ZERO,
                None => moving.within / 2,
            },
            by: clock::now() + moving.within,
            of,
            present: Arc::clone(&self.present),
            wire: Arc::clone(&self.wire),
            dialer: Arc::clone(&self.dialer),
            made: self.made.0.clone(),
            stop: self.stop.clone(),
        };
        let name = format!("move-{}", self.wire.records.addr.port());
        match Thread::spawn(&name, move || order.run()) {
            Ok(started) => *thread = Some(started),
            // The server closes the connection in the end, and another one is made then.
            Err(error) => log::error!("cannot start a thread: {error}"),
        }
    }
}

/// To make a connection that replaces another one.
struct Order {
    addr: NodeAddr,
    pause: Duration,
    by: Instant,
    of: u64,
    present: Arc<AtomicU64>,
    wire: Arc<Wire>,
    dialer: Arc<Dialer>,
    made: Sender<Successor>,
    stop: Receiver<()>,
}

impl Order {
    fn run(self) {
        let mut pause = self.pause;
        // Once the connection is lost, the usual ways make another one.
        while !is_stopped(&self.stop, pause) && self.is_wanted() {
            match self.dialer.open_shared(&self.addr, &self.stop) {
                Ok(open) => return self.hand_over(open),
                Err(_) if is_stopped(&self.stop, Duration::ZERO) => return,
                Err(error) => log::warn!("node {}: cannot connect: {error}", self.addr),
            }
            if clock::now() >= self.by {
                // The server closes the old connection.
                return;
            }
            pause = RETRY;
        }
    }

    fn is_wanted(&self) -> bool {
        self.present.load(Ordering::SeqCst) == self.of
    }

    fn hand_over(self, open: Open) {
        let (generation, by) = (self.of, self.by);
        let successor = Successor { of: self.of, open };
        // In this order: who leaves must find where to go.
        if self.is_wanted() && self.made.try_send(successor).is_ok() {
            let leave = NodeMessage::Leave { generation, by };
            self.wire.records.tell(leave);
        }
    }
}
