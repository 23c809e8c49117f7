//! The one place that starts threads: each has a name and is joined by whoever started it.

use std::io;
use std::thread::{Builder, JoinHandle};

/// A running thread. Dropping it waits for its end, so whatever makes it end must be dropped, or
/// told, before.
#[derive(Debug)]
pub(crate) struct Thread {
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts a thread called `reslot-<name>`. Linux shows 15 bytes of that.
    pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let handle = Builder::new().name(format!("reslot-{name}")).spawn(run)?;
        Ok(Self {
            handle: Some(handle),
        })
    }

    /// Whether it has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // A thread that drops its own handle must not wait for itself.
            if handle.thread().id() != std::thread::current().id() && handle.join().is_err() {
                log::error!("a thread of the client panicked");
            }
        }
    }
}
