//! Edits of JSON text.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_bedrock_rules::fuzz::merge(bytes);
});
