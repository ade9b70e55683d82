//! Fuzz targets in the ordinary tests. A target is a function that panics if an input breaks one of
//! its rules, and says whether it accepts the input. `cargo xtask fuzz` runs the same functions for
//! as long as wanted; here they get the inputs in `fuzz/seeds/TARGET`, and many changes of these,
//! the same ones in every run.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");
/// Files whose names begin with this must be refused; all others must be accepted.
const BAD: &str = "bad-";
const SEED: u64 = 0x5eed;
const CHANGES_MAX: usize = 6;
/// Longer inputs are cut: they find nothing more, and take long.
const INPUT_BYTES_MAX: usize = 4096;
/// No input of this size may take so long, on any machine.
const INPUT_TIME_MAX: Duration = Duration::from_secs(20);

/// Bytes with a meaning in one of the formats.
const WORDS: [&[u8]; 34] = [
    b"\r\n",
    b"\n\n",
    b"\n",
    b"\r",
    b"\t",
    b" ",
    b"\0",
    b"\xff",
    b"\xc3\xa9",
    b"\xef\xbb\xbf",
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"\"",
    b"'",
    b"`",
    b":",
    b";",
    b",",
    b"=",
    b"&",
    b"%",
    b"%00",
    b"%ff",
    b"/",
    b"|",
    b"#",
    b"-",
    b"--",
    b"[",
    b"{",
    b"0",
    b"-1",
    b"99999999999999999999",
];

/// Runs the target with every seed, and with this many changed inputs.
pub fn check(target: &str, inputs: usize, run: impl Fn(&[u8]) -> bool) {
    let seeds = seeds(target);
    let mut seen = [false; 2];
    for (name, bytes) in &seeds {
        let accepted = run_one(target, bytes, &run);
        assert_eq!(accepted, !name.starts_with(BAD), "{target}: the seed {name} is accepted?");
        seen[usize::from(accepted)] = true;
    }
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut counts = [0; 2];
    for _ in 0..inputs {
        let mut bytes = one_of(&seeds, &mut random).to_vec();
        for _ in 0..random.usize(1..=CHANGES_MAX) {
            change(&mut bytes, &seeds, &mut random);
        }
        bytes.truncate(INPUT_BYTES_MAX);
        counts[usize::from(run_one(target, &bytes, &run))] += 1;
    }
    // Inputs that are all garbage would test little.
    for (seen, count) in seen.into_iter().zip(counts) {
        assert!(!seen || count > inputs / 200, "{target}: refused and accepted: {counts:?}");
    }
}

fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(SEEDS).join(target);
    let files = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut seeds: Vec<(String, Vec<u8>)> = files
        .map(|file| {
            let path = file.expect("a folder of seeds can be read").path();
            let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            (name, fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} has no seeds", dir.display());
    seeds
}

fn run_one(target: &str, bytes: &[u8], run: &impl Fn(&[u8]) -> bool) -> bool {
    let shown = Shown { target, bytes };
    let began = Instant::now();
    let accepted = run(bytes);
    assert!(began.elapsed() < INPUT_TIME_MAX, "it took {:?}", began.elapsed());
    drop(shown);
    accepted
}

/// Prints the input if the target panics.
struct Shown<'a> {
    target: &'a str,
    bytes: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("an input that breaks {}: b\"{}\"", self.target, self.bytes.escape_ascii());
        }
    }
}

fn one_of<'a>(seeds: &'a [(String, Vec<u8>)], random: &mut fastrand::Rng) -> &'a [u8] {
    &seeds[random.usize(..seeds.len())].1
}

fn change(bytes: &mut Vec<u8>, seeds: &[(String, Vec<u8>)], random: &mut fastrand::Rng) {
    let at = random.usize(..=bytes.len());
    // Mostly short, so that most of the input stays what it was.
    let end = bytes.len().min(at + random.usize(..=8));
    let word = WORDS[random.usize(..WORDS.len())].iter().copied();
    match random.u8(..8) {
        0 => drop(bytes.drain(at..end)),
        1 => bytes.truncate(at),
        2 => drop(bytes.splice(at..at, word)),
        3 => drop(bytes.splice(at..end, word)),
        4 => {
            let other = one_of(seeds, random);
            let from = random.usize(..=other.len());
            let until = other.len().min(from + random.usize(..=64));
            drop(bytes.splice(at..at, other[from..until].iter().copied()));
        }
        5 => {
            let again = bytes[at..end].to_vec();
            drop(bytes.splice(end..end, again));
        }
        6 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.u8(..8);
            }
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.u8(..);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panics(run: impl Fn(&[u8]) -> bool + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(|| check("self_test", 2000, run)).is_err()
    }

    fn is_number(bytes: &[u8]) -> bool {
        !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
    }

    #[test]
    fn seeds_are_accepted_or_refused_as_their_names_say() {
        assert!(!panics(is_number));
        assert!(panics(|_| true), "a bad seed that is accepted");
        assert!(panics(|_| false), "a good seed that is refused");
    }

    #[test]
    fn a_broken_rule_is_found_in_changed_inputs() {
        assert!(panics(|bytes| {
            assert!(!bytes.windows(2).any(|pair| pair == b"00"), "two zeros");
            is_number(bytes)
        }));
    }

    #[test]
    fn inputs_that_are_all_refused_are_a_failure() {
        let is_first = std::cell::Cell::new(true);
        assert!(panics(move |bytes| bytes == b"12345" && is_first.replace(false)));
    }
}
