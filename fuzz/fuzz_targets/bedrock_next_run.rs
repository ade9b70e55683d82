//! Texts of times, and the order of jobs that follows from them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_bedrock_rules::fuzz::next_run(bytes);
});
