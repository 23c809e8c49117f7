//! The two threads of a node, as the runtime has them: one reads, one writes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::world::World;
use crate::proto::addr::NodeAddr;
use crate::proto::cluster::{Dial, Event, NodeKey};
use crate::proto::inflight::{BarrierId, Inflight};
use crate::proto::outbox::Outbox;
use crate::proto::outcome::{Outcome, Reason};
use crate::proto::slot::{Slot, SlotSet};
use crate::proto::testing::TestTicket;
use crate::proto::unit::Unit;
use crate::proto::verdict::{Answer, Reply};

pub(super) type TestEvent = Event<TestTicket>;

/// Tickets that end, with one outcome per place.
pub(super) type Settled = Vec<(TestTicket, Vec<Outcome>)>;

/// What the write loop is told.
#[derive(Debug)]
pub(super) enum Message {
    Submit(Unit<TestTicket>),
    TakeOver(SlotSet, Vec<Unit<TestTicket>>),
    GiveUp(BarrierId, SlotSet),
    Release(bool),
    Gone(usize),
    Replace(u64),
    Break,
    Connected(u64, u64),
    Lost,
    End(Instant),
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) key: NodeKey,
    pub(super) addr: NodeAddr,
    pub(super) inbox: VecDeque<Message>,
    pub(super) outbox: Outbox<TestTicket>,
    pub(super) inflight: Inflight<TestTicket>,
    /// The reader's connection, with its number.
    reading: Option<u64>,
    generation: u64,
    /// The writer's connection, with its generation.
    writing: Option<u64>,
    written_generation: u64,
    /// Waits for a first unit.
    on_demand: bool,
    dial_at: Instant,
    /// It is to end by then.
    pub(super) end: Option<Instant>,
    pub(super) over: bool,
    leftovers: Vec<Unit<TestTicket>>,
    retry_reads: bool,
    /// Places that the server refused on this connection, of slots that this node was not told to
    /// give up since: the news has not come round.
    refused: Vec<(usize, Option<Slot>)>,
}

/// What a step brings to light.
#[derive(Default)]
pub(super) struct Report {
    pub(super) events: Vec<TestEvent>,
    pub(super) settled: Settled,
    /// A place that was refused, one that was behind it on the same wire, and which wire.
    pub(super) behind: Vec<(usize, usize, u64)>,
}

impl Node {
    pub(super) fn new(key: NodeKey, addr: NodeAddr, dial: Dial, now: Instant) -> Self {
        Self {
            key,
            inflight: Inflight::new(addr.clone()),
            addr,
            inbox: VecDeque::new(),
            outbox: Outbox::new(),
            reading: None,
            generation: 0,
            writing: None,
            written_generation: 0,
            on_demand: dial == Dial::OnDemand,
            dial_at: now,
            end: None,
            over: false,
            leftovers: Vec::new(),
            retry_reads: true,
            refused: Vec::new(),
        }
    }

    /// Nothing left to do without news from outside.
    pub(super) fn is_quiet(&self) -> bool {
        self.inbox.is_empty() && self.outbox.is_idle() && self.inflight.is_empty()
    }

