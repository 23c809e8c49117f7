//! Answers that say "not here" or "not now", one command at a time and in pipelines.

mod ask;
mod endpoints;
mod loops;
mod malformed;
mod moved;
mod pipelines;
mod self_moved;
mod try_again;
mod unserved;
