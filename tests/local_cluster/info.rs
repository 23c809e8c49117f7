//! What a server tells about itself: its kind and version, its counters.

use std::collections::BTreeMap;

use super::LocalCluster;

/// Which of the two families a server belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl LocalCluster {
    /// The kind of server under test.
    #[track_caller]
    pub fn server_kind(&self) -> ServerKind {
        match self.server_field("server_name") {
            Some(name) if name == "valkey" => ServerKind::Valkey,
            _ => ServerKind::Redis,
        }
    }

    /// The version of the server under test, such as `(7, 0, 15)`.
    #[track_caller]
    pub fn server_version(&self) -> (u32, u32, u32) {
        let version = match self.server_kind() {
            ServerKind::Redis => self.server_field("redis_version"),
            ServerKind::Valkey => self.server_field("valkey_version"),
        };
        let version = version.unwrap_or_default();
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        (next(), next(), next())
    }

    /// How many errors of each code a node has sent since it started: `MOVED` → 3.
    #[track_caller]
    pub fn errorstats(&self, node: usize) -> BTreeMap<String, u64> {
        self.counters(node, "errorstats", "errorstat_")
    }

    /// How often a node ran each command since it started: `get` → 3, `cluster|slots` → 1.
    #[track_caller]
    pub fn commandstats(&self, node: usize) -> BTreeMap<String, u64> {
        self.counters(node, "commandstats", "cmdstat_")
    }

    /// Sets both kinds of counters of all running nodes back to zero.
    #[track_caller]
    pub fn reset_stats(&self) {
        for node in self.running() {
            self.command(node, &["CONFIG", "RESETSTAT"]);
        }
    }

    /// A line `name:value` of an answer such as that to `INFO`.
    pub(super) fn info_field(
        &self,
        node: usize,
        command: &[&str],
        name: &str,
    ) -> Result<String, String> {
        let reply = self.try_command(node, command);
        let text = reply
            .map_err(|error| format!("node {node}: {error}"))?
            .text();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value
            .map(|value| value.trim().to_owned())
            .ok_or_else(|| format!("node {node} does not tell its {name}: {text}"))
    }

    #[track_caller]
    fn server_field(&self, name: &str) -> Option<String> {
        let running = self.running();
        let node = running.first().expect("a node runs");
        self.info_field(*node, &["INFO", "server"], name).ok()
    }

    /// Lines such as `cmdstat_get:calls=3,usec=12`: the first number of each.
    #[track_caller]
    fn counters(&self, node: usize, section: &str, prefix: &str) -> BTreeMap<String, u64> {
        let text = self.command(node, &["INFO", section]).text();
        let lines = text.lines().filter_map(|line| {
            let (name, values) = line.strip_prefix(prefix)?.split_once(':')?;
            let first = values.split(',').next()?;
            let count = first.split_once('=')?.1.trim().parse().ok()?;
            Some((name.to_owned(), count))
        });
        lines.collect()
    }
}
