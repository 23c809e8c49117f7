//! Commands whose replies tell which command they belong to.

use reslot::{Cmd, FromValue, Result, Value, cmd};

use crate::arena::{Arena, Excuse};
use crate::blows::Span;
use crate::counter::Counter;
use crate::keys::Key;
use crate::random::Random;
use crate::tally::Kind;

/// How many keys all threads read and write.
const SHARED: usize = 200;

/// A command on keys of all threads, or on a counter of this one. The value of a shared key begins
/// with the key.
#[derive(Debug)]
pub(crate) enum Step {
    Set(Key, String),
    Get(Key),
    /// Two keys of one slot.
    GetBoth(Key, Key),
    SetBoth(Key, Key, String),
    /// Goes to any node.
    Echo(String),
    /// A list command on a string, which is an error.
    WrongType(Key),
    /// A counter, by its index.
    Increment(usize),
    Read(usize),
}

impl Step {
    pub(crate) fn random(random: &mut Random, counters: usize) -> Self {
        let (tag, twin) = (random.below(SHARED), random.below(SHARED));
        let shared = |number: usize| Key::new(tag % crate::keys::TAGS, &format!("shared:{number}"));
        match random.below(20) {
            0..4 => Self::Set(shared(tag), padding(random)),
            4..8 => Self::Get(shared(tag)),
            8..10 => Self::GetBoth(shared(tag), shared(twin)),
            10 => Self::SetBoth(shared(tag), shared(twin), padding(random)),
            11..13 => Self::Echo(random.below(1_000_000_000).to_string()),
            13 => Self::WrongType(shared(tag)),
            14..18 => Self::Increment(random.below(counters)),
            _ => Self::Read(random.below(counters)),
        }
    }

    pub(crate) fn command(&self, counters: &[Counter]) -> Cmd {
        match self {
            Self::Set(key, padding) => cmd("SET").arg(key.name()).arg(value_of(key, padding)),
            Self::Get(key) => cmd("GET").arg(key.name()),
            Self::GetBoth(one, other) => cmd("MGET").arg(one.name()).arg(other.name()),
            Self::SetBoth(one, other, padding) => cmd("MSET")
                .arg(one.name())
                .arg(value_of(one, padding))
                .arg(other.name())
                .arg(value_of(other, padding)),
            Self::Echo(text) => cmd("ECHO").arg(text),
            Self::WrongType(key) => cmd("LLEN").arg(key.name()),
            Self::Increment(at) => cmd("INCR").arg(counters[*at].key.name()),
            Self::Read(at) => cmd("GET").arg(counters[*at].key.name()),
        }
    }

    pub(crate) fn slot(&self, counters: &[Counter]) -> Option<u16> {
        match self {
            Self::Set(key, _)
            | Self::Get(key)
            | Self::GetBoth(key, _)
            | Self::SetBoth(key, ..)
            | Self::WrongType(key) => Some(key.slot()),
            Self::Echo(_) => None,
            Self::Increment(at) | Self::Read(at) => Some(counters[*at].key.slot()),
        }
    }

    fn excuse(&self, short: bool) -> Excuse {
        Excuse {
            short,
            read: !matches!(self, Self::Set(..) | Self::SetBoth(..) | Self::Increment(_)),
            code: matches!(self, Self::WrongType(_)).then_some("WRONGTYPE"),
            ..Excuse::default()
        }
    }

    /// Judges how it ended; values are compared by [`Self::compare`] afterwards.
    pub(crate) fn judge(
        &self,
        context: Context<'_>,
        counters: &mut [Counter],
        result: &Result<Value>,
    ) {
        let slot = self.slot(counters);
        let excuse = self.excuse(context.short);
        let fate = context
            .arena
            .fate(context.kind, context.span, slot, excuse, result);
        if let (Self::Increment(at), Err(_)) = (self, result) {
            counters[*at].missed(fate, context.span, context.arena);
        }
    }

    /// Compares a reply with what it can be.
    pub(crate) fn compare(&self, context: Context<'_>, counters: &mut [Counter], value: Value) {
        let text = format!("{value:?}");
        let (arena, span) = (context.arena, context.span);
        let right = match self {
            Self::Set(..) | Self::SetBoth(..) => {
                String::from_value(value).is_ok_and(|reply| reply == "OK")
            }
            Self::Get(key) => {
                Option::<String>::from_value(value).is_ok_and(|reply| belongs(key, &reply))
            }
            Self::GetBoth(one, other) => <(Option<String>, Option<String>)>::from_value(value)
                .is_ok_and(|(first, second)| belongs(one, &first) && belongs(other, &second)),
            Self::Echo(text) => String::from_value(value).is_ok_and(|reply| reply == *text),
            // There is no such key yet.
            Self::WrongType(_) => i64::from_value(value).is_ok_and(|length| length == 0),
            Self::Increment(at) => u64::from_value(value)
                .map(|value| counters[*at].incremented(value, span, arena))
                .is_ok(),
            Self::Read(at) => Option::<u64>::from_value(value)
                .map(|value| counters[*at].read(value.unwrap_or(0), span, arena))
                .is_ok(),
        };
        if !right {
            let shown: String = text.chars().take(200).collect();
            let (kind, asked) = (context.kind, arena.clock(span.asked));
            arena.violation(&format!(
                "{kind:?} at {asked}: not the reply to {self:?}: {shown}"
            ));
        }
    }
}

/// In which call a step was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// It had little time.
    pub(crate) short: bool,
}

fn value_of(key: &Key, padding: &str) -> String {
    format!("{}|{padding}", key.name())
}

fn belongs(key: &Key, value: &Option<String>) -> bool {
    let prefix = value.as_deref().map(|value| value.split_once('|'));
    prefix.is_none_or(|parts| parts.is_some_and(|(name, _)| name == key.name()))
}

/// Mostly short, sometimes more than a socket takes at once.
fn padding(random: &mut Random) -> String {
    let length = match random.below(1000) {
        0 => 300_000,
        1..10 => random.below(20_000),
        _ => random.below(200),
    };
    "x".repeat(length)
}
