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
//! | `fuzz` | the rule for any bytes, for the fuzzer and the tests |

mod body;
mod escape;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub(crate) mod json;
mod parse;
mod request;
mod response;

pub(crate) use parse::{Limits, Parser, Step};
pub(crate) use request::Request;
pub(crate) use response::Response;
