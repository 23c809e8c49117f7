//! What was written to one connection and waits for replies, in the order written.
//!
//! Replies carry no name: the n-th reply belongs to the n-th command. So nothing may ever leave
//! this list but by its reply or by the end of the connection; a caller that has gone leaves its
//! entry behind as a tombstone that eats the reply.

use std::collections::VecDeque;

use super::addr::NodeAddr;
use super::outcome::{Certainty, Outcome, Reason};
use super::slot::SlotSet;
use super::unit::{Body, Ticket, Unit};
use super::verdict::{Answer, Reply, judge, judge_chain, outcome_of, redirect_of};

/// Names a question "tell me when nothing of these slots is in flight".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BarrierId(pub(crate) u64);

/// What a lost connection leaves behind.
#[derive(Debug)]
pub(crate) struct Leftovers<T> {
    /// What certainly did not run, or may run twice; in order.
    pub(crate) retry: Vec<Unit<T>>,
    /// What may have run.
    pub(crate) settled: Vec<(T, Outcome)>,
}

/// A unit on the wire.
#[derive(Debug)]
struct Entry<T> {
    /// What is still unanswered of it: a part shrinks from the front.
    unit: Unit<T>,
    /// The offset in the connection's stream behind its last byte.
    end: u64,
    /// The reply of ASKING is still to come.
    asking: bool,
    /// Replies of a chain so far.
    replies: Vec<Reply>,
}

/// Somebody waits until nothing of these slots is in flight.
#[derive(Debug)]
struct Barrier {
    id: BarrierId,
    slots: SlotSet,
    /// The number behind the last entry that it waits for.
    until: u64,
}

/// The written units of one connection.
#[derive(Debug)]
pub(crate) struct Inflight<T> {
    /// Named in errors.
    node: NodeAddr,
    entries: VecDeque<Entry<T>>,
    /// Entries that have left: the front entry has this number.
    gone: u64,
    /// Bytes of this connection's stream that were handed out for writing.
    staged: u64,
    /// In no order.
    barriers: Vec<Barrier>,
    /// Commands that wait for replies, and the bytes that are kept for them.
    commands: usize,
    bytes: usize,
    /// Replies taken so far, on all connections: tells a slow node from a silent one.
    answered: u64,
}

impl<T: Ticket> Inflight<T> {
    pub(crate) fn new(node: NodeAddr) -> Self {
        Self {
            node,
            entries: VecDeque::new(),
            gone: 0,
            staged: 0,
            barriers: Vec::new(),
            commands: 0,
            bytes: 0,
            answered: 0,
        }
    }

    /// The node at the other end.
    pub(crate) fn node(&self) -> &NodeAddr {
        &self.node
    }

    /// Commands that wait for replies.
    pub(crate) fn commands(&self) -> usize {
        self.commands
    }

    /// Bytes that are kept in case they must be sent again.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What has to be passed for everything that is on the wire now to be answered.
    pub(crate) fn mark(&self) -> u64 {
        self.gone + self.entries.len() as u64
    }

    /// Whether everything before a mark has left.
    pub(crate) fn has_passed(&self, mark: u64) -> bool {
        self.gone >= mark
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The tickets on the wire, oldest first, each with the mark that its last reply passes.
    pub(crate) fn tickets(&self) -> impl Iterator<Item = (u64, &T)> {
        let entries = self.entries.iter();
        (self.gone + 1..).zip(entries.map(|entry| &entry.unit.ticket))
    }

    /// Replies taken so far.
    pub(crate) fn answered(&self) -> u64 {
        self.answered
    }

    /// Commands of callers that have gone.
    pub(crate) fn dead(&self) -> usize {
        let dead = self
            .entries
            .iter()
            .filter(|entry| entry.unit.ticket.is_dead());
        dead.map(|entry| entry.unit.commands()).sum()
    }

    /// Adds a unit of which nothing is on the wire yet. `bytes` is its length, prefix included.
    pub(crate) fn push(&mut self, unit: Unit<T>, bytes: usize) {
        self.staged += bytes as u64;
        self.commands += unit.commands();
        self.bytes += unit.bytes().len();
        let replies = match &unit.body {
            Body::Chain { members, .. } => Vec::with_capacity(members + 2),
            Body::One(..) | Body::Part(..) => Vec::new(),
        };
        self.entries.push_back(Entry {
            asking: unit.asking,
            end: self.staged,
            replies,
            unit,
        });
    }

    /// Takes replies in order. An error means that nobody asked: the connection is out of step.
    pub(crate) fn accept(
        &mut self,
        replies: &mut VecDeque<Reply>,
        out: &mut Vec<Answer<T>>,
    ) -> Result<(), &'static str> {
        while !replies.is_empty() {
            let entry = self
                .entries
                .front_mut()
                .ok_or("a reply that nobody asked for")?;
            if std::mem::take(&mut entry.asking) {
                // Whether ASKING worked shows in the reply of the command itself.
                replies.pop_front();
                continue;
            }
            match &entry.unit.body {
                Body::One(..) => self.accept_one(replies, out),
                Body::Part(..) => self.accept_run(replies, out),
                Body::Chain { .. } => self.accept_member(replies, out),
            }
        }
        Ok(())
    }

