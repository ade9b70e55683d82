//! Requests to the command interface of Disbatch.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_door_disbatch::fuzz::request(bytes);
});
