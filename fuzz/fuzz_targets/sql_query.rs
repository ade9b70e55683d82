//! SQL of one tenant.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    windlass_store_sqlite::fuzz::query(bytes);
});
