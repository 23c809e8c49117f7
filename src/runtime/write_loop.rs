//! The write loop of a node: the only code that writes its socket, the only owner of its queue.
//!
//! It never blocks in a write for longer than a short slice, so what arrives in its inbox is
//! looked at soon even if the server has stopped reading.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::clock;
use super::load::Amount;
use super::thread::Thread;
use super::transport::{WriteHalf, is_slice};
use super::wire::{NodeMessage, Wire, amount};
use crate::proto::cluster::{Event, NodeKey};
use crate::proto::inflight::BarrierId;
use crate::proto::outbox::Outbox;
use crate::proto::outcome::{Outcome, Reason};
use crate::proto::slot::SlotSet;
use crate::proto::unit::Unit;
use crate::reply::{Home, Settler};

/// So many commands on the wire whose callers have gone mean that the node is stuck.
const TOMBSTONES: usize = 512;

/// So long without any reply, while callers have gone, means the same.
const SILENCE: Duration = Duration::from_secs(10);

/// Timeouts are reported to the coordinator at most this often.
const SUSPECT_INTERVAL: Duration = Duration::from_millis(100);

/// The most messages taken at once: writing must go on under any load.
const MESSAGES_AT_ONCE: usize = 4096;

/// The write loop and all that it owns.
pub(super) struct WriteLoop {
    key: NodeKey,
    drain_limit: Duration,
    retry_reads: bool,
    wire: Arc<Wire>,
    outbox: Outbox<Settler>,
    /// The present connection, while it may be written to.
    write: Option<Box<dyn WriteHalf>>,
    /// The number of the present connection.
    generation: u64,
    messages: Receiver<NodeMessage>,
    events: Sender<Event<Settler>>,
    /// Tells a reading thread that waits for the first unit to connect.
    order: Option<Sender<()>>,
    /// When a connection that is to be replaced is closed even if it was not answered.
    replace_by: Option<Instant>,
    /// Callers gave up: since when, and how many replies there had been.
    silence: Option<Silence>,
    end: Option<End>,
    /// What was queued when the end began, and what came since.
    leftovers: Vec<Unit<Settler>>,
    /// Dropped to stop the reading thread.
    stop: Option<Sender<()>>,
    reader: Option<Thread>,
}

/// Callers that gave up on written commands.
struct Silence {
    since: Instant,
    answered: u64,
    reported: Instant,
    commands: usize,
}

/// The node is to end.
#[derive(Clone, Copy)]
struct End {
    limit: Instant,
    why: Reason,
}

/// What the write loop starts with.
pub(super) struct WriteSetup {
    pub(super) key: NodeKey,
    pub(super) drain_limit: Duration,
    pub(super) retry_reads: bool,
    pub(super) wire: Arc<Wire>,
    pub(super) messages: Receiver<NodeMessage>,
    pub(super) events: Sender<Event<Settler>>,
    pub(super) order: Option<Sender<()>>,
    pub(super) stop: Sender<()>,
    pub(super) reader: Thread,
}

impl WriteLoop {
    pub(super) fn new(setup: WriteSetup) -> Self {
        Self {
            key: setup.key,
            drain_limit: setup.drain_limit,
            retry_reads: setup.retry_reads,
            wire: setup.wire,
            outbox: Outbox::new(),
            write: None,
            generation: 0,
            messages: setup.messages,
            events: setup.events,
            order: setup.order,
            replace_by: None,
            silence: None,
            end: None,
            leftovers: Vec::new(),
            stop: Some(setup.stop),
            reader: Some(setup.reader),
        }
    }

    /// Runs until the node ends.
    pub(super) fn run(mut self) {
        loop {
            self.receive();
            self.write();
            self.publish();
            self.look_at_the_clock();
            if self.is_over() {
                return self.finish();
            }
        }
    }

    /// Takes what is in the inbox; waits for something only if there is nothing to write.
    fn receive(&mut self) {
        if !self.can_write() {
            let message = match self.next_deadline() {
                None => self
                    .messages
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                Some(deadline) => self.messages.recv_deadline(deadline),
            };
            match message {
                Ok(message) => self.take(message),
                Err(_) => return,
            }
        }
        for _ in 0..MESSAGES_AT_ONCE {
            match self.messages.try_recv() {
                Ok(message) => self.take(message),
                Err(_) => return,
            }
        }
    }

    fn can_write(&self) -> bool {
        self.write.is_some() && (self.outbox.has_staged() || self.outbox.can_stage())
    }

    fn next_deadline(&self) -> Option<Instant> {
        let silence = self.silence.as_ref().map(|silence| silence.since + SILENCE);
        let end = self.end.map(|end| end.limit);
        [silence, end, self.replace_by].into_iter().flatten().min()
    }

