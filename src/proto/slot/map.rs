//! Values of some slots, in no order.

use super::{SLOTS, Slot};

/// Values of the slots that have one. All of them may get one at once, and usually none has one:
/// to find, add or remove one is a few instructions, and to walk costs what is there.
#[derive(Debug)]
pub(crate) struct SlotMap<V> {
    /// Where in `entries` a slot would be; it is there if the entry says so, too. Empty until used.
    places: Vec<u16>,
    entries: Vec<(Slot, V)>,
}

impl<V> SlotMap<V> {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            entries: Vec::new(),
        }
    }

    fn place(&self, slot: Slot) -> Option<usize> {
        let place = usize::from(*self.places.get(slot.index())?);
        let found = self.entries.get(place).is_some_and(|&(at, _)| at == slot);
        found.then_some(place)
    }

    pub(crate) fn contains(&self, slot: Slot) -> bool {
        self.place(slot).is_some()
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&V> {
        self.place(slot).map(|place| &self.entries[place].1)
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut V> {
        self.place(slot).map(|place| &mut self.entries[place].1)
    }

    /// The value of a slot; a new one if it has none.
    pub(crate) fn get_or_insert_with(&mut self, slot: Slot, new: impl FnOnce() -> V) -> &mut V {
        let place = self.place(slot).unwrap_or_else(|| {
            if self.places.is_empty() {
                self.places = vec![0; usize::from(SLOTS)];
            }
            // There are fewer places than slots.
            self.places[slot.index()] = self.entries.len() as u16;
            self.entries.push((slot, new()));
            self.entries.len() - 1
        });
        &mut self.entries[place].1
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<V> {
        let place = self.place(slot)?;
        let (_, value) = self.entries.swap_remove(place);
        if let Some(&(moved, _)) = self.entries.get(place) {
            self.places[moved.index()] = place as u16;
        }
        if self.entries.is_empty() {
            // Rarely are there many.
            *self = Self::new();
        }
        Some(value)
    }

    /// Removes those that are not to be kept.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        let removed: Vec<Slot> = self
            .iter()
            .filter_map(|(slot, value)| (!keep(value)).then_some(slot))
            .collect();
        for slot in removed {
            self.remove(slot);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &V)> {
        self.entries.iter().map(|(slot, value)| (*slot, value))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// Takes all of them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = V> + use<V> {
        let entries = std::mem::replace(self, Self::new()).entries;
        entries.into_iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Every history of up to seven steps over three slots agrees with the standard map.
    #[test]
    fn short_histories_exhaustively() {
        let slots = [0, 7, 16383].map(|number| Slot::new(number).unwrap());
        for steps in 0..=7 {
            for mut code in 0..6usize.pow(steps) {
                let (mut map, mut model) = (SlotMap::new(), BTreeMap::new());
                for step in 0..steps {
                    let slot = slots[code % 3];
                    if code / 3 % 2 == 0 {
                        let value = map.get_or_insert_with(slot, || step);
                        assert_eq!(value, model.entry(slot).or_insert(step));
                    } else {
                        assert_eq!(map.remove(slot), model.remove(&slot));
                    }
                    code /= 6;
                }
                for slot in slots {
                    assert_eq!(map.get(slot), model.get(&slot));
                    assert_eq!(map.get_mut(slot), model.get_mut(&slot));
                    assert_eq!(map.contains(slot), model.contains_key(&slot));
                }
                let listed: BTreeMap<_, _> = map.iter().map(|(slot, &step)| (slot, step)).collect();
                assert_eq!(listed, model);
                map.retain(|step| step % 2 == 0);
                model.retain(|_, step| *step % 2 == 0);
                let mut drained: Vec<_> = map.drain().collect();
                drained.sort_unstable();
                let mut values: Vec<_> = model.into_values().collect();
                values.sort_unstable();
                assert_eq!(drained, values);
                assert!(slots.iter().all(|&slot| !map.contains(slot)));
            }
        }
    }

    #[test]
    fn all_slots_at_once() {
        let mut map = SlotMap::new();
        for slot in Slot::all() {
            *map.get_or_insert_with(slot, || 0) += slot.number();
        }
        for slot in Slot::all().filter(|slot| slot.number() % 3 != 0) {
            assert_eq!(map.remove(slot), Some(slot.number()));
        }
        for slot in Slot::all() {
            let is_there = slot.number() % 3 == 0;
            assert_eq!(map.get(slot), is_there.then_some(&slot.number()));
        }
    }
}
