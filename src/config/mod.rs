//! Every setting of a client and its default.

mod builder;
mod login;
mod seed;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::proto::addr::NodeAddr;
use crate::proto::limits::REPLY_BYTES;

pub use builder::Builder;
pub use login::Credentials;
pub(crate) use login::Login;
pub(crate) use seed::parse_host;

/// The settings of a client, checked. [`Builder`] documents each.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) seeds: Vec<NodeAddr>,
    pub(crate) login: Login,
    pub(crate) client_name: Option<String>,
    pub(crate) protocol: Protocol,
    pub(crate) lazy: bool,

    pub(crate) response_timeout: Option<Duration>,
    pub(crate) connect_timeout: Duration,
    pub(crate) connect_deadline: Duration,
    pub(crate) drain_limit: Duration,
    pub(crate) keepalive: Option<Duration>,

    pub(crate) max_redirects: u32,
    pub(crate) follow_redirects: bool,
    pub(crate) read_from: ReadFrom,
    pub(crate) retry_reads: bool,
    pub(crate) strict_order: bool,

    pub(crate) queue_commands: usize,
    pub(crate) queue_bytes: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) max_reply_bytes: usize,

    pub(crate) refresh_min_interval: Duration,
    pub(crate) refresh_max_interval: Duration,
    pub(crate) periodic_refresh: Option<Duration>,
    pub(crate) address_map: AddressMap,
    pub(crate) maintenance: Maintenance,
    pub(crate) relaxed_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seeds: Vec::new(),
            login: Login::default(),
            client_name: None,
            protocol: Protocol::Resp3,
            lazy: false,

            response_timeout: Some(Duration::from_secs(5)),
            connect_timeout: Duration::from_secs(1),
            connect_deadline: Duration::from_secs(10),
            drain_limit: Duration::from_millis(2500),
            keepalive: Some(Duration::from_secs(60)),

            max_redirects: 16,
            follow_redirects: true,
            read_from: ReadFrom::Primary,
            retry_reads: true,
            strict_order: false,

            queue_commands: 100_000,
            queue_bytes: 256 * 1024 * 1024,
            when_full: WhenFull::Wait,
            max_reply_bytes: REPLY_BYTES,

            refresh_min_interval: Duration::from_millis(100),
            refresh_max_interval: Duration::from_secs(5),
            periodic_refresh: Some(Duration::from_secs(60)),
            address_map: AddressMap::default(),
            maintenance: Maintenance::Off,
            relaxed_timeout: Duration::from_secs(10),
        }
    }
}

/// Which nodes serve reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadFrom {
    /// The slot's primary.
    #[default]
    Primary,
    /// A replica of the slot, or the primary if no replica can serve. Replicas lag behind: a read
    /// may miss a write that was answered before.
    PreferReplica,
}

/// What a call does when the queue of its node is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// It waits for room, at most until its deadline. Who waits is not served in turn: while many
    /// single commands come, a large pipeline or transaction may wait longer than they do.
    #[default]
    Wait,
    /// It fails at once with [`Reason::QueueFull`](crate::Reason::QueueFull). Of a pipeline that
    /// does not fit as a whole, what fits is sent: each result tells.
    Refuse,
}

/// The version of the protocol between client and server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// RESP3, or RESP2 with a server that does not know `HELLO`.
    #[default]
    Resp3,
    /// RESP2 only; `HELLO` is not sent.
    Resp2,
}

/// Whether servers are asked to announce maintenance (Redis Enterprise and Redis Cloud, RESP3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Maintenance {
    /// They are not asked.
    #[default]
    Off,
    /// They are asked; a server that does not know the request is used without.
    Auto,
    /// They are asked; a connection on which the request fails is not used.
    On,
}

impl Config {
    /// Whether connections ask for announcements, which only RESP3 can carry.
    pub(crate) fn wants_announcements(&self) -> bool {
        self.maintenance != Maintenance::Off && self.protocol == Protocol::Resp3
    }
}

/// The user's translation of addresses, if any.
#[derive(Clone, Default)]
pub(crate) struct AddressMap(Option<Arc<MapAddress>>);

type MapAddress = dyn Fn(&NodeAddr) -> NodeAddr + Send + Sync;

impl AddressMap {
    /// Where to connect to, to reach the node that the cluster calls `addr`.
    pub(crate) fn apply(&self, addr: &NodeAddr) -> NodeAddr {
        match &self.0 {
            Some(map) => map(addr),
            None => addr.clone(),
        }
    }
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "set" } else { "none" })
    }
}

#[cfg(test)]
mod tests;
