//! The write loop of a node: the only code that writes its socket, the only owner of its queue.
//!
//! It never blocks in a write for longer than a short slice, so what arrives in its inbox is
//! looked at soon even if the server has stopped reading.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

use super::clock;
use super::drive::Drive;
use super::records::{NodeMessage, amount};
use super::thread::Thread;
use super::transport::WriteHalf;
use super::wire::Wire;
use crate::proto::cluster::Event;
use crate::proto::inflight::BarrierId;
use crate::proto::outcome::{Outcome, Reason};
use crate::proto::slot::SlotSet;
use crate::proto::unit::Unit;
use crate::reply::{Home, Settler};

/// So long without any reply, while callers have gone, means that the node is stuck.
const SILENCE: Duration = Duration::from_secs(10);

/// With so many commands on the wire whose callers have gone, a shorter time does. Their number
/// alone means nothing: one caller may give up a large pipeline at a node that is well.
const TOMBSTONES: usize = 512;

/// That shorter time; longer than servers pause their clients in a failover that goes well.
const SHORT_SILENCE: Duration = Duration::from_secs(3);

/// Timeouts are reported to the coordinator at most this often.
const SUSPECT_INTERVAL: Duration = Duration::from_millis(100);

/// The most messages taken at once: writing must go on under any load.
const MESSAGES_AT_ONCE: usize = 4096;

