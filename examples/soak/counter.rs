//! What one thread knows about a counter that it alone increments.

use std::collections::VecDeque;

use crate::arena::{Arena, Fate};
use crate::blows::Span;
use crate::keys::Key;

/// After so many increments another key is used.
const LONGEST: usize = 1_000;

/// How many calls a report shows.
const REMEMBERED: usize = 8;

/// One counter.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) key: Key,
    /// The last value that a server told.
    known: u64,
    /// How many more increments may have run.
    unknown: u64,
    /// Acknowledged increments: the value, and the call that told it.
    told: Vec<(u64, Span)>,
    /// What happened last, for reports.
    last: VecDeque<String>,
    /// It was set back by a blow: nothing is known about it any more.
    spoiled: bool,
}

impl Counter {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            key,
            known: 0,
            unknown: 0,
            told: Vec::new(),
            last: VecDeque::new(),
            spoiled: false,
        }
    }

    /// Whether another key should be used from now on.
    pub(crate) fn is_used_up(&self) -> bool {
        self.spoiled || self.told.len() >= LONGEST
    }

    /// Notes how an increment ended that gave no value.
    pub(crate) fn missed(&mut self, fate: Fate, span: Span, arena: &Arena) {
        self.remember(format!("increment {fate:?}"), span, arena);
        self.unknown += u64::from(fate == Fate::Unknown);
    }

    /// Notes the value that an increment gave.
    pub(crate) fn incremented(&mut self, value: u64, span: Span, arena: &Arena) {
        self.compare(value, 1, arena);
        self.remember(format!("incremented to {value}"), span, arena);
        self.told.push((value, span));
    }

    /// Notes the value that was read.
    pub(crate) fn read(&mut self, value: u64, span: Span, arena: &Arena) {
        let is_news = value > self.known;
        self.compare(value, 0, arena);
        if is_news {
            // Increments without a reply did run: this acknowledges them, and may be lost like any
            // acknowledgement of a primary that is replaced.
            self.told.push((value, span));
        }
        self.remember(format!("read {value}"), span, arena);
    }

    fn remember(&mut self, what: String, span: Span, arena: &Arena) {
        let (asked, told) = (arena.clock(span.asked), arena.clock(span.told));
        self.last
            .push_back(format!("{what} from {asked} to {told}"));
        if self.last.len() > REMEMBERED {
            self.last.pop_front();
        }
    }

    fn compare(&mut self, value: u64, step: u64, arena: &Arena) {
        if self.spoiled {
            return;
        }
        let least = self.known + step;
        if value < least {
            let lost = |&&(told, _): &&(u64, Span)| told + step > value;
            let lost = self.told.iter().rev().take_while(lost);
            let slot = self.key.slot();
            let excused = lost
                .map(|&(_, span)| arena.blows.excuse_loss(slot, span))
                .fold((0, true), |(count, all), one| (count + 1, all && one));
            self.spoiled = true;
            if excused.0 == 0 || !excused.1 {
                self.complain("lost", value, step, arena);
            }
        } else if value > least + self.unknown {
            self.complain("repeated", value, step, arena);
            self.spoiled = true;
        } else {
            self.unknown -= value - least;
            self.known = value;
        }
    }

    fn complain(&self, what: &str, value: u64, step: u64, arena: &Arena) {
        arena.violation(&format!(
            "counter {} (slot {}), {what}: {value} instead of {} to {}, before: {:?}",
            self.key.name(),
            self.key.slot(),
            self.known + step,
            self.known + step + self.unknown,
            self.last
        ));
    }
}
