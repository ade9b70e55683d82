//! The patterns of workers match what SQLite's GLOB matches, and those of queries what its LIKE
//! matches.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

use fastrand::Rng;
use rusqlite::Connection;
use windlass_core::glob;

/// Few characters, so that patterns often match.
const TEXT: [char; 9] = ['a', 'b', 'c', 'A', '/', '-', ']', 'ä', '^'];
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '^', '-', '['];
const CASES: u32 = 200_000;

fn random(rng: &mut Rng, most: usize, special: bool) -> String {
    let one = |rng: &mut Rng| match special && rng.bool() {
        true => SPECIAL[rng.usize(0..SPECIAL.len())],
        false => TEXT[rng.usize(0..TEXT.len())],
    };
    (0..rng.usize(0..=most)).map(|_| one(rng)).collect()
}

#[test]
fn globs_are_those_of_sqlite() {
    let conn = Connection::open_in_memory().unwrap();
    let mut theirs = conn.prepare("SELECT ?1 GLOB ?2").unwrap();
    let mut rng = Rng::with_seed(4);
    let mut matched = 0;
    for _ in 0..CASES {
        let (pattern, text) = (random(&mut rng, 8, true), random(&mut rng, 5, false));
        let expected: bool = theirs.query_row([&text, &pattern], |row| row.get(0)).unwrap();
        assert_eq!(glob::matches(&pattern, &text), expected, "{text:?} GLOB {pattern:?}");
        matched += u32::from(expected);
    }
    assert!(matched > CASES / 100, "too few match to tell: {matched}");
}

#[test]
fn likes_are_those_of_sqlite() {
    let conn = Connection::open_in_memory().unwrap();
    let mut theirs = conn.prepare("SELECT ?1 LIKE ?2 ESCAPE '^'").unwrap();
    let mut rng = Rng::with_seed(5);
    let mut matched = 0;
    for _ in 0..CASES {
        let (pattern, text) = (random(&mut rng, 8, true), random(&mut rng, 5, false));
        let pattern = pattern.replace('*', "%").replace('?', "_");
        let expected: bool = theirs.query_row([&text, &pattern], |row| row.get(0)).unwrap();
        let own = glob::Pattern::of_like(&pattern, Some('^')).matches(&text.to_ascii_lowercase());
        assert_eq!(own, expected, "{text:?} LIKE {pattern:?}");
        matched += u32::from(expected);
    }
    assert!(matched > CASES / 100, "too few match to tell: {matched}");
}
