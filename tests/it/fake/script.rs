//! Scripts: the steps by which a node answers one command.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::log::Entry;
use super::shared::Shared;
use super::{PATIENCE, resp};

/// Steps that answer one command, in order. The empty script swallows the command without a
/// reply. Commands behind it on the same connection wait until the script is through.
#[derive(Clone, Default)]
#[must_use = "a script does nothing until a rule has it"]
pub struct Script {
    pub(super) steps: Vec<Step>,
}

impl Script {
    /// No steps yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The command runs as on any node (if the node may run it). Its reply is not sent yet.
    pub fn run(self) -> Self {
        self.then(Step::Run)
    }

    /// Makes these bytes the reply. They are not sent yet.
    pub fn reply(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.then(Step::Reply(bytes.into()))
    }

    /// As [`Script::reply`], with an error.
    pub fn error(self, text: &str) -> Self {
        self.reply(resp::error(text))
    }

    /// Makes the bytes that `reply` returns the reply. The function may use the cluster.
    pub fn compute(self, reply: impl Fn(&Entry) -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.then(Step::Compute(Arc::new(reply)))
    }

    /// Sends the reply that `run`, `reply` or `compute` has made.
    pub fn send(self) -> Self {
        self.then(Step::Send)
    }

    /// As [`Script::send`], in writes of so many bytes with a pause between them.
    pub fn send_in_pieces(self, size: usize, pause: Duration) -> Self {
        self.then(Step::SendInPieces { size, pause })
    }

    /// Sends bytes that are no reply, such as a push. What stands next to it without a wait in
    /// between leaves in the same write.
    pub fn raw(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.then(Step::Raw(bytes.into()))
    }

    /// Waits.
    pub fn wait(self, duration: Duration) -> Self {
        self.then(Step::Wait(duration))
    }

    /// Waits until the gate lets it through.
    pub fn hold(self, gate: &Gate) -> Self {
        self.then(Step::Hold(gate.index))
    }

    /// The connection is not read any more, until [`resume_reading`] of its node.
    ///
    /// [`resume_reading`]: super::Node::resume_reading
    pub fn stop_reading(self) -> Self {
        self.then(Step::StopReading)
    }

    /// Closes the connection. Nothing that it has read besides runs any more.
    pub fn close(self) -> Self {
        self.then(Step::Close)
    }

    fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("steps", &self.steps.len())
            .finish()
    }
}

/// Makes the reply to a command.
pub(super) type Compute = Arc<dyn Fn(&Entry) -> Vec<u8> + Send + Sync>;

/// One step; see the method of [`Script`] of the same name.
#[derive(Clone)]
pub(super) enum Step {
    Run,
    Reply(Vec<u8>),
    Compute(Compute),
    Send,
    SendInPieces { size: usize, pause: Duration },
    Raw(Vec<u8>),
    Wait(Duration),
    Hold(usize),
    StopReading,
    Close,
}

/// Holds commands until the test lets them go. Dropping the gate opens it.
#[derive(Debug)]
#[must_use = "dropping the gate opens it"]
pub struct Gate {
    shared: Arc<Shared>,
    index: usize,
}

/// A gate as the connections see it.
#[derive(Debug, Default)]
pub(super) struct GateState {
    arrived: usize,
    /// How many may still pass while the gate is closed.
    permits: usize,
    open: bool,
}

impl GateState {
    pub(super) fn arrive(&mut self) {
        self.arrived += 1;
    }

    /// Whether one of the waiting may pass now.
    pub(super) fn pass(&mut self) -> bool {
        if !self.open && self.permits > 0 {
            self.permits -= 1;
            return true;
        }
        self.open
    }
}

impl Gate {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let index = shared.update(|state| {
            state.gates.push(GateState::default());
            state.gates.len() - 1
        });
        Self { shared, index }
    }

    /// How many commands have come to the gate, those that passed included.
    pub fn arrived(&self) -> usize {
        self.shared.lock().gates[self.index].arrived
    }

    /// Waits until so many commands have come to the gate.
    ///
    /// # Panics
    ///
    /// After [`PATIENCE`].
    #[track_caller]
    pub fn wait_arrived(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        let found = self.shared.wait(deadline, |state| {
            (state.gates[self.index].arrived >= count).then_some(())
        });
        assert!(
            found.is_some(),
            "waited {PATIENCE:?} for {count} commands at the gate, got {}",
            self.arrived()
        );
    }

    /// Opens the gate for good.
    pub fn release(&self) {
        self.shared
            .update(|state| state.gates[self.index].open = true);
    }

    /// Lets so many commands through.
    pub fn release_some(&self, count: usize) {
        self.shared
            .update(|state| state.gates[self.index].permits += count);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.release();
    }
}
