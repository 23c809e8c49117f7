//! A node as the rest of the client sees it: what it is started with, and how it is told things.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded, unbounded};

use super::dial::Dialer;
use super::load::{Amount, Load};
use super::notices::Notices;
use super::reader::Reader;
use super::thread::Thread;
use super::wire::{NodeMessage, Wire, WireState, amount};
use super::write_loop::{WriteLoop, WriteSetup};
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::{Dial, Event, NodeKey};
use crate::proto::inflight::Inflight;
use crate::proto::slot::SlotSet;
use crate::proto::unit::Unit;
use crate::reply::{Home, Settler};
use crate::stats::NodeCounters;
use crate::sync::Mutex;

/// What callers and the coordinator hold of a node.
pub(crate) struct NodeHandle {
    pub(crate) key: NodeKey,
    pub(crate) wire: Arc<Wire>,
    inbox: Sender<NodeMessage>,
}

impl std::fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeHandle({})", self.wire.addr)
    }
}

/// What a node is started with.
pub(crate) struct NodeSetup {
    pub(crate) key: NodeKey,
    pub(crate) addr: NodeAddr,
    pub(crate) dial: Dial,
    pub(crate) limit: Amount,
    pub(crate) drain_limit: Duration,
    pub(crate) retry_reads: bool,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) events: Sender<Event<Settler>>,
}

impl NodeHandle {
    /// Starts both threads of a node. The write loop joins its reader; whoever keeps the returned
    /// thread joins the write loop.
    pub(crate) fn start(setup: NodeSetup) -> io::Result<(Arc<Self>, Thread)> {
        let (inbox, messages) = unbounded();
        let wire = Arc::new(Wire {
            load: Load::new(setup.limit),
            stats: NodeCounters::default(),
            state: Mutex::new(WireState {
                inflight: Inflight::new(setup.addr.clone()),
                tell_when_idle: false,
            }),
            addr: setup.addr,
        });
        let handle = Arc::new(Self {
            key: setup.key,
            wire: Arc::clone(&wire),
            inbox: inbox.clone(),
        });
        let (order, orders) = bounded(1);
        let (stop, stopped) = bounded(0);
        let notices = setup.dialer.relax().map(|relax| {
            Notices::new(
                setup.key,
                wire.addr.clone(),
                relax,
                Arc::clone(&setup.dialer),
                inbox.clone(),
                setup.events.clone(),
                stopped.clone(),
            )
        });
        let reader = Reader {
            key: setup.key,
            wire: Arc::clone(&wire),
            dialer: setup.dialer,
            inbox,
            events: setup.events.clone(),
            orders,
            stop: stopped,
            notices,
        };
        let port = wire.addr.port();
        let name = format!("read-{port}");
        let on_demand = setup.dial == Dial::OnDemand;
        let reader = Thread::spawn(&name, move || reader.run(on_demand))?;
        let write_loop = WriteLoop::new(WriteSetup {
            key: setup.key,
            drain_limit: setup.drain_limit,
            retry_reads: setup.retry_reads,
            messages,
            events: setup.events,
            order: on_demand.then_some(order),
            stop,
            reader,
            wire,
        });
        let name = format!("write-{port}");
        let thread = Thread::spawn(&name, move || write_loop.run())?;
        Ok((handle, thread))
    }

    /// Queues a unit that was admitted, and so counted, before.
    pub(crate) fn submit(&self, unit: Unit<Settler>) {
        unit.ticket.set_home(Home::Node(self.key));
        self.tell(NodeMessage::Submit(unit));
    }

    /// Hands over slots with units that were admitted elsewhere: they count, but are not refused.
    pub(crate) fn take_over(&self, slots: SlotSet, units: Vec<Unit<Settler>>) {
        for unit in &units {
            unit.ticket.set_home(Home::Node(self.key));
            self.wire.load.coming(amount(unit));
        }
        self.tell(NodeMessage::TakeOver(slots, units));
    }

    pub(crate) fn tell(&self, message: NodeMessage) {
        if let Err(error) = self.inbox.send(message) {
            // A node that has ended is named by no route any more; its tickets settle by dropping.
            log::error!("node {}: a message came after its end", self.wire.addr);
            drop(error);
        }
    }
}
