//! What the server of a node announces on its connection.
//!
//! An announced window is noted for the callers, the coordinator hears of everything, and a
//! connection that is to be left gets a successor before it is left: a short-lived thread makes
//! it, then the write loop stops writing, waits for what is on the wire, and closes.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::clock;
use super::dial::{Dialer, Open};
use super::thread::Thread;
use super::transport::is_stopped;
use super::wire::NodeMessage;
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::{Event, NodeKey};
use crate::proto::maintenance::{Moving, Notice};
use crate::proto::value::Value;
use crate::reply::Settler;
use crate::reply::relax::Relax;

/// Pause between attempts to reach the new endpoint.
const RETRY: Duration = Duration::from_millis(250);

/// The ears of a reading thread.
pub(super) struct Notices {
    key: NodeKey,
    addr: NodeAddr,
    relax: Arc<Relax>,
    dialer: Arc<Dialer>,
    inbox: Sender<NodeMessage>,
    events: Sender<Event<Settler>>,
    /// Disconnected when the node ends.
    stop: Receiver<()>,
    /// Connections made in advance.
    successors: (Sender<Successor>, Receiver<Successor>),
    /// Makes one. It ends by itself, or with `stop`.
    mover: RefCell<Option<Thread>>,
}

/// A connection that takes over from another one.
struct Successor {
    /// The connection that it replaces.
    of: u64,
    open: Open,
}

impl Notices {
    pub(super) fn new(
        key: NodeKey,
        addr: NodeAddr,
        relax: Arc<Relax>,
        dialer: Arc<Dialer>,
        inbox: Sender<NodeMessage>,
        events: Sender<Event<Settler>>,
        stop: Receiver<()>,
    ) -> Self {
        Self {
            key,
            addr,
            relax,
            dialer,
            inbox,
            events,
            stop,
            successors: bounded(1),
            mover: RefCell::new(None),
        }
    }

    /// A connection is in use from now on; what was pushed while it was made is heard.
    pub(super) fn connected(&self, generation: u64, pushes: &[Vec<Value>]) {
        self.relax.reconnected(self.key);
        pushes.iter().for_each(|push| self.hear(push, generation));
    }

    /// A push came on the connection of this number.
    pub(super) fn hear(&self, push: &[Value], generation: u64) {
        let Some(notice) = Notice::parse(push) else {
            return;
        };
        log::info!("node {}: announced: {notice:?}", self.addr);
        self.relax.hear(self.key, &notice, clock::now());
        if let Notice::Moving(moving) = &notice {
            self.prepare_move(moving, generation);
        }
        // Without a coordinator nobody wants to know.
        drop(self.events.send(Event::Announced {
            from: self.key,
            notice,
        }));
    }

    /// The connection that was made to replace this one, if there is one.
    pub(super) fn successor(&self, of: u64) -> Option<Open> {
        let successor = self.successors.1.try_recv().ok();
        successor.filter(|made| made.of == of).map(|made| made.open)
    }

    /// Starts to make the next connection, unless that is under way.
    fn prepare_move(&self, moving: &Moving, of: u64) {
        let mut mover = self.mover.borrow_mut();
        if mover.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        // What was made for a connection that was lost meanwhile is of no use.
        drop(self.successors.1.try_recv());
        let order = Order {
            addr: moving.to.clone().unwrap_or_else(|| self.addr.clone()),
            // The same name leads to the new place only after a while.
            pause: match moving.to {
                Some(_) => Duration::ZERO,
                None => moving.within / 2,
            },
            by: clock::now() + moving.within,
            of,
            dialer: Arc::clone(&self.dialer),
            inbox: self.inbox.clone(),
            made: self.successors.0.clone(),
            stop: self.stop.clone(),
        };
        match Thread::spawn(&format!("move-{}", self.addr.port()), move || order.run()) {
            Ok(thread) => *mover = Some(thread),
            // The server closes the connection in the end, and another one is made then.
            Err(error) => log::error!("cannot start a thread: {error}"),
        }
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.relax.forget(self.key);
    }
}

/// To make a connection that replaces another one.
struct Order {
    addr: NodeAddr,
    pause: Duration,
    by: Instant,
    of: u64,
    dialer: Arc<Dialer>,
    inbox: Sender<NodeMessage>,
    made: Sender<Successor>,
    stop: Receiver<()>,
}

impl Order {
    fn run(self) {
        let mut pause = self.pause;
        while !is_stopped(&self.stop, pause) {
            match self.dialer.open_shared(&self.addr, &self.stop) {
                Ok(open) => {
                    // In this order: who leaves must find where to go.
                    if self.made.try_send(Successor { of: self.of, open }).is_ok() {
                        let (generation, by) = (self.of, self.by);
                        drop(self.inbox.send(NodeMessage::Leave { generation, by }));
                    }
                    return;
                }
                Err(error) => log::warn!("node {}: cannot connect: {error}", self.addr),
            }
            if clock::now() >= self.by {
                // The server closes the old connection, and the usual ways are tried again.
                return;
            }
            pause = RETRY;
        }
    }
}