    fn take(&mut self, message: NodeMessage) {
        match message {
            NodeMessage::Submit(unit) => self.submit(unit),
            NodeMessage::TakeOver(slots, units) => {
                units
                    .iter()
                    .for_each(|unit| self.wire.load.arrived(amount(unit)));
                self.outbox.take_over(&slots, units);
                self.demand();
            }
            NodeMessage::GiveUp(id, slots) => self.give_up(id, slots),
            NodeMessage::Gone {
                commands,
                timed_out,
            } => self.gone(commands, timed_out),
            NodeMessage::Replace(generation) => self.replace(generation, None),
            NodeMessage::Leave { generation, by } => self.replace(generation, Some(by)),
            NodeMessage::Idle | NodeMessage::ReaderEnded => {}
            NodeMessage::Break => self.shut(),
            NodeMessage::Connected { generation, write } => self.connected(generation, write),
            NodeMessage::Lost { generation } => self.lost(generation),
            NodeMessage::End { limit, why } => self.begin_end(End { limit, why }),
        }
    }

    fn submit(&mut self, unit: Unit<Settler>) {
        self.wire.load.arrived(amount(&unit));
        if self.end.is_some() {
            return self.leftovers.push(unit);
        }
        let mut strays = Vec::new();
        self.outbox.submit(unit, &mut strays);
        self.hand_back(strays);
        self.demand();
    }

    fn demand(&mut self) {
        if let Some(order) = self.order.take() {
            // The other end waits for just this, or has been stopped.
            order.send(()).ok();
        }
    }

    fn hand_back(&self, units: Vec<Unit<Settler>>) {
        if !units.is_empty() {
            units
                .iter()
                .for_each(|unit| unit.ticket.set_home(Home::Coordinator));
            self.wire
                .stats
                .relocated
                .fetch_add(units.len() as u64, Ordering::Relaxed);
            self.report(Event::Strays { units });
        }
    }

    fn give_up(&mut self, id: BarrierId, slots: SlotSet) {
        let units = self.outbox.give_up(&slots);
        units
            .iter()
            .for_each(|unit| unit.ticket.set_home(Home::Coordinator));
        self.wire
            .stats
            .relocated
            .fetch_add(units.len() as u64, Ordering::Relaxed);
        // First what was queued: the barrier may open at once.
        self.report(Event::Extracted { id, units });
        let mut wire = self.wire.state.lock();
        wire.inflight.add_barrier(id, slots);
        wire.inflight
            .cleared()
            .into_iter()
            .for_each(|id| self.report(Event::Cleared { id }));
    }

    fn gone(&mut self, commands: usize, timed_out: bool) {
        self.outbox.note_dead(commands);
        let now = clock::now();
        let mut wire = self.wire.state.lock();
        wire.inflight.recheck_barriers();
        wire.inflight
            .cleared()
            .into_iter()
            .for_each(|id| self.report(Event::Cleared { id }));
        if wire.inflight.is_empty() {
            return;
        }
        let answered = wire.inflight.answered();
        let silence = self.silence.get_or_insert(Silence {
            since: now,
            answered,
            reported: now - SUSPECT_INTERVAL,
            commands: 0,
        });
        silence.commands += commands;
        if silence.commands >= TOMBSTONES {
            // The exact number costs a walk, so it is taken once in a while.
            silence.commands = wire.inflight.dead();
        }
        let stuck = silence.commands >= TOMBSTONES;
        let suspect = timed_out && now >= silence.reported + SUSPECT_INTERVAL;
        if suspect {
            silence.reported = now;
        }
        drop(wire);
        if suspect {
            self.report(Event::Suspect { node: self.key });
        }
        if stuck {
            log::warn!("node {}: too many unanswered commands", self.wire.addr);
            self.shut();
        }
    }

    /// `by` never makes the time for what is on the wire shorter than usual.
    fn replace(&mut self, generation: u64, by: Option<Instant>) {
        if generation != self.generation {
            return;
        }
        self.outbox.close_when_answered();
        self.replace_by = by.max(Some(clock::now() + self.drain_limit));
        self.wire.state.lock().tell_when_idle = true;
    }

    fn connected(&mut self, generation: u64, write: Box<dyn WriteHalf>) {
        self.generation = generation;
        self.outbox.connect();
        self.write = Some(write);
        if self.end.is_some() {
            self.shut();
        }
    }

    /// Ends the present connection; the reading thread will notice and say so.
    fn shut(&mut self) {
        if let Some(write) = self.write.take() {
            write.shutdown();
        }
    }

