//! Paths and queries of HTTP requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_door_http::fuzz::uri(bytes);
});
