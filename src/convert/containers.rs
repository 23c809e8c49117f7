//! Replies as lists, sets, maps and tuples, in the shapes of RESP2 and RESP3.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

use super::from_value::{FromValue, mismatch};
use crate::error::{Error, Result};
use crate::proto::value::Value;

/// The elements of a list; those of a map are key, value, key, value, as RESP2 has them.
pub(super) fn elements(value: Value, wanted: &'static str) -> Result<Elements> {
    match value {
        Value::Array(items) | Value::Set(items) => Ok(Elements::list(items)),
        Value::Map(pairs) => Ok(Elements {
            list: Vec::new().into_iter(),
            pairs: pairs.into_iter(),
            value: None,
        }),
        other => Err(mismatch(wanted, other)),
    }
}

/// See [`elements`].
pub(super) struct Elements {
    /// The elements of a list, else empty.
    list: std::vec::IntoIter<Value>,
    /// The pairs of a map, else empty.
    pairs: std::vec::IntoIter<(Value, Value)>,
    /// The second half of the pair that was begun.
    value: Option<Value>,
}

impl Elements {
    fn list(items: Vec<Value>) -> Self {
        Self {
            list: items.into_iter(),
            pairs: Vec::new().into_iter(),
            value: None,
        }
    }

    fn exactly(self, count: usize, wanted: &'static str) -> Result<Self> {
        if self.len() == count {
            return Ok(self);
        }
        Err(self.wrong_length(wanted))
    }

    /// The error for a list of the wrong length; an error in the list is the better one.
    fn wrong_length(mut self, wanted: &'static str) -> Error {
        let len = self.len();
        match self.find(|item| matches!(item, Value::Error(_))) {
            Some(error) => mismatch(wanted, error),
            None => wrong_length(wanted, len),
        }
    }
}

impl Iterator for Elements {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        self.list.next().or_else(|| self.value.take()).or_else(|| {
            let (key, value) = self.pairs.next()?;
            self.value = Some(value);
            Some(key)
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.list.len() + 2 * self.pairs.len() + usize::from(self.value.is_some());
        (len, Some(len))
    }
}

impl ExactSizeIterator for Elements {}

fn wrong_length(wanted: &'static str, len: usize) -> Error {
    Error::Conversion {
        wanted,
        reply: format!("list of {len}").into(),
    }
}

/// Cuts a reply into rows of `width` elements and gives each to `read`, which takes them all.
///
/// A list whose elements are all lists of that length has one row in each: RESP3 likes this shape.
/// Any other list is taken as flat, as in RESP2.
fn each_row(
    value: Value,
    width: usize,
    wanted: &'static str,
    mut read: impl FnMut(&mut Elements) -> Result<()>,
) -> Result<()> {
    if let Value::Array(items) | Value::Set(items) = &value {
        if items.iter().all(|item| is_row(item, width)) {
            for row in elements(value, wanted)? {
                read(&mut elements(row, wanted)?)?;
            }
            return Ok(());
        }
    }
    let mut flat = elements(value, wanted)?;
    if flat.len() % width != 0 {
        return Err(flat.wrong_length(wanted));
    }
    while flat.len() > 0 {
        read(&mut flat)?;
    }
    Ok(())
}

fn is_row(value: &Value, width: usize) -> bool {
    matches!(value, Value::Array(items) if items.len() == width)
}

/// The next element of a row whose length was checked.
fn next<T: FromValue>(row: &mut Elements, wanted: &'static str) -> Result<T> {
    let value = row.next().ok_or_else(|| wrong_length(wanted, 0))?;
    T::from_value(value)
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> Result<Self> {
        T::vec_from_value(value)
    }
}

impl<T: FromValue> FromValue for Box<[T]> {
    fn from_value(value: Value) -> Result<Self> {
        T::vec_from_value(value).map(Vec::into_boxed_slice)
    }
}

impl<T: FromValue, const N: usize> FromValue for [T; N] {
    fn from_value(value: Value) -> Result<Self> {
        let items = T::vec_from_value(value)?;
        <[T; N]>::try_from(items)
            .map_err(|items| wrong_length(std::any::type_name::<Self>(), items.len()))
    }
}

impl<T: FromValue + Eq + Hash, S: BuildHasher + Default> FromValue for HashSet<T, S> {
    fn from_value(value: Value) -> Result<Self> {
        elements(value, "a set")?.map(T::from_value).collect()
    }
}

impl<T: FromValue + Ord> FromValue for BTreeSet<T> {
    fn from_value(value: Value) -> Result<Self> {
        elements(value, "a set")?.map(T::from_value).collect()
    }
}

impl<K, V, S> FromValue for HashMap<K, V, S>
where
    K: FromValue + Eq + Hash,
    V: FromValue,
    S: BuildHasher + Default,
{
    fn from_value(value: Value) -> Result<Self> {
        let mut map = HashMap::default();
        each_row(value, 2, "a map", |row| {
            map.insert(next(row, "a map")?, next(row, "a map")?);
            Ok(())
        })?;
        Ok(map)
    }
}

impl<K: FromValue + Ord, V: FromValue> FromValue for BTreeMap<K, V> {
    fn from_value(value: Value) -> Result<Self> {
        let mut map = BTreeMap::new();
        each_row(value, 2, "a map", |row| {
            map.insert(next(row, "a map")?, next(row, "a map")?);
            Ok(())
        })?;
        Ok(map)
    }
}

macro_rules! tuples {
    ($width:literal $($name:ident)*) => {
        impl<$($name: FromValue),*> FromValue for ($($name,)*) {
            fn from_value(value: Value) -> Result<Self> {
                const WANTED: &str = concat!("a tuple of ", $width);
                let mut row = elements(value, WANTED)?.exactly($width, WANTED)?;
                Ok(($(next::<$name>(&mut row, WANTED)?,)*))
            }

            fn vec_from_value(value: Value) -> Result<Vec<Self>> {
                const WANTED: &str = concat!("rows of ", $width);
                let mut rows = Vec::new();
                each_row(value, $width, WANTED, |row| {
                    rows.push(($(next::<$name>(row, WANTED)?,)*));
                    Ok(())
                })?;
                Ok(rows)
            }
        }
    };
}

tuples!(1 A);
tuples!(2 A B);
tuples!(3 A B C);
tuples!(4 A B C D);
tuples!(5 A B C D E);
tuples!(6 A B C D E F);
tuples!(7 A B C D E F G);
tuples!(8 A B C D E F G H);
tuples!(9 A B C D E F G H I);
tuples!(10 A B C D E F G H I J);
tuples!(11 A B C D E F G H I J K);
tuples!(12 A B C D E F G H I J K L);
