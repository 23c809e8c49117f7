//! Any command: its name, its arguments, and what the caller states about it.

use std::fmt;
use std::time::{Duration, Instant};

use crate::cancel::CancelToken;
use crate::convert::{Args, ToArgs};
use crate::error::Misuse;
use crate::proto::addr::NodeAddr;
use crate::proto::limits::BULK_BYTES;
use crate::proto::resp::encode::Encoded;
use crate::proto::slot::Slot;

/// Begins a command.
///
/// The name is one word; what follows it, as in `CLUSTER INFO`, is an argument:
///
/// ```
/// let command = reslot::cmd("CLUSTER").arg("INFO");
/// ```
pub fn cmd(name: &str) -> Cmd {
    let mut command = Cmd {
        encoded: Encoded::new(name.as_bytes()),
        longest: 0,
        slot: None,
        stated: None,
    };
    if name.is_empty() {
        command.spoil(Misuse::Invalid("a command needs a name".into()));
    } else if name.bytes().any(|byte| byte.is_ascii_whitespace()) {
        let name = name.escape_debug();
        command.spoil(Misuse::Invalid(format!(
            "{name}: a command's name is one word; add the next one by `Cmd::arg`"
        )));
    }
    command
}

/// A command with its arguments, encoded as they are added.
///
/// Nothing here fails: what cannot be sent (an argument over 512 MiB, keys of different slots) is
/// reported as [`Error::Misuse`](crate::Error::Misuse) by the call that would send it.
#[derive(Clone)]
#[must_use = "a command does nothing until it is handed to a client"]
pub struct Cmd {
    encoded: Encoded,
    /// Bytes of the longest argument, also if it was too long to be added.
    longest: usize,
    /// The slot of the keys that were added as such.
    slot: Option<Slot>,
    /// All that few commands have. It lies elsewhere so that others are cheap to pass on.
    stated: Option<Box<Stated>>,
}

/// What the caller states about a command, and what is wrong with it.
#[derive(Clone, Default)]
struct Stated {
    route: Option<Route>,
    patience: Patience,
    read_only: Option<bool>,
    cancel: Option<CancelToken>,
    /// The first thing that makes the command unusable.
    flaw: Option<Misuse>,
}

/// Where a command goes, if the client should not find that out by itself.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// To the node that serves this key's slot. The key need not be an argument; if the arguments
    /// have keys of another slot, its node gets the command all the same, and a redirect for that
    /// other slot is returned as the server's error.
    Key(Vec<u8>),
    /// To this node, whatever its role: one of [`Client::primaries`](crate::Client::primaries), for
    /// instance. If it is not part of the cluster the call fails with
    /// [`Reason::NodeGone`](crate::Reason::NodeGone). Nothing else is tried: a redirect is returned
    /// as the server's error.
    Node(NodeAddr),
    /// To any healthy primary.
    AnyPrimary,
    /// To every primary. One failure fails the call and names the node.
    ///
    /// The replies come as a list, in the order of the nodes' addresses. Commands that go to every
    /// primary anyhow give one reply instead, as Redis combines them (Redis documentation, "Redis
    /// command tips", `response_policy`): a sum (`DBSIZE`), one list (`KEYS`), the smallest of each
    /// place (`SCRIPT EXISTS`), or the first, once all have succeeded (`FLUSHALL`, `SCRIPT LOAD`).
    AllPrimaries,
}

/// How long the caller waits for one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As configured for the client.
    #[default]
    Default,
    /// This long from the moment of the call; `None` for ever.
    Timeout(Option<Duration>),
    /// Until this moment.
    Deadline(Instant),
}

impl Cmd {
    /// Adds a value's arguments: see [`ToArgs`].
    pub fn arg(mut self, value: impl ToArgs) -> Self {
        value.write_args(&mut Args::new(&mut self.encoded, &mut self.longest));
        self
    }

