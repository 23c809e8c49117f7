//! What is known about each command: where its keys are, what it changes, where it may run.
//!
//! ```text
//! find(arguments) ──▶ &'static Spec ──▶ route   ──▶ Target: slot, any primary, all, none
//!       │ None                     ├──▶ access   ──▶ may a replica run it, may it be repeated
//!       ▼                          └──▶ blocking ──▶ how long it may keep its connection
//! COMMAND INFO, once ──▶ DynamicSpec (the same questions)
//! ```
//!
//! The table holds every command of Redis 7.0 and 8.2 and Valkey 9.1 and is compared with these
//! servers' own `COMMAND` replies by the integration tests. Arguments are walked, never indexed: a
//! command is an iterator of byte slices, its name first. Nothing here judges whether a command is
//! well-formed. Where its keys cannot be made out it has none, so that it reaches a server and the
//! server's own error reaches the caller.

mod aggregate;
mod blocking;
mod dynamic;
mod index;
mod keys;
mod spec;
mod table;

pub(crate) use aggregate::Aggregate;
pub(crate) use blocking::{Blocking, TimeArg};
pub(crate) use dynamic::DynamicSpec;
pub(crate) use index::{find, find_plain};
pub(crate) use spec::{Access, CrossSlot, Spec, Target};

#[cfg(test)]
mod tests;
