//! Nodes and databases that are killed, frozen and cut off under load.

mod database;
mod kill;
