//! Rules: which commands get a script instead of the usual answer.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::log::Entry;
use super::resp;
use super::script::{Gate, Script, Step};
use super::shared::Shared;

/// A rule in the making: conditions first, then one method that says what happens and installs
/// it. Of several rules that apply to a command the one installed first answers; each counts
/// the commands that fulfil its conditions on its own, answered by it or not.
#[must_use = "a rule is installed by its last method, such as `reply`"]
pub struct On {
    shared: Arc<Shared>,
    state: RuleState,
}

impl On {
    pub(super) fn new(shared: Arc<Shared>, node: Option<usize>, name: Option<&str>) -> Self {
        let state = RuleState {
            node,
            name: name.map(str::to_owned),
            conditions: Vec::new(),
            window: 1..=usize::MAX,
            seen: AtomicUsize::new(0),
            hits: AtomicUsize::new(0),
            steps: Vec::new(),
        };
        Self { shared, state }
    }

    /// Only commands with this argument.
    pub fn key(self, key: impl AsRef<[u8]>) -> Self {
        let key = key.as_ref().to_vec();
        self.when(move |entry| entry.has(&key))
    }

    /// Only on this connection.
    pub fn connection(self, connection: usize) -> Self {
        self.when(move |entry| entry.connection == connection)
    }

    /// Only commands that fulfil this.
    pub fn when(mut self, condition: impl Fn(&Entry) -> bool + Send + Sync + 'static) -> Self {
        self.state.conditions.push(Box::new(condition));
        self
    }

    /// Only the first so many commands that fulfil the conditions.
    pub fn times(mut self, count: usize) -> Self {
        let first = *self.state.window.start();
        self.state.window = first..=first.saturating_add(count) - 1;
        self
    }

    /// Only the command that is the so-and-so-many-th to fulfil the conditions, from 1 on.
    pub fn nth(mut self, number: usize) -> Self {
        self.state.window = number..=number;
        self
    }

    /// Only after so many commands that fulfilled the conditions; `times` counts from there.
    pub fn after(mut self, count: usize) -> Self {
        self.state.window = count + 1..=usize::MAX;
        self
    }

    /// Runs this script.
    pub fn script(mut self, script: Script) -> Rule {
        self.state.steps = script.steps;
        let state = Arc::new(self.state);
        self.shared
            .update(|shared| shared.rules.push(Arc::clone(&state)));
        Rule {
            shared: self.shared,
            state,
        }
    }

    /// Sends these bytes instead of running the command.
    pub fn reply(self, bytes: impl Into<Vec<u8>>) -> Rule {
        self.script(Script::new().reply(bytes).send())
    }

    /// Sends this error instead of running the command.
    pub fn error(self, text: &str) -> Rule {
        self.reply(resp::error(text))
    }

    /// Redirects to another node by `MOVED`.
    pub fn moved(self, slot: u16, to: usize) -> Rule {
        self.redirect("MOVED", slot, to)
    }

    /// Redirects to another node by `ASK`.
    pub fn ask(self, slot: u16, to: usize) -> Rule {
        self.redirect("ASK", slot, to)
    }

    /// Sends what the function returns instead of running the command.
    pub fn compute(self, reply: impl Fn(&Entry) -> Vec<u8> + Send + Sync + 'static) -> Rule {
        self.script(Script::new().compute(reply).send())
    }

    /// Waits before the command runs.
    pub fn delay(self, duration: Duration) -> Rule {
        self.script(Script::new().wait(duration).run().send())
    }

    /// Holds the command before it runs.
    pub fn hold(self) -> Gate {
        let gate = Gate::new(Arc::clone(&self.shared));
        self.script(Script::new().hold(&gate).run().send());
        gate
    }

    /// Runs the command and holds its reply.
    pub fn hold_reply(self) -> Gate {
        let gate = Gate::new(Arc::clone(&self.shared));
        self.script(Script::new().run().hold(&gate).send());
        gate
    }

    /// Runs the command and sends its reply in writes of so many bytes.
    pub fn in_pieces(self, size: usize) -> Rule {
        self.script(Script::new().run().send_in_pieces(size, Duration::ZERO))
    }

    /// Never answers; the command does not run.
    pub fn ignore(self) -> Rule {
        self.script(Script::new())
    }

    /// Closes the connection; the command does not run.
    pub fn close(self) -> Rule {
        self.script(Script::new().close())
    }

    /// Runs the command and closes the connection without a reply.
    pub fn run_and_close(self) -> Rule {
        self.script(Script::new().run().close())
    }

    /// Runs the command, sends its reply, and closes the connection.
    pub fn answer_and_close(self) -> Rule {
        self.script(Script::new().run().send().close())
    }

    fn redirect(self, word: &str, slot: u16, to: usize) -> Rule {
        let port = self.shared.lock().nodes[to].port;
        self.error(&format!("{word} {slot} 127.0.0.1:{port}"))
    }
}

impl fmt::Debug for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

/// An installed rule. It stays when this is dropped.
#[derive(Debug)]
pub struct Rule {
    shared: Arc<Shared>,
    state: Arc<RuleState>,
}

impl Rule {
    /// How many commands it has answered or begun to.
    pub fn hits(&self) -> usize {
        self.state.hits.load(Ordering::SeqCst)
    }

    /// Takes the rule away; commands that it is answering are not affected.
    pub fn remove(self) {
        self.shared
            .update(|shared| shared.rules.retain(|rule| !Arc::ptr_eq(rule, &self.state)));
    }
}

type Condition = Box<dyn Fn(&Entry) -> bool + Send + Sync>;

/// A rule as the connections see it.
pub(super) struct RuleState {
    /// All nodes if absent.
    node: Option<usize>,
    /// Any command if absent.
    name: Option<String>,
    conditions: Vec<Condition>,
    /// Which of the commands that fulfil the conditions get the script, counted from 1.
    window: RangeInclusive<usize>,
    seen: AtomicUsize,
    hits: AtomicUsize,
    steps: Vec<Step>,
}

impl RuleState {
    /// Whether the rule applies to a command. To be asked once for each command, also if another
    /// rule answers it: rules count independently of each other.
    pub(super) fn applies(&self, entry: &Entry) -> bool {
        let fits = self.node.is_none_or(|node| node == entry.node)
            && self.name.as_ref().is_none_or(|name| entry.is(name))
            && self.conditions.iter().all(|condition| condition(entry));
        fits && {
            let number = self.seen.fetch_add(1, Ordering::SeqCst) + 1;
            self.window.contains(&number)
        }
    }

    /// The script, for a command that it shall answer.
    pub(super) fn steps(&self) -> &[Step] {
        self.hits.fetch_add(1, Ordering::SeqCst);
        &self.steps
    }
}

impl fmt::Debug for RuleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("node", &self.node)
            .field("name", &self.name)
            .field("window", &self.window)
            .field("seen", &self.seen)
            .field("hits", &self.hits)
            .finish_non_exhaustive()
    }
}
