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
//! | `split_check` | the check that tests and the fuzzer apply to the parser |

mod body;
mod escape;
pub(crate) mod json;
mod parse;
#[cfg(test)]
mod parse_fuzz_tests;
mod request;
mod response;
#[cfg(any(test, feature = "fuzz"))]
mod split_check;

pub(crate) use parse::{Limits, Parser, Step};
pub(crate) use request::Request;
pub(crate) use response::Response;
#[cfg(feature = "fuzz")]
pub use split_check::fuzz_parser;