    /// Adds a key as the next argument and sends the command to the key's slot.
    ///
    /// The client knows where the keys of Redis' own commands are, so that
    /// [`arg`](Cmd::arg) does for them. State the key for commands that it cannot know, such as
    /// those of modules. Several keys must have one slot.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        let slot = Slot::of_key(key.as_ref());
        let first = *self.slot.get_or_insert(slot);
        if first != slot {
            let command = self.name().to_owned();
            let slots = (first, slot);
            self.spoil(Misuse::CrossSlot { command, slots });
        }
        Args::new(&mut self.encoded, &mut self.longest).bytes(key.as_ref());
        self
    }

    /// Adds a value that must be exactly one argument, as its place in the command demands.
    pub(crate) fn single(self, value: impl ToArgs) -> Self {
        let before = self.encoded.len();
        let mut with = self.arg(value);
        let added = with.encoded.len() - before;
        if added != 1 {
            let why = format!("{}: a value became {added} arguments, not one", with.name());
            with.spoil(Misuse::Invalid(why));
        }
        with
    }

    /// States where the command goes. This outranks all that the client knows about the command,
    /// its keys included. Inside a transaction, which runs on one node as a whole, only
    /// [`Route::Key`] counts.
    pub fn route(mut self, route: Route) -> Self {
        self.state().route = Some(route);
        self
    }

    /// Waits this long for the reply instead of the client's `response_timeout`; `None` waits for
    /// ever. Like there, the time covers everything from the call to the reply. The last of
    /// `timeout` and [`deadline`](Cmd::deadline) counts.
    ///
    /// The command is settled at that moment, and the call returns as soon as its thread runs. A
    /// command that blocks may end 50 ms later, when its server does not answer, or up to 200 ms
    /// sooner: the server is told a shorter time, so that it hands out no element that nobody
    /// takes. Announced maintenance may lengthen the time: see
    /// [`Builder::relaxed_timeout`](crate::Builder::relaxed_timeout).
    ///
    /// It is for commands that are waited for by themselves. In a pipeline or a transaction, which
    /// are waited for as a whole, a command that states a limit is refused.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.state().patience = Patience::Timeout(timeout.into());
        self
    }

    /// Waits for the reply until this moment, instead of the client's `response_timeout`: for
    /// several commands that share one limit.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.state().patience = Patience::Deadline(deadline);
        self
    }

    /// States whether the command only reads.
    ///
    /// One that does may be sent again after a lost connection and may be served by a replica, if
    /// the client is configured so. The client knows this of Redis' own commands; state it for
    /// others, or say `false` to have a read sent once and to the primary.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.state().read_only = Some(read_only);
        self
    }

    /// Ends the call when the token is cancelled.
    ///
    /// Like a [`timeout`](Cmd::timeout), a command cannot have it in a pipeline or a transaction:
    /// give the token to those.
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.state().cancel = Some(token.clone());
        self
    }

    pub(crate) fn cancel(&self) -> Option<&CancelToken> {
        self.stated.as_ref()?.cancel.as_ref()
    }

    /// Whether the caller stated how long to wait.
    pub(crate) fn states_deadline(&self) -> bool {
        self.patience() != Patience::Default
    }

    /// When the caller stops waiting by what it stated, if the call is made `now`.
    pub(crate) fn own_deadline(&self, now: Instant) -> Option<Instant> {
        self.deadline_at(now, None)
    }

    /// The name, as given to [`cmd`].
    pub fn name(&self) -> &str {
        let name = self.encoded.arg(0).unwrap_or_default();
        std::str::from_utf8(name).unwrap_or_default()
    }

    /// What makes the command unusable, if anything. To be asked before anything is queued.
    pub(crate) fn flaw(&self) -> Option<Misuse> {
        if self.longest > BULK_BYTES {
            return Some(Misuse::Invalid(format!(
                "{}: an argument of {} bytes, more than {BULK_BYTES}",
                self.name(),
                self.longest
            )));
        }
        self.stated.as_ref()?.flaw.clone()
    }

    pub(crate) fn encoded(&self) -> &Encoded {
        &self.encoded
    }

    pub(crate) fn into_encoded(self) -> Encoded {
        self.encoded
    }

    /// The route that the caller stated.
    pub(crate) fn stated_route(&self) -> Option<&Route> {
        self.stated.as_ref()?.route.as_ref()
    }

    /// The slot that the caller stated, by a route or by keys.
    pub(crate) fn stated_slot(&self) -> Option<Slot> {
        match self.stated_route() {
            Some(Route::Key(key)) => Some(Slot::of_key(key)),
            Some(_) => None,
            None => self.slot,
        }
    }

    /// Whether the caller has stated nothing about it but its keys, and nothing is wrong with it.
    pub(crate) fn is_plain(&self) -> bool {
        self.stated.is_none() && self.longest <= BULK_BYTES
    }

    pub(crate) fn stated_read_only(&self) -> Option<bool> {
        self.stated.as_ref()?.read_only
    }

    /// When the caller stops waiting, if the call is made `now`; `None` for never.
    pub(crate) fn deadline_at(&self, now: Instant, default: Option<Duration>) -> Option<Instant> {
        let timeout = match self.patience() {
            Patience::Default => default,
            Patience::Timeout(timeout) => timeout,
            Patience::Deadline(deadline) => return Some(deadline),
        };
        // A sum beyond the clock's range is for ever.
        timeout.and_then(|timeout| now.checked_add(timeout))
    }

    fn patience(&self) -> Patience {
        let stated = self.stated.as_ref();
        stated.map_or(Patience::Default, |stated| stated.patience)
    }

    fn state(&mut self) -> &mut Stated {
        self.stated.get_or_insert_default()
    }

    fn spoil(&mut self, flaw: Misuse) {
        self.state().flaw.get_or_insert(flaw);
    }
}

