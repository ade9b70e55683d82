//! Bytes to requests and replies to bytes: pure, without a socket and without a command.
//!
//! | module | owns |
//! |---|---|
//! | `parse` | requests from a byte stream, within bounds |
//! | `body` | skipping a request's body |
//! | `request` | a parsed request |
//! | `response` | replies, as bytes |
//! | `escape` | the backslashes in header values |
//! | `json` | the JSON of replies |
//!
//! Public so that a fuzzer can reach the parser from outside.

mod body;
mod escape;
pub mod json;
mod parse;
mod request;
mod response;

pub use parse::{Bad, Limits, Parser, Step};
pub use request::Request;
pub use response::Response;
