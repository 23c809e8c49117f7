//! A blocking Redis Cluster client.

mod error;
#[doc(hidden)]
pub mod internals;
mod proto;

pub use error::{Error, Misuse, Result};
pub use proto::addr::NodeAddr;
pub use proto::outcome::{Certainty, Failure, Reason};
pub use proto::slot::Slot;
pub use proto::value::{ServerError, Value};
