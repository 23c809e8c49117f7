//! What can be wrong with the bytes of a server.

/// Bytes that are not RESP. The connection cannot go on, because it is unknown where the next
/// reply begins.
///
/// The texts never contain what was received, save the one byte that stands where a type belongs:
/// it tells an HTTP or a TLS server from a Redis server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("unknown reply type {0:#04x}")]
    UnknownType(u8),
    #[error("streamed reply of type {0:#04x}, which no server sends")]
    Streamed(u8),
    #[error("malformed length")]
    Length,
    #[error("malformed integer")]
    Integer,
    #[error("malformed big number")]
    BigNumber,
    #[error("malformed double")]
    Double,
    #[error("malformed boolean")]
    Boolean,
    #[error("malformed null")]
    Null,
    #[error("malformed verbatim string")]
    Verbatim,
    #[error("a string is not followed by a line end")]
    StringEnd,
    #[error("carriage return or line feed inside a line")]
    LineEnd,
    #[error("line too long")]
    LineTooLong,
    #[error("push inside a reply")]
    NestedPush,
    #[error("more elements than can be counted")]
    Countless,
}

/// A reply that was read past because it is too large to be kept. The connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReplyLimit {
    #[error("reply is nested too deeply")]
    Depth,
    #[error("reply contains a string that is too large")]
    BulkBytes,
    #[error("reply has too many elements")]
    Elements,
    #[error("reply is larger than max_reply_bytes")]
    Bytes,
}
