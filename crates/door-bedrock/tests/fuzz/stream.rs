//! What holds for every stream of bytes that a client may send. The fuzz target uses it, too.

use windlass_door_bedrock::wire::{Limits, Parser, Step};

/// Panics when the parser does, uses bytes that are not there, or sees other requests when the
/// same bytes come in other pieces. `cuts` are the lengths of the pieces, over and over.
pub(crate) fn check(bytes: &[u8], cuts: &[u8], limits: &Limits) -> Vec<Step> {
    let whole = steps(bytes, &[], limits);
    let in_pieces = steps(bytes, cuts, limits);
    assert_eq!(whole, in_pieces, "of {:?} in pieces of {cuts:?}", String::from_utf8_lossy(bytes));
    whole
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
