//! Finding the keys among the arguments: one walker for each shape that commands have.
//!
//! The shapes and their corner cases follow the servers' own finder, which decides what a cluster
//! node checks (Redis documentation, "Key specifications"). Where servers differ, or where their
//! finder sees less than the command uses, more keys are shown rather than fewer.

/// Where the keys of a command are. Argument 0 is the command's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    None,
    /// Arguments `first` to `last`, every `step`th; a negative `last` counts from the end, so that
    /// -1 is the last argument.
    Range {
        first: u8,
        last: i8,
        step: u8,
    },
    /// Argument `count` says how many keys follow it, every `step`th. With `store`, argument 1 is
    /// a key as well.
    Counted {
        count: u8,
        step: u8,
        store: bool,
    },
    /// The first half of what follows the word `STREAMS`, looked for from `from` on.
    Streams {
        from: u8,
    },
    /// `SORT`: argument 1 and the destination.
    Sort,
    /// `GEORADIUS` and `GEORADIUSBYMEMBER`: argument 1 and the destinations.
    Georadius,
    /// `MIGRATE`: argument 3, or if that is empty what follows the word `KEYS`.
    Migrate,
}

impl Keys {
    /// The usual place.
    pub(super) const FIRST: Self = Self::Range {
        first: 1,
        last: 1,
        step: 1,
    };

    pub(super) const fn counted(count: u8) -> Self {
        Self::Counted {
            count,
            step: 1,
            store: false,
        }
    }

    /// The number of pairs, then keys and values in turn.
    pub(super) const COUNTED_PAIRS: Self = Self::Counted {
        count: 1,
        step: 2,
        store: false,
    };

    /// A destination, then counted sources.
    pub(super) const COUNTED_STORE: Self = Self::Counted {
        count: 2,
        step: 1,
        store: true,
    };

    /// Shows each key, in the order of the arguments.
    pub(super) fn visit<'a, I>(self, args: I, mut visit: impl FnMut(&'a [u8]))
    where
        I: Iterator<Item = &'a [u8]> + Clone,
    {
        match self {
            Keys::None => {}
            Keys::Range { first, last, step } => {
                range(args, first.into(), last.into(), step.into(), visit);
            }
            Keys::Counted { count, step, store } => {
                let first = usize::from(count) + 1;
                let mut found = counted(args.clone(), count.into(), first, step.into()).peekable();
                // With a bad count the server sees no keys at all, not even the destination.
                if store && found.peek().is_some() {
                    args.clone().nth(1).into_iter().for_each(&mut visit);
                }
                found.for_each(visit);
            }
            Keys::Streams { from } => {
                if let Some(first) = after_keyword(args.clone(), b"STREAMS", from.into()) {
                    let rest = args.skip(first);
                    let half = rest.clone().count() / 2;
                    rest.take(half).for_each(visit);
                }
            }
            Keys::Sort => sort(args, visit),
            Keys::Georadius => georadius(args, visit),
            Keys::Migrate => migrate(args, visit),
        }
    }
}

/// Arguments `first` to `last`, every `step`th; a negative `last` counts from the end.
pub(super) fn range<'a, I>(
    mut args: I,
    first: usize,
    last: isize,
    step: usize,
    visit: impl FnMut(&'a [u8]),
) where
    I: Iterator<Item = &'a [u8]> + Clone,
{
    // Nearly every command: one key, found without counting the arguments.
    if usize::try_from(last) == Ok(first) {
        args.nth(first).into_iter().for_each(visit);
        return;
    }
    let end = match usize::try_from(last) {
        Ok(last) => last.checked_add(1),
        Err(_) => (args.clone().count() + 1).checked_add_signed(last),
    };
    let length = end.unwrap_or(0).saturating_sub(first);
    let keys = args.skip(first).take(length);
    keys.step_by(step.max(1)).for_each(visit);
}

