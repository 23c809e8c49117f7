//! The builder: sets what differs from the defaults, then checks the whole.

use std::sync::Arc;
use std::time::Duration;

use super::{
    AddressMap, Config, Credentials, Login, Maintenance, Protocol, ReadFrom, WhenFull, parse_host,
};
use crate::error::{Misuse, Result};
use crate::proto::addr::NodeAddr;

/// Settings for a new client.
///
/// Nothing fails before the client is made: what is wrong with a setting is reported then, as
/// [`Misuse::Invalid`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it is told to connect"]
pub struct Builder {
    config: Config,
    username: Option<String>,
    password: Option<Secret>,
    /// The first setting that cannot be used.
    flaw: Option<Misuse>,
}

/// A password that `Debug` does not show.
#[derive(Clone)]
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

/// Longest time that a setting may have, so that adding it to the clock cannot overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Whom to connect to.
impl Builder {
    /// Settings from a URL:
    ///
    /// ```text
    /// redis://[[user]:password@]host[:port][,host[:port]...][/[0]][?option=value[&...]]
    /// ```
    ///
    /// `valkey://` is the same. Every host is a [`seed`](Builder::seed). In the user name, the
    /// password and options, `%20` and the like stand for any byte; the characters `/ ? # @ %`
    /// must be written so. The options are named after the methods here:
    ///
    /// | options | values |
    /// |---|---|
    /// | `connect_timeout`, `connect_deadline`, `drain_limit` | a time: `500ms`, `2s`, `1m` |
    /// | `refresh_min_interval`, `refresh_max_interval`, `relaxed_timeout` | a time |
    /// | `response_timeout`, `keepalive`, `periodic_refresh` | a time or `none` |
    /// | `lazy`, `follow_redirects`, `retry_reads`, `strict_order` | `true`, `false` |
    /// | `max_redirects`, `queue_commands`, `queue_bytes`, `max_reply_bytes` | a plain number |
    /// | `client_name` | a text |
    /// | `protocol` | `resp3`, `resp2` |
    /// | `read_from` | `primary`, `prefer_replica` |
    /// | `when_full` | `wait`, `refuse` |
    /// | `maintenance` | `off`, `auto`, `on` |
    ///
    /// ```
    /// # fn main() -> reslot::Result<()> {
    /// let url = "redis://app:s3cret@h1:7000,h2:7000?response_timeout=500ms&max_redirects=5";
    /// let builder = reslot::Builder::from_url(url)?.lazy(true);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] if the URL cannot be used. The text never shows the password.
    pub fn from_url(url: &str) -> Result<Self> {
        crate::url::parse(url)
    }

    /// Adds a node to find the cluster through: `host`, `host:port` or `[ipv6]:port`; the port
    /// is 6379 if not given. One seed is needed, several are better: any that answers will do.
    pub fn seed(mut self, seed: impl AsRef<str>) -> Self {
        match parse_host(seed.as_ref()) {
            Ok(addr) => self.config.seeds.push(addr),
            Err(why) => {
                let number = self.config.seeds.len() + 1;
                self.flaw
                    .get_or_insert(Misuse::Invalid(format!("seed {number}: {why}")));
            }
        }
        self
    }

    /// Adds several nodes, as [`seed`](Builder::seed) does.
    pub fn seeds<S: AsRef<str>>(self, seeds: impl IntoIterator<Item = S>) -> Self {
        seeds.into_iter().fold(self, Builder::seed)
    }

    /// The user to log in as, on every connection. Default: the default user. Needs a
    /// [`password`](Builder::password).
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// The password to log in with, on every connection. Default: no login.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(Secret(password.into()));
        self
    }

    /// Asks for credentials whenever a connection is made, so that a rotated password is in use
    /// from the next connection on. The address is the node's, as the cluster names it.
    ///
    /// The closure runs on a thread of the client while that connection waits: it should return
    /// what it holds rather than fetch it. Default: none. Excludes `username` and `password`.
    pub fn credentials<F>(mut self, provide: F) -> Self
    where
        F: Fn(&NodeAddr) -> Credentials + Send + Sync + 'static,
    {
        self.config.login = Login::Provider(Arc::new(provide));
        self
    }

    /// A name for the connections, which the server shows in `CLIENT LIST`: printable ASCII
    /// without spaces. Default: none.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.config.client_name = Some(name.into());
        self
    }

    /// The version of the protocol. Default: [`Protocol::Resp3`].
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.config.protocol = protocol;
        self
    }

    /// Whether to connect to a node only with the first command for it. The map is asked for all
    /// the same. Otherwise `connect` connects to every primary at once, so that no first command
    /// pays for it. Default: `false`.
    pub fn lazy(mut self, lazy: bool) -> Self {
        self.config.lazy = lazy;
        self
    }

    /// Translates the addresses that the cluster names (in its map, in redirects, in
    /// announcements) into those that can be reached from here, as through NAT. Seeds are not
    /// translated. Default: none.
    pub fn address_map<F>(mut self, map: F) -> Self
    where
        F: Fn(&NodeAddr) -> NodeAddr + Send + Sync + 'static,
    {
        self.config.address_map = AddressMap(Some(Arc::new(map)));
        self
    }
}