/// Shows no argument: they may be secret.
impl fmt::Debug for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cmd({}, {} args)", self.name(), self.encoded.len() - 1)
    }
}

/// Shows no key: they may be secret.
impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Key(key) => write!(f, "Key({:?})", Slot::of_key(key)),
            Route::Node(addr) => write!(f, "Node({addr})"),
            Route::AnyPrimary => f.write_str("AnyPrimary"),
            Route::AllPrimaries => f.write_str("AllPrimaries"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_name_keys_and_arguments_in_order() {
        let command = cmd("SET").key("k").arg(("v", "PX", 100)).arg(Some("NX"));
        let wire =
            b"*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nPX\r\n$3\r\n100\r\n$2\r\nNX\r\n";
        assert_eq!(command.encoded().as_bytes(), wire);
        assert_eq!(command.into_encoded().as_bytes(), wire);
    }

    #[test]
    fn debug_shows_no_values() {
        let command = cmd("AUTH").arg("hunter2").arg(vec![1, 2]);
        assert_eq!(format!("{command:?}"), "Cmd(AUTH, 3 args)");
        let text = format!("{:?}", Route::Key(b"hunter2".to_vec()));
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn a_route_outranks_keys() {
        let keyed = cmd("X").key("foo");
        assert_eq!(keyed.stated_slot(), Slot::new(12182));
        let routed = keyed.clone().route(Route::Key(b"bar".to_vec()));
        assert_eq!(routed.stated_slot(), Slot::new(5061));
        assert_eq!(keyed.clone().route(Route::AnyPrimary).stated_slot(), None);
        assert_eq!(keyed.stated_route(), None);
        assert_eq!(cmd("X").arg("foo").stated_slot(), None);
    }

    #[test]
    fn keys_of_two_slots_are_a_flaw() {
        let (foo, bar) = (Slot::of_key(b"foo"), Slot::of_key(b"bar"));
        let command = cmd("DEL").key("foo").key("{foo}2").key("bar").key("b");
        let crossed = Misuse::CrossSlot {
            command: "DEL".to_owned(),
            slots: (foo, bar),
        };
        assert_eq!(command.flaw(), Some(crossed));
        assert_eq!(cmd("DEL").key("foo").key("{foo}2").flaw(), None);
    }

    #[test]
    fn a_name_of_two_words_is_a_flaw() {
        let text = |name: &str| cmd(name).flaw().map(|flaw| flaw.to_string());
        let why = "CLUSTER INFO: a command's name is one word; add the next one by `Cmd::arg`";
        assert_eq!(text("CLUSTER INFO").as_deref(), Some(why));
        assert!(text("GET\r\nk").is_some_and(|text| text.starts_with(r"GET\r\nk: ")));
        assert_eq!(text("CLUSTER"), None);
    }

    #[test]
    fn an_argument_too_long_is_a_flaw_and_not_copied() {
        let long = vec![0_u8; BULK_BYTES + 1];
        let command = cmd("SET").key("k").arg(&long[..]);
        assert!(command.encoded().as_bytes().len() < 100);
        let text = command.flaw().map(|flaw| flaw.to_string());
        assert_eq!(
            text.as_deref(),
            Some("SET: an argument of 536870913 bytes, more than 536870912")
        );
    }

    #[test]
    fn a_value_that_is_not_one_argument_is_a_flaw() {
        assert_eq!(cmd("SET").key("k").single("v").flaw(), None);
        for bad in [
            cmd("SET").single(None::<i32>),
            cmd("SET").single(["v", "XX"]),
            cmd("SET").single(Vec::<String>::new()),
        ] {
            assert!(matches!(bad.flaw(), Some(Misuse::Invalid(_))), "{bad:?}");
        }
    }

    #[test]
    fn the_last_limit_counts_and_none_overflows() {
        let now = Instant::now();
        let (second, later) = (Duration::from_secs(1), now + Duration::from_secs(9));
        let default = Some(Duration::from_secs(5));
        let cases = [
            (cmd("X"), Some(now + Duration::from_secs(5))),
            (cmd("X").timeout(second), Some(now + second)),
            (cmd("X").timeout(None), None),
            (cmd("X").timeout(Duration::MAX), None),
            (cmd("X").timeout(second).deadline(later), Some(later)),
            (cmd("X").deadline(later).timeout(second), Some(now + second)),
        ];
        for (index, (command, expected)) in cases.into_iter().enumerate() {
            assert_eq!(command.deadline_at(now, default), expected, "case {index}");
        }
        assert_eq!(cmd("X").deadline_at(now, None), None);
    }

    #[test]
    fn what_is_stated_about_reading_is_kept() {
        assert_eq!(cmd("X").stated_read_only(), None);
        assert_eq!(cmd("X").read_only(true).stated_read_only(), Some(true));
        assert_eq!(cmd("X").read_only(false).stated_read_only(), Some(false));
    }
}