    fn accept_one(&mut self, replies: &mut VecDeque<Reply>, out: &mut Vec<Answer<T>>) {
        let Some(reply) = replies.pop_front() else {
            return;
        };
        self.count(1);
        let unit = self.pop().unit;
        judge(unit, reply, &self.node, out);
    }

    /// Settles as many neighbours of a part at once as have their replies, up to a redirect.
    fn accept_run(&mut self, replies: &mut VecDeque<Reply>, out: &mut Vec<Answer<T>>) {
        let entry = self
            .entries
            .front_mut()
            .expect("the caller has seen the front");
        let places = entry.unit.places();
        let unit = &entry.unit;
        let run = (0..places).zip(replies.iter());
        let run = run.take_while(|&(place, reply)| {
            redirect_of(reply, || unit.facts(place).author).is_none()
        });
        let run = run.count();
        if run == 0 {
            let Some(reply) = replies.pop_front() else {
                return;
            };
            self.count(1);
            let unit = if places == 1 {
                self.pop().unit
            } else {
                self.split_front(1)
            };
            return judge(unit, reply, &self.node, out);
        }
        self.count(run);
        let unit = if run == places {
            self.pop().unit
        } else {
            self.split_front(run)
        };
        let each = replies.drain(..run).enumerate();
        let node = &self.node;
        let outcomes = each
            .map(|(place, reply)| outcome_of(&unit, place, reply, node))
            .collect();
        out.push(Answer::Run(unit.ticket, outcomes));
    }

    fn accept_member(&mut self, replies: &mut VecDeque<Reply>, out: &mut Vec<Answer<T>>) {
        let Some(reply) = replies.pop_front() else {
            return;
        };
        self.count(1);
        let entry = self
            .entries
            .front_mut()
            .expect("the caller has seen the front");
        entry.replies.push(reply);
        if entry.replies.len() == entry.unit.commands() {
            let entry = self.pop();
            judge_chain(entry.unit, entry.replies, &self.node, out);
        }
    }

    fn count(&mut self, commands: usize) {
        self.commands -= commands;
        self.answered += commands as u64;
    }

    fn split_front(&mut self, places: usize) -> Unit<T> {
        let entry = self.entries.front_mut();
        let entry = entry.expect("the caller has seen the front");
        let front = entry.unit.split_front(places);
        self.bytes -= front.bytes().len();
        front
    }

    fn pop(&mut self) -> Entry<T> {
        let entry = self.entries.pop_front();
        let entry = entry.expect("the caller has seen the front");
        self.gone += 1;
        self.bytes -= entry.unit.bytes().len();
        entry
    }

    /// Asks to be told when every unit of these slots that is on the wire now has left.
    pub(crate) fn add_barrier(&mut self, id: BarrierId, slots: SlotSet) {
        let until = self.last_of(&slots);
        self.barriers.push(Barrier { id, slots, until });
    }

    /// The number behind the last entry of these slots whose caller still waits. Callers that have
    /// gone do not care about order any more.
    fn last_of(&self, slots: &SlotSet) -> u64 {
        let last = self.entries.iter().rposition(|entry| {
            entry.unit.touches(|slot| slots.contains(slot)) && !entry.unit.ticket.is_dead()
        });
        last.map_or(0, |index| self.gone + index as u64 + 1)
    }

