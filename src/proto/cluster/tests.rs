//! The coordinator's mind: scenarios by hand, and a simulated cluster on virtual time.

mod answers;
mod book;
mod desk;
mod exhaustive;
mod moves;
mod node;
mod random;
mod sim;
mod world;