    /// Takes the next message.
    pub(super) fn take(&mut self, world: &mut World, report: &mut Report) {
        let Some(message) = self.inbox.pop_front() else {
            return;
        };
        match message {
            Message::Submit(unit) if self.end.is_some() => self.leftovers.push(unit),
            Message::Submit(unit) => {
                let mut strays = Vec::new();
                self.outbox.submit(unit, &mut strays);
                assert!(
                    strays.is_empty(),
                    "everything is sent in time, so nothing comes late: {strays:?}"
                );
                self.on_demand = false;
            }
            Message::TakeOver(slots, units) => {
                assert!(self.end.is_none(), "a slot for a node that ends");
                self.outbox.take_over(&slots, units);
                self.on_demand = false;
            }
            Message::GiveUp(id, slots) => {
                self.refused
                    .retain(|(_, slot)| slot.is_some_and(|slot| !slots.contains(slot)));
                let units = self.outbox.give_up(&slots);
                report.events.push(Event::Extracted { id, units });
                self.inflight.add_barrier(id, slots);
                self.clear(report);
            }
            Message::Release(reads) => {
                let units = self.outbox.release(reads);
                report.events.push(Event::Strays {
                    from: self.key,
                    units,
                });
            }
            Message::Gone(commands) => {
                self.outbox.note_dead(commands);
                self.inflight.recheck_barriers();
                self.clear(report);
            }
            Message::Replace(generation) if generation == self.written_generation => {
                self.outbox.close_when_answered();
            }
            Message::Replace(_) => {}
            Message::Break => self.shut(world),
            Message::Connected(connection, generation) => {
                self.outbox.connect();
                (self.writing, self.written_generation) = (Some(connection), generation);
                if self.end.is_some() {
                    self.shut(world);
                }
            }
            Message::Lost => self.lost(world, report),
            Message::End(limit) => {
                self.end = Some(limit);
                self.leftovers.extend(self.outbox.give_up_all());
            }
        }
    }

    fn clear(&mut self, report: &mut Report) {
        let cleared = self.inflight.cleared().into_iter();
        report
            .events
            .extend(cleared.map(|id| Event::Cleared { id }));
    }

    /// Ends the connection from this side.
    fn shut(&mut self, world: &mut World) {
        if let Some(connection) = self.writing.take() {
            if let Some(connection) = world.connections.get_mut(&connection) {
                connection.abandoned = true;
                connection.replies.clear();
            }
        }
    }

    fn lost(&mut self, world: &mut World, report: &mut Report) {
        self.shut(world);
        self.refused.clear();
        let why = Reason::ConnectionLost;
        let left = self
            .outbox
            .disconnect(&mut self.inflight, why, self.retry_reads);
        if !left.strays.is_empty() {
            let units = left.strays;
            let from = self.key;
            report.events.push(Event::Strays { from, units });
        }
        self.clear(report);
        let settled = left.settled.into_iter();
        report
            .settled
            .extend(settled.map(|(ticket, outcome)| (ticket, vec![outcome])));
        if self.end.is_some() {
            let newer = std::mem::replace(&mut self.leftovers, self.outbox.give_up_all());
            self.leftovers.extend(newer);
        }
    }

    /// A caller puts its unit on the wire by itself, if nothing is here that it could overtake.
    pub(super) fn stage_at_once(
        &mut self,
        unit: Unit<TestTicket>,
        now: Instant,
        report: &mut Report,
    ) -> Result<(), Unit<TestTicket>> {
        let mut coming = self.inbox.iter().any(|message| match message {
            Message::Submit(_) => true,
            Message::TakeOver(_, units) => !units.is_empty(),
            _ => false,
        });
        coming |= self.end.is_some() || self.writing.is_none();
        if coming || !self.outbox.is_free_for(&unit) {
            return Err(unit);
        }
        let mut strays = Vec::new();
        self.outbox.submit(unit, &mut strays);
        assert!(strays.is_empty(), "it was free for them: {strays:?}");
        self.stage(now, report);
        Ok(())
    }

    /// Claims what is to be written next.
    fn stage(&mut self, now: Instant, report: &mut Report) {
        let Some(id) = self.writing else { return };
        let mut expired = Vec::new();
        self.outbox.stage(&mut self.inflight, now, &mut expired);
        for &(place, _) in &self.refused {
            let behind = self.inflight.places().into_iter();
            report.behind.extend(behind.map(|other| (place, other, id)));
        }
        let expired = expired.into_iter();
        report
            .settled
            .extend(expired.map(|(ticket, outcome)| (ticket, vec![outcome])));
    }

