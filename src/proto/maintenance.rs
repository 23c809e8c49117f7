//! What servers announce about their maintenance (Redis Enterprise and Redis Cloud, RESP3 only).
//!
//! An announcement is a push. The same one may come on every connection, twice, late or never,
//! and its counterpart may be missing. No specification of the frames is public and there were
//! earlier drafts of them, so whatever does not have the shape that is known today says only that
//! something has changed: [`Notice::Unreadable`], never half of a frame.

mod seen;
mod windows;

use std::fmt;
use std::time::Duration;

pub(crate) use seen::Seen;
pub(crate) use windows::Windows;

use super::addr::NodeAddr;
use super::slot::{SLOTS, Slot, SlotSet};
use super::value::Value;

/// One announcement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Notice {
    /// `SMIGRATING`, `MIGRATING`, `FAILING_OVER`: answers may be slow from now on.
    Begun(Work, i64),
    /// `MIGRATED`, `FAILED_OVER`: it is over.
    Ended(Work, i64),
    /// `SMIGRATED`: slots have changed their owners, in this order.
    SlotsMoved(i64, Vec<Delta>),
    /// `MOVING`: this connection is to be replaced.
    Moving(Moving),
    /// One of these in a shape that is not known.
    Unreadable(Work),
}

/// What kind of maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// Slots move to other nodes.
    Slots,
    /// The data behind an endpoint moves to another server.
    Shard,
    /// A replica takes over.
    Failover,
    /// The endpoint of a connection moves.
    Endpoint,
}

/// Slots that went from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Delta {
    pub(crate) from: NodeAddr,
    pub(crate) to: NodeAddr,
    pub(crate) slots: SlotSet,
}

/// A connection is to be replaced within a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Moving {
    pub(crate) seq: i64,
    /// When the server closes the old one.
    pub(crate) within: Duration,
    /// Where to connect to; `None`: to the same name, which will lead elsewhere by then.
    pub(crate) to: Option<NodeAddr>,
}

/// Longest host name that is believed (DNS allows 253 characters).
const HOST_BYTES: usize = 255;

/// The most slots that one frame names, repetitions counted: each a few times over.
const SLOTS_NAMED: usize = 4 * SLOTS as usize;

/// The longest time to replace a connection in that is believed.
const LONGEST_MOVE: Duration = Duration::from_secs(600);

impl Notice {
    /// Reads a push; `None` if it is none of these.
    pub(crate) fn parse(push: &[Value]) -> Option<Self> {
        let (name, rest) = push.split_first()?;
        let name = text(name)?.to_ascii_uppercase();
        let (work, notice) = match name.as_str() {
            "SMIGRATING" => (Work::Slots, slots_migrating(rest)),
            "SMIGRATED" => (Work::Slots, slots_migrated(rest)),
            "MOVING" => (Work::Endpoint, moving(rest)),
            "MIGRATING" => (Work::Shard, begun(Work::Shard, rest)),
            "MIGRATED" => (Work::Shard, ended(Work::Shard, rest)),
            "FAILING_OVER" => (Work::Failover, begun(Work::Failover, rest)),
            "FAILED_OVER" => (Work::Failover, ended(Work::Failover, rest)),
            _ => return None,
        };
        Some(notice.unwrap_or(Notice::Unreadable(work)))
    }
}

/// In short, for the log.
impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Begun(work, seq) => write!(f, "{work:?} begins ({seq})"),
            Notice::Ended(work, seq) => write!(f, "{work:?} ends ({seq})"),
            Notice::SlotsMoved(seq, deltas) => {
                write!(f, "slots moved ({seq})")?;
                deltas.iter().try_for_each(|delta| {
                    let count = delta.slots.iter().count();
                    write!(f, ", {count} from {} to {}", delta.from, delta.to)
                })
            }
            Notice::Moving(moving) => write!(f, "moves in {:?} ({})", moving.within, moving.seq),
            Notice::Unreadable(work) => write!(f, "{work:?}, in a shape that is not known"),
        }
    }
}

