//! Connections. Requests go both ways, whichever side opened the connection: a worker opens the
//! connection on which its master sends requests.

mod connection;
mod outbound;
mod peer;
mod server;
#[cfg(test)]
mod tests;
mod tries;

pub(crate) use connection::connect;
pub(crate) use peer::{AskError, Handler, Peer};
pub(crate) use server::{Access, Server};
