//! Units: the smallest things that queues hold, move and settle.
//!
//! A unit is one command, one chain (`MULTI … EXEC`, indivisible) or a part of a pipeline
//! (divisible along command boundaries). `ASKING` is never stored: it is written in front of a
//! unit that is sent because of ASK, so moving a unit cannot leave one behind.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::addr::NodeAddr;
use super::outcome::{Certainty, Failure, Reason};
use super::redirect::Author;
use super::slot::Slot;
use super::value::ServerError;

/// What is settled when a command ends. In production it is the settling half of a reply cell,
/// in tests a number. It has one *place* per command of its unit (a chain has one place).
///
/// A ticket is neither cloned nor made up: each place that goes in comes out exactly once.
pub(crate) trait Ticket: Sized {
    /// Takes off a ticket for the first `places` places; the rest stays here.
    fn split_front(&mut self, places: usize) -> Self;

    /// From now on a server may see the command. `false`: the caller has gone, do not write it.
    fn claim(&self) -> bool;

    /// The command is on no wire any more and may be sent again: it can be cancelled again. What
    /// is `known` by now goes with it, in the same step: a caller that gives up right then must
    /// not hear that the command was never sent. `false`: the caller has gone meanwhile, do not
    /// send it again.
    fn release(&self, known: Option<Box<Failure>>) -> bool;

    /// Whether the caller has gone: cancelled or timed out.
    fn is_dead(&self) -> bool;

    /// How it would fail if its deadline passed now: lets a caller that times out name the cause.
    fn note(&self, failure: Box<Failure>);

    /// Until when its caller waits although its deadline has passed: its node has announced
    /// maintenance. `None`: no longer than until its deadline.
    fn extended(&self, _now: Instant) -> Option<Instant> {
        None
    }
}

/// Where a command may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To the node that serves this slot.
    Slot(Slot),
    /// To any primary.
    Any,
    /// To the node it was addressed to and to no other.
    Node,
}

impl Target {
    pub(crate) fn slot(self) -> Option<Slot> {
        match self {
            Target::Slot(slot) => Some(slot),
            Target::Any | Target::Node => None,
        }
    }
}

/// What the queues must know about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Where it may go.
    pub(crate) target: Target,
    /// It may be sent again after a lost connection, because running it twice changes nothing.
    pub(crate) repeatable: bool,
    /// Who writes its errors.
    pub(crate) author: Author,
}

impl Facts {
    /// Those of a command whose errors the server writes.
    pub(crate) fn new(target: Target, repeatable: bool) -> Self {
        Self {
            target,
            repeatable,
            author: Author::Server,
        }
    }
}

/// Encoded bytes that are owned by one unit until somebody needs to share them.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// From an offset to the end of a buffer.
    Own(Vec<u8>, usize),
    /// The same, shared: the write loop keeps a large buffer alive while it writes from it.
    Shared(Arc<Vec<u8>>, Range<usize>),
    /// A range of the bytes of a batch.
    Batch(Arc<Batch>, Range<usize>),
}

impl Bytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Own(buffer, start) => &buffer[*start..],
            Bytes::Shared(buffer, range) => &buffer[range.clone()],
            Bytes::Batch(batch, range) => &batch.bytes[range.clone()],
        }
    }

    /// A second handle to the same bytes; nothing is copied.
    pub(crate) fn share(&mut self) -> Bytes {
        if let Bytes::Own(buffer, start) = self {
            let (buffer, start) = (std::mem::take(buffer), *start);
            let range = start..buffer.len();
            *self = Bytes::Shared(Arc::new(buffer), range);
        }
        match self {
            Bytes::Shared(buffer, range) => Bytes::Shared(Arc::clone(buffer), range.clone()),
            Bytes::Batch(batch, range) => Bytes::Batch(Arc::clone(batch), range.clone()),
            Bytes::Own(..) => unreachable!("it was made shared just above"),
        }
    }
}

/// Encoded bytes of a command with a key and perhaps a short value.
const USUAL_BYTES: usize = 32;

/// The commands of one pipeline that start out for one node, in one buffer.
#[derive(Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// For each command the offset behind its last byte, and its facts.
    commands: Vec<(usize, Facts)>,
}

impl Batch {
    /// A batch that has room for so many commands of usual size; it may get more.
    pub(crate) fn with_room(commands: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(commands * USUAL_BYTES),
            commands: Vec::with_capacity(commands),
        }
    }

    pub(crate) fn push(&mut self, encoded: &[u8], facts: Facts) {
        self.bytes.extend_from_slice(encoded);
        self.commands.push((self.bytes.len(), facts));
    }

    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(crate) fn facts(&self, index: usize) -> Facts {
        self.commands[index].1
    }

    fn start(&self, index: usize) -> usize {
        index
            .checked_sub(1)
            .map_or(0, |before| self.commands[before].0)
    }

    fn byte_range(&self, commands: &Range<usize>) -> Range<usize> {
        self.start(commands.start)..self.start(commands.end)
    }
}

