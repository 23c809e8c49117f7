//! Announced maintenance, as Redis Enterprise announces it: scripted, since no open source server
//! does.

mod announce;
mod deadlines;
mod handshake;
mod moving;
mod reading;
mod slots;
