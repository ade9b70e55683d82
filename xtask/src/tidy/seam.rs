//! Clock, randomness and files come through seams in the crates that a simulation runs: `Clock`
//! tells the time and measures durations, tokio's pausable clock only paces, every random number
//! follows from a given seed, and `Disk` reads and writes. A `select!` polls its branches in the
//! order in which they are written: tokio's own order is random, and nobody can seed it.
//!
//! Not checked, because the text does not show it: decisions that depend on the order of a
//! `HashMap` or `HashSet`, which is another one in each process.

use super::SourceFile;

/// The code under this rule, without its tests.
const FOLDERS: [&str; 3] = ["crates/core/src/", "crates/journal/src/", "crates/engine/src/"];

/// Not for use there, and what is.
const BANNED: [(&str, &str); 12] = [
    (STD_INSTANT, STEADY),
    ("Instant::now", STEADY),
    (".elapsed()", STEADY),
    ("clock_gettime", STEADY),
    ("SystemTime", NOW),
    ("Timestamp::now()", NOW),
    ("Zoned::now()", NOW),
    (FASTRAND, SEEDED),
    ("Rng::new()", SEEDED),
    ("getrandom", SEEDED),
    ("std::fs", SEAM),
    (SELECT, "its first line is `biased;`"),
];
const SELECT: &str = "select!";
const STD_INSTANT: &str = "std::time::Instant";
const FASTRAND: &str = "fastrand::";

const STEADY: &str = "`Clock::steady` measures durations";
const NOW: &str = "`Clock::now` tells the time";
const SEEDED: &str = "random numbers come from a generator with a given seed";
const SEAM: &str = "files are read and written through the journal's `Disk`";

/// The places where it is right, and why.
const ALLOWED: [(&str, &str, &str); 11] = [
    ("crates/core/src/time.rs", "SystemTime", "the wall clock of `SystemClock`"),
    ("crates/core/src/time.rs", "clock_gettime", "the steady clock of `SystemClock`"),
    ("crates/engine/src/ask/read.rs", "Instant::now", PACES),
    ("crates/engine/src/claim/wait.rs", "Instant::now", PACES),
    ("crates/engine/src/dispatch/look.rs", "Instant::now", PACES),
    ("crates/engine/src/house/unhandled.rs", "Instant::now", PACES),
    ("crates/engine/src/settle/service.rs", "Instant::now", PACES),
    ("crates/engine/src/options.rs", FASTRAND, "the seed, unless one is set"),
    ("crates/core/src/key.rs", "getrandom", "secrets of keys, which nobody may be able to repeat"),
    ("crates/core/src/time.rs", "std::fs", "which run of the machine the steady clock belongs to"),
    ("crates/journal/src/disk.rs", "std::fs", "the disk of the machine"),
];
const PACES: &str = "tokio's clock, for a moment that tokio's timers wait for";

pub(super) fn check(file: &SourceFile) -> Vec<String> {
    let path = &file.path;
    let ruled = FOLDERS.iter().any(|folder| path.starts_with(folder));
    if !ruled || !file.is_rust() || file.is_test() {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (banned, instead) in BANNED {
        let mut lines = code(&file.text).peekable();
        let mut used = Vec::new();
        while let Some((number, line)) = lines.next() {
            let next = lines.peek().map_or("", |(_, line)| line.trim());
            if uses(line, banned) && !(banned == SELECT && next == "biased;") {
                used.push(number);
            }
        }
        let allowed = ALLOWED.iter().find(|(place, what, _)| place == path && *what == banned);
        match allowed {
            None => complaints.extend(
                used.iter().map(|number| format!("{path}:{number}: '{banned}': {instead}")),
            ),
            Some((_, _, why)) if used.is_empty() => {
                complaints.push(format!("{path}: no '{banned}' any more, allowed as {why}"));
            }
            Some(_) => {}
        }
    }
    complaints
}

/// The numbered lines of a file without comments and without modules of tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let (mut for_tests, mut in_tests) = (false, false);
    text.lines().enumerate().filter_map(move |(number, line)| {
        in_tests |= for_tests && line.starts_with("mod ") && line.ends_with('{');
        for_tests = line == "#[cfg(test)]";
        let is_code = !in_tests && !line.trim_start().starts_with("//");
        in_tests &= line != "}";
        is_code.then_some((number + 1, line))
    })
}

