//! What tests of several crates stand on. It knows nothing of Windlass but that its programs are
//! processes which listen on ports and answer HTTP.
//!
//! - `wait`: for events, never for times; the one patience of all tests.
//! - `process`: programs that end with the test, also when it fails.
//! - `port`: ports that no other test has.
//! - `folder`: a test's own files.
//! - `http`: a client that sends exactly what it is told.

// What a process said is printed when its test fails.
#![allow(clippy::print_stderr)]

pub mod folder;
pub mod http;
pub mod port;
pub mod process;
pub mod wait;
