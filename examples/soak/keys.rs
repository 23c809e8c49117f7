//! The keys: a few dozen hash tags over all primaries, so that every slot in use moves often.

use reslot::Slot;

use crate::random::Random;

/// How many hash tags there are.
pub(crate) const TAGS: usize = 48;

/// A key and its slot.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    name: String,
    slot: u16,
}

impl Key {
    /// The key with this name after a hash tag.
    pub(crate) fn new(tag: usize, name: &str) -> Self {
        let name = format!("{{t{tag}}}{name}");
        let slot = Slot::of_key(name.as_bytes()).number();
        Self { name, slot }
    }

    /// A key in any slot.
    pub(crate) fn anywhere(random: &mut Random, name: &str) -> Self {
        Self::new(random.below(TAGS), name)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }
}

/// All slots in use.
pub(crate) fn slots() -> Vec<u16> {
    (0..TAGS).map(|tag| Key::new(tag, "").slot()).collect()
}