/// `<seq> <slots>`. What follows is not looked at.
fn slots_migrating(rest: &[Value]) -> Option<Notice> {
    let [Value::Integer(seq), slots, ..] = rest else {
        return None;
    };
    // Which slots does not matter yet: their owner answers until the end. But it must make sense.
    parse_slots(text(slots)?, &mut { SLOTS_NAMED })?;
    Some(Notice::Begun(Work::Slots, *seq))
}

/// `<seq> [[<from>, <to>, <slots>], …]`
fn slots_migrated(rest: &[Value]) -> Option<Notice> {
    let [Value::Integer(seq), Value::Array(triplets), ..] = rest else {
        return None;
    };
    let mut deltas: Vec<Delta> = Vec::new();
    let mut budget = SLOTS_NAMED;
    for triplet in triplets {
        let delta = Delta::parse(triplet, &mut budget)?;
        match deltas.last_mut() {
            // Only neighbours are joined: a slot may go from A to B and on to C in one frame.
            Some(last) if last.from == delta.from && last.to == delta.to => {
                last.slots.extend(&delta.slots);
            }
            _ => deltas.push(delta),
        }
    }
    Some(Notice::SlotsMoved(*seq, deltas))
}

/// `<seq> <seconds> <endpoint or null>`
fn moving(rest: &[Value]) -> Option<Notice> {
    let [Value::Integer(seq), Value::Integer(seconds), rest @ ..] = rest else {
        return None;
    };
    let to = match rest.first() {
        None | Some(Value::Null) => None,
        Some(endpoint) => Some(endpoint_of(endpoint)?),
    };
    let within = Duration::from_secs(u64::try_from(*seconds).ok()?);
    Some(Notice::Moving(Moving {
        seq: *seq,
        within: within.min(LONGEST_MOVE),
        to,
    }))
}

/// `<seq> <seconds>`
fn begun(work: Work, rest: &[Value]) -> Option<Notice> {
    match rest {
        [Value::Integer(seq), Value::Integer(_), ..] => Some(Notice::Begun(work, *seq)),
        _ => None,
    }
}

/// `<seq>`
fn ended(work: Work, rest: &[Value]) -> Option<Notice> {
    match rest {
        [Value::Integer(seq), ..] => Some(Notice::Ended(work, *seq)),
        _ => None,
    }
}

impl Delta {
    fn parse(triplet: &Value, budget: &mut usize) -> Option<Self> {
        let Value::Array(fields) = triplet else {
            return None;
        };
        let [from, to, slots, ..] = fields.as_slice() else {
            return None;
        };
        Some(Self {
            from: endpoint_of(from)?,
            to: endpoint_of(to)?,
            slots: parse_slots(text(slots)?, budget)?,
        })
    }
}

/// `host:port`, split at the last colon.
fn endpoint_of(value: &Value) -> Option<NodeAddr> {
    let addr = NodeAddr::parse(text(value)?)?;
    let host = addr.host();
    (!matches!(host, "" | "?") && host.len() <= HOST_BYTES).then_some(addr)
}

/// `123,456,789-1000`, at most so many slots: no frame may cost more than it is worth.
fn parse_slots(list: &str, budget: &mut usize) -> Option<SlotSet> {
    let mut slots = SlotSet::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (slot_number(first)?, slot_number(last)?);
        let count = usize::from(last.checked_sub(first)?) + 1;
        *budget = budget.checked_sub(count)?;
        (first..=last)
            .filter_map(Slot::new)
            .for_each(|slot| slots.insert(slot));
    }
    Some(slots)
}

fn slot_number(text: &str) -> Option<u16> {
    let digits = text.trim();
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| plain)?;
    Slot::new(number).map(Slot::number)
}

/// A simple or bulk string, without white space around it.
fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Simple(bytes) | Value::Bulk(bytes) => std::str::from_utf8(bytes).ok().map(str::trim),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
