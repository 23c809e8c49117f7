//! Whether the user may run transactions, found out once with an empty one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::cancel::CancelToken;
use crate::client::Core;
use crate::config::Login;
use crate::error::Result;
use crate::proto::slot::Slot;
use crate::transaction::Chain;

/// Where MULTI is refused, what follows it in the same write runs command by command. So for a user
/// that logs in, and may have few rights, nothing follows it until a server has accepted it once.
#[derive(Debug, Default)]
pub(crate) struct Permission {
    granted: AtomicBool,
}

impl Permission {
    /// Asks before the first transaction. An error says that it was not sent.
    pub(crate) fn check(
        &self,
        core: &Arc<Core>,
        slot: Option<Slot>,
        deadline: Option<Instant>,
        cancels: &[&CancelToken],
    ) -> Result<()> {
        let is_plain = matches!(core.config.login, Login::None);
        if !is_plain && !self.granted.load(Ordering::Relaxed) {
            core.ask(Chain::empty(slot).into_body(), deadline, cancels)?;
            self.granted.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}
