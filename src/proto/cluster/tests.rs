//! The coordinator's mind: scenarios by hand, and a simulated cluster on virtual time.

mod book;
mod node;
mod random;
mod sim;
mod world;
