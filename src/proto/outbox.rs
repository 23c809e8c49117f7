//! The writing half of one node: what waits, what was given away, what is being written.
//!
//! Legal calls, in this order per connection: [`connect`](Outbox::connect), then any number of
//! [`stage`](Outbox::stage) and [`wrote`](Outbox::wrote), then [`disconnect`](Outbox::disconnect)
//! once nobody reads from the connection any more. Everything else may come at any time.

use std::collections::VecDeque;
use std::time::Instant;

use super::addr::NodeAddr;
use super::inflight::Inflight;
use super::limits;
use super::outcome::{Outcome, Reason};
use super::queue::Queue;
use super::slot::{Slot, SlotSet};
use super::unit::{Bytes, Ticket, Unit};

/// `ASKING` as a command.
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// What one node is to write.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    queue: Queue<T>,
    link: Link,
    /// Slots that left this node: units that still arrive for them are passed back, not written.
    given_away: Option<SlotSet>,
    /// Those of them that ASK has sent units of since: they are meant for this node all the same.
    guests: Option<SlotSet>,
}

/// The connection, as the writing half sees it.
#[derive(Debug)]
enum Link {
    /// None. Exit: a connection is made.
    Down,
    /// Units are written to it. Exits: it is lost, or it is to be replaced.
    Up(Stream),
    /// It is to be replaced: nothing new is written, what was written is waited for.
    Closing(Stream),
}

/// The outgoing bytes of one connection.
#[derive(Debug, Default)]
struct Stream {
    /// What is claimed and not yet handed to the kernel.
    segments: VecDeque<Bytes>,
    /// Bytes of the first segment that were handed over.
    offset: usize,
    /// Bytes handed over since the connection was made.
    written: u64,
    /// A buffer to use again.
    spare: Vec<u8>,
}

impl<T: Ticket> Outbox<T> {
    pub(crate) fn new() -> Self {
        Self {
            queue: Queue::new(),
            link: Link::Down,
            given_away: None,
            guests: None,
        }
    }

    /// Commands that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.commands()
    }

    /// Bytes that wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.queue.bytes()
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    /// Whether bytes wait for the kernel to take them.
    pub(crate) fn has_staged(&self) -> bool {
        self.stream()
            .is_some_and(|stream| !stream.segments.is_empty())
    }

    /// Whether [`stage`](Self::stage) could bring more.
    pub(crate) fn can_stage(&self) -> bool {
        self.is_connected() && !self.queue.is_empty()
    }

    /// Whether nothing waits and nothing is half written.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.has_staged()
    }

    fn stream(&self) -> Option<&Stream> {
        match &self.link {
            Link::Down => None,
            Link::Up(stream) | Link::Closing(stream) => Some(stream),
        }
    }

    fn stream_mut(&mut self) -> Option<&mut Stream> {
        match &mut self.link {
            Link::Down => None,
            Link::Up(stream) | Link::Closing(stream) => Some(stream),
        }
    }

    /// Whether a unit that the routes lead here can be written now, without overtaking anything
    /// that is here. If one of its slots was given away, it has come back, but the news of that
    /// is still on its way here: the unit has to wait behind it, or it would be passed back and
    /// overtaken by those that come later.
    pub(crate) fn is_free_for(&self, unit: &Unit<T>) -> bool {
        self.is_connected() && self.is_idle() && !self.has_given_away(unit)
    }

    /// Whether a unit belongs, in part, to a slot that was given away.
    fn has_given_away(&self, unit: &Unit<T>) -> bool {
        let away = |slot| contains(&self.given_away, slot);
        self.given_away.is_some() && unit.touches(away)
    }

    /// Queues a unit. What belongs to a slot that was given away goes into `strays`; a unit that
    /// was sent here because of ASK is meant for this node all the same.
    pub(crate) fn submit(&mut self, unit: Unit<T>, strays: &mut Vec<Unit<T>>) {
        if !self.has_given_away(&unit) {
            return self.queue.push(unit);
        }
        if unit.asking {
            let guests = self.guests.get_or_insert_with(SlotSet::new);
            unit.slot(0)
                .into_iter()
                .for_each(|slot| guests.insert(slot));
            return self.queue.push(unit);
        }
        let away = |slot| contains(&self.given_away, slot);
        let queue = &mut self.queue;
        unit.divide(
            |target| target.slot().is_some_and(away),
            |away, piece| {
                if away {
                    strays.push(piece)
                } else {
                    queue.push(piece)
                }
            },
        );
    }

    /// This node takes over `slots`, whose units come with it, oldest first. Everything that is
    /// queued here for them is older: it was sent here by ASK, or is a remainder from an earlier
    /// time as owner. So they go behind.
    pub(crate) fn take_over(&mut self, slots: &SlotSet, units: Vec<Unit<T>>) {
        subtract(&mut self.given_away, slots);
        subtract(&mut self.guests, slots);
        units.into_iter().for_each(|unit| self.queue.push(unit));
    }

    /// This node gives up `slots`: everything that is queued for them, oldest first.
    pub(crate) fn give_up(&mut self, slots: &SlotSet) -> Vec<Unit<T>> {
        self.given_away
            .get_or_insert_with(SlotSet::new)
            .extend(slots);
        subtract(&mut self.guests, slots);
        self.queue.extract(slots)
    }

    /// This node does not answer: what other nodes can run as well. With `reads` it is a replica,
    /// so that is everything with a key, too.
    pub(crate) fn release(&mut self, reads: bool) -> Vec<Unit<T>> {
        self.queue.extract_free(reads)
    }

    /// This node ends: everything that is queued.
    pub(crate) fn give_up_all(&mut self) -> Vec<Unit<T>> {
        self.queue.extract_all()
    }

    /// Notes that the caller of so many queued commands has gone.
    pub(crate) fn note_dead(&mut self, commands: usize) {
        self.queue.note_dead(commands);
    }

    /// A connection is ready for units.
    pub(crate) fn connect(&mut self) {
        debug_assert!(matches!(self.link, Link::Down), "one connection at a time");
        self.link = Link::Up(Stream::default());
    }

    /// Stops writing new units to the present connection: it is to be replaced.
    pub(crate) fn close_when_answered(&mut self) {
        if let Link::Up(stream) = &mut self.link {
            self.link = Link::Closing(std::mem::take(stream));
        }
    }

    /// Whether the connection is to be replaced and has nothing left to write.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(&self.link, Link::Closing(stream) if stream.segments.is_empty())
    }

    /// Claims what is to be written next and hands it to `inflight`, before its first byte leaves.
    /// Units past their deadline end here.
    pub(crate) fn stage(
        &mut self,
        inflight: &mut Inflight<T>,
        now: Instant,
        expired: &mut Vec<(T, Outcome)>,
    ) {
        let Link::Up(stream) = &mut self.link else {
            return;
        };
        if !stream.segments.is_empty() {
            return;
        }
        let mut small = std::mem::take(&mut stream.spare);
        let mut staged = 0;
        while staged < limits::WRITE_BYTES {
            let Some(unit) = self.queue.pop(limits::WRITE_BYTES) else {
                break;
            };
            if unit.is_expired(now) {
                expire(unit, inflight.node(), expired);
                continue;
            }
            if !unit.ticket.claim() {
                continue;
            }
            staged += stream.lay_out(unit, &mut small, inflight);
        }
        stream.flush(small);
    }

    /// The bytes to write next.
    pub(crate) fn next_bytes(&self) -> Option<&[u8]> {
        let stream = self.stream()?;
        stream
            .segments
            .front()
            .map(|segment| &segment.as_slice()[stream.offset..])
    }

    /// The kernel took `bytes` of [`next_bytes`](Self::next_bytes).
    pub(crate) fn wrote(&mut self, bytes: usize) {
        let Some(stream) = self.stream_mut() else {
            return;
        };
        stream.written += bytes as u64;
        stream.offset += bytes;
        let front = stream
            .segments
            .front()
            .map_or(0, |segment| segment.as_slice().len());
        if stream.offset == front {
            if let Some(Bytes::Own(mut small, _)) = stream.segments.pop_front() {
                small.clear();
                stream.spare = small;
            }
            stream.offset = 0;
        }
    }

    /// The connection is gone and nobody reads from it any more. What certainly did not run, or
    /// may run twice, is queued in front again, or returned if its slot left this node; what may
    /// have run is settled.
    pub(crate) fn disconnect(
        &mut self,
        inflight: &mut Inflight<T>,
        why: Reason,
        retry_reads: bool,
    ) -> Disconnected<T> {
        let written = self.stream().map_or(0, |stream| stream.written);
        self.link = Link::Down;
        let left = inflight.lose(written, why, retry_reads);
        let (mut strays, mut back) = (Vec::new(), Vec::new());
        for unit in left.retry {
            let asking = unit.asking;
            let away = |slot| {
                let guest = asking && contains(&self.guests, slot);
                contains(&self.given_away, slot) && !guest
            };
            unit.divide(
                |target| target.slot().is_some_and(away),
                |away, piece| {
                    if away {
                        strays.push(piece)
                    } else {
                        back.push(piece)
                    }
                },
            );
        }
        self.queue.requeue(back);
        Disconnected {
            strays,
            settled: left.settled,
        }
    }
}