/// How long things may take.
impl Builder {
    /// How long a call waits for its reply: queueing, connecting, redirects, pauses between
    /// attempts and reading together. `None` waits for ever. Default: 5 s.
    ///
    /// A command that blocks, such as `BLPOP`, first waits as long as it says itself; this time is
    /// added for its reply.
    pub fn response_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.response_timeout = timeout.into();
        self
    }

    /// How long one attempt to connect to one node may take, handshake and login included.
    /// Default: 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// How long making the client may take in all, over all seeds. Default: 10 s.
    pub fn connect_deadline(mut self, deadline: Duration) -> Self {
        self.config.connect_deadline = deadline;
        self
    }

    /// How long replies are waited for when a connection or a slot is given up, before what was
    /// sent counts as lost. Zero does not wait. Default: 2.5 s.
    pub fn drain_limit(mut self, limit: Duration) -> Self {
        self.config.drain_limit = limit;
        self
    }

    /// How long a connection is idle before TCP checks that the other side is still there. `None`
    /// turns the check off. Default: 60 s.
    pub fn keepalive(mut self, idle: impl Into<Option<Duration>>) -> Self {
        self.config.keepalive = idle.into();
        self
    }
}

/// Redirects, reads and order.
impl Builder {
    /// How often a command may be redirected: with 0 it is sent once. Default: 16.
    pub fn max_redirects(mut self, redirects: u32) -> Self {
        self.config.max_redirects = redirects;
        self
    }

    /// Whether redirects are followed. If not, `MOVED`, `ASK`, `TRYAGAIN` and the like are returned
    /// as errors of the server; the client still learns from them. Default: `true`.
    pub fn follow_redirects(mut self, follow: bool) -> Self {
        self.config.follow_redirects = follow;
        self
    }

    /// Which nodes serve reads. Default: [`ReadFrom::Primary`].
    pub fn read_from(mut self, read_from: ReadFrom) -> Self {
        self.config.read_from = read_from;
        self
    }

    /// Whether commands that only read are sent again when their connection is lost. Others never
    /// are. Default: `true`.
    pub fn retry_reads(mut self, retry: bool) -> Self {
        self.config.retry_reads = retry;
        self
    }

    /// Whether a command that is answered `TRYAGAIN` fails with that answer, rather than run after
    /// a later one of its slot. Default: `false`, it is sent again after a pause.
    ///
    /// Servers answer `TRYAGAIN` to commands with several keys, some of which have moved with their
    /// slot and some not yet. Of a pipeline, or of commands that are handed over one after the
    /// other, the next ones for that slot may then have run already. By default a pipeline finishes
    /// the command and tells so: [`Report::reordered`](crate::Report::reordered). The setting
    /// concerns all commands, also those called one at a time. Other answers that say "not here"
    /// or "not now" are followed in either case: they keep back the later commands of the slot
    /// that are not on their way yet.
    ///
    /// Neither way covers single keys of a slot that is half moved: they live on two nodes, and
    /// commands for *different* keys of it run independently.
    pub fn strict_order(mut self, strict: bool) -> Self {
        self.config.strict_order = strict;
        self
    }
}

/// Limits.
impl Builder {
    /// How many commands may wait for one node, those included that were written and are not
    /// answered. Default: 100,000.
    ///
    /// The bound is not exact: threads that come at the same moment may exceed it by what each of
    /// them brings, and what is being written counts twice for that moment, so that with
    /// [`WhenFull::Refuse`] a queue that is nearly full may refuse a little early.
    pub fn queue_commands(mut self, commands: usize) -> Self {
        self.config.queue_commands = commands;
        self
    }

    /// How many bytes of commands may wait for one node, as with
    /// [`queue_commands`](Builder::queue_commands). A single command over it is let in alone.
    /// Default: 268435456 (256 MiB).
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.config.queue_bytes = bytes;
        self
    }

    /// What a call does when its node's queue is full. Default: [`WhenFull::Wait`].
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.config.when_full = when_full;
        self
    }

    /// The largest reply that is accepted, in bytes. A larger one fails with
    /// [`Reason::ReplyLimit`](crate::Reason::ReplyLimit). Default: 1073741824 (1 GiB).
    pub fn max_reply_bytes(mut self, bytes: usize) -> Self {
        self.config.max_reply_bytes = bytes;
        self
    }
}

/// The slot map.
impl Builder {
    /// The shortest time between two refreshes of the slot map. Default: 100 ms.
    pub fn refresh_min_interval(mut self, interval: Duration) -> Self {
        self.config.refresh_min_interval = interval;
        self
    }

