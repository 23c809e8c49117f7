//! The wire format of Redis: RESP2 and RESP3, without any I/O.
//!
//! Reading order: `encode` writes commands, `decode` reads replies out of what `input` and `body`
//! receive, `token` reads single lines, `level` holds one open aggregate, `fault` names what can
//! be wrong.

mod body;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod fault;
mod input;
mod level;
mod token;
