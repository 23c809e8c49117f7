//! Commands that the table does not have, such as those of modules, described by the server itself.

use super::aggregate::Aggregate;
use super::blocking::Blocking;
use super::keys::{after_keyword, counted, range};
use super::spec::{Access, CommonSlot, CrossSlot, Target};
use crate::proto::value::Value;

/// One command as the server describes it in its reply to `COMMAND INFO`.
///
/// It answers the same questions as [`Spec`](super::Spec), and describes its subcommands as well.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DynamicSpec {
    keys: Vec<KeySpec>,
    access: Access,
    blocks: bool,
    /// Acts on a server (flag `admin`) or a connection (flag `pubsub`, category `@connection`)
    /// rather than on data. An unknown command of that kind goes only where the caller says.
    administrative: bool,
    /// What the server says about fanning it out.
    fan_out: Option<Aggregate>,
    /// By name, without the container's.
    subcommands: Vec<(Vec<u8>, DynamicSpec)>,
}

/// One place where a command has keys (Redis documentation, "Key specifications").
#[derive(Clone, Debug, PartialEq)]
struct KeySpec {
    begin: Begin,
    find: Find,
}

/// Where keys begin.
#[derive(Clone, Debug, PartialEq)]
enum Begin {
    Index(usize),
    /// After the first occurrence of the word, searched from this argument on; from the end
    /// backwards if negative.
    Keyword(Vec<u8>, isize),
}

/// Which arguments are keys from there on.
#[derive(Clone, Debug, PartialEq)]
enum Find {
    /// Up to `last`, which is relative to the beginning, or to the end if negative. With a `limit`
    /// of two or more, to the end of that fraction of the rest.
    Range {
        last: isize,
        step: usize,
        limit: usize,
    },
    /// A count at `count`, and keys from `first` on; both relative to the beginning.
    Counted {
        count: usize,
        first: usize,
        step: usize,
    },
}

const UNFIT: &str = "is an administrative command that this client does not know: name the node by \
    `Cmd::route(Route::Node(addr))`";

impl DynamicSpec {
    /// From the reply to `COMMAND INFO name` for one name. `None` if the server does not know the
    /// command either, or the reply does not look like one.
    pub(crate) fn from_command_info(reply: &Value) -> Option<Self> {
        match items(reply)? {
            [entry] => Self::from_entry(entry).map(|(_, spec)| spec),
            _ => None,
        }
    }

    /// Entries have 6 fields on old servers, 10 since Redis 7.0. Nesting is bounded by the depth of
    /// a reply.
    fn from_entry(entry: &Value) -> Option<(Vec<u8>, Self)> {
        let fields = items(entry)?;
        let name = text(fields.first()?)?.to_ascii_lowercase();
        let flags = items(fields.get(2)?)?;
        let flag = |name: &[u8]| flags.iter().any(|flag| text(flag) == Some(name));
        let categories = fields.get(6).and_then(items).unwrap_or_default();
        let mut categories = categories.iter().filter_map(text);
        let on_connection = categories.any(|category| category == b"@connection");
        let keys = match fields.get(8).and_then(items) {
            Some(specs) if !specs.is_empty() => specs.iter().filter_map(KeySpec::read).collect(),
            _ => KeySpec::from_positions(fields.get(3..6)?)
                .into_iter()
                .collect(),
        };
        let subcommands = fields.get(9).and_then(items).unwrap_or_default();
        let spec = Self {
            keys,
            access: match flag(b"readonly") {
                true => Access::ReadOnly,
                false => Access::Write,
            },
            blocks: flag(b"blocking"),
            administrative: flag(b"admin") || flag(b"pubsub") || on_connection,
            fan_out: fields.get(7).and_then(items).and_then(fan_out),
            subcommands: subcommands.iter().filter_map(Self::from_entry).collect(),
        };
        Some((name, spec))
    }

    /// The description that holds for these arguments: its own, or that of the subcommand.
    fn resolve<'a>(&self, mut args: impl Iterator<Item = &'a [u8]>) -> &Self {
        let Some(sub) = args.nth(1) else {
            return self;
        };
        let named = |full: &[u8]| {
            // The server calls it `container|sub`.
            let full = full.split(|&byte| byte == b'|').next_back();
            full.is_some_and(|full| full.eq_ignore_ascii_case(sub))
        };
        let found = self.subcommands.iter().find(|(full, _)| named(full));
        found.map_or(self, |(_, spec)| spec)
    }

    /// Shows its keys, and sharded channels, in the order of the server's description.
    pub(crate) fn keys<'a, I>(&self, args: I, mut visit: impl FnMut(&'a [u8]))
    where
        I: Iterator<Item = &'a [u8]> + Clone,
    {
        for spec in &self.resolve(args.clone()).keys {
            spec.visit(args.clone(), &mut visit);
        }
    }

    /// What it does to the data.
    pub(crate) fn access<'a>(&self, args: impl Iterator<Item = &'a [u8]>) -> Access {
        self.resolve(args).access
    }

    /// Where its time stands is not described, so it may take for ever.
    pub(crate) fn blocking<'a>(&self, args: impl Iterator<Item = &'a [u8]>) -> Option<Blocking> {
        self.resolve(args).blocks.then_some(Blocking::Forever)
    }

    /// Where it belongs.
    pub(crate) fn route<'a, I>(&self, args: I) -> Result<Target, CrossSlot>
    where
        I: Iterator<Item = &'a [u8]> + Clone,
    {
        let spec = self.resolve(args.clone());
        let mut slots = CommonSlot::default();
        self.keys(args, |key| slots.add(key));
        Ok(match (slots.common()?, spec.fan_out) {
            (Some(slot), _) => Target::Slot(slot),
            (None, _) if spec.administrative => Target::NamedNode(UNFIT),
            (None, Some(aggregate)) => Target::AllPrimaries(aggregate),
            (None, None) => Target::Any,
        })
    }
}

