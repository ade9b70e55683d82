//! What all doors share of the network, whatever they speak on it: every connection, stream, body
//! and piece of memory has a bound, and ends in an orderly way.
//!
//! | module | owns |
//! |---|---|
//! | `accept` | the next connection, from a machine that may refuse some |
//! | `connections` | those that are open, and how they end |
//! | `serve` | a loop that accepts as many as there is room for |
//! | `stream`, `tcp` | writing to a client that may not read, and leaving it |
//! | `memory` | what large messages of all connections may take together |
//! | `pace` | how slow the other side may be |
//! | `http`, `body` | one connection of HTTP/1, and the bodies of its requests |

mod accept;
mod body;
mod connections;
pub mod http;
mod memory;
mod pace;
mod serve;
mod stream;
pub mod tcp;

pub use accept::accept;
pub use body::{BodyError, BodyReader, SMALL_BYTES_MAX};
pub use connections::{CLOSE_GRACE, Connections};
pub use memory::{Memory, Share};
pub use serve::serve;
pub use stream::{LINGER_BYTES_MAX, OnEnd, Stream};