    /// What that time grows to while refreshes change nothing. Default: 5 s.
    pub fn refresh_max_interval(mut self, interval: Duration) -> Self {
        self.config.refresh_max_interval = interval;
        self
    }

    /// How often the map is refreshed without a cause, give or take some. `None` turns this off.
    /// Default: 60 s.
    pub fn periodic_refresh(mut self, period: impl Into<Option<Duration>>) -> Self {
        self.config.periodic_refresh = period.into();
        self
    }

    /// Whether servers are asked to announce maintenance. Default: [`Maintenance::Off`].
    pub fn maintenance(mut self, maintenance: Maintenance) -> Self {
        self.config.maintenance = maintenance;
        self
    }

    /// How long a call waits for its reply at least, while its node has announced maintenance:
    /// also one that waits already, or waits for room, and also if the call itself states a
    /// shorter time. A session of [`Client::watch`](crate::Client::watch) is one call; for a
    /// command that blocks, the time begins when it should have ended. Longer times, and calls
    /// that wait for ever, are not changed. Default: 10 s.
    ///
    /// Calls that time out meanwhile say so by
    /// [`Reason::MaintenanceTimeout`](crate::Reason::MaintenanceTimeout).
    pub fn relaxed_timeout(mut self, timeout: Duration) -> Self {
        self.config.relaxed_timeout = timeout;
        self
    }
}

impl Builder {
    /// Checks the settings as a whole.
    pub(crate) fn build(mut self) -> Result<Config> {
        if let Some(flaw) = self.flaw {
            return Err(flaw.into());
        }
        let (username, password) = (self.username.take(), self.password.take());
        let config = &mut self.config;
        match (username, password, &config.login) {
            (None, None, _) => {}
            (_, _, Login::Provider(_)) => {
                return Err(invalid("credentials: excludes username and password"));
            }
            (Some(_), None, _) => return Err(invalid("username: needs a password")),
            (username, Some(Secret(password)), _) => {
                let credentials = match username {
                    Some(username) => Credentials::user(username, password),
                    None => Credentials::password(password),
                };
                config.login = Login::Fixed(credentials);
            }
        }
        check_names(config)?;
        check_times(config)?;
        check_limits(config)?;
        Ok(self.config)
    }
}

fn check_names(config: &mut Config) -> Result<()> {
    if config.seeds.is_empty() {
        return Err(invalid("seeds: at least one is needed"));
    }
    let mut known = std::collections::HashSet::new();
    config.seeds.retain(|seed| known.insert(seed.clone()));
    if let Some(name) = &config.client_name {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid(
                "client_name: must be printable ASCII without spaces",
            ));
        }
    }
    Ok(())
}

fn check_times(config: &Config) -> Result<()> {
    let times = [
        ("response_timeout", config.response_timeout),
        ("connect_timeout", Some(config.connect_timeout)),
        ("connect_deadline", Some(config.connect_deadline)),
        ("keepalive", config.keepalive),
        ("refresh_min_interval", Some(config.refresh_min_interval)),
        ("refresh_max_interval", Some(config.refresh_max_interval)),
        ("periodic_refresh", config.periodic_refresh),
    ];
    let may_be_zero = [
        ("drain_limit", Some(config.drain_limit)),
        ("relaxed_timeout", Some(config.relaxed_timeout)),
    ];
    for (name, time) in times {
        if time == Some(Duration::ZERO) {
            return Err(invalid(&format!("{name}: must not be zero")));
        }
    }
    for (name, time) in times.into_iter().chain(may_be_zero) {
        if time.is_some_and(|time| time > LONGEST) {
            return Err(invalid(&format!("{name}: must not exceed a year")));
        }
    }
    if config
        .keepalive
        .is_some_and(|idle| idle < Duration::from_secs(1))
    {
        return Err(invalid("keepalive: must be at least a second"));
    }
    if config.refresh_min_interval > config.refresh_max_interval {
        return Err(invalid(
            "refresh_max_interval: must not be below refresh_min_interval",
        ));
    }
    if config
        .periodic_refresh
        .is_some_and(|period| period < config.refresh_min_interval)
    {
        return Err(invalid(
            "periodic_refresh: must not be below refresh_min_interval",
        ));
    }
    Ok(())
}

fn check_limits(config: &Config) -> Result<()> {
    let limits = [
        ("queue_commands", config.queue_commands),
        ("queue_bytes", config.queue_bytes),
        ("max_reply_bytes", config.max_reply_bytes),
    ];
    for (name, limit) in limits {
        if limit == 0 {
            return Err(invalid(&format!("{name}: must not be zero")));
        }
    }
    if config.maintenance == Maintenance::On && config.protocol == Protocol::Resp2 {
        return Err(invalid("maintenance: announcements need RESP3"));
    }
    Ok(())
}

fn invalid(text: &str) -> crate::error::Error {
    Misuse::Invalid(text.into()).into()
}
