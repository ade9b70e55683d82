//! The output of a handler.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_runner::fuzz::output(bytes);
});
