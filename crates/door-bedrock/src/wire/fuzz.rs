//! The rule that the parser keeps for every byte stream, for the fuzzer and the tests.

use super::{Limits, Parser, Step};

/// How many lengths of pieces an input gives, and how long pieces are.
const PIECES_MAX: usize = 5;
const PIECE_BYTES_MAX: u8 = 20;

/// Parses the bytes whole and in pieces, and compares the results. Panics if the parser does, if it
/// consumes more bytes than it got, or if it finds other requests in the pieces. `cuts` are the
/// lengths of the pieces, repeated as often as needed.
fn check(bytes: &[u8], cuts: &[u8], limits: &Limits) -> Vec<Step> {
    let whole = steps(bytes, &[], limits);
    let in_pieces = steps(bytes, cuts, limits);
    assert_eq!(whole, in_pieces, "of {:?} in pieces of {cuts:?}", String::from_utf8_lossy(bytes));
    whole
}

/// Limits that short inputs reach.
fn small_limits() -> Limits {
    Limits {
        method_line_bytes_max: 24,
        header_line_bytes_max: 40,
        head_bytes_max: 100,
        headers_max: 3,
        body_bytes_max: 8,
    }
}

/// Bytes that a client sends; their first ones also say how they are split. Accepts them if they
/// are requests and nothing else.
pub fn request(bytes: &[u8]) -> bool {
    let cuts: Vec<u8> = bytes.iter().take(PIECES_MAX).map(|byte| byte % PIECE_BYTES_MAX).collect();
    check(bytes, &cuts, &small_limits());
    let steps = check(bytes, &cuts, &Limits::default());
    !steps.is_empty() && steps.iter().all(|step| matches!(step, Step::Request(_)))
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

#[cfg(test)]
mod tests {
    use windlass_test_kit::corpus;

    use super::*;
    use crate::wire::Response;

    #[test]
    fn requests() {
        corpus::check("bedrock_request", 100_000, request);
    }

    /// A composed reply has the form of a request, and its escapes are the same.
    #[test]
    fn every_value_that_is_composed_is_read_back() {
        let mut random = fastrand::Rng::with_seed(0x5eed);
        for _ in 0..20_000 {
            let value: String = (0..random.usize(..30)).map(|_| random.char(..)).collect();
            let value = value.trim_matches(' ').to_owned();
            let bytes = Response::ok().with_header("value", value.clone()).compose();
            let steps = check(&bytes, &[random.u8(1..9)], &Limits::default());
            let [Step::Request(request)] = steps.as_slice() else { panic!("{steps:?}") };
            assert_eq!(request.header("value"), Some(value.as_str()));
            assert_eq!(request.method_line(), "200 OK");
        }
    }
}
