//! The channel of a context.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_runner::fuzz::channel(bytes);
});
