//! What was done to the cluster, and which losses and failures it explains.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// When a call was made and when it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// When it was made.
    pub(crate) asked: Instant,
    /// When it ended.
    pub(crate) told: Instant,
}

/// One primary was killed, frozen or replaced.
#[derive(Debug)]
pub(crate) struct Blow {
    what: String,
    /// First and last slot of each range that it served.
    slots: Vec<(u16, u16)>,
    /// How long it may take without being a reason for failures of calls.
    in_good_order: Duration,
    /// The replica has all that the primary had acknowledged by then.
    safe: Instant,
    /// Right before it.
    struck: Instant,
    /// Whoever was asked later was not acknowledged by the old primary. `None` inside if nothing
    /// can have been lost: nobody took over.
    loss_end: OnceLock<Option<Instant>>,
    /// When the cluster was whole again.
    whole: OnceLock<Instant>,
    /// Losses that were tolerated because of it.
    excused: AtomicU64,
}

/// All of them, in order.
#[derive(Debug, Default)]
pub(crate) struct Blows(RwLock<Vec<Arc<Blow>>>);

impl Blow {
    /// To be announced right before it happens.
    pub(crate) fn new(what: String, slots: Vec<(u16, u16)>, safe: Instant) -> Self {
        Self {
            what,
            slots,
            in_good_order: Duration::ZERO,
            safe,
            struck: Instant::now(),
            loss_end: OnceLock::new(),
            whole: OnceLock::new(),
            excused: AtomicU64::new(0),
        }
    }

    /// One that loses nothing, and is no reason for any failure unless it takes longer than this.
    pub(crate) fn harmless(mut self, in_good_order: Duration) -> Self {
        self.in_good_order = in_good_order;
        self.loss_end.get_or_init(|| None);
        self
    }

    /// Nothing that was asked from now on is lost; or, with `None`, nothing was.
    ///
    /// # Errors
    /// If losses were tolerated for which there was no reason.
    pub(crate) fn no_loss_from(&self, end: Option<Instant>) -> Result<(), String> {
        self.loss_end.get_or_init(|| end);
        match self.excused.load(Ordering::Relaxed) {
            count if count > 0 && end.is_none() => Err(format!(
                "{count} writes were lost by \"{}\", though nobody took over",
                self.what
            )),
            _ => Ok(()),
        }
    }

    /// The cluster is whole again.
    pub(crate) fn over(&self) {
        self.whole.get_or_init(Instant::now);
    }

    fn concerns(&self, slot: Option<u16>) -> bool {
        let inside = |slot| {
            self.slots
                .iter()
                .any(|&(first, last)| (first..=last).contains(&slot))
        };
        slot.is_none_or(inside)
    }

    fn loses(&self, slot: u16, span: Span) -> bool {
        let before_end = match self.loss_end.get() {
            Some(Some(end)) => span.asked <= *end,
            Some(None) => false,
            None => true,
        };
        before_end && span.told >= self.safe && self.concerns(Some(slot))
    }

    fn disturbs(&self, slot: Option<u16>, span: Span) -> bool {
        let before_end = self.whole.get().is_none_or(|whole| span.asked <= *whole);
        let end = self.whole.get().copied().unwrap_or_else(Instant::now);
        let explains = end - self.struck >= self.in_good_order;
        explains && before_end && span.told >= self.struck && self.concerns(slot)
    }
}

impl Blows {
    /// Announces one.
    pub(crate) fn announce(&self, blow: Blow) -> Arc<Blow> {
        let blow = Arc::new(blow);
        let mut blows = self.0.write().unwrap_or_else(PoisonError::into_inner);
        blows.push(Arc::clone(&blow));
        blow
    }

    /// Whether what was acknowledged to this call may be gone with its primary.
    pub(crate) fn excuse_loss(&self, slot: u16, span: Span) -> bool {
        let blows = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let blow = blows.iter().rev().find(|blow| blow.loses(slot, span));
        if let Some(blow) = blow {
            blow.excused.fetch_add(1, Ordering::Relaxed);
        }
        blow.is_some()
    }

    /// Whether a call may have failed because of one of them; without a slot any of them will do.
    pub(crate) fn explain(&self, slot: Option<u16>, span: Span) -> bool {
        let blows = self.0.read().unwrap_or_else(PoisonError::into_inner);
        blows.iter().any(|blow| blow.disturbs(slot, span))
    }

    /// How many losses were tolerated; each is counted as often as it was seen.
    pub(crate) fn excused(&self) -> u64 {
        let blows = self.0.read().unwrap_or_else(PoisonError::into_inner);
        blows
            .iter()
            .map(|blow| blow.excused.load(Ordering::Relaxed))
            .sum()
    }

    /// All of them and when they were, for reports.
    pub(crate) fn describe(&self, start: Instant) -> Vec<String> {
        let blows = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let at = |time: Instant| time.saturating_duration_since(start).as_secs_f64();
        let line = |blow: &Arc<Blow>| {
            let whole = blow.whole.get().map_or(f64::INFINITY, |whole| at(*whole));
            let excused = blow.excused.load(Ordering::Relaxed);
            format!(
                "{:.3} s (safe {:.3} s) to {whole:.3} s: {}, {excused} losses excused",
                at(blow.struck),
                at(blow.safe),
                blow.what
            )
        };
        blows.iter().map(line).collect()
    }
}
