//! Connections. Each one both answers and asks, whichever side opened it: a worker opens the
//! connection on which its master asks it.

mod connection;
mod outbound;
mod peer;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use connection::connect;
pub(crate) use peer::{AskError, Handler, Peer};
pub(crate) use server::{Access, Server};
