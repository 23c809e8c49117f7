//! Every bound of the core, in one place, with its reason.

/// Deepest nesting of a reply that is kept. Commands of Redis nest at most seven levels; scripts
/// and modules may go deeper. Values are dropped and printed recursively, so this also bounds the
/// stack that a reply can cost.
pub(crate) const REPLY_DEPTH: usize = 128;

/// Largest bulk string that is kept: the server's own default (`proto-max-bulk-len`).
pub(crate) const BULK_BYTES: usize = 512 * 1024 * 1024;

/// Most elements of a reply that are kept, over all levels.
pub(crate) const REPLY_ELEMENTS: usize = 64 * 1024 * 1024;

/// Most bytes of a reply that are kept, as they arrive, unless the user says otherwise.
pub(crate) const REPLY_BYTES: usize = 1024 * 1024 * 1024;

/// Longest line of the protocol: a header, a simple string or an error.
pub(crate) const LINE_BYTES: usize = 64 * 1024;

/// Bytes that are claimed for one write. What is claimed cannot be cancelled or moved any more, so
/// this is small enough to keep queues movable, and large enough that a call costs little per byte.
pub(crate) const WRITE_BYTES: usize = 64 * 1024;

/// From this length on a unit is written from its own buffer instead of being copied.
pub(crate) const LARGE_BYTES: usize = 16 * 1024;

const _: () = assert!(LARGE_BYTES <= WRITE_BYTES);
