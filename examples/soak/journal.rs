//! What one thread knows about a list to which it alone appends 0, 1, 2 and so on.

use crate::arena::{Arena, Fate};
use crate::blows::Span;
use crate::keys::Key;

/// One list.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) key: Key,
    /// What became of each number, and in which call.
    entries: Vec<(Fate, Option<Span>)>,
}

impl Journal {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            key,
            entries: Vec::new(),
        }
    }

    /// How many numbers were handed out.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The next number.
    pub(crate) fn begin(&mut self) -> usize {
        self.entries.push((Fate::Open, None));
        self.entries.len() - 1
    }

    /// Notes what became of a number.
    pub(crate) fn end(&mut self, number: usize, fate: Fate, span: Span) {
        self.entries[number] = (fate, Some(span));
    }

    /// Compares with the list itself.
    pub(crate) fn check(&self, list: &[usize], arena: &Arena) {
        let mut seen = vec![0_u32; self.entries.len()];
        let mut last = None;
        for &number in list {
            let Some((fate, _)) = self.entries.get(number) else {
                self.complain(arena, number, "was never written", list);
                continue;
            };
            seen[number] += 1;
            match fate {
                Fate::Absent => self.complain(arena, number, "is there but did not run", list),
                Fate::Ran if last > Some(number) => {
                    self.complain(arena, number, &format!("comes after {last:?}"), list);
                }
                Fate::Ran => last = Some(number),
                Fate::Open | Fate::Unknown => {}
            }
        }
        for (number, (&count, (fate, span))) in seen.iter().zip(&self.entries).enumerate() {
            if count > 1 {
                self.complain(arena, number, &format!("is there {count} times"), list);
            }
            let lost = count == 0 && *fate == Fate::Ran;
            let excused = |span| arena.blows.excuse_loss(self.key.slot(), span);
            if lost && !span.is_some_and(excused) {
                self.complain(arena, number, "was acknowledged and is gone", list);
            }
        }
    }

    fn complain(&self, arena: &Arena, number: usize, what: &str, list: &[usize]) {
        let span = self.entries.get(number).and_then(|(_, span)| *span);
        let span = span.map(|span| (arena.clock(span.asked), arena.clock(span.told)));
        let at = list.iter().position(|&each| each == number).unwrap_or(0);
        let around = &list[at.saturating_sub(5)..list.len().min(at + 5)];
        let near = number.saturating_sub(3)..self.entries.len().min(number + 4);
        let fates: Vec<Fate> = self.entries[near].iter().map(|(fate, _)| *fate).collect();
        arena.violation(&format!(
            "list {} (slot {}, {} of {} numbers): {number} {what}; its call: {span:?}; around it \
             {around:?}, fates {fates:?}",
            self.key.name(),
            self.key.slot(),
            list.len(),
            self.entries.len()
        ));
    }
}
