//! Tools for the tests of several crates. Knows nothing about Windlass except that its programs are
//! processes which listen on ports and answer HTTP.
//!
//! - `wait`: for events, never for times; the one patience of all tests.
//! - `process`: programs that end with the test, also when it fails.
//! - `port`: ports that no other test has.
//! - `folder`: a test's own files.
//! - `log`: what a test logs.
//! - `http`: a client that sends exactly the given bytes.
//! - `corpus`: the inputs of fuzz targets, and changes of them.

// The output of a process is printed when its test fails.
#![allow(clippy::print_stderr)]

pub mod corpus;
pub mod folder;
pub mod http;
pub mod log;
pub mod port;
pub mod process;
pub mod wait;
