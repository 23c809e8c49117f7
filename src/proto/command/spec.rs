//! The description of one command, and what follows from it for a given list of arguments.

use super::aggregate::Aggregate;
use super::blocking::{Blocking, TimeArg, Wait};
use super::keys::Keys;
use crate::proto::slot::Slot;

/// One command, or one subcommand of a container such as `XGROUP`.
///
/// Fields are what the table states; what depends on the arguments is answered by methods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    /// In upper case.
    pub(super) name: &'static str,
    /// The subcommand in upper case; empty for a command of its own and for a bare container.
    pub(super) sub: &'static str,
    /// Whether argument 1 is a subcommand with an entry of its own.
    pub(super) container: bool,
    /// Where the keys are.
    pub(super) keys: Keys,
    /// What it does if it does not store (see `stores_from`).
    access: Access,
    /// From this argument on, a `STORE` or `STOREDIST` makes it a write.
    stores_from: Option<u8>,
    /// Whether and where the arguments say how long it waits.
    wait: Wait,
    /// Where it runs when its keys do not tell.
    scope: Scope,
}

/// What a command does to the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Changes nothing, and the server knows: replicas run it, and it may be repeated.
    ReadOnly,
    /// Changes nothing, but carries no `readonly` flag (`SORT` without `STORE`, `PING`), so that a
    /// replica redirects it if it has keys. It may be repeated.
    PrimaryRead,
    /// May change something, on the server or for someone else (`PUBLISH`). Never repeated blindly.
    Write,
}

/// Where a command belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The node that serves the slot.
    Slot(Slot),
    /// Any one primary: all would answer alike, or the answer is about an arbitrary node, which is
    /// what `PING` and `INFO` ask for.
    Any,
    /// Every primary, and their replies combined.
    AllPrimaries(Aggregate),
    /// One node that the caller has to name. The text says why.
    NamedNode(&'static str),
    /// No shared connection can take it. The text says why and what to use instead.
    Refused(&'static str),
}

/// Two keys of one command that belong to different slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrossSlot(pub(crate) Slot, pub(crate) Slot);

/// Where a command runs when its keys do not tell.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    Any,
    All(Aggregate),
    /// Argument 2 is the number of a slot.
    SlotNumber,
    /// Wins over keys, as does `Refused`.
    Named(&'static str),
    Refused(&'static str),
}

impl Spec {
    /// Its name, with the subcommand if it is one.
    pub(crate) fn full_name(&self) -> String {
        match self.sub {
            "" => self.name.to_owned(),
            sub => format!("{} {sub}", self.name),
        }
    }

    /// Shows its keys in order. Sharded channels are routed like keys and are shown as well.
    ///
    /// A key count that is no number, not positive, or more than there are arguments means no keys.
    pub(crate) fn keys<'a, I>(&self, args: I, visit: impl FnMut(&'a [u8]))
    where
        I: Iterator<Item = &'a [u8]> + Clone,
    {
        self.keys.visit(args, visit);
    }

    /// What nearly every command does to the data, and where its key is, found at once: it has
    /// one key, whose place is fixed, and nothing else depends on its arguments. `None` for all
    /// others.
    pub(crate) fn only_key(&self) -> Option<(usize, Access)> {
        let is_plain = self.wait == Wait::Never && self.stores_from.is_none();
        match (self.keys, self.scope) {
            (Keys::Range { first, last, .. }, Scope::Any)
                if is_plain && i16::from(last) == i16::from(first) =>
            {
                Some((first.into(), self.access))
            }
            _ => None,
        }
    }

    /// Whether it runs a script or a function.
    pub(crate) fn runs_script(&self) -> bool {
        matches!(
            self.name,
            "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO" | "FCALL" | "FCALL_RO"
        )
    }

    /// What it does to the data, given these arguments.
    pub(crate) fn access<'a, I>(&self, mut args: I) -> Access
    where
        I: Iterator<Item = &'a [u8]>,
    {
        let Some(from) = self.stores_from else {
            return self.access;
        };
        // A pattern or a member of that name makes it a write too: wrong only on the safe side.
        let before = usize::from(from) - 1;
        let _ = args.nth(before);
        let stores = |word: &[u8]| {
            word.eq_ignore_ascii_case(b"STORE") || word.eq_ignore_ascii_case(b"STOREDIST")
        };
        match args.any(stores) {
            true => Access::Write,
            false => self.access,
        }
    }

    /// How long it may keep its connection waiting; `None` if it answers at once.
    pub(crate) fn blocking<'a, I>(&self, args: I) -> Option<Blocking>
    where
        I: Iterator<Item = &'a [u8]> + Clone,
    {
        self.wait.time(args)
    }

    /// Which argument says how long it waits.
    pub(crate) fn time_arg<'a, I>(&self, args: I) -> Option<TimeArg>
    where
        I: Iterator<Item = &'a [u8]> + Clone,
    {
        self.wait.arg(args)
    }

    /// Whether some form of it blocks.
    pub(crate) fn may_block(&self) -> bool {
        self.wait != Wait::Never
    }

    /// Where it belongs.
    pub(crate) fn route<'a, I>(&self, args: I) -> Result<Target, CrossSlot>
    where
        I: Iterator<Item = &'a [u8]> + Clone,
    {
        match self.scope {
            Scope::Named(why) => return Ok(Target::NamedNode(why)),
            Scope::Refused(why) => return Ok(Target::Refused(why)),
            Scope::SlotNumber => return Ok(slot_number(args).map_or(Target::Any, Target::Slot)),
            Scope::Any | Scope::All(_) => {}
        }
        let mut slots = CommonSlot::default();
        self.keys.visit(args, |key| slots.add(key));
        Ok(match (slots.common()?, self.scope) {
            (Some(slot), _) => Target::Slot(slot),
            (None, Scope::All(aggregate)) => Target::AllPrimaries(aggregate),
            (None, _) => Target::Any,
        })
    }
}

