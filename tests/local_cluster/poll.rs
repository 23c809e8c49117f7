//! Waiting for another process: the one place where tests may sleep.

use std::time::{Duration, Instant};

/// Calls `attempt` until it succeeds and returns what it gave.
///
/// # Panics
///
/// After `limit`, with `what` and the reason of the last attempt.
#[track_caller]
pub fn poll_until<T>(
    limit: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> T {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(reason) if start.elapsed() > limit => {
                panic!("waited {limit:?} for {what}: {reason}")
            }
            Err(_) => pause(Duration::from_millis(10)),
        }
    }
}

/// Sleeps between two looks at a server process, which offers nothing to wait on.
#[expect(
    clippy::disallowed_methods,
    reason = "an external process offers no event to wait for"
)]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
