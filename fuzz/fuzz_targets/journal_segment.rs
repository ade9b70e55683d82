//! Files of the journal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_journal::fuzz::segment(bytes);
});
