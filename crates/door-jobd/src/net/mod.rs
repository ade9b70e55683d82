//! Connections. Each one both answers and asks, whoever opened it: a worker opens the connection on
//! which its master asks it.

mod connection;
mod outbound;
mod peer;
mod server;
#[cfg(test)]
mod tests;

pub use connection::connect;
pub use peer::{Answer, AskError, Handler, Peer};
pub use server::{Access, Server};