    /// Claims and writes up to `most` bytes.
    pub(super) fn write(
        &mut self,
        most: usize,
        now: Instant,
        world: &mut World,
        report: &mut Report,
    ) {
        let Some(id) = self.writing else { return };
        self.stage(now, report);
        let connection = world.connections.get_mut(&id).expect("it is open here");
        if connection.closed {
            return self.shut(world);
        }
        if let Some(bytes) = self.outbox.next_bytes() {
            let count = bytes.len().min(most);
            connection.parser.feed(&bytes[..count]);
            self.outbox.wrote(count);
        }
        if self.outbox.is_closing() && self.inflight.is_empty() {
            self.shut(world);
        }
    }

    /// Reads up to `most` replies; notices the end of the connection.
    pub(super) fn read(
        &mut self,
        most: usize,
        now: Instant,
        world: &mut World,
        report: &mut Report,
    ) {
        let Some(id) = self.reading else { return };
        let connection = world.connections.get_mut(&id).expect("it is open here");
        let count = connection.replies.len().min(most);
        if count > 0 {
            let replies = connection.replies.drain(..count).collect();
            let wire = self.inflight.places();
            let events = report.events.len();
            self.accept(replies, report);
            for event in &report.events[events..] {
                if let Event::Redirected { unit, .. } = event {
                    let place = unit.ticket.places()[0];
                    let at = wire.iter().position(|&other| other == place);
                    let behind = &wire[at.expect("it was on the wire") + 1..];
                    let pairs = behind.iter().map(|&other| (place, other, id));
                    report.behind.extend(pairs);
                    self.refused.push((place, unit.slot(0)));
                }
            }
            return;
        }
        if connection.closed || connection.abandoned {
            self.reading = None;
            self.inbox.push_back(Message::Lost);
            report.events.push(Event::NodeDown { node: self.key });
            self.dial_at = now + Duration::from_millis(5);
        }
    }

    fn accept(&mut self, mut replies: VecDeque<Reply>, report: &mut Report) {
        let mut answers = Vec::new();
        self.inflight
            .accept(&mut replies, &mut answers)
            .expect("in step");
        let (from, generation) = (self.key, self.generation);
        for answer in answers {
            match answer {
                Answer::Settled(ticket, outcome) => report.settled.push((ticket, vec![outcome])),
                Answer::Run(ticket, outcomes) => report.settled.push((ticket, outcomes)),
                Answer::Redirected(unit, redirect) => report.events.push(Event::Redirected {
                    from,
                    generation,
                    unit,
                    redirect,
                }),
                Answer::Learned(redirect) => report.events.push(Event::Learned { from, redirect }),
                Answer::Confused => report.events.push(Event::Confused { from }),
            }
        }
        self.clear(report);
    }

    /// Connects, if it is time.
    pub(super) fn dial(&mut self, now: Instant, world: &mut World, report: &mut Report) {
        if self.reading.is_some() || self.on_demand || self.end.is_some() || now < self.dial_at {
            return;
        }
        match world.connect(&self.addr) {
            Some(connection) => {
                self.generation += 1;
                self.reading = Some(connection);
                let message = Message::Connected(connection, self.generation);
                self.inbox.push_back(message);
                report.events.push(Event::NodeUp { node: self.key });
            }
            None => {
                self.dial_at = now + Duration::from_millis(20);
                report.events.push(Event::NodeDown { node: self.key });
            }
        }
    }

    /// Ends when everything on the wire is answered, or the limit has passed.
    pub(super) fn finish(&mut self, now: Instant, world: &mut World, report: &mut Report) {
        let Some(limit) = self.end else { return };
        let idle = !self.outbox.has_staged() && self.inflight.is_empty();
        if self.over || !self.inbox.is_empty() || !(idle || limit <= now) {
            return;
        }
        if self.reading.take().is_some() || self.writing.is_some() {
            self.lost(world, report);
        }
        self.over = true;
        let units = std::mem::take(&mut self.leftovers);
        report.events.push(Event::Retired {
            node: self.key,
            units,
        });
    }
}
