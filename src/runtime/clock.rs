//! The one reader of the clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The present moment.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A seed for jitter: different in each client, without any claim to secrecy.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos());
    RandomState::new().hash_one(nanos)
}