fn uses(line: &str, banned: &str) -> bool {
    match banned {
        // It may be one of several in the braces of an import.
        STD_INSTANT => line.contains("std::time::") && line.contains("Instant"),
        // A generator is right; the functions beside it share one that nobody can seed.
        FASTRAND => line.split(FASTRAND).skip(1).any(|rest| !rest.starts_with("Rng")),
        _ => line.contains(banned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "crates/engine/src/a.rs";

    fn complaints(path: &str, text: &str) -> Vec<String> {
        check(&SourceFile { path: path.into(), text: text.into() })
    }

    #[test]
    fn clocks_random_numbers_and_files_beside_the_seams_are_found() {
        for line in [
            "use std::time::{Duration, Instant};",
            "let began = Instant::now();",
            "let began = tokio::time::Instant::now();",
            "metrics.took(began.elapsed());",
            "use std::time::{Duration, SystemTime};",
            "let at = jiff::Timestamp::now();",
            "let salt = fastrand::u64(..);",
            "let rng = fastrand::Rng::with_seed(fastrand::u64(..));",
            "let rng = fastrand::Rng::new();",
            "rustix::rand::getrandom(&mut bytes, flags)?;",
            "let names = std::fs::read_dir(dir)?;",
            "use std::fs::{self, File};",
            "tokio::select! {\n    () = stop.cancelled() => return,\n}",
            "select! {\n    () = stop.cancelled() => return,\n    biased;\n}",
        ] {
            assert_eq!(complaints(PLACE, line).len(), 1, "{line}");
        }
        let found = complaints(PLACE, "\nlet now = Instant::now();");
        assert_eq!(found, [format!("{PLACE}:2: 'Instant::now': {STEADY}")]);
    }

    #[test]
    fn the_seams_themselves_are_not() {
        for line in [
            "use tokio::time::Instant;",
            "tokio::time::sleep(pause).await;",
            "let began = shared.clock.steady();",
            "fn draw(&self, rng: &mut fastrand::Rng) {",
            "let mut rng = fastrand::Rng::with_seed(options.seed);",
            "// Instant::now() would not be repeatable.",
            "tokio::select! {\n    // A stop comes first.\n    biased;\n}",
            "use std::os::unix::fs::FileExt;",
            "disk.sync_dir(dir)?;",
        ] {
            assert_eq!(complaints(PLACE, line), [""; 0], "{line}");
        }
    }

    #[test]
    fn tests_and_other_crates_may_use_any_clock() {
        let line = "let began = Instant::now();";
        for path in
            ["crates/bench/src/a.rs", "crates/engine/src/a/tests.rs", "crates/core/src/a.md"]
        {
            assert_eq!(complaints(path, line), [""; 0], "{path}");
        }
        let tests = format!("#[cfg(test)]\nmod tests {{\n    {line}\n}}\n");
        assert_eq!(complaints(PLACE, &tests), [""; 0]);
        assert_eq!(complaints(PLACE, &format!("{tests}{line}\n")).len(), 1, "code after tests");
        assert_eq!(complaints(PLACE, &format!("#[cfg(test)]\nmod tests;\n{line}")).len(), 1);
    }

    #[test]
    fn places_in_the_table_are_allowed_as_long_as_they_need_it() {
        let (path, banned, _) = ALLOWED[2];
        assert_eq!(complaints(path, &format!("let deadline = {banned}();")), [""; 0]);
        assert_eq!(complaints(path, "let deadline = began.elapsed();").len(), 2, "and unneeded");
    }
}
