//! Keys chosen at random.

/// What one thread chooses.
pub(crate) struct Choice<'a> {
    keys: &'a [String],
    random: u64,
    chosen: Vec<&'a str>,
}

impl<'a> Choice<'a> {
    /// The same number makes the same choices.
    pub(crate) fn new(keys: &'a [String], number: usize) -> Self {
        let random = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let chosen = Vec::new();
        Self {
            keys,
            random,
            chosen,
        }
    }

    /// So many keys.
    pub(crate) fn next(&mut self, count: usize) -> &[&'a str] {
        self.chosen.clear();
        for _ in 0..count {
            let key = self.draw();
            self.chosen.push(key);
        }
        &self.chosen
    }

    /// One key so many times, which is the simplest way to stay in one slot.
    pub(crate) fn repeat(&mut self, count: usize) -> &[&'a str] {
        let key = self.draw();
        self.chosen.clear();
        self.chosen.resize(count, key);
        &self.chosen
    }

    fn draw(&mut self) -> &'a str {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let at = (self.random >> 16) as usize % self.keys.len();
        &self.keys[at]
    }
}
