//! Bytes of a client of the Bedrock door.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_door_bedrock::fuzz::request(bytes);
});
