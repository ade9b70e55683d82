//! Repeats: Bedrock's grammar and cron patterns, and the times that follow from them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_core::fuzz::repeat(bytes);
});
