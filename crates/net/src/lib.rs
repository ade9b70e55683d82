//! Networking shared by all doors, whatever their protocol: every connection, stream, body and
//! memory share has a bound and is released in an orderly way.
//!
//! | module | owns |
//! |---|---|
//! | `accept` | accepting connections, also when file descriptors run out |
//! | `connections` | the open connections, and how they end |
//! | `guest` | which connection makes room when there is none |
//! | `serve` | the accept loop with its bound |
//! | `stream`, `tcp` | writing to a client that may not read, and closing in order |
//! | `memory` | the memory bound for large messages of all connections |
//! | `pace` | how slow a peer may be |
//! | `http`, `http2`, `body` | one HTTP connection, by its version, and its request bodies |
//! | `tls` | certificates from files, and handshakes |
//! | `network` | networks, for lists of addresses |
//! | `site` | requests that web pages make browsers send |

mod accept;
mod body;
mod connections;
mod guest;
pub mod http;
pub mod http2;
mod memory;
mod network;
mod pace;
mod serve;
mod site;
mod stream;
pub mod tcp;
pub mod tls;

pub use accept::accept;
pub use body::{BodyError, BodyReader, SMALL_BYTES_MAX};
pub use connections::{CLOSE_GRACE, Connections};
pub use guest::Guest;
pub use memory::{Memory, Share};
pub use network::Network;
pub use serve::serve;
pub use site::{Page, Sites};
pub use stream::{LINGER_BYTES_MAX, OnEnd, Stream};
