//! The log of one attempt: lines, each with its stream.
//!
//! A log is one text, in the form in which a store keeps it. Each line begins with a letter for the
//! stream and a space, and ends with a line feed:
//!
//! ```text
//! o sent to ann@example.org
//! e warning: no such locale
//! w exit code 0
//! ```

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use crate::sync::lock;

/// The origin of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The standard output of the handler.
    Out,
    /// Its standard error.
    Err,
    /// Windlass itself.
    Note,
}

impl Stream {
    pub const ALL: [Stream; 3] = [Stream::Out, Stream::Err, Stream::Note];

    pub fn as_str(self) -> &'static str {
        match self {
            Stream::Out => "stdout",
            Stream::Err => "stderr",
            Stream::Note => "windlass",
        }
    }

    pub fn from_name(name: &str) -> Option<Stream> {
        Stream::ALL.into_iter().find(|stream| stream.as_str() == name)
    }

    fn mark(self) -> &'static str {
        match self {
            Stream::Out => "o ",
            Stream::Err => "e ",
            Stream::Note => "w ",
        }
    }
}

/// The lines of an attempt, in order of arrival.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log(String);

impl Log {
    pub fn new() -> Log {
        Log::default()
    }

    /// A log of one line by Windlass.
    pub fn of_note(text: &str) -> Log {
        let mut log = Log::new();
        log.note(text);
        log
    }

    /// Adds a text without its final line feed: one line, or several if it contains line feeds.
    pub fn push(&mut self, stream: Stream, text: &str) {
        for line in text.split('\n') {
            self.0.push_str(stream.mark());
            self.0.push_str(line);
            self.0.push('\n');
        }
    }

    /// Adds one line by Windlass; line feeds in it become spaces.
    pub fn note(&mut self, text: &str) {
        self.push(Stream::Note, &text.replace('\n', " "));
    }

    pub fn append(&mut self, other: &Log) {
        self.0.push_str(&other.0);
    }

    /// The form that a store keeps.
    pub fn as_stored(&self) -> &str {
        &self.0
    }

    /// A log from a store. Lines without a valid stream count as the handler's output.
    pub fn from_stored(text: String) -> Log {
        Log(text)
    }

