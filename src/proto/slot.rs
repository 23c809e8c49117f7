//! Slots: the 16,384 pieces of the key space, and the slot of a key.

pub(crate) mod map;

use std::fmt;

/// Number of slots of every cluster (Redis Cluster specification, "Key distribution model").
pub(crate) const SLOTS: u16 = 16384;

/// One of the 16,384 slots.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    /// The slot with this number; `None` above 16383.
    pub fn new(number: u16) -> Option<Self> {
        (number < SLOTS).then_some(Self(number))
    }

    /// The slot of a key: CRC16/XMODEM modulo 16384 of its hash tag, or of the whole key if it has
    /// no non-empty tag (Redis Cluster specification, "Hash tags").
    pub fn of_key(key: &[u8]) -> Self {
        let crc = crc16::State::<crc16::XMODEM>::calculate(hash_tag(key));
        Self(crc % SLOTS)
    }

    /// Its number, 0 to 16383.
    pub fn number(self) -> u16 {
        self.0
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// All slots in order.
    pub(crate) fn all() -> impl Iterator<Item = Slot> {
        (0..SLOTS).map(Slot)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({})", self.0)
    }
}

/// The bytes between the first `{` and the first `}` after it, if there are any; else the key.
fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else {
        return key;
    };
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        Some(length) if length > 0 => &rest[..length],
        _ => key,
    }
}

/// A set of slots, as a bitmap of 2 KiB.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct SlotSet {
    words: Box<[u64; SLOTS as usize / 64]>,
}

impl SlotSet {
    pub(crate) fn new() -> Self {
        Self {
            words: Box::new([0; SLOTS as usize / 64]),
        }
    }

    pub(crate) fn insert(&mut self, slot: Slot) {
        self.words[slot.index() / 64] |= 1 << (slot.index() % 64);
    }

    #[cfg(test)]
    pub(crate) fn remove(&mut self, slot: Slot) {
        self.words[slot.index() / 64] &= !(1 << (slot.index() % 64));
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        self.words[slot.index() / 64] & (1 << (slot.index() % 64)) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Its slots in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.words.iter().zip(0u16..).flat_map(|(&word, index)| {
            let bits = if word == 0 { 0..0 } else { 0..64 };
            bits.filter(move |bit| word & (1 << bit) != 0)
                .map(move |bit| Slot(index * 64 + bit))
        })
    }

    pub(crate) fn extend(&mut self, other: &SlotSet) {
        for (word, more) in self.words.iter_mut().zip(other.words.iter()) {
            *word |= more;
        }
    }

    pub(crate) fn subtract(&mut self, other: &SlotSet) {
        for (word, less) in self.words.iter_mut().zip(other.words.iter()) {
            *word &= !less;
        }
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut set = Self::new();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_slots() {
        let table: &[(&[u8], u16)] = &[
            (b"foo", 12182),
            (b"bar", 5061),
            (b"b", 3300),
            (b"a", 15495),
            (b"", 0),
            (b"123456789", 12739),
            (b"\0", 0),
            (b"a\0b", 8383),
            (b"foo{}{bar}", 8363),
            (b"{}{x}", 3257),
            (b"foo{{bar}}zap", 4015),
            (b"foo{bar}{zap}", 5061),
            (b"{}", 15257),
            (b"a{}b", 13694),
            (b"{x", 11068),
            (b"x}{y}", 12222),
            (b"foo{}", 5542),
            (b"{}}", 14790),
            (b"x{}}y", 2083),
            (b"{}foo", 9500),
            (b"{foo", 13308),
            (b"foo}", 15679),
            ("\u{1F480}".as_bytes(), 9284),
        ];
        for (key, slot) in table {
            assert_eq!(
                Slot::of_key(key).number(),
                *slot,
                "{}",
                String::from_utf8_lossy(key)
            );
        }
    }

    /// Every string of up to six of these bytes agrees with a plain reading of the rule.
    #[test]
    fn brace_patterns_exhaustively() {
        let alphabet = [b'{', b'}', b'a'];
        for length in 0..=6 {
            for mut code in 0..3usize.pow(length) {
                let mut key = Vec::new();
                for _ in 0..length {
                    key.push(alphabet[code % 3]);
                    code /= 3;
                }
                let text = String::from_utf8(key.clone()).unwrap();
                let plain = match text.split_once('{') {
                    Some((_, rest)) => match rest.split_once('}') {
                        Some((tag, _)) if !tag.is_empty() => tag,
                        _ => text.as_str(),
                    },
                    None => text.as_str(),
                };
                assert_eq!(hash_tag(&key), plain.as_bytes(), "{text}");
            }
        }
    }

    #[test]
    fn a_set_is_what_was_put_in() {
        let numbers = [0u16, 1, 63, 64, 5000, 16383];
        let mut set: SlotSet = numbers.iter().map(|&n| Slot(n)).collect();
        assert_eq!(set.iter().map(Slot::number).collect::<Vec<_>>(), numbers);
        assert_eq!(set.len(), 6);
        set.remove(Slot(64));
        assert!(!set.contains(Slot(64)) && set.contains(Slot(63)));
        let copy = set.clone();
        set.subtract(&copy);
        assert!(set.is_empty());
    }
}
