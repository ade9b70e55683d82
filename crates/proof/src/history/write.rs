//! Writing a history: one line for each event, with one write.

use std::io::{self, Write};

use serde::Serialize;

use super::event::Event;

/// Writes the events of one witness. Its output should not be buffered: a line that is not in the
/// file when the process is killed has not been written down.
#[derive(Debug)]
pub struct Recorder<W> {
    output: W,
    line: Vec<u8>,
}

#[derive(Serialize)]
struct Line<'a> {
    at: u64,
    event: &'a Event,
}

impl<W: Write> Recorder<W> {
    pub fn new(output: W) -> Recorder<W> {
        Recorder { output, line: Vec::new() }
    }

    /// Writes one event. `at_ns` is the time since the run began, by a clock that all witnesses
    /// share and that is never set.
    pub fn record(&mut self, at_ns: u64, event: &Event) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, &Line { at: at_ns, event })?;
        self.line.push(b'\n');
        self.output.write_all(&self.line)
    }

    pub fn into_inner(self) -> W {
        self.output
    }
}
