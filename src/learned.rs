//! Commands that the table does not know, asked for once with `COMMAND INFO`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::cancel::CancelToken;
use crate::client::Core;
use crate::error::Result;
use crate::proto::command::DynamicSpec;
use crate::proto::resp::encode::Encoded;
use crate::sync::Mutex;

/// The most names that are remembered: they come from the program, but perhaps from its users.
const NAMES: usize = 10_000;

/// What servers told about commands, by upper-case name; `None` if they do not know one either.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    /// Held for a look only, never while a server is asked.
    specs: Mutex<HashMap<String, Option<Arc<DynamicSpec>>>>,
}

impl Learned {
    /// What is known about a command. Asks a server the first time.
    pub(crate) fn look_up(
        &self,
        name: &str,
        core: &Arc<Core>,
        deadline: Option<Instant>,
        cancels: &[&CancelToken],
    ) -> Result<Option<Arc<DynamicSpec>>> {
        let name = name.to_ascii_uppercase();
        if let Some(known) = self.specs.lock().get(&name) {
            return Ok(known.clone());
        }
        let mut question = Encoded::new(b"COMMAND");
        question.push(b"INFO");
        question.push(name.as_bytes());
        let reply = core.ask_any(question, deadline, cancels)?;
        let spec = DynamicSpec::from_command_info(&reply).map(Arc::new);
        let mut specs = self.specs.lock();
        if specs.len() < NAMES {
            specs.insert(name, spec.clone());
        }
        Ok(spec)
    }
}
