//! Messages as they travel: JSON arrays that end with a byte of their own. Nothing here does I/O.

pub mod check;
mod frame;
mod json;
mod message;
mod number;

pub use frame::{ANSWER_BYTES_MAX, END, MESSAGE_BYTES_MAX, Splitter, TooLong};
pub use json::{Json, Object};
pub use message::{Message, PING, PONG, Request, RequestNo, Response, parse, request, response};
pub use number::Numbers;