impl KeySpec {
    /// `None` for a specification that the server itself calls unknown.
    fn read(spec: &Value) -> Option<Self> {
        let (begin, find) = (field(spec, b"begin_search")?, field(spec, b"find_keys")?);
        let (begin_spec, find_spec) = (field(begin, b"spec")?, field(find, b"spec")?);
        let begin = match text(field(begin, b"type")?)? {
            b"index" => Begin::Index(number(begin_spec, b"index")?),
            b"keyword" => Begin::Keyword(
                text(field(begin_spec, b"keyword")?)?.to_vec(),
                number(begin_spec, b"startfrom")?,
            ),
            _ => return None,
        };
        let find = match text(field(find, b"type")?)? {
            b"range" => Find::Range {
                last: number(find_spec, b"lastkey")?,
                step: number(find_spec, b"keystep")?,
                limit: number(find_spec, b"limit")?,
            },
            b"keynum" => Find::Counted {
                count: number(find_spec, b"keynumidx")?,
                first: number(find_spec, b"firstkey")?,
                step: number(find_spec, b"keystep")?,
            },
            _ => return None,
        };
        Some(Self { begin, find })
    }

    /// From the first and last key and step, as all servers give them; 0 means that there is none.
    fn from_positions(positions: &[Value]) -> Option<Self> {
        let [
            Value::Integer(first),
            Value::Integer(last),
            Value::Integer(step),
        ] = positions
        else {
            return None;
        };
        let first = usize::try_from(*first).ok().filter(|&first| first > 0)?;
        let last = isize::try_from(*last).ok()?;
        let last = match last < 0 {
            true => last,
            false => last.checked_sub_unsigned(first)?,
        };
        let step = usize::try_from(*step).ok()?;
        Some(Self {
            begin: Begin::Index(first),
            find: Find::Range {
                last,
                step,
                limit: 0,
            },
        })
    }

    fn visit<'a, I>(&self, args: I, visit: &mut impl FnMut(&'a [u8]))
    where
        I: Iterator<Item = &'a [u8]> + Clone,
    {
        let begin = match &self.begin {
            Begin::Index(index) => Some(*index),
            Begin::Keyword(word, from) => match usize::try_from(*from) {
                Ok(from) => after_keyword(args.clone(), word, from),
                Err(_) => after_keyword_backwards(args.clone(), word, *from),
            },
        };
        let Some(begin) = begin.filter(|&begin| begin > 0) else {
            return;
        };
        match self.find {
            Find::Range { last, step, limit } if limit > 1 && last < 0 => {
                let share = args.clone().skip(begin).count() / limit;
                let end = (begin + share).saturating_add_signed(last);
                if let Ok(end) = isize::try_from(end) {
                    range(args, begin, end, step, visit);
                }
            }
            Find::Range { last, step, .. } if last < 0 => range(args, begin, last, step, visit),
            Find::Range { last, step, .. } => {
                if let Some(last) = last.checked_add_unsigned(begin) {
                    range(args, begin, last, step, visit);
                }
            }
            Find::Counted { count, first, step } => {
                let (count, first) = (begin.saturating_add(count), begin.saturating_add(first));
                counted(args, count, first, step).for_each(visit);
            }
        }
    }
}

/// The position after the last `keyword` that stands at `from` (from the end) or before it.
fn after_keyword_backwards<'a, I>(args: I, keyword: &[u8], from: isize) -> Option<usize>
where
    I: Iterator<Item = &'a [u8]> + Clone,
{
    let start = args.clone().count().checked_add_signed(from)?;
    let searched = args.take(start + 1).enumerate().skip(1);
    let matching = searched.filter(|(_, word)| word.eq_ignore_ascii_case(keyword));
    matching.last().map(|(position, _)| position + 1)
}

/// The tips that make a keyless command run on all primaries; what has none of these replies is
/// left to one node.
fn fan_out(tips: &[Value]) -> Option<Aggregate> {
    let tip = |name: &[u8]| tips.iter().any(|tip| text(tip) == Some(name));
    if !tip(b"request_policy:all_shards") && !tip(b"request_policy:all_nodes") {
        return None;
    }
    let kinds = [
        (&b"response_policy:all_succeeded"[..], Aggregate::AllSucceed),
        (b"response_policy:one_succeeded", Aggregate::AnySucceeds),
        (b"response_policy:agg_sum", Aggregate::Sum),
        (b"response_policy:agg_logical_and", Aggregate::AndPerIndex),
    ];
    let found = kinds.iter().find(|(name, _)| tip(name));
    found.map(|(_, aggregate)| *aggregate)
}

/// Arrays, and the sets that RESP3 has for flags and tips.
fn items(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(items) | Value::Set(items) => Some(items),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bulk(text) | Value::Simple(text) => Some(text),
        Value::Verbatim { text, .. } => Some(text),
        _ => None,
    }
}

/// A field of a map: in RESP2 an array of names and values in turn.
fn field<'v>(value: &'v Value, name: &[u8]) -> Option<&'v Value> {
    match value {
        Value::Map(pairs) => pairs
            .iter()
            .find(|pair| text(&pair.0) == Some(name))
            .map(|pair| &pair.1),
        Value::Array(flat) => {
            let mut pairs = flat.chunks_exact(2);
            pairs
                .find(|pair| text(&pair[0]) == Some(name))
                .map(|pair| &pair[1])
        }
        _ => None,
    }
}

fn number<N: TryFrom<i64>>(value: &Value, name: &[u8]) -> Option<N> {
    match field(value, name)? {
        Value::Integer(number) => N::try_from(*number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
