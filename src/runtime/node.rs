//! A node as the rest of the client sees it: what it is started with, and how it is told things.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded, unbounded};

use super::dial::Dialer;
use super::load::Amount;
use super::mover::Mover;
use super::reader::Reader;
use super::records::{NodeMessage, Records, amount};
use super::thread::Thread;
use super::wire::Wire;
use super::write_loop::{WriteLoop, WriteSetup};
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::{Dial, Event, NodeKey};
use crate::proto::slot::SlotSet;
use crate::proto::unit::Unit;
use crate::reply::{Home, Settler};

/// What callers and the coordinator hold of a node.
pub(crate) struct NodeHandle {
    pub(crate) key: NodeKey,
    pub(crate) wire: Arc<Wire>,
    inbox: Sender<NodeMessage>,
}

impl std::fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeHandle({})", self.wire.records.addr)
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
        let NodeSetup {
            key,
            addr,
            dial,
            limit,
            drain_limit,
            retry_reads,
            dialer,
            events,
        } = setup;
        let wire = Arc::new(Wire::new(Records::new(
            key,
            addr,
            limit,
            dialer.relax(),
            inbox.clone(),
            events,
        )));
        let handle = Arc::new(Self {
            key,
            wire: Arc::clone(&wire),
            inbox,
        });
        let (order, orders) = bounded(1);
        let (stop, stopped) = bounded(0);
        let reader = Reader {
            mover: Mover::new(&wire, &dialer, &stopped),
            wire: Arc::clone(&wire),
            dialer,
            orders,
            stop: stopped,
        };
        let port = wire.records.addr.port();
        let on_demand = dial == Dial::OnDemand;
        let reader = Thread::spawn(&format!("r-{port}"), move || reader.run(on_demand))?;
        let write_loop = WriteLoop::new(WriteSetup {
            drain_limit,
            retry_reads,
            messages,
            order: on_demand.then_some(order),
            stop,
            reader,
            wire,
        });
        let thread = Thread::spawn(&format!("w-{port}"), move || write_loop.run())?;
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
            self.wire.records.load.coming(amount(unit));
        }
        self.tell(NodeMessage::TakeOver(slots, units));
    }

    pub(crate) fn tell(&self, message: NodeMessage) {
        if let Err(error) = self.inbox.send(message) {
            // A node that has ended is named by no route any more; its tickets settle by dropping.
            log::error!(
                "node {}: a message came after its end",
                self.wire.records.addr
            );
            drop(error);
        }
    }
}