    pub fn lines(&self) -> impl Iterator<Item = (Stream, &str)> {
        self.0.split_terminator('\n').map(|line| {
            let known = |stream: Stream| Some((stream, line.strip_prefix(stream.mark())?));
            Stream::ALL.into_iter().find_map(known).unwrap_or((Stream::Out, line))
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of bytes that a store keeps.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Drops lines from the beginning until at most `bytes` are left. If the last line alone is
    /// longer, its end is kept.
    pub fn keep_last(&mut self, bytes: usize) {
        let Some(over) = self.0.len().checked_sub(bytes).filter(|over| *over > 0) else { return };
        let ends_line = |at: usize| self.0.as_bytes()[at] == b'\n';
        let next_line = (over - 1..self.0.len()).find(|at| ends_line(*at)).map(|at| at + 1);
        match next_line {
            Some(start) if start < self.0.len() => drop(self.0.drain(..start)),
            _ => self.keep_end_of_last(bytes),
        }
    }

    fn keep_end_of_last(&mut self, bytes: usize) {
        let Some((stream, line)) = self.lines().last() else { return };
        let around = stream.mark().len() + 1;
        let from = line.len().saturating_sub(bytes.saturating_sub(around));
        let end = line[line.ceil_char_boundary(from)..].to_owned();
        self.0.clear();
        self.push(stream, &end);
    }
}

/// The newest lines of a log that is being written, and the number of dropped ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Newest {
    log: Log,
    dropped: usize,
}

impl Newest {
    pub fn push(&mut self, stream: Stream, text: &str) {
        self.log.push(stream, text);
    }

    pub fn len(&self) -> usize {
        self.log.len()
    }

    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Drops the oldest lines until at most `bytes` are left.
    pub fn keep_last(&mut self, bytes: usize) {
        let lines = self.log.lines().count();
        self.log.keep_last(bytes);
        self.dropped += lines - self.log.lines().count();
    }

    /// At most `bytes_max` bytes of the newest lines, after a line that says how many are missing.
    pub fn into_log(mut self, bytes_max: usize) -> Log {
        let note =
            |lines: usize| Log::of_note(&format!("earlier output was dropped: {lines} lines"));
        if self.dropped > 0 || self.len() > bytes_max {
            let longest = note(self.dropped + self.log.lines().count());
            self.keep_last(bytes_max.saturating_sub(longest.len()));
        }
        if self.dropped == 0 {
            return self.log;
        }
        let mut whole = note(self.dropped);
        whole.append(&self.log);
        whole
    }
}

/// The log of a running attempt: its runner writes it, others may read it.
#[derive(Debug, Default)]
pub struct Live(Mutex<Newest>);

impl Live {
    /// For the runner, which holds the lock only while it writes a line.
    pub fn write(&self) -> MutexGuard<'_, Newest> {
        lock(&self.0)
    }

    /// The lines so far.
    pub fn look(&self) -> Newest {
        self.write().clone()
    }
}

/// The form for people: standard output as it is, `[stderr] ` before standard error, `[windlass] `
/// before lines by Windlass.
impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (stream, text) in self.lines() {
            match stream {
                Stream::Out => writeln!(f, "{text}")?,
                Stream::Err | Stream::Note => writeln!(f, "[{}] {text}", stream.as_str())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Log {
        let mut log = Log::new();
        log.push(Stream::Out, "o one");
        log.push(Stream::Err, "two\n\nthree");
        log.note("exit\ncode 0");
        log
    }

    #[test]
    fn lines_keep_their_stream_through_a_store() {
        let kept = Log::from_stored(sample().as_stored().to_owned());
        let lines: Vec<_> = kept.lines().collect();
        let err = |text| (Stream::Err, text);
        let note = (Stream::Note, "exit code 0");
        assert_eq!(lines, [(Stream::Out, "o one"), err("two"), err(""), err("three"), note]);
    }

    #[test]
    fn people_see_which_lines_are_not_output() {
        let text = "o one\n[stderr] two\n[stderr] \n[stderr] three\n[windlass] exit code 0\n";
        assert_eq!(sample().to_string(), text);
        assert_eq!(Log::new().to_string(), "");
    }

    #[test]
    fn streams_are_read_as_they_are_written() {
        for stream in Stream::ALL {
            assert_eq!(Stream::from_name(stream.as_str()), Some(stream));
        }
        assert_eq!(Stream::from_name("stdin"), None);
    }

    #[test]
    fn the_note_on_dropped_lines_fits_into_the_bound_too() {
        let mut newest = Newest::default();
        assert!(newest.is_empty());
        for number in 0..120 {
            newest.push(Stream::Out, &(number % 10).to_string());
        }
        assert!(!newest.is_empty());
        let line = "o 0\n".len();
        assert_eq!(newest.len(), 120 * line);
        for bytes_max in [120 * line, 120 * line + 1] {
            assert_eq!(newest.clone().into_log(bytes_max), newest.log, "it fits");
        }
        for bytes_max in 60..120 * line {
            let log = newest.clone().into_log(bytes_max);
            assert!(log.len() <= bytes_max, "{bytes_max}");
            let kept = log.lines().count() - 1;
            let note = format!("[windlass] earlier output was dropped: {} lines\n", 120 - kept);
            assert!(log.to_string().starts_with(&note), "{bytes_max}");
            assert!(log.len() + line + "120".len() > bytes_max, "{bytes_max}: no more fits");
        }
    }

    #[test]
    fn what_is_dropped_is_counted() {
        let live = Live::default();
        for number in 0..10 {
            live.write().push(Stream::Out, &number.to_string());
        }
        assert_eq!(live.look().into_log(40).lines().count(), 10);
        live.write().keep_last("o 8\no 9\n".len());
        live.write().push(Stream::Err, "more");
        let text = live.look().into_log(100).to_string();
        assert_eq!(text, "[windlass] earlier output was dropped: 8 lines\n8\n9\n[stderr] more\n");
        let short = live.look().into_log(50);
        assert!(short.len() <= 50 && short.to_string().contains(": 9 lines\n"), "{short}");
    }

    #[test]
    fn the_last_whole_lines_are_kept() {
        for bytes in 0..=sample().len() + 1 {
            let mut log = sample();
            log.keep_last(bytes);
            let whole = sample();
            if log.lines().count() > 1 {
                assert!(log.len() <= bytes && whole.as_stored().ends_with(log.as_stored()));
            }
            assert!(log.len() <= bytes.max("w \n".len()), "{bytes}: {log:?}");
            let (stream, text) = log.lines().last().unwrap();
            assert!(stream == Stream::Note && "exit code 0".ends_with(text), "{bytes}: {log:?}");
        }
        let mut wide = Log::new();
        wide.push(Stream::Err, &"ä".repeat(10));
        wide.keep_last(10);
        assert_eq!(wide.as_stored(), "e äää\n");
        let mut empty = Log::new();
        empty.keep_last(0);
        assert!(empty.is_empty());
    }
}
