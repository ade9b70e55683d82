//! Bytes to requests and replies to bytes: pure, without a socket and without a command.
//!
//! | module | owns |
//! |---|---|
//! | `parse` | requests out of a stream of bytes, within bounds |
//! | `body` | the end of a request's body, which nobody reads |
//! | `request` | what a request says |
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
