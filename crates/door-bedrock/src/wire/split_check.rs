//! The rule that the parser keeps for every byte stream. The fuzzer and the tests check it.

use super::{Limits, Parser, Step};

/// Parses the bytes whole and in pieces, and compares the results. Panics if the parser does, if it
/// consumes more bytes than it got, or if it finds other requests in the pieces. `cuts` are the
/// lengths of the pieces, repeated as often as needed.
pub(super) fn check(bytes: &[u8], cuts: &[u8], limits: &Limits) -> Vec<Step> {
    let whole = steps(bytes, &[], limits);
    let in_pieces = steps(bytes, cuts, limits);
    assert_eq!(whole, in_pieces, "of {:?} in pieces of {cuts:?}", String::from_utf8_lossy(bytes));
    whole
}

/// Limits that short inputs reach.
pub(super) fn small_limits() -> Limits {
    Limits {
        method_line_bytes_max: 24,
        header_line_bytes_max: 40,
        head_bytes_max: 100,
        headers_max: 3,
        body_bytes_max: 8,
    }
}

/// One input of the fuzzer: `check`, with the door's own limits or with small ones.
#[cfg(feature = "fuzz")]
pub fn fuzz_parser(bytes: &[u8], cuts: &[u8], small: bool) {
    let limits = if small { small_limits() } else { Limits::default() };
    check(bytes, cuts, &limits);
}

fn steps(bytes: &[u8], cuts: &[u8], limits: &Limits) -> Vec<Step> {
    let mut parser = Parser::new(limits.clone());
    let mut steps = Vec::new();
    let mut cuts = cuts.iter().cycle();
    let (mut start, mut end) = (0, 0);
    while end < bytes.len() {
        let piece = cuts.next().map_or(bytes.len(), |cut| usize::from(*cut).max(1));
        end = bytes.len().min(end + piece);
        loop {
            let (used, step) = parser.parse(&bytes[start..end]);
            assert!(used <= end - start, "{used} bytes are used of {}", end - start);
            start += used;
            match step {
                Step::Incomplete => break,
                Step::Request(_) => steps.push(step),
                Step::Bad(_) => {
                    steps.push(step);
                    return steps;
                }
            }
        }
    }
    steps
}
