//! The end of a log: lines are added for ever, a bounded number of bytes is kept.

use std::borrow::Cow;

use windlass_core::limit::LOG_LINE_BYTES_MAX;

/// Begins every line that the runner itself writes into a log.
const OURS: &str = "[windlass] ";
const CUT: &str = " [cut]";
const DROPPED: &str = "[windlass] earlier output was dropped\n";

/// The last whole lines that were pushed. Each ends with a line feed.
pub(crate) struct Tail {
    text: String,
    bytes_max: usize,
    dropped: bool,
}

impl Tail {
    pub(crate) fn new(bytes_max: usize) -> Tail {
        Tail { text: String::new(), bytes_max, dropped: false }
    }

    /// Adds one line of a handler; `cut` says that its end is already lost.
    pub(crate) fn push(&mut self, line: &[u8], cut: bool) {
        let kept = &line[..line.len().min(LOG_LINE_BYTES_MAX)];
        let text = readable(kept);
        // A byte that is not text is replaced by three, so the text may be longer than the line.
        let end = text.floor_char_boundary(LOG_LINE_BYTES_MAX);
        self.text.push_str(&text[..end]);
        if cut || kept.len() < line.len() || end < text.len() {
            self.text.push_str(CUT);
        }
        self.end_line();
    }

    /// Adds one line of the runner.
    pub(crate) fn note(&mut self, text: &str) {
        self.text.push_str(OURS);
        self.text.push_str(&text.replace('\n', " "));
        self.end_line();
    }

    pub(crate) fn finish(mut self) -> String {
        if !self.dropped && self.text.len() <= self.bytes_max {
            return self.text;
        }
        self.keep_last(self.bytes_max.saturating_sub(DROPPED.len()));
        self.text.insert_str(0, DROPPED);
        self.text
    }

    /// Dropping only when twice too much is there makes the cost of a line constant.
    fn end_line(&mut self) {
        self.text.push('\n');
        if self.text.len() > self.bytes_max.saturating_mul(2) {
            self.keep_last(self.bytes_max);
            self.dropped = true;
        }
    }

    /// Keeps whole lines of at most `bytes` in all, or the end of the last line if it is longer.
    fn keep_last(&mut self, bytes: usize) {
        let Some(over) = self.text.len().checked_sub(bytes).filter(|over| *over > 0) else {
            return;
        };
        let starts_line = |at: usize| self.text.as_bytes()[at - 1] == b'\n';
        let next_line = || self.text.as_bytes()[over..].iter().position(|byte| *byte == b'\n');
        let start = match next_line() {
            _ if starts_line(over) => over,
            Some(found) if over + found + 1 < self.text.len() => over + found + 1,
            _ => self.text.ceil_char_boundary(over),
        };
        self.text.drain(..start);
    }
}

/// Text that every store can keep: valid UTF-8 without zero bytes.
fn readable(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    if memchr::memchr(0, text.as_bytes()).is_none() {
        return text;
    }
    Cow::Owned(text.replace('\0', "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_log_is_kept_as_it_is() {
        let mut tail = Tail::new(1000);
        tail.push(b"one", false);
        tail.push(b"", false);
        tail.note("exit code 3");
        assert_eq!(tail.finish(), "one\n\n[windlass] exit code 3\n");
    }

    #[test]
    fn of_a_long_log_the_last_whole_lines_are_kept_within_the_bound() {
        let mut tail = Tail::new(1000);
        for number in 0..100_000 {
            tail.push(format!("line {number}").as_bytes(), false);
            assert!(tail.text.len() <= 2000);
        }
        let log = tail.finish();
        assert!(log.len() <= 1000 && log.len() > 900, "{}", log.len());
        let mut lines = log.lines();
        assert_eq!(lines.next(), Some("[windlass] earlier output was dropped"));
        let numbers: Vec<u32> = lines.map(|line| line["line ".len()..].parse().unwrap()).collect();
        assert_eq!(numbers.last(), Some(&99_999));
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    }

    #[test]
    fn a_long_line_is_cut_and_says_so() {
        let mut tail = Tail::new(1_000_000);
        tail.push(&vec![b'x'; LOG_LINE_BYTES_MAX + 1], false);
        tail.push(&vec![0xff; LOG_LINE_BYTES_MAX], false);
        tail.push(b"short", true);
        let log = tail.finish();
        for line in log.lines() {
            assert!(line.ends_with(CUT) && line.len() <= LOG_LINE_BYTES_MAX + CUT.len());
        }
        assert_eq!(log.lines().count(), 3);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let mut tail = Tail::new(1000);
        tail.push(b"a\xffb\0c", false);
        assert_eq!(tail.finish(), "a\u{fffd}b\u{fffd}c\n");
    }

    #[test]
    fn a_bound_below_one_line_keeps_the_end_of_the_last_line() {
        let mut tail = Tail::new(60);
        tail.push("ä".repeat(500).as_bytes(), false);
        let log = tail.finish();
        assert!(log.len() <= 60 && log.ends_with("ä\n"), "{log}");
    }
}
