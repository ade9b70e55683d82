//! Files and lines stay short enough to be read from top to bottom.

use super::SourceFile;

const FILE_LINES_MAX: usize = 700;
const TEST_FILE_LINES_MAX: usize = 1000;
const LINE_CHARS_MAX: usize = 100;

pub(super) fn check(file: &SourceFile) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let path = &file.path;
    let mut complaints = Vec::new();
    let lines = file.text.lines().count();
    let most = if file.is_test() { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
    if lines > most {
        complaints
            .push(format!("{path}: {lines} lines, at most {most}: split it by verb or state"));
    }
    if !file.text.starts_with("//!") {
        complaints.push(format!("{path}:1: says in no `//!` what it owns"));
    }
    for (number, line) in file.text.lines().enumerate() {
        let chars = line.chars().count();
        if chars > LINE_CHARS_MAX {
            let place = number + 1;
            complaints
                .push(format!("{path}:{place}: {chars} characters, at most {LINE_CHARS_MAX}"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: String) -> usize {
        check(&SourceFile { path: path.into(), text }).len()
    }

    #[test]
    fn long_files_long_lines_and_silent_files_are_found() {
        let long = |lines: usize| format!("//! Long.\n{}", "\n".repeat(lines));
        assert_eq!(complaints("a.rs", long(10)), 0);
        assert_eq!(complaints("a.rs", long(FILE_LINES_MAX)), 1);
        assert_eq!(complaints("x/tests/a.rs", long(FILE_LINES_MAX)), 0);
        assert_eq!(complaints("x/tests/a.rs", long(TEST_FILE_LINES_MAX)), 1);
        assert_eq!(complaints("a.rs", format!("//! {}", "x".repeat(100))), 1);
        assert_eq!(complaints("a.rs", "fn silent() {}".into()), 1);
        assert_eq!(complaints("a.md", "x".repeat(1000)), 0);
    }
}
