//! What arrived and what ran, in order.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::shared::{Shared, State};

/// A command that arrived.
#[derive(Clone)]
pub struct Entry {
    /// Its place among all commands of all connections.
    pub seq: usize,
    /// The node that it reached.
    pub node: usize,
    /// The connection that it came by.
    pub connection: usize,
    /// When it was read.
    pub at: Instant,
    /// The command and its arguments.
    pub argv: Arc<Vec<Vec<u8>>>,
}

impl Entry {
    /// The name of the command in upper case.
    pub fn name(&self) -> String {
        self.text(0).to_uppercase()
    }

    /// An argument as text; 0 is the name.
    pub fn text(&self, index: usize) -> String {
        let arg = self.argv.get(index).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(arg).into_owned()
    }

    /// Whether it is this command: a name, or name and subcommand such as `CLUSTER SLOTS`.
    pub fn is(&self, name: &str) -> bool {
        let mut words = name.split(' ').enumerate();
        words.all(|(index, word)| {
            let arg = self.argv.get(index);
            arg.is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
        })
    }

    /// Whether one of its arguments is exactly this.
    pub fn has(&self, arg: impl AsRef<[u8]>) -> bool {
        self.argv.iter().skip(1).any(|own| own == arg.as_ref())
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seq, node, connection) = (self.seq, self.node, self.connection);
        write!(f, "#{seq} node {node} connection {connection}:")?;
        for arg in self.argv.iter() {
            let shown = &arg[..arg.len().min(40)];
            let more = if shown.len() < arg.len() { "…" } else { "" };
            write!(f, " {}{more}", shown.escape_ascii())?;
        }
        Ok(())
    }
}

type Condition = Box<dyn Fn(&Entry) -> bool + Send + Sync>;

/// The log, narrowed down by conditions: each method adds one.
#[must_use = "a log does nothing until it is counted, listed or waited for"]
pub struct Log {
    shared: Arc<Shared>,
    executed: bool,
    conditions: Vec<Condition>,
}

impl Log {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            executed: false,
            conditions: Vec::new(),
        }
    }

    /// What ran instead of what arrived: commands on keys that were executed by the node, members
    /// of transactions one by one. What was redirected, replaced by a script or cut off is absent.
    pub fn executed(mut self) -> Self {
        self.executed = true;
        self
    }

    /// Only this node.
    pub fn on(self, node: usize) -> Self {
        self.when(move |entry| entry.node == node)
    }

    /// Only this connection.
    pub fn connection(self, connection: usize) -> Self {
        self.when(move |entry| entry.connection == connection)
    }

    /// Only this command: a name, or name and subcommand such as `CLUSTER SLOTS`.
    pub fn commands(self, name: &str) -> Self {
        let name = name.to_owned();
        self.when(move |entry| entry.is(&name))
    }

    /// Only commands with this argument.
    pub fn key(self, key: impl AsRef<[u8]>) -> Self {
        let key = key.as_ref().to_vec();
        self.when(move |entry| entry.has(&key))
    }

    /// Only what users send: not the commands of set-up and topology.
    pub fn data(self) -> Self {
        const SERVICE: [&str; 9] = [
            "HELLO",
            "AUTH",
            "CLIENT",
            "SELECT",
            "READONLY",
            "READWRITE",
            "PING",
            "CLUSTER",
            "COMMAND",
        ];
        self.when(|entry| !SERVICE.contains(&entry.name().as_str()))
    }

    /// Only commands from this place on; [`Log::end`] tells the place now.
    pub fn since(self, seq: usize) -> Self {
        self.when(move |entry| entry.seq >= seq)
    }

    /// Only commands that fulfil this. The condition runs under the cluster's lock: it must not
    /// call the cluster.
    pub fn when(mut self, condition: impl Fn(&Entry) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Box::new(condition));
        self
    }

    /// The place that the next command will have.
    pub fn end(&self) -> usize {
        self.shared.lock().arrived.len()
    }

    /// The commands.
    pub fn list(&self) -> Vec<Entry> {
        self.select(&self.shared.lock())
    }

    /// The commands as text, such as `GET bar`.
    pub fn texts(&self) -> Vec<String> {
        let text = |entry: &Entry| {
            let words = (0..entry.argv.len()).map(|index| entry.text(index));
            words.collect::<Vec<_>>().join(" ")
        };
        self.list().iter().map(text).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list().len()
    }

    /// Waits until there are at least this many and returns them.
    ///
    /// # Panics
    ///
    /// After [`PATIENCE`], with everything that arrived.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Entry> {
        self.wait_within(count, PATIENCE).unwrap_or_else(|| {
            let all = self.shared.lock().arrived.clone();
            panic!(
                "waited {PATIENCE:?} for {count} commands, got {:#?} of {all:#?}",
                self.list()
            )
        })
    }

    /// As [`Log::wait_for`]; `None` if they do not come in time.
    pub fn wait_within(&self, count: usize, limit: Duration) -> Option<Vec<Entry>> {
        self.shared.wait(Instant::now() + limit, |state| {
            let found = self.select(state);
            (found.len() >= count).then_some(found)
        })
    }

    fn select(&self, state: &State) -> Vec<Entry> {
        let entries = if self.executed {
            &state.executed
        } else {
            &state.arrived
        };
        let fits = |entry: &&Entry| self.conditions.iter().all(|condition| condition(entry));
        entries.iter().filter(fits).cloned().collect()
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}