/// The words of the table: each command is one chain of these, starting with `read`, `write`,
/// `inspect` or `change`.
impl Spec {
    /// A read of the key that is argument 1.
    pub(super) const fn read(name: &'static str) -> Self {
        Self::keyed(name, Access::ReadOnly)
    }

    /// A write to the key that is argument 1.
    pub(super) const fn write(name: &'static str) -> Self {
        Self::keyed(name, Access::Write)
    }

    /// A command without keys that changes nothing.
    pub(super) const fn inspect(name: &'static str, scope: Scope) -> Self {
        Self::keyless(name, Access::PrimaryRead, scope)
    }

    /// A command without keys that changes something.
    pub(super) const fn change(name: &'static str, scope: Scope) -> Self {
        Self::keyless(name, Access::Write, scope)
    }

    /// A container without its subcommand: the server's error, or a survey (`COMMAND`).
    pub(super) const fn container(name: &'static str) -> Self {
        let mut spec = Self::inspect(name, Scope::Any);
        spec.container = true;
        spec
    }

    const fn keyed(name: &'static str, access: Access) -> Self {
        Self {
            keys: Keys::FIRST,
            ..Self::keyless(name, access, Scope::Any)
        }
    }

    const fn keyless(name: &'static str, access: Access, scope: Scope) -> Self {
        Self {
            name,
            sub: "",
            container: false,
            keys: Keys::None,
            access,
            stores_from: None,
            wait: Wait::Never,
            scope,
        }
    }

    pub(super) const fn sub(mut self, sub: &'static str) -> Self {
        self.sub = sub;
        self
    }

    pub(super) const fn keys_at(mut self, keys: Keys) -> Self {
        self.keys = keys;
        self
    }

    /// Arguments `first` to `last` (negative: from the end), every `step`th.
    pub(super) const fn range(self, first: u8, last: i8, step: u8) -> Self {
        self.keys_at(Keys::Range { first, last, step })
    }

    /// As many keys as argument `count` says, right after it.
    pub(super) const fn counted(self, count: u8) -> Self {
        self.keys_at(Keys::counted(count))
    }

    pub(super) const fn waits(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// The server flags it `write` for the sake of an option, `STORE`, that stands at `from` or
    /// after it.
    pub(super) const fn stores_from(mut self, from: u8) -> Self {
        self.access = Access::PrimaryRead;
        self.stores_from = Some(from);
        self
    }

    /// The server flags it `readonly` although it has no key.
    pub(super) const fn read_only(mut self) -> Self {
        self.access = Access::ReadOnly;
        self
    }

    pub(super) const fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }
}

/// The slot that all keys seen so far share.
#[derive(Debug, Default)]
pub(super) struct CommonSlot {
    slot: Option<Slot>,
    /// The first one that differed.
    other: Option<Slot>,
}

impl CommonSlot {
    pub(super) fn add(&mut self, key: &[u8]) {
        if self.other.is_some() {
            return;
        }
        let slot = Slot::of_key(key);
        match self.slot {
            None => self.slot = Some(slot),
            Some(first) if first != slot => self.other = Some(slot),
            Some(_) => {}
        }
    }

    /// `None` if there was no key at all.
    pub(super) fn common(self) -> Result<Option<Slot>, CrossSlot> {
        match (self.slot, self.other) {
            (Some(first), Some(other)) => Err(CrossSlot(first, other)),
            (slot, _) => Ok(slot),
        }
    }
}

fn slot_number<'a>(mut args: impl Iterator<Item = &'a [u8]>) -> Option<Slot> {
    let text = std::str::from_utf8(args.nth(2)?).ok()?;
    Slot::new(text.parse().ok()?)
}
