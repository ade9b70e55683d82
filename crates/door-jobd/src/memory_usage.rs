//! The memory usage of this process, with the original's names. Values without a meaning here are
//! 0.

use std::fs;

use crate::wire::Json;

/// Pages of `/proc/self/statm` have this size on every machine that we run on.
const PAGE_BYTES: u64 = 4096;
/// Fields of `/proc/self/statm`.
const STATM_RESIDENT: usize = 1;
const STATM_DATA: usize = 5;

pub(crate) fn read() -> Json {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let bytes = |field| {
        let pages = statm.split_ascii_whitespace().nth(field);
        pages.and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0).saturating_mul(PAGE_BYTES)
    };
    Json::from([
        ("rss", bytes(STATM_RESIDENT).into()),
        ("heapTotal", bytes(STATM_DATA).into()),
        ("heapUsed", bytes(STATM_RESIDENT).min(bytes(STATM_DATA)).into()),
        ("external", 0.into()),
        ("arrayBuffers", 0.into()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_there_and_a_process_uses_some_memory() {
        let usage = read();
        for name in ["rss", "heapTotal", "heapUsed"] {
            assert!(
                usage.get(name).and_then(Json::as_u64).is_some_and(|bytes| bytes > 0),
                "{name}"
            );
        }
        for name in ["external", "arrayBuffers"] {
            assert_eq!(usage.get(name), Some(&0.into()));
        }
    }
}
