//! Bodies of HTTP requests: lines, JSON, binary.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_door_http::fuzz::body(bytes);
});
