//! What a caller states about a watched session.

use std::time::Duration;

use crate::cancel::CancelToken;

/// What [`Client::watch_with`](crate::Client::watch_with) is told about a session as a whole: all
/// runs of its closure, the pauses between them, and the transaction.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    pub(super) timeout: Option<Option<Duration>>,
    pub(super) cancel: Option<CancelToken>,
}

impl WatchOptions {
    /// Nothing stated: as [`Client::watch`](crate::Client::watch).
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the session take this long instead of the client's `response_timeout`; `None` sets no
    /// limit.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = Some(timeout.into());
        self
    }

    /// Ends the session when the token is cancelled. It notices this whenever it waits for the
    /// server, or is about to send something; the closure itself is not interrupted.
    pub fn cancel_token(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
}