/// The write loop and all that it owns.
pub(super) struct WriteLoop {
    drain_limit: Duration,
    retry_reads: bool,
    wire: Arc<Wire>,
    messages: Receiver<NodeMessage>,
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

impl Silence {
    /// When it is to be looked at whether the node is stuck.
    fn due(&self) -> Instant {
        let is_long = self.commands < TOMBSTONES;
        self.since + if is_long { SILENCE } else { SHORT_SILENCE }
    }
}

/// The node is to end.
#[derive(Clone, Copy)]
struct End {
    limit: Instant,
    why: Reason,
}

/// What the write loop starts with.
pub(super) struct WriteSetup {
    pub(super) drain_limit: Duration,
    pub(super) retry_reads: bool,
    pub(super) wire: Arc<Wire>,
    pub(super) messages: Receiver<NodeMessage>,
    pub(super) order: Option<Sender<()>>,
    pub(super) stop: Sender<()>,
    pub(super) reader: Thread,
}

impl WriteLoop {
    pub(super) fn new(setup: WriteSetup) -> Self {
        Self {
            drain_limit: setup.drain_limit,
            retry_reads: setup.retry_reads,
            wire: setup.wire,
            messages: setup.messages,
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
        let wire = Arc::clone(&self.wire);
        let mut has_work = false;
        loop {
            let first = if has_work { None } else { self.wait() };
            let mut drive = wire.drive.lock();
            self.receive(first, &mut drive);
            if !drive.stage(&wire.records) {
                drop(drive);
                let is_over = wire.read_unasked();
                drive = wire.drive.lock();
                if is_over {
                    drive.shut(&wire.records);
                }
                drive.stage(&wire.records);
            }
            wire.find_reader();
            // Before the write: a reply may be back before this thread goes on, and whoever gets
            // it must not find its own command still counted.
            drive.publish(&self.wire.records);
            drive.write(&wire.records);
            self.look_at_the_clock(&mut drive);
            let over = self.is_over(&drive);
            has_work = drive.can_write();
            drop(drive);
            if over {
                return self.finish();
            }
        }
    }

    /// Waits for a message, or until something is due.
    fn wait(&mut self) -> Option<NodeMessage> {
        match self.next_deadline() {
            None => self.messages.recv().ok(),
            Some(deadline) => self.messages.recv_deadline(deadline).ok(),
        }
    }

    /// Takes what is in the inbox, under the drive: a unit is never in the hands of this thread
    /// while a caller may find the node idle.
    fn receive(&mut self, first: Option<NodeMessage>, drive: &mut Drive) {
        if let Some(message) = first {
            self.take(message, drive);
        }
        for _ in 0..MESSAGES_AT_ONCE {
            match self.messages.try_recv() {
                Ok(message) => self.take(message, drive),
                Err(_) => return,
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let silence = self.silence.as_ref().map(Silence::due);
        let end = self.end.map(|end| end.limit);
        [silence, end, self.replace_by].into_iter().flatten().min()
    }

    fn take(&mut self, message: NodeMessage, drive: &mut Drive) {
        match message {
            NodeMessage::Submit(unit) => self.submit(unit, drive),
            NodeMessage::TakeOver(slots, units) => {
                units
                    .iter()
                    .for_each(|unit| self.wire.records.load.arrived(amount(unit)));
                drive.outbox.take_over(&slots, units);
                self.demand();
            }
            NodeMessage::GiveUp(id, slots) => self.give_up(id, slots, drive),
            NodeMessage::Release { reads } => {
                let free = drive.outbox.release(reads);
                self.hand_back(free);
            }
            NodeMessage::Gone {
                commands,
                timed_out,
            } => self.gone(commands, timed_out, drive),
            NodeMessage::Replace(generation) => self.replace(generation, None, drive),
            NodeMessage::Leave { generation, by } => self.replace(generation, Some(by), drive),
            NodeMessage::GoOn | NodeMessage::Idle | NodeMessage::ReaderEnded => {}
            NodeMessage::Break => drive.shut(&self.wire.records),
            NodeMessage::Connected { generation, write } => {
                self.connected(generation, write, drive)
            }
            NodeMessage::Lost { generation } => self.lost(generation, drive),
            NodeMessage::End { limit, why } => self.begin_end(End { limit, why }, drive),
        }
    }

    fn submit(&mut self, unit: Unit<Settler>, drive: &mut Drive) {
        self.wire.records.load.arrived(amount(&unit));
        if self.end.is_some() {
            return self.leftovers.push(unit);
        }
        let mut strays = Vec::new();
        drive.outbox.submit(unit, &mut strays);
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
                .records
                .stats
                .relocated
                .fetch_add(units.len() as u64, Ordering::Relaxed);
            self.wire.records.report(Event::Strays {
                from: self.wire.records.key,
                units,
            });
        }
    }

    fn give_up(&mut self, id: BarrierId, slots: SlotSet, drive: &mut Drive) {
        let units = drive.outbox.give_up(&slots);
        units
            .iter()
            .for_each(|unit| unit.ticket.set_home(Home::Coordinator));
        self.wire
            .records
            .stats
            .relocated
            .fetch_add(units.len() as u64, Ordering::Relaxed);
        // First what was queued: the barrier may open at once.
        self.wire.records.report(Event::Extracted { id, units });
        let mut wire = self.wire.records.state.lock();
        wire.inflight.add_barrier(id, slots);
        self.wire.records.report_cleared(&mut wire);
    }

    fn gone(&mut self, commands: usize, timed_out: bool, drive: &mut Drive) {
        drive.outbox.note_dead(commands);
        let now = clock::now();
        let mut wire = self.wire.records.state.lock();
        wire.inflight.recheck_barriers();
        self.wire.records.report_cleared(&mut wire);
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
        if silence.answered != answered {
            // The node is well, whoever has gone.
            (silence.since, silence.answered, silence.commands) = (now, answered, 0);
        }
        silence.commands += commands;
        let suspect = timed_out && now >= silence.reported + SUSPECT_INTERVAL;
        if suspect {
            silence.reported = now;
        }
        drop(wire);
        if suspect {
            self.wire.records.report(Event::Suspect {
                node: self.wire.records.key,
            });
        }
    }

    /// `by` never makes the time for what is on the wire shorter than usual.
    fn replace(&mut self, generation: u64, by: Option<Instant>, drive: &mut Drive) {
        if generation != drive.generation {
            return;
        }
        drive.outbox.close_when_answered();
        self.replace_by = by.max(Some(clock::now() + self.drain_limit));
        self.wire.records.state.lock().tell_when_idle = true;
    }

    fn connected(&mut self, generation: u64, write: Box<dyn WriteHalf>, drive: &mut Drive) {
        drive.generation = generation;
        drive.outbox.connect();
        drive.write = Some(write);
        if self.end.is_some() {
            drive.shut(&self.wire.records);
        }
    }

    fn lost(&mut self, generation: u64, drive: &mut Drive) {
        if generation != drive.generation {
            return;
        }
        drive.shut(&self.wire.records);
        (self.replace_by, self.silence) = (None, None);
        let why = self.end.map_or(Reason::ConnectionLost, |end| end.why);
        let why = if why == Reason::Closed {
            Reason::Closed
        } else {
            Reason::ConnectionLost
        };
        let mut wire = self.wire.records.state.lock();
        wire.tell_when_idle = self.end.is_some();
        let left = drive
            .outbox
            .disconnect(&mut wire.inflight, why, self.retry_reads);
        self.hand_back(left.strays);
        self.wire.records.report_cleared(&mut wire);
        self.wire.records.load.set_sent(wire.sent());
        drop(wire);
        self.settle(left.settled);
        if self.end.is_some() {
            self.leftovers.extend(drive.outbox.give_up_all());
        }
    }

    fn settle(&self, settled: Vec<(Settler, Outcome)>) {
        for (ticket, outcome) in settled {
            self.wire.records.settle(ticket, outcome);
        }
    }

    fn look_at_the_clock(&mut self, drive: &mut Drive) {
        if drive.outbox.is_closing() {
            let answered = self.wire.records.state.lock().inflight.is_empty();
            if answered || self.replace_by.is_some_and(|by| by <= clock::now()) {
                self.replace_by = None;
                drive.shut(&self.wire.records);
            }
        }
        let Some(silence) = &mut self.silence else {
            return;
        };
        let now = clock::now();
        if now < silence.due() {
            return;
        }
        // The number so far may count commands that were answered since, or were never written.
        let wire = self.wire.records.state.lock();
        let (answered, dead) = (wire.inflight.answered(), wire.inflight.dead());
        drop(wire);
        silence.commands = dead;
        if answered != silence.answered {
            (silence.since, silence.answered) = (now, answered);
        }
        let stuck = now >= silence.due();
        if stuck && dead > 0 {
            let time = now - silence.since;
            log::warn!("node {}: silent for {time:?}", self.wire.records.addr);
            drive.shut(&self.wire.records);
        }
        if stuck || dead == 0 {
            self.silence = None;
        }
    }

    fn begin_end(&mut self, end: End, drive: &mut Drive) {
        self.end = Some(end);
        self.wire.records.load.close();
        self.leftovers.extend(drive.outbox.give_up_all());
        self.wire.records.state.lock().tell_when_idle = true;
    }

    fn is_over(&self, drive: &Drive) -> bool {
        let Some(end) = self.end else { return false };
        let idle = !drive.outbox.has_staged() && self.wire.records.state.lock().inflight.is_empty();
        idle || end.limit <= clock::now()
    }

    /// Closes the connection, ends the reading thread, and reports what was not written.
    fn finish(mut self) {
        drop(self.stop.take());
        let wire = Arc::clone(&self.wire);
        wire.drive.lock().shut(&wire.records);
        // The reading thread may be in the middle of connecting: that connection is shut as soon
        // as it is told of, so the thread cannot stay behind in a read.
        while let Ok(message) = self.messages.recv() {
            if matches!(message, NodeMessage::ReaderEnded) {
                break;
            }
            self.take(message, &mut wire.drive.lock());
        }
        drop(self.reader.take());
        let mut drive = wire.drive.lock();
        while let Ok(message) = self.messages.try_recv() {
            self.take(message, &mut drive);
        }
        let generation = drive.generation;
        self.lost(generation, &mut drive);
        drive.publish(&self.wire.records);
        drop(drive);
        let units = std::mem::take(&mut self.leftovers);
        units
            .iter()
            .for_each(|unit| unit.ticket.set_home(Home::Coordinator));
        self.wire.records.report(Event::Retired {
            node: self.wire.records.key,
            units,
        });
    }
}
