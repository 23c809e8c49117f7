//! Which announcements were heard already: each comes on every connection.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::Notice;

/// How long an announcement is remembered.
const REMEMBERED: Duration = Duration::from_secs(120);

/// The most announcements that are remembered.
const MOST: usize = 256;

/// Announcements by kind, number and content, for a while. What was forgotten and comes again does
/// no harm: it is applied only where it still fits the map.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When each was heard first, and its digest; oldest first. A digest of 64 bits is enough:
    /// the map is verified after every announcement that is taken.
    heard: VecDeque<(Instant, u64)>,
}

impl Seen {
    /// Whether this is the first copy.
    pub(crate) fn is_new(&mut self, notice: &Notice, now: Instant) -> bool {
        while let Some(&(at, _)) = self.heard.front() {
            if now < at + REMEMBERED && self.heard.len() < MOST {
                break;
            }
            self.heard.pop_front();
        }
        let mut hasher = DefaultHasher::new();
        notice.hash(&mut hasher);
        let digest = hasher.finish();
        let known = self.heard.iter().any(|&(_, heard)| heard == digest);
        if !known {
            self.heard.push_back((now, digest));
        }
        !known
    }
}

#[cfg(test)]
mod tests {
    use super::super::Work;
    use super::*;

    #[test]
    fn kind_number_and_content_make_an_announcement() {
        let mut seen = Seen::default();
        let now = Instant::now();
        let notices = [
            Notice::Begun(Work::Slots, 1),
            Notice::Ended(Work::Slots, 1),
            Notice::Begun(Work::Slots, 2),
            Notice::Begun(Work::Shard, 1),
            Notice::SlotsMoved(1, Vec::new()),
        ];
        for notice in &notices {
            assert!(seen.is_new(notice, now), "{notice:?}");
        }
        for notice in &notices {
            assert!(!seen.is_new(notice, now), "{notice:?}");
        }
    }

    #[test]
    fn it_forgets_with_time_and_is_bounded() {
        let mut seen = Seen::default();
        let begin = Instant::now();
        let first = Notice::SlotsMoved(0, Vec::new());
        assert!(seen.is_new(&first, begin));
        assert!(!seen.is_new(&first, begin + REMEMBERED - Duration::from_millis(1)));
        assert!(seen.is_new(&first, begin + REMEMBERED));
        for seq in 1..10_000 {
            seen.is_new(&Notice::SlotsMoved(seq, Vec::new()), begin + REMEMBERED);
            assert!(seen.heard.len() <= MOST);
        }
        assert!(!seen.is_new(&Notice::SlotsMoved(9_999, Vec::new()), begin + REMEMBERED));
    }
}
