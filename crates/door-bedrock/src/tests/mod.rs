//! Connections over real sockets, with fake commands.

mod client;
mod conversation;
mod delivery;
mod ending;
mod fake;
mod patience;
