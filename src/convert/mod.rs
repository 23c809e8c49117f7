//! Conversions between Rust values and what goes over the wire, in both directions.
//!
//! Arguments are written straight into the command's buffer; replies give up their payloads
//! without a copy. Neither direction depends on the protocol version: a type reads the RESP2 and
//! the RESP3 shape of the same reply alike.

mod containers;
mod from_value;
mod to_args;

pub use from_value::FromValue;
pub use to_args::{Args, ToArgs};
