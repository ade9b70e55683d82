//! Durations, sizes, times, dates, ids, and the JSON that stores keep.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_core::fuzz::text(bytes);
});
