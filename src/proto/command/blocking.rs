//! How long a blocking command may wait, read from its arguments.

use std::time::Duration;

use crate::proto::resp::encode::Encoded;

/// How long a command may keep its connection waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// Until something happens.
    Forever,
    /// At most so long.
    For(Duration),
}

/// Where a command's arguments say how long it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// It does not.
    Never,
    /// The last argument, in seconds, with a fraction.
    SecondsLast,
    /// This argument, in seconds, with a fraction.
    Seconds(u8),
    /// This argument, in milliseconds.
    Millis(u8),
    /// The argument of the option `BLOCK`, in milliseconds; without it, not at all.
    BlockOption,
}

/// The argument that says how long a command blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeArg {
    /// Its index; 0 is the name.
    index: usize,
    /// Seconds with a fraction, or milliseconds.
    seconds: bool,
}

impl TimeArg {
    /// The same command with another time. Zero would mean for ever, so the shortest time is a
    /// millisecond.
    pub(crate) fn replace(self, command: &Encoded, time: Duration) -> Encoded {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut args = command.args();
        let mut changed = Encoded::new(args.next().unwrap_or_default());
        for (index, arg) in (1..).zip(args) {
            if index != self.index {
                changed.push(arg);
            } else if self.seconds {
                let text = format!("{}.{:03}", millis / 1000, millis % 1000);
                changed.push(text.as_bytes());
            } else {
                changed.push_uint(millis);
            }
        }
        changed
    }
}

impl Wait {
    /// Where the time stands in these arguments.
    pub(super) fn arg<'a, I>(self, args: I) -> Option<TimeArg>
    where
        I: Iterator<Item = &'a [u8]> + Clone,
    {
        let (index, seconds) = match self {
            Wait::Never => return None,
            Wait::SecondsLast => (args.count().checked_sub(1)?, true),
            Wait::Seconds(position) => (usize::from(position), true),
            Wait::Millis(position) => (usize::from(position), false),
            Wait::BlockOption => (block_option(args)?.0, false),
        };
        Some(TimeArg { index, seconds })
    }

    /// The time that these arguments ask for; `None` if it does not block.
    ///
    /// A time that cannot be read counts as for ever. Most likely the server refuses it at once;
    /// but should the server be more lenient, such a command must not stall a shared connection.
    pub(super) fn time<'a, I>(self, mut args: I) -> Option<Blocking>
    where
        I: Iterator<Item = &'a [u8]> + Clone,
    {
        let time = match self {
            Wait::Never => return None,
            Wait::SecondsLast => args.last().and_then(seconds),
            Wait::Seconds(position) => args.nth(position.into()).and_then(seconds),
            Wait::Millis(position) => args.nth(position.into()).and_then(millis),
            Wait::BlockOption => millis(block_option(args)?.1),
        };
        Some(match time {
            Some(time) if !time.is_zero() => Blocking::For(time),
            _ => Blocking::Forever,
        })
    }
}

fn seconds(text: &[u8]) -> Option<Duration> {
    let seconds = std::str::from_utf8(text).ok()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn millis(text: &[u8]) -> Option<Duration> {
    let millis = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

/// What follows `BLOCK` among the options of XREAD and XREADGROUP, which end at `STREAMS`. Groups
/// and consumers may have such names; options not known here are passed over.
fn block_option<'a>(args: impl Iterator<Item = &'a [u8]>) -> Option<(usize, &'a [u8])> {
    let mut rest = args.enumerate().skip(1);
    let mut time = None;
    while let Some((_, word)) = rest.next() {
        if word.eq_ignore_ascii_case(b"STREAMS") {
            break;
        } else if word.eq_ignore_ascii_case(b"BLOCK") {
            // A repeated option counts by its last occurrence.
            time = Some(rest.next().unwrap_or_default());
        } else if word.eq_ignore_ascii_case(b"COUNT") {
            rest.next();
        } else if word.eq_ignore_ascii_case(b"GROUP") {
            rest.nth(1);
        }
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(wait: Wait, command: &str) -> Option<Blocking> {
        wait.time(command.split(' ').map(str::as_bytes))
    }

    fn ms(millis: u64) -> Option<Blocking> {
        Some(Blocking::For(Duration::from_millis(millis)))
    }

    const FOREVER: Option<Blocking> = Some(Blocking::Forever);

    #[test]
    fn seconds_have_fractions_and_zero_is_for_ever() {
        assert_eq!(time(Wait::SecondsLast, "BLPOP a b 1.5"), ms(1500));
        assert_eq!(time(Wait::SecondsLast, "BLPOP a 0"), FOREVER);
        assert_eq!(time(Wait::SecondsLast, "BLPOP a 0.0"), FOREVER);
        assert_eq!(time(Wait::Seconds(1), "BLMPOP 2 1 a LEFT"), ms(2000));
        assert_eq!(time(Wait::Millis(2), "WAIT 1 250"), ms(250));
        assert_eq!(time(Wait::Never, "GET a"), None);
    }

    #[test]
    fn what_cannot_be_read_is_for_ever() {
        for text in ["x", "-1", "nan", "inf", "1e400", "", "0x10"] {
            assert_eq!(time(Wait::SecondsLast, &format!("BLPOP a {text}")), FOREVER);
        }
        assert_eq!(time(Wait::Millis(2), "WAIT 1"), FOREVER);
        assert_eq!(time(Wait::Seconds(1), "BLMPOP"), FOREVER);
    }

    #[test]
    fn stream_reads_block_by_option() {
        let block = |command| time(Wait::BlockOption, command);
        assert_eq!(block("XREAD STREAMS BLOCK 0"), None);
        assert_eq!(block("XREAD COUNT 1 STREAMS a 0"), None);
        assert_eq!(block("XREAD COUNT 1 block 10 STREAMS a 0"), ms(10));
        assert_eq!(block("XREAD BLOCK 0 STREAMS a 0"), FOREVER);
        assert_eq!(block("XREAD BLOCK"), FOREVER);
        assert_eq!(block("XREADGROUP GROUP BLOCK STREAMS STREAMS a >"), None);
        assert_eq!(
            block("XREADGROUP GROUP g c NOACK BLOCK 7 STREAMS a >"),
            ms(7)
        );
        assert_eq!(
            block("XREADGROUP GROUP g c NEW 9 BLOCK 7 STREAMS a >"),
            ms(7)
        );
    }
}
