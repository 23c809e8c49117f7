//! What one thread knows about its keys: every value that a server may still give.
//!
//! Each key is a counter that only one thread increments. So the reply to each `INCR` and `GET` is
//! known in advance: a smaller number is a lost write, a larger one a write that ran twice. Only an
//! `INCR` that ended as *unknown* leaves two possibilities.

use std::time::{Duration, Instant};

use reslot::Slot;

/// The counters of one thread.
#[derive(Debug)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
    /// Those in the slots that will move.
    hot: Vec<usize>,
}

/// One counter.
#[derive(Debug)]
struct Entry {
    key: String,
    slot: Slot,
    /// The last value that a server told.
    known: u64,
    /// How many increments since then may have run.
    unknown: u64,
    /// The call in which an increment was last acknowledged: its beginning and its end.
    told: Option<(Instant, Instant)>,
    /// The value when the phase began.
    settled: u64,
}

/// The crash of a primary.
#[derive(Clone, Debug)]
pub(crate) struct Crash {
    /// Right before it.
    pub(crate) at: Instant,
    /// First and last slot of each range that the primary served.
    pub(crate) slots: Vec<(u16, u16)>,
    /// Its address.
    pub(crate) node: String,
}

/// Servers acknowledge before their replica has the write. What was acknowledged this shortly
/// before the crash may be lost with the primary; no client can prevent that.
const AT_RISK: Duration = Duration::from_secs(1);

/// A kill takes no longer than this to take effect. Whatever was asked later was not acknowledged
/// by the killed primary.
const DYING: Duration = Duration::from_millis(100);

/// A value that a server gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    /// The value.
    pub(crate) value: u64,
    /// When the call began. A pipeline may have begun before the crash and ended long after it.
    pub(crate) asked: Instant,
    /// The crash, if there was one.
    pub(crate) crash: Option<&'a Crash>,
}

/// Whether a value is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It is.
    Right,
    /// Too small: an acknowledged write is gone.
    Lost,
    /// Too small, but the missing writes were acknowledged right before the crash of their
    /// primary.
    LostByCrash,
    /// Too large: a write ran twice.
    Repeated,
}

impl Ledger {
    /// For these keys; the slots below `moving` will move.
    pub(crate) fn new(keys: impl Iterator<Item = String>, moving: u16) -> Self {
        let entry = |key: String| Entry {
            slot: Slot::of_key(key.as_bytes()),
            key,
            known: 0,
            unknown: 0,
            told: None,
            settled: 0,
        };
        let entries: Vec<Entry> = keys.map(entry).collect();
        let is_hot = |&index: &usize| entries[index].slot.number() < moving;
        let hot = (0..entries.len()).filter(is_hot).collect();
        Self { entries, hot }
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The keys in the slots that will move, as numbers.
    pub(crate) fn hot(&self) -> &[usize] {
        &self.hot
    }

    /// The name of a key.
    pub(crate) fn key(&self, number: usize) -> &str {
        &self.entries[number].key
    }

    /// Begins a phase: what is acknowledged now is safe from a crash a second later.
    pub(crate) fn settle(&mut self) {
        for entry in &mut self.entries {
            entry.settled = entry.known;
        }
    }

    /// Notes that an `INCR` may have run.
    pub(crate) fn uncertain(&mut self, number: usize) {
        self.entries[number].unknown += 1;
    }

    /// Notes the value that an `INCR` gave.
    pub(crate) fn incremented(&mut self, number: usize, reply: Reply<'_>) -> Finding {
        self.told(number, 1, reply)
    }

    /// Notes the value that a `GET` gave.
    pub(crate) fn read(&mut self, number: usize, reply: Reply<'_>) -> Finding {
        self.told(number, 0, reply)
    }

    fn told(&mut self, number: usize, step: u64, reply: Reply<'_>) -> Finding {
        let entry = &mut self.entries[number];
        let (least, value) = (entry.known + step, reply.value);
        let finding = if value < least {
            match reply.crash {
                Some(crash) if value >= entry.settled && entry.at_risk(crash) => {
                    Finding::LostByCrash
                }
                _ => Finding::Lost,
            }
        } else if value > least + entry.unknown {
            Finding::Repeated
        } else {
            Finding::Right
        };
        entry.unknown -= entry.unknown.min(value.saturating_sub(least));
        entry.known = value;
        if step > 0 {
            entry.told = Some((reply.asked, Instant::now()));
        }
        finding
    }
}

impl Entry {
    /// Whether the last acknowledged write may have died with its primary.
    fn at_risk(&self, crash: &Crash) -> bool {
        let slot = self.slot.number();
        let served = |&(first, last): &(u16, u16)| (first..=last).contains(&slot);
        let shortly = |(asked, told): (Instant, Instant)| {
            told + AT_RISK >= crash.at && asked <= crash.at + DYING
        };
        crash.slots.iter().any(served) && self.told.is_some_and(shortly)
    }
}
