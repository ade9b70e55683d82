//! Bytes that a client of the Bedrock door may send: nothing breaks, and pieces do not matter.
#![no_main]

#[path = "../../crates/door-bedrock/tests/fuzz/stream.rs"]
mod stream;

use libfuzzer_sys::fuzz_target;
use windlass_door_bedrock::wire::Limits;

fuzz_target!(|input: (Vec<u8>, Vec<u8>, bool)| {
    let (bytes, cuts, small) = input;
    let mut limits = Limits::default();
    if small {
        limits.method_line_bytes_max = 24;
        limits.header_line_bytes_max = 40;
        limits.head_bytes_max = 100;
        limits.headers_max = 3;
        limits.body_bytes_max = 8;
    }
    stream::check(&bytes, &cuts, &limits);
});
