//! The end of a log: any number of lines is added, a bounded number of bytes is kept.

use std::borrow::Cow;
use std::sync::Arc;

use windlass_core::limit::LOG_LINE_BYTES_MAX;
use windlass_core::log::{Live, Log, Stream};

const CUT: &str = " [cut]";

/// The last complete lines.
pub(crate) struct Tail {
    newest: Arc<Live>,
    bytes_max: usize,
}

impl Tail {
    /// Makes what is kept visible in `newest` before the end.
    pub(crate) fn new(bytes_max: usize, newest: Arc<Live>) -> Tail {
        Tail { newest, bytes_max }
    }

    /// Moves everything to another place and continues there.
    pub(crate) fn move_to(&mut self, newest: Arc<Live>) {
        let so_far = std::mem::take(&mut *self.newest.write());
        *newest.write() = so_far;
        self.newest = newest;
    }

    /// Adds one line of a handler; `cut` means that its end is already lost.
    pub(crate) fn push(&mut self, stream: Stream, line: &[u8], cut: bool) {
        let kept = &line[..line.len().min(LOG_LINE_BYTES_MAX)];
        let text = readable(kept);
        // An invalid byte is replaced by three, so the text may be longer than the line.
        let end = text.floor_char_boundary(LOG_LINE_BYTES_MAX);
        if cut || kept.len() < line.len() || end < text.len() {
            self.add(stream, &format!("{}{CUT}", &text[..end]));
        } else {
            self.add(stream, &text);
        }
    }

    /// Adds one line of the runner.
    pub(crate) fn note(&mut self, text: &str) {
        self.add(Stream::Note, &text.replace('\n', " "));
    }

    pub(crate) fn len(&self) -> usize {
        self.newest.write().len()
    }

    pub(crate) fn finish(self) -> Log {
        std::mem::take(&mut *self.newest.write()).into_log(self.bytes_max)
    }

    /// Drops only when there is twice too much, which makes the cost of a line constant.
    fn add(&mut self, stream: Stream, text: &str) {
        let mut newest = self.newest.write();
        newest.push(stream, text);
        if newest.len() > self.bytes_max.saturating_mul(2) {
            newest.keep_last(self.bytes_max);
        }
    }
}

/// Text that every store can keep: valid UTF-8 without NUL bytes.
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
        let mut tail = Tail::new(1000, Arc::default());
        tail.push(Stream::Out, b"one", false);
        tail.push(Stream::Err, b"", false);
        tail.note("exit code 3");
        assert_eq!(tail.finish().to_string(), "one\n[stderr] \n[windlass] exit code 3\n");
    }

    #[test]
    fn of_a_long_log_the_last_whole_lines_are_kept_within_the_bound() {
        let mut tail = Tail::new(1000, Arc::default());
        for number in 0..100_000 {
            let stream = if number % 2 == 0 { Stream::Out } else { Stream::Err };
            tail.push(stream, format!("line {number}").as_bytes(), false);
            assert!(tail.newest.look().len() <= 2000);
        }
        let log = tail.finish();
        assert!(log.len() <= 1000 && log.len() > 900, "{}", log.len());
        let mut lines = log.lines();
        let (stream, note) = lines.next().unwrap();
        assert!(stream == Stream::Note && note.starts_with("earlier output was dropped: "));
        let dropped: u32 = note.split(' ').rev().nth(1).unwrap().parse().unwrap();
        let number = |(stream, line): (Stream, &str)| {
            let number: u32 = line["line ".len()..].parse().unwrap();
            assert_eq!(stream == Stream::Out, number.is_multiple_of(2), "{line}");
            number
        };
        let numbers: Vec<u32> = lines.map(number).collect();
        assert_eq!((numbers.first(), numbers.last()), (Some(&dropped), Some(&99_999)));
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    }

    #[test]
    fn a_long_line_is_cut_and_says_so() {
        let mut tail = Tail::new(1_000_000, Arc::default());
        tail.push(Stream::Out, &vec![b'x'; LOG_LINE_BYTES_MAX + 1], false);
        tail.push(Stream::Out, &vec![0xff; LOG_LINE_BYTES_MAX], false);
        tail.push(Stream::Err, b"short", true);
        let log = tail.finish();
        for (_, line) in log.lines() {
            assert!(line.ends_with(CUT) && line.len() <= LOG_LINE_BYTES_MAX + CUT.len());
        }
        assert_eq!(log.lines().count(), 3);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let mut tail = Tail::new(1000, Arc::default());
        tail.push(Stream::Out, b"a\xffb\0c", false);
        assert_eq!(tail.finish().to_string(), "a\u{fffd}b\u{fffd}c\n");
    }

    #[test]
    fn a_bound_below_one_line_keeps_the_end_of_the_last_line() {
        let mut tail = Tail::new(60, Arc::default());
        tail.push(Stream::Out, "ä".repeat(500).as_bytes(), false);
        let log = tail.finish();
        assert!(log.len() <= 60 && log.to_string().ends_with("ä\n"), "{log}");
    }
}