/// The commands of a unit.
#[derive(Debug)]
pub(crate) enum Body {
    /// A command.
    One(Bytes, Facts),
    /// `MULTI`, the members and `EXEC`, which reach one connection back to back or not at all.
    Chain {
        /// All of it in one piece.
        bytes: Bytes,
        /// How many commands stand between `MULTI` and `EXEC`.
        members: usize,
        /// Where it may go.
        target: Target,
    },
    /// Some neighbouring commands of a batch.
    Part(Arc<Batch>, Range<usize>),
}

impl Body {
    /// The slot of its first command.
    pub(crate) fn slot(&self) -> Option<Slot> {
        self.facts(0).target.slot()
    }

    /// The facts of the command at this place.
    pub(crate) fn facts(&self, place: usize) -> Facts {
        match self {
            Body::One(_, facts) => *facts,
            // What its members answer when they run is data.
            Body::Chain { target, .. } => Facts::new(*target, false),
            Body::Part(batch, range) => batch.facts(range.start + place),
        }
    }
}

/// The smallest thing that may move: 1..n commands, one ticket.
#[derive(Debug)]
pub(crate) struct Unit<T> {
    /// Settles it.
    pub(crate) ticket: T,
    /// What is written.
    pub(crate) body: Body,
    /// When its caller stops waiting.
    pub(crate) deadline: Option<Instant>,
    /// It is sent because of ASK: one ASKING is written in front of it.
    pub(crate) asking: bool,
    /// What happened to it so far; `None` before its first reply.
    pub(crate) trail: Option<Box<Trail>>,
}

/// The history of a unit that was redirected or lost its connection. Survives every move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trail {
    /// How often it was written.
    pub(crate) attempts: u32,
    /// MOVED and ASK replies so far: what the redirect budget counts.
    pub(crate) redirects: u32,
    /// The last answer was ASK: if TRYAGAIN follows, the pair is no step of a loop.
    pub(crate) after_ask: bool,
    /// Answers that ask for a pause (TRYAGAIN, CLUSTERDOWN, LOADING, …) so far.
    pub(crate) pauses: u32,
    /// It was written to a connection that was lost: that attempt may have run.
    pub(crate) lost: bool,
    /// The last routing error.
    pub(crate) cause: Option<ServerError>,
    /// The nodes that redirected it.
    pub(crate) hops: Vec<NodeAddr>,
}

/// The most hops that an error lists.
const HOPS_KEPT: usize = 32;

impl Trail {
    pub(crate) fn hop(&mut self, node: &NodeAddr) {
        if self.hops.len() < HOPS_KEPT {
            self.hops.push(node.clone());
        }
    }
}

impl<T> Unit<T> {
    pub(crate) fn new(ticket: T, body: Body, deadline: Option<Instant>) -> Self {
        Self {
            ticket,
            body,
            deadline,
            asking: false,
            trail: None,
        }
    }

    /// How many places its ticket has: one per command, one for a chain.
    pub(crate) fn places(&self) -> usize {
        match &self.body {
            Body::One(..) | Body::Chain { .. } => 1,
            Body::Part(_, range) => range.len(),
        }
    }

    /// How many commands it puts on the wire, without ASKING.
    pub(crate) fn commands(&self) -> usize {
        match &self.body {
            Body::One(..) => 1,
            Body::Chain { members, .. } => members + 2,
            Body::Part(_, range) => range.len(),
        }
    }

    /// What it puts on the wire, without ASKING.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::One(bytes, _) | Body::Chain { bytes, .. } => bytes.as_slice(),
            Body::Part(batch, range) => &batch.bytes[batch.byte_range(range)],
        }
    }

    /// Its bytes as a handle of their own; nothing is copied.
    pub(crate) fn share_bytes(&mut self) -> Bytes {
        match &mut self.body {
            Body::One(bytes, _) | Body::Chain { bytes, .. } => bytes.share(),
            Body::Part(batch, range) => Bytes::Batch(Arc::clone(batch), batch.byte_range(range)),
        }
    }

    /// The facts of the command at this place.
    pub(crate) fn facts(&self, place: usize) -> Facts {
        self.body.facts(place)
    }

    pub(crate) fn slot(&self, place: usize) -> Option<Slot> {
        self.facts(place).target.slot()
    }

    /// Whether any of its commands belongs to a slot that `wanted` says yes to.
    pub(crate) fn touches(&self, wanted: impl Fn(Slot) -> bool) -> bool {
        (0..self.places()).any(|place| self.slot(place).is_some_and(&wanted))
    }

    /// How many of its commands lie wholly within its first `bytes` bytes.
    pub(crate) fn places_within(&self, bytes: usize) -> usize {
        match &self.body {
            Body::One(..) | Body::Chain { .. } => usize::from(self.bytes().len() <= bytes),
            Body::Part(batch, range) => {
                let start = batch.start(range.start);
                batch.commands[range.clone()].partition_point(|(end, _)| end - start <= bytes)
            }
        }
    }

    /// How often it was written.
    #[cfg(test)]
    pub(crate) fn attempts(&self) -> u32 {
        self.trail.as_ref().map_or(0, |trail| trail.attempts)
    }

    pub(crate) fn trail_mut(&mut self) -> &mut Trail {
        self.trail.get_or_insert_default()
    }

    /// How it fails when it ends off the wire: never sent, or refused whenever it was sent, unless
    /// a connection was lost with it.
    pub(crate) fn failure(&self, reason: Reason, node: Option<&NodeAddr>) -> Box<Failure> {
        let certainty = match &self.trail {
            Some(trail) if trail.lost => Certainty::Unknown,
            Some(trail) if trail.attempts > 0 => Certainty::Refused,
            _ => Certainty::NotSent,
        };
        self.failure_with(reason, certainty, 0, node)
    }

    /// How the command at this place fails.
    pub(crate) fn failure_with(
        &self,
        reason: Reason,
        certainty: Certainty,
        place: usize,
        node: Option<&NodeAddr>,
    ) -> Box<Failure> {
        let mut failure = Failure::new(reason, certainty);
        failure.node = node.cloned();
        failure.slot = self.slot(place);
        if let Some(trail) = &self.trail {
            failure.attempts = trail.attempts;
            failure.cause = trail.cause.clone();
            failure.hops = trail.hops.clone();
        }
        failure
    }
}

