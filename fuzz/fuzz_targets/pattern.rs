//! Patterns of type names.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_core::fuzz::pattern(bytes);
});