/// As many keys as argument `count` says, from `first` on, every `step`th; none if there are not as
/// many arguments.
pub(super) fn counted<'a, I>(
    args: I,
    count: usize,
    first: usize,
    step: usize,
) -> impl Iterator<Item = &'a [u8]>
where
    I: Iterator<Item = &'a [u8]> + Clone,
{
    let step = step.max(1);
    let wanted = args.clone().nth(count).map_or(0, leading_number);
    let last = first.saturating_add(wanted.saturating_sub(1).saturating_mul(step));
    let enough = wanted > 0 && args.clone().nth(last).is_some();
    let taken = if enough { wanted } else { 0 };
    args.skip(first).step_by(step).take(taken)
}

/// The position after the first `keyword` at `from` or later. The last argument is not looked at,
/// since nothing follows it.
pub(super) fn after_keyword<'a, I>(args: I, keyword: &[u8], from: usize) -> Option<usize>
where
    I: Iterator<Item = &'a [u8]> + Clone,
{
    let mut rest = args.clone().skip(from);
    let found = rest.position(|word| word.eq_ignore_ascii_case(keyword))?;
    rest.next().map(|_| from + found + 1)
}

/// A decimal number as the servers' finder reads it, with `atoi`: leading blanks, a sign, then as
/// many digits as there are. Zero for anything else and for negative numbers.
///
/// The command itself is stricter, so that `EVAL script 1x key` is an error; but a node that does
/// not serve the key answers MOVED before it looks, so the key has to be found all the same.
fn leading_number(text: &[u8]) -> usize {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    digits
        .iter()
        .map_while(|byte| byte.is_ascii_digit().then(|| usize::from(byte - b'0')))
        .fold(0usize, |number, digit| {
            number.saturating_mul(10).saturating_add(digit)
        })
}

/// The last STORE wins; the arguments of LIMIT, BY and GET are not options.
fn sort<'a, I>(args: I, mut visit: impl FnMut(&'a [u8]))
where
    I: Iterator<Item = &'a [u8]> + Clone,
{
    args.clone().nth(1).into_iter().for_each(&mut visit);
    let mut rest = args.skip(2);
    let mut destination = None;
    while let Some(word) = rest.next() {
        if word.eq_ignore_ascii_case(b"LIMIT") {
            rest.nth(1);
        } else if word.eq_ignore_ascii_case(b"BY") || word.eq_ignore_ascii_case(b"GET") {
            rest.next();
        } else if word.eq_ignore_ascii_case(b"STORE") {
            destination = rest.clone().next().or(destination);
        }
    }
    destination.into_iter().for_each(visit);
}

/// With several destinations servers use the last, and check the first of each kind (Redis) or the
/// last (Valkey); all are shown. Options start at argument 5 or 6; for GEORADIUS the unit stands
/// at 5, which no server accepts as `STORE`.
fn georadius<'a, I>(args: I, mut visit: impl FnMut(&'a [u8]))
where
    I: Iterator<Item = &'a [u8]> + Clone,
{
    args.clone().nth(1).into_iter().for_each(&mut visit);
    let mut rest = args.skip(5);
    while let Some(word) = rest.next() {
        if word.eq_ignore_ascii_case(b"STORE") || word.eq_ignore_ascii_case(b"STOREDIST") {
            rest.next().into_iter().for_each(&mut visit);
        }
    }
}

/// A key together with KEYS is an error of which the server says that there are no keys. Passwords
/// may be the word `KEYS`.
fn migrate<'a, I>(args: I, mut visit: impl FnMut(&'a [u8]))
where
    I: Iterator<Item = &'a [u8]> + Clone,
{
    let Some(single) = args.clone().nth(3) else {
        return;
    };
    let mut rest = args.skip(6);
    while let Some(word) = rest.next() {
        if word.eq_ignore_ascii_case(b"AUTH") {
            rest.next();
        } else if word.eq_ignore_ascii_case(b"AUTH2") {
            rest.nth(1);
        } else if word.eq_ignore_ascii_case(b"KEYS") && rest.clone().next().is_some() {
            if single.is_empty() {
                rest.for_each(visit);
            }
            return;
        }
    }
    visit(single);
}
