//! Configuration files of Disbatch.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_door_disbatch::fuzz::config(bytes);
});
