//! Transactions as one piece: redirected whole, refused whole, lost whole, or run once.

mod forms;
mod lost;
mod redirected;
mod refused;
