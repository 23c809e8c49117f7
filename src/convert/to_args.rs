//! Rust values as arguments of commands.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::proto::limits::BULK_BYTES;
use crate::proto::resp::encode::Encoded;

/// A value that can be passed as arguments of a command.
///
/// | value | arguments |
/// |---|---|
/// | strings, `Vec<u8>`, `&[u8]`, `[u8; N]` | one, the bytes as they are |
/// | integers, `bool` (`1`, `0`), `char` | one |
/// | `f32`, `f64` | one: the shortest text that reads back as the same; `inf`, `-inf`, `nan` |
/// | `Option` | none for `None` |
/// | other slices, `Vec`, arrays, sets, tuples | those of each element, in order |
/// | maps | key, value, key, value, … |
///
/// A single `u8` is a number; a slice, `Vec` or array of `u8` is one byte string.
///
/// Own types implement [`write_args`](ToArgs::write_args) in terms of other types or of [`Args`]:
///
/// ```
/// use reslot::{Args, ToArgs};
///
/// struct Point { x: f64, y: f64 }
///
/// impl ToArgs for Point {
///     fn write_args(&self, args: &mut Args<'_>) {
///         (self.x, self.y).write_args(args);
///     }
/// }
/// ```
pub trait ToArgs {
    /// Adds this value's arguments, in order.
    fn write_args(&self, args: &mut Args<'_>);

    /// Adds a whole slice. Only `u8` differs from one element after the other: without
    /// specialisation this method is how `Vec<u8>` is one byte string and `Vec<i64>` is a list.
    #[doc(hidden)]
    fn write_slice(items: &[Self], args: &mut Args<'_>)
    where
        Self: Sized,
    {
        for item in items {
            item.write_args(args);
        }
    }
}

/// Where a command's arguments go: see [`ToArgs`].
pub struct Args<'a> {
    out: &'a mut Encoded,
    /// Bytes of the longest argument. One beyond the limit is noted but not copied: the command
    /// will be refused.
    longest: &'a mut usize,
}

impl<'a> Args<'a> {
    pub(crate) fn new(out: &'a mut Encoded, longest: &'a mut usize) -> Self {
        Self { out, longest }
    }

    /// Adds one argument: these bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        *self.longest = bytes.len().max(*self.longest);
        if bytes.len() <= BULK_BYTES {
            self.out.push(bytes);
        }
    }

    /// Adds one argument: the decimal digits of a number.
    pub fn integer(&mut self, number: i64) {
        self.out.push_int(number);
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Args({} so far)", self.out.len() - 1)
    }
}

impl ToArgs for str {
    fn write_args(&self, args: &mut Args<'_>) {
        args.bytes(self.as_bytes());
    }
}

impl ToArgs for String {
    fn write_args(&self, args: &mut Args<'_>) {
        args.bytes(self.as_bytes());
    }
}

impl ToArgs for u8 {
    fn write_args(&self, args: &mut Args<'_>) {
        args.integer(i64::from(*self));
    }

    fn write_slice(items: &[u8], args: &mut Args<'_>) {
        args.bytes(items);
    }
}

macro_rules! small_integers {
    ($($number:ty)*) => {$(
        impl ToArgs for $number {
            fn write_args(&self, args: &mut Args<'_>) {
                args.integer(i64::from(*self));
            }
        }
    )*};
}

macro_rules! large_integers {
    ($($number:ty)*) => {$(
        impl ToArgs for $number {
            fn write_args(&self, args: &mut Args<'_>) {
                match i64::try_from(*self) {
                    Ok(number) => args.integer(number),
                    Err(_) => args.out.push_display(self),
                }
            }
        }
    )*};
}

small_integers!(i8 i16 i32 i64 u16 u32 bool);
large_integers!(isize i128 u64 usize u128);

macro_rules! floats {
    ($($number:ty)*) => {$(
        impl ToArgs for $number {
            fn write_args(&self, args: &mut Args<'_>) {
                // Rust prints the shortest digits that read back as the same number, but far from
                // 1 it needs the exponent form, or 1e300 would have 301 of them.
                let size = self.abs();
                if self.is_nan() {
                    args.bytes(b"nan");
                } else if size == 0.0 || size.is_infinite() || (1e-5..1e17).contains(&size) {
                    args.out.push_display(self);
                } else {
                    args.out.push_display(&format_args!("{self:e}"));
                }
            }
        }
    )*};
}

floats!(f32 f64);

impl ToArgs for char {
    fn write_args(&self, args: &mut Args<'_>) {
        args.bytes(self.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

impl<T: ToArgs> ToArgs for Option<T> {
    fn write_args(&self, args: &mut Args<'_>) {
        if let Some(value) = self {
            value.write_args(args);
        }
    }
}

impl<T: ToArgs> ToArgs for [T] {
    fn write_args(&self, args: &mut Args<'_>) {
        T::write_slice(self, args);
    }
}

impl<T: ToArgs, const N: usize> ToArgs for [T; N] {
    fn write_args(&self, args: &mut Args<'_>) {
        T::write_slice(self, args);
    }
}

impl<T: ToArgs> ToArgs for Vec<T> {
    fn write_args(&self, args: &mut Args<'_>) {
        T::write_slice(self, args);
    }
}

impl<B: ToArgs + ToOwned + ?Sized> ToArgs for Cow<'_, B> {
    fn write_args(&self, args: &mut Args<'_>) {
        B::write_args(self, args);
    }
}

macro_rules! pointers {
    ($($pointer:ty)*) => {$(
        impl<T: ToArgs + ?Sized> ToArgs for $pointer {
            fn write_args(&self, args: &mut Args<'_>) {
                T::write_args(self, args);
            }
        }
    )*};
}

pointers!(&T Box<T> Rc<T> Arc<T>);

impl<T: ToArgs, S> ToArgs for HashSet<T, S> {
    fn write_args(&self, args: &mut Args<'_>) {
        self.iter().for_each(|item| item.write_args(args));
    }
}

impl<T: ToArgs> ToArgs for BTreeSet<T> {
    fn write_args(&self, args: &mut Args<'_>) {
        self.iter().for_each(|item| item.write_args(args));
    }
}

impl<K: ToArgs, V: ToArgs, S> ToArgs for HashMap<K, V, S> {
    fn write_args(&self, args: &mut Args<'_>) {
        self.iter().for_each(|pair| pair.write_args(args));
    }
}

impl<K: ToArgs, V: ToArgs> ToArgs for BTreeMap<K, V> {
    fn write_args(&self, args: &mut Args<'_>) {
        self.iter().for_each(|pair| pair.write_args(args));
    }
}

macro_rules! tuples {
    ($($name:ident)*) => {
        impl<$($name: ToArgs),*> ToArgs for ($($name,)*) {
            #[allow(non_snake_case, reason = "the fields take the names of their types")]
            fn write_args(&self, args: &mut Args<'_>) {
                let ($($name,)*) = self;
                $($name.write_args(args);)*
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
tuples!(A B C D E F G);
tuples!(A B C D E F G H);

#[cfg(test)]
mod tests;
