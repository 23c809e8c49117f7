//! The times in which a node's answers may be slow because it said so.

use std::time::{Duration, Instant};

use super::{Notice, Work};

/// A window ends by itself after so long: its end may have got lost.
const LONGEST: Duration = Duration::from_secs(30);

/// How long the end of some maintenance keeps a late copy of its beginning from counting.
const REMEMBERED: Duration = Duration::from_secs(120);

/// The most windows that are kept. More than one at a time is rare.
const MOST: usize = 64;

/// The open windows of one node. They overlap freely: each has its own end.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    open: Vec<Window>,
    /// The highest number of an end, for each kind of work.
    ended: Vec<Ended>,
}

#[derive(Debug)]
struct Window {
    work: Work,
    seq: i64,
    until: Instant,
}

#[derive(Debug)]
struct Ended {
    work: Work,
    seq: i64,
    at: Instant,
}

impl Windows {
    /// Opens or closes windows, as an announcement says. Numbers grow, but a beginning and its end
    /// need not have the same: an end closes all that began before it.
    pub(crate) fn hear(&mut self, notice: &Notice, now: Instant) {
        match notice {
            Notice::Begun(work, seq) => self.begin(*work, *seq, now),
            Notice::Moving(moving) => self.begin(Work::Endpoint, moving.seq, now),
            Notice::Ended(work, seq) => self.end(*work, *seq, now),
            Notice::SlotsMoved(seq, _) => self.end(Work::Slots, *seq, now),
            // It may have been the end.
            Notice::Unreadable(work) => self.open.retain(|window| window.work != *work),
        }
    }

    /// The connection was replaced: there is no announcement for the end of a `MOVING`.
    pub(crate) fn reconnected(&mut self) {
        self.open.retain(|window| window.work != Work::Endpoint);
    }

    /// Whether any window is open.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.open.iter().any(|window| now < window.until)
    }

    fn begin(&mut self, work: Work, seq: i64, now: Instant) {
        self.open.retain(|window| now < window.until);
        self.ended.retain(|ended| now < ended.at + REMEMBERED);
        let late = |ended: &Ended| ended.work == work && seq <= ended.seq;
        let same = |window: &Window| window.work == work && window.seq == seq;
        if self.ended.iter().any(late) || self.open.iter().any(same) {
            return;
        }
        if self.open.len() == MOST {
            self.open.remove(0);
        }
        let until = now + LONGEST;
        self.open.push(Window { work, seq, until });
    }

    fn end(&mut self, work: Work, seq: i64, now: Instant) {
        self.open
            .retain(|window| window.work != work || window.seq > seq);
        match self.ended.iter_mut().find(|ended| ended.work == work) {
            Some(ended) if ended.seq > seq && now < ended.at + REMEMBERED => {}
            Some(ended) => (ended.seq, ended.at) = (seq, now),
            None => self.ended.push(Ended { work, seq, at: now }),
        }
    }
}

#[cfg(test)]
mod tests;
