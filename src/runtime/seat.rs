//! The right to read from the connection of a node: one of the callers that wait has it, else the
//! reading thread.
//!
//! Whoever takes the seat reads, and hands what came to everybody; whoever leaves it looks for the
//! next one, and so does whoever puts something on the wire. That is the caller who waits longest,
//! if it can be asked: it has to be woken anyway. So while callers wait no thread is woken for
//! nothing, and while none does the reading thread reads.
//!
//! All steps are taken under the lock of what is on the wire, so no reply stays unread: while
//! something is on the wire the seat is taken, or promised to somebody who was asked, or the
//! reading thread was called.

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// Nobody. Exits: it is taken, or promised.
    Free,
    /// A caller was asked. It takes the seat, or finds somebody else. Who comes first may have it.
    Promised,
    /// Somebody. Exit: it is left.
    Taken,
}

/// Who reads next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<C> {
    /// Nobody has to: nothing is on the wire, or somebody does already.
    Nobody,
    /// A caller, who was asked and is to be woken.
    Caller(C),
    /// The reading thread, which is to be woken if it rests: no caller can be asked.
    Thread,
}

impl Seat {
    /// Takes it; `false`: somebody else reads, and will find the next one.
    pub(super) fn take(&mut self) -> bool {
        std::mem::replace(self, Seat::Taken) != Seat::Taken
    }

    /// Whoever reads stops.
    pub(super) fn leave(&mut self) {
        *self = Seat::Free;
    }

    /// Finds somebody to read, if nobody does. `ask` asks callers whose commands are on the wire;
    /// nothing is if it `is_quiet`.
    pub(super) fn fill<C>(&mut self, is_quiet: bool, ask: impl FnOnce() -> Option<C>) -> Next<C> {
        if is_quiet || *self != Seat::Free {
            return Next::Nobody;
        }
        let asked = ask();
        if asked.is_some() {
            *self = Seat::Promised;
        }
        asked.map_or(Next::Thread, Next::Caller)
    }

    /// Whether the reading thread may sleep: it will be woken when it has to read.
    pub(super) fn lets_thread_rest(self, is_quiet: bool) -> bool {
        is_quiet || self != Seat::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reads_and_the_next_is_found_once() {
        let mut seat = Seat::Free;
        assert_eq!(seat.fill(true, || Some(1)), Next::Nobody);
        assert_eq!(seat.fill(false, || None::<i32>), Next::Thread);
        assert_eq!(seat.fill(false, || Some(1)), Next::Caller(1));
        assert_eq!(seat.fill(false, || Some(2)), Next::Nobody, "one is enough");
        assert!(seat.take(), "whoever comes first");
        assert!(!seat.take(), "one at a time");
        assert_eq!(seat.fill(false, || Some(2)), Next::Nobody);
        seat.leave();
        assert_eq!(seat.fill(false, || Some(2)), Next::Caller(2));
    }

    #[test]
    fn the_thread_stays_awake_only_if_nobody_else_reads_what_comes() {
        for seat in [Seat::Free, Seat::Promised, Seat::Taken] {
            assert!(seat.lets_thread_rest(true));
            assert_eq!(seat.lets_thread_rest(false), seat != Seat::Free);
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_models;
