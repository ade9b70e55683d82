//! Configuration files of jobd.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_door_jobd::fuzz::ini(bytes);
});
