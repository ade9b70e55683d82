//! Connections, tried over real sockets with commands that only pretend.

mod client;
mod conversation;
mod delivery;
mod ending;
mod fake;
mod patience;
