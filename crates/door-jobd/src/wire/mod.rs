//! The wire format: JSON arrays with a terminating byte. No I/O here.

pub(crate) mod check;
mod frame;
mod json;
mod message;
mod number;

pub(crate) use frame::{ANSWER_BYTES_MAX, END, MESSAGE_BYTES_MAX, Splitter, TooLong};
pub(crate) use json::{Json, Object};
pub(crate) use message::{Message, PING, PONG, Request, RequestNo, parse, request, response};
pub(crate) use number::RequestNumbers;
