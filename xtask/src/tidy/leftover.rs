//! Nothing half-done stays: no notes to ourselves, no switched-off tests, no places of one machine.

use super::SourceFile;

/// Forbidden in all files. Split in two, so that this file does not contain it either.
const BANNED: [(&str, &str, &str); 9] = [
    ("TO", "DO", "finish it or file it"),
    ("FIX", "ME", "mend it now"),
    ("XX", "X ", "mend it now"),
    ("db", "g!(", "a debugging aid"),
    ("todo", "!(", "a stub"),
    ("unimplemented", "!(", "a stub"),
    ("#[ig", "nore", "a test that is switched off proves nothing"),
    ("/wo", "rk/", "a place on one machine"),
    ("/ho", "me/", "a place on one machine"),
];

/// Forbidden in Rust tests: wait for an event, not for a time. Only the harness pauses between two
/// checks of something observable.
const SLEEPS: [(&str, &str); 2] = [("thread::sl", "eep("), ("time::sl", "eep(")];

pub(super) fn check(file: &SourceFile) -> Vec<String> {
    if file.path.ends_with(".lock") || file.path == "LICENSE" {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let place = format!("{}:{}", file.path, number + 1);
        for (head, tail, why) in BANNED {
            if line.contains(&format!("{head}{tail}")) {
                complaints.push(format!("{place}: '{head}{tail}': {why}"));
            }
        }
        let sleeps = || SLEEPS.iter().any(|(head, tail)| line.contains(&format!("{head}{tail}")));
        if file.is_rust() && file.is_test() && !file.path.contains("/harness") && sleeps() {
            complaints.push(format!("{place}: a sleep in a test: wait for an event instead"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        check(&SourceFile { path: path.into(), text: text.into() }).len()
    }

    #[test]
    fn leftovers_are_found_and_ordinary_words_are_not() {
        for (head, tail, _) in BANNED {
            assert_eq!(complaints("a.rs", &format!("x {head}{tail}")), 1, "{head}{tail}");
        }
        assert_eq!(complaints("a.rs", "a method that homes in on work/life"), 0);
    }

    #[test]
    fn sleeps_are_found_in_tests_only() {
        let (head, tail) = SLEEPS[1];
        let sleeping = format!("tokio::{head}{tail}pause).await");
        assert_eq!(complaints("crates/a/tests/b.rs", &sleeping), 1);
        assert_eq!(complaints("crates/a/tests/harness/wait.rs", &sleeping), 0);
        assert_eq!(complaints("crates/a/src/b.rs", &sleeping), 0);
    }
}
