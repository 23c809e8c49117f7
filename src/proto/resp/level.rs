//! An aggregate whose elements are being received.

use super::token::Aggregate;
use crate::proto::value::Value;

/// Places that are allocated on the word of a header alone, for the outermost aggregate; inner ones
/// get less. More is allocated only as elements arrive.
const TRUSTED: u64 = 1024;

/// An open aggregate. It is taken off the stack when its last element has come.
#[derive(Debug)]
pub(super) struct Level {
    elements: Elements,
    /// How many values are still to be put in; the one that is being received counts.
    left: u64,
}

#[derive(Debug)]
enum Elements {
    Array(Vec<Value>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    /// The key waits for its value.
    Map(Vec<(Value, Value)>, Option<Value>),
}

/// A complete aggregate.
#[derive(Debug)]
pub(super) enum Closed {
    Value(Value),
    Push(Vec<Value>),
}

impl Level {
    /// An aggregate of this length inside `depth` others. Attributes are not built.
    pub(super) fn open(kind: Aggregate, length: u64, depth: usize) -> Self {
        let room = length.min(TRUSTED / (depth as u64 + 1)) as usize;
        let elements = match kind {
            Aggregate::Array | Aggregate::Attribute => Elements::Array(Vec::with_capacity(room)),
            Aggregate::Set => Elements::Set(Vec::with_capacity(room)),
            Aggregate::Push => Elements::Push(Vec::with_capacity(room)),
            Aggregate::Map => Elements::Map(Vec::with_capacity(room), None),
        };
        Self {
            elements,
            left: kind.values(length),
        }
    }

    /// Puts the next value in.
    pub(super) fn put(&mut self, value: Value) {
        self.left -= 1;
        match &mut self.elements {
            Elements::Array(values) | Elements::Set(values) | Elements::Push(values) => {
                values.push(value);
            }
            Elements::Map(pairs, key) => match key.take() {
                Some(key) => pairs.push((key, value)),
                None => *key = Some(value),
            },
        }
    }

    /// How many values are still to be put in.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Whether this is a push and not part of a reply.
    pub(super) fn is_push(&self) -> bool {
        matches!(self.elements, Elements::Push(_))
    }

    /// What it became.
    pub(super) fn close(self) -> Closed {
        debug_assert_eq!(self.left, 0);
        match self.elements {
            Elements::Array(values) => Closed::Value(Value::Array(values)),
            Elements::Set(values) => Closed::Value(Value::Set(values)),
            Elements::Map(pairs, _) => Closed::Value(Value::Map(pairs)),
            Elements::Push(values) => Closed::Push(values),
        }
    }

    /// Bytes of memory held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        use super::decode::tests::held_by;
        match &self.elements {
            Elements::Array(values) | Elements::Set(values) | Elements::Push(values) => {
                size_of::<Value>() * values.capacity() + values.iter().map(held_by).sum::<usize>()
            }
            Elements::Map(pairs, key) => {
                2 * size_of::<Value>() * pairs.capacity()
                    + pairs
                        .iter()
                        .map(|(a, b)| held_by(a) + held_by(b))
                        .sum::<usize>()
                    + key.as_ref().map_or(0, held_by)
            }
        }
    }
}
