//! Maps of all shapes, and nodes that come, go, return, and change their roles.

mod nodes;
mod outages;
mod replicas;
mod shapes;