    /// The barriers that nothing holds up any more.
    pub(crate) fn cleared(&mut self) -> Vec<BarrierId> {
        let mut cleared = Vec::new();
        let gone = self.gone;
        self.barriers.retain(|barrier| {
            let holds = barrier.until > gone;
            if !holds {
                cleared.push(barrier.id);
            }
            holds
        });
        cleared
    }

    /// Looks at open barriers again after callers have gone: a unit that nobody waits for holds
    /// nothing up.
    pub(crate) fn recheck_barriers(&mut self) {
        let mut barriers = std::mem::take(&mut self.barriers);
        for barrier in &mut barriers {
            barrier.until = self.last_of(&barrier.slots);
        }
        self.barriers = barriers;
    }

    /// Ends the connection, of whose stream `written` bytes went to the kernel. Barriers open by
    /// this; ask for them with [`cleared`](Self::cleared) after what is left was dealt with.
    pub(crate) fn lose(&mut self, written: u64, why: Reason, retry_reads: bool) -> Leftovers<T> {
        let mut left = Leftovers {
            retry: Vec::new(),
            settled: Vec::new(),
        };
        self.gone += self.entries.len() as u64;
        for entry in std::mem::take(&mut self.entries) {
            let sent = sent_places(&entry, written);
            leave(entry.unit, sent, why, retry_reads, &self.node, &mut left);
        }
        (self.staged, self.commands, self.bytes) = (0, 0, 0);
        left
    }
}

/// How many of the unanswered commands of a unit went to the kernel down to their last byte.
fn sent_places<T>(entry: &Entry<T>, written: u64) -> usize {
    let start = entry.end - entry.unit.bytes().len() as u64;
    match &entry.unit.body {
        _ if entry.end <= written => entry.unit.places(),
        Body::One(..) | Body::Chain { .. } => 0,
        Body::Part(..) => entry
            .unit
            .places_within(written.saturating_sub(start) as usize),
    }
}

/// Decides for each command of a lost unit. `sent` of them may have run (rules of the lost
/// connection: what never left whole cannot have run, since a server runs whole commands, and
/// drops an open MULTI with its connection).
fn leave<T: Ticket>(
    unit: Unit<T>,
    sent: usize,
    why: Reason,
    retry_reads: bool,
    node: &NodeAddr,
    left: &mut Leftovers<T>,
) {
    if unit.ticket.is_dead() {
        return;
    }
    let mut next = Some((unit, sent));
    while let Some((mut unit, sent)) = next.take() {
        let fate = |unit: &Unit<T>, at| (at < sent, retry_reads && unit.facts(at).repeatable);
        let (was_sent, repeatable) = fate(&unit, 0);
        let run = (1..unit.places()).find(|&at| fate(&unit, at) != (was_sent, repeatable));
        let mut piece = match run {
            Some(run) => {
                let front = unit.split_front(run);
                next = Some((unit, sent.saturating_sub(run)));
                front
            }
            None => unit,
        };
        if was_sent {
            piece.trail_mut().attempts += 1;
        }
        if was_sent && !repeatable {
            settle_unknown(piece, why, node, left);
        } else {
            // It goes back to a queue, but nobody may call it unsent.
            let known = was_sent.then(|| {
                piece.trail_mut().lost = true;
                let mut known = piece.failure(Reason::Timeout, Some(node));
                known.slot = known.slot.filter(|_| piece.places() == 1);
                known
            });
            if piece.ticket.release(known) {
                left.retry.push(piece);
            }
        }
    }
}

fn settle_unknown<T: Ticket>(
    mut unit: Unit<T>,
    why: Reason,
    node: &NodeAddr,
    left: &mut Leftovers<T>,
) {
    while unit.places() > 1 {
        let first = unit.split_front(1);
        settle_unknown(first, why, node, left);
    }
    let failure = unit.failure_with(why, Certainty::Unknown, 0, Some(node));
    left.settled.push((unit.ticket, Err(failure)));
}

#[cfg(test)]
mod tests;
