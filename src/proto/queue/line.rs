//! Units in a row. What is taken out of the middle leaves a hole, so that nothing else is moved:
//! a slot leaves a row of a million units in the time of one look at each.

use std::collections::VecDeque;

use crate::proto::slot::Slot;
use crate::proto::unit::{Body, Target, Ticket, Unit};

/// The row. Front units leave as they are; holes are passed over.
#[derive(Debug)]
pub(super) struct Line<T> {
    places: VecDeque<Place<T>>,
    /// Of each place, in little memory: what it may hold.
    kinds: VecDeque<Kind>,
    holes: usize,
}

#[derive(Debug)]
enum Place<T> {
    Unit(Unit<T>),
    /// What is left of a part out of whose middle something was taken; never empty.
    Pieces(VecDeque<Unit<T>>),
    Hole,
}

/// What a place may hold. `Mixed` says nothing.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Slot(Slot),
    Any,
    Node,
    Mixed,
    Hole,
}

impl Kind {
    fn of<T>(unit: &Unit<T>) -> Self {
        match (&unit.body, unit.facts(0).target) {
            (Body::Part(_, range), _) if range.len() > 1 => Kind::Mixed,
            (_, Target::Slot(slot)) => Kind::Slot(slot),
            (_, Target::Any) => Kind::Any,
            (_, Target::Node) => Kind::Node,
        }
    }

    fn may_be(self, wanted: impl Fn(Target) -> bool) -> bool {
        match self {
            Kind::Slot(slot) => wanted(Target::Slot(slot)),
            Kind::Any => wanted(Target::Any),
            Kind::Node => wanted(Target::Node),
            Kind::Mixed => true,
            Kind::Hole => false,
        }
    }
}

impl<T: Ticket> Line<T> {
    pub(super) fn new() -> Self {
        Self {
            places: VecDeque::new(),
            kinds: VecDeque::new(),
            holes: 0,
        }
    }

    /// How many places it has, holes included.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn push_back(&mut self, unit: Unit<T>) {
        self.kinds.push_back(Kind::of(&unit));
        self.places.push_back(Place::Unit(unit));
    }

    pub(super) fn push_front(&mut self, unit: Unit<T>) {
        self.kinds.push_front(Kind::of(&unit));
        self.places.push_front(Place::Unit(unit));
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Unit<T>> {
        self.pass_holes();
        match self.places.front_mut()? {
            Place::Unit(unit) => Some(unit),
            Place::Pieces(pieces) => pieces.front_mut(),
            Place::Hole => None,
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<Unit<T>> {
        self.pass_holes();
        if let Place::Pieces(pieces) = self.places.front_mut()? {
            if pieces.len() > 1 {
                return pieces.pop_front();
            }
        }
        self.kinds.pop_front();
        match self.places.pop_front()? {
            Place::Unit(unit) => Some(unit),
            Place::Pieces(mut pieces) => pieces.pop_front(),
            Place::Hole => None,
        }
    }

    fn pass_holes(&mut self) {
        while let Some(Place::Hole) = self.places.front() {
            self.places.pop_front();
            self.kinds.pop_front();
            self.holes -= 1;
        }
    }

    /// All units, the first one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Unit<T>> {
        self.places.iter().flat_map(|place| {
            let (unit, pieces) = match place {
                Place::Unit(unit) => (Some(unit), None),
                Place::Pieces(pieces) => (None, Some(pieces)),
                Place::Hole => (None, None),
            };
            unit.into_iter().chain(pieces.into_iter().flatten())
        })
    }

    /// Takes out all that is wanted, oldest first; chains whole, parts divided.
    pub(super) fn take(&mut self, wanted: impl Fn(Target) -> bool) -> Vec<Unit<T>> {
        let kinds = self.kinds.iter().enumerate();
        let found = kinds.filter(|(_, kind)| kind.may_be(&wanted));
        let found: Vec<usize> = found.map(|(at, _)| at).collect();
        let mut taken = Vec::new();
        for at in found {
            let mut kept = VecDeque::new();
            let mut sort = |unit: Unit<T>| {
                unit.divide(&wanted, |wanted, piece| {
                    if wanted {
                        taken.push(piece)
                    } else {
                        kept.push_back(piece)
                    }
                });
            };
            match std::mem::replace(&mut self.places[at], Place::Hole) {
                Place::Unit(unit) => sort(unit),
                Place::Pieces(pieces) => pieces.into_iter().for_each(sort),
                Place::Hole => {}
            }
            self.put_back(at, kept);
        }
        self.close_up();
        taken
    }

    /// Drops the units that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&Unit<T>) -> bool) {
        for at in 0..self.places.len() {
            let kept = match &mut self.places[at] {
                Place::Unit(unit) if !keep(unit) => VecDeque::new(),
                Place::Pieces(pieces) => {
                    pieces.retain(|unit| keep(unit));
                    std::mem::take(pieces)
                }
                Place::Unit(_) | Place::Hole => continue,
            };
            self.put_back(at, kept);
        }
        self.close_up();
    }

    /// Puts what is kept of a place to where it was.
    fn put_back(&mut self, at: usize, mut kept: VecDeque<Unit<T>>) {
        let place = match kept.len() {
            0 => Place::Hole,
            1 => kept.pop_front().map_or(Place::Hole, Place::Unit),
            _ => Place::Pieces(kept),
        };
        self.kinds[at] = match &place {
            Place::Unit(unit) => Kind::of(unit),
            Place::Pieces(_) => Kind::Mixed,
            Place::Hole => Kind::Hole,
        };
        self.holes += usize::from(matches!(place, Place::Hole));
        self.places[at] = place;
    }

    /// Removes the holes once they are the greater part, so that each is paid for by what left it.
    fn close_up(&mut self) {
        if self.holes * 2 > self.places.len() {
            self.places.retain(|place| !matches!(place, Place::Hole));
            self.kinds.retain(|kind| !matches!(kind, Kind::Hole));
            self.holes = 0;
        }
    }
}