/// What the end of a connection brings to light, beside what is simply queued again.
#[derive(Debug)]
pub(crate) struct Disconnected<T> {
    /// Units of slots that left this node, oldest first: older than all that was extracted.
    pub(crate) strays: Vec<Unit<T>>,
    /// Commands that may have run.
    pub(crate) settled: Vec<(T, Outcome)>,
}

impl Stream {
    /// Lays out one unit behind the others and records it as in flight; gives its length.
    fn lay_out<T: Ticket>(
        &mut self,
        mut unit: Unit<T>,
        small: &mut Vec<u8>,
        inflight: &mut Inflight<T>,
    ) -> usize {
        debug_assert!(
            !unit.asking || unit.places() == 1,
            "each command needs an ASKING of its own"
        );
        let prefix = if unit.asking { ASKING } else { b"" };
        small.extend_from_slice(prefix);
        let length = unit.bytes().len();
        if length < limits::LARGE_BYTES {
            small.extend_from_slice(unit.bytes());
        } else {
            self.flush(std::mem::take(small));
            self.segments.push_back(unit.share_bytes());
        }
        inflight.push(unit, prefix.len() + length);
        prefix.len() + length
    }

    fn flush(&mut self, small: Vec<u8>) {
        if small.is_empty() {
            self.spare = small;
        } else {
            self.segments.push_back(Bytes::Own(small, 0));
        }
    }
}

fn contains(slots: &Option<SlotSet>, slot: Slot) -> bool {
    slots.as_ref().is_some_and(|slots| slots.contains(slot))
}

/// Keeps an empty set out of the way of every submission.
fn subtract(from: &mut Option<SlotSet>, slots: &SlotSet) {
    if let Some(set) = from {
        set.subtract(slots);
        if set.is_empty() {
            *from = None;
        }
    }
}

fn expire<T: Ticket>(mut unit: Unit<T>, node: &NodeAddr, expired: &mut Vec<(T, Outcome)>) {
    while unit.places() > 1 {
        let first = unit.split_front(1);
        expire(first, node, expired);
    }
    let failure = unit.failure(Reason::Timeout, Some(node));
    expired.push((unit.ticket, Err(failure)));
}

#[cfg(test)]
mod tests;