impl<T: Ticket> Unit<T> {
    /// When its caller stops waiting, as things are at that time.
    pub(crate) fn ends_at(&self, now: Instant) -> Option<Instant> {
        let deadline = self.deadline?;
        if now < deadline {
            return Some(deadline);
        }
        Some(deadline.max(self.ticket.extended(now).unwrap_or(deadline)))
    }

    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.ends_at(now).is_some_and(|end| end <= now)
    }

    /// Takes off a unit with the first `places` commands of a part; the rest stays here.
    pub(crate) fn split_front(&mut self, places: usize) -> Unit<T> {
        let Body::Part(batch, range) = &mut self.body else {
            unreachable!("only a part of a pipeline can be divided")
        };
        debug_assert!(
            0 < places && places < range.len(),
            "both halves hold something"
        );
        let front = range.start..range.start + places;
        range.start = front.end;
        Unit {
            body: Body::Part(Arc::clone(batch), front),
            ticket: self.ticket.split_front(places),
            deadline: self.deadline,
            asking: self.asking,
            trail: self.trail.clone(),
        }
    }

    /// Divides it into runs of neighbours of the same `kind`, in order. What cannot be divided
    /// comes back whole, under the kind of its first place.
    pub(crate) fn divide<K: PartialEq>(
        mut self,
        kind: impl Fn(Target) -> K,
        mut each: impl FnMut(K, Unit<T>),
    ) {
        loop {
            let first = kind(self.facts(0).target);
            let run = (1..self.places()).find(|&at| kind(self.facts(at).target) != first);
            let Some(run) = run else {
                return each(first, self);
            };
            let front = self.split_front(run);
            each(first, front);
        }
    }

    /// The longest front of a part that has at most `limit` bytes, but at least one command.
    /// Whatever cannot be divided, or fits, stays whole: `None`.
    pub(crate) fn split_bytes(&mut self, limit: usize) -> Option<Unit<T>> {
        if !matches!(self.body, Body::Part(..)) {
            return None;
        }
        let places = self.places_within(limit).max(1);
        (places < self.places()).then(|| self.split_front(places))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Ledger, part};

    #[test]
    fn a_part_divides_along_command_boundaries_and_keeps_its_bytes() {
        let ledger = Ledger::new();
        let unit = part(&ledger, &[5, 5, 7, 5]);
        let whole = unit.bytes().to_vec();
        let mut pieces = Vec::new();
        unit.divide(
            |target| target.slot(),
            |slot, piece| pieces.push((slot, piece)),
        );
        let slots: Vec<_> = pieces
            .iter()
            .map(|(slot, _)| slot.unwrap().number())
            .collect();
        assert_eq!(slots, [5, 7, 5]);
        let joined: Vec<u8> = pieces
            .iter()
            .flat_map(|(_, piece)| piece.bytes().to_vec())
            .collect();
        assert_eq!(joined, whole);
        let places: Vec<_> = pieces
            .iter()
            .map(|(_, piece)| piece.ticket.places())
            .collect();
        assert_eq!(places, [vec![0, 1], vec![2], vec![3]]);
        pieces
            .into_iter()
            .for_each(|(_, piece)| ledger.discard(piece.ticket));
    }

    #[test]
    fn a_front_by_bytes_has_at_least_one_command() {
        let ledger = Ledger::new();
        let mut unit = part(&ledger, &[1, 2, 3]);
        let one = unit.bytes().len() / 3;
        let front = unit.split_bytes(1).unwrap();
        assert_eq!((front.places(), unit.places()), (1, 2));
        assert!(unit.split_bytes(2 * one).is_none());
        ledger.discard(front.ticket);
        ledger.discard(unit.ticket);
    }
}