    fn lost(&mut self, generation: u64) {
        if generation != self.generation {
            return;
        }
        self.shut();
        (self.replace_by, self.silence) = (None, None);
        let why = self.end.map_or(Reason::ConnectionLost, |end| end.why);
        let why = if why == Reason::Closed {
            Reason::Closed
        } else {
            Reason::ConnectionLost
        };
        let mut wire = self.wire.state.lock();
        wire.tell_when_idle = self.end.is_some();
        let left = self
            .outbox
            .disconnect(&mut wire.inflight, why, self.retry_reads);
        self.hand_back(left.strays);
        wire.inflight
            .cleared()
            .into_iter()
            .for_each(|id| self.report(Event::Cleared { id }));
        self.wire.load.set_sent(wire.sent());
        drop(wire);
        self.settle(left.settled);
        if self.end.is_some() {
            self.leftovers.extend(self.outbox.give_up_all());
        }
    }

    fn settle(&self, settled: Vec<(Settler, Outcome)>) {
        for (ticket, outcome) in settled {
            self.wire.stats.settled(&outcome);
            ticket.settle(outcome);
        }
    }

    fn write(&mut self) {
        let Some(write) = &mut self.write else { return };
        if !self.outbox.has_staged() {
            let mut expired = Vec::new();
            let mut wire = self.wire.state.lock();
            let before = wire.inflight.commands();
            self.outbox
                .stage(&mut wire.inflight, clock::now(), &mut expired);
            let staged = wire.inflight.commands() - before;
            self.wire.load.set_sent(wire.sent());
            drop(wire);
            self.wire
                .stats
                .sent
                .fetch_add(staged as u64, Ordering::Relaxed);
            for (ticket, outcome) in expired {
                self.wire.stats.settled(&outcome);
                ticket.settle(outcome);
            }
        }
        let Some(bytes) = self.outbox.next_bytes() else {
            return;
        };
        match write.write(bytes) {
            Ok(count) if count > 0 => {
                self.wire
                    .stats
                    .bytes_out
                    .fetch_add(count as u64, Ordering::Relaxed);
                self.outbox.wrote(count);
            }
            Err(error) if is_slice(&error) => {}
            Ok(_) | Err(_) => self.shut(),
        }
    }

    fn publish(&self) {
        let queued = Amount {
            commands: self.outbox.waiting(),
            bytes: self.outbox.waiting_bytes(),
        };
        self.wire.load.set_queued(queued);
    }

    fn look_at_the_clock(&mut self) {
        if self.outbox.is_closing() {
            let answered = self.wire.state.lock().inflight.is_empty();
            if answered || self.replace_by.is_some_and(|by| by <= clock::now()) {
                self.replace_by = None;
                self.shut();
            }
        }
        let Some(silence) = &mut self.silence else {
            return;
        };
        let now = clock::now();
        if now < silence.since + SILENCE {
            return;
        }
        let wire = self.wire.state.lock();
        let (answered, dead) = (wire.inflight.answered(), wire.inflight.dead());
        drop(wire);
        let stuck = dead > 0 && answered == silence.answered;
        self.silence = None;
        if stuck {
            log::warn!("node {}: silent for {SILENCE:?}", self.wire.addr);
            self.shut();
        } else if dead > 0 {
            let reported = now - SUSPECT_INTERVAL;
            self.silence = Some(Silence {
                since: now,
                answered,
                reported,
                commands: dead,
            });
        }
    }

    fn begin_end(&mut self, end: End) {
        self.end = Some(end);
        self.wire.load.close();
        self.leftovers.extend(self.outbox.give_up_all());
        self.wire.state.lock().tell_when_idle = true;
    }

    fn is_over(&self) -> bool {
        let Some(end) = self.end else { return false };
        let idle = !self.outbox.has_staged() && self.wire.state.lock().inflight.is_empty();
        idle || end.limit <= clock::now()
    }

    /// Closes the connection, ends the reading thread, and reports what was not written.
    fn finish(mut self) {
        drop(self.stop.take());
        self.shut();
        // The reading thread may be in the middle of connecting: that connection is shut as soon
        // as it is told of, so the thread cannot stay behind in a read.
        while let Ok(message) = self.messages.recv() {
            if matches!(message, NodeMessage::ReaderEnded) {
                break;
            }
            self.take(message);
        }
        drop(self.reader.take());
        while let Ok(message) = self.messages.try_recv() {
            self.take(message);
        }
        self.lost(self.generation);
        self.publish();
        let units = std::mem::take(&mut self.leftovers);
        units
            .iter()
            .for_each(|unit| unit.ticket.set_home(Home::Coordinator));
        self.report(Event::Retired {
            node: self.key,
            units,
        });
    }

    fn report(&self, event: Event<Settler>) {
        // Without a coordinator nobody waits for what is dropped here.
        drop(self.events.send(event));
    }
}
