//! Random choices, all of which follow from the seed.

use std::time::Duration;

/// A generator (xorshift); each thread has one of its own.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator of one thread.
    pub(crate) fn new(seed: u64, thread: u64) -> Self {
        let mixed = (seed << 16 ^ thread).wrapping_add(1);
        let mut random = Self(mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        // The first numbers of similar seeds are similar.
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    /// A number from 0 on below this one.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }

    /// True in so many of a hundred cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A time of so many milliseconds, at least the first and less than the second number.
    pub(crate) fn millis(&mut self, least: usize, end: usize) -> Duration {
        Duration::from_micros((least * 1000 + self.below((end - least) * 1000)) as u64)
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
