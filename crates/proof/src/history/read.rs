//! Reading the file of one witness, in the order of time.
//!
//! Several processes may append to one file, so neighbouring lines may be out of order; a window of
//! lines puts them right. The last line may be torn, because its writer was killed: it is dropped
//! and counted. Everything else that cannot be read is an error, because a history with holes
//! proves nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufRead, Read};

use serde::Deserialize;

use super::event::Event;

/// How many lines a line may be away from its place in time.
pub const WINDOW_LINES_MAX: usize = 1024;
/// Longest line, in bytes.
pub const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// An event with its time and place.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Nanoseconds since the run began.
    pub at: u64,
    /// The file: its index among the sources of the history.
    pub source: u32,
    /// The line in it, from 1.
    pub line: u32,
    pub event: Event,
}

impl Record {
    fn place(&self) -> (u64, u32, u32) {
        (self.at, self.source, self.line)
    }
}

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{file}:{line}: cannot be read: {error}")]
    Io { file: String, line: u32, error: std::io::Error },
    #[error("{file}:{line}: not an event: {reason}")]
    Malformed { file: String, line: u32, reason: String },
    #[error("{file}:{line}: longer than {LINE_BYTES_MAX} bytes")]
    TooLong { file: String, line: u32 },
    #[error("{file}:{line}: more than {WINDOW_LINES_MAX} lines behind its place in time")]
    TooLate { file: String, line: u32 },
}

/// The records of one file.
pub struct Source<R> {
    name: String,
    index: u32,
    input: R,
    line: u32,
    at_end: bool,
    torn: bool,
    window: BinaryHeap<Reverse<Waiting>>,
    passed_at: u64,
}

/// A record in the window, compared by its place.
struct Waiting(Record);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at: u64,
    event: Event,
}

impl<R: BufRead> Source<R> {
    /// `index` is the number of this file among the sources of the history.
    pub fn new(name: impl Into<String>, index: u32, input: R) -> Source<R> {
        Source {
            name: name.into(),
            index,
            input,
            line: 0,
            at_end: false,
            torn: false,
            window: BinaryHeap::new(),
            passed_at: 0,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the last line was torn; final when all records have been read.
    pub fn torn(&self) -> bool {
        self.torn
    }

    /// The next record in the order of time; `None` at the end.
    pub fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        while !self.at_end && self.window.len() < WINDOW_LINES_MAX {
            if let Some(record) = self.read_line()? {
                self.window.push(Reverse(Waiting(record)));
            }
        }
        let Some(Reverse(Waiting(record))) = self.window.pop() else { return Ok(None) };
        if record.at < self.passed_at {
            return Err(ReadError::TooLate { file: self.name.clone(), line: record.line });
        }
        self.passed_at = record.at;
        Ok(Some(record))
    }

    /// The next line; `None` if it is torn or there is none.
    fn read_line(&mut self) -> Result<Option<Record>, ReadError> {
        let mut text = Vec::new();
        let read = self.input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text);
        let (file, line) = (self.name.clone(), self.line + 1);
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => return Err(ReadError::Io { file, line, error }),
        };
        if bytes == 0 {
            self.at_end = true;
            return Ok(None);
        }
        self.line = line;
        let whole = text.ends_with(b"\n");
        if !whole && bytes as u64 == LINE_BYTES_MAX {
            return Err(ReadError::TooLong { file, line });
        }
        match serde_json::from_slice::<Line>(&text) {
            Ok(Line { at, event }) => Ok(Some(Record { at, source: self.index, line, event })),
            Err(_) if !whole => {
                self.torn = true;
                Ok(None)
            }
            Err(error) => Err(ReadError::Malformed { file, line, reason: error.to_string() }),
        }
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        self.0.place().cmp(&other.0.place())
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}
