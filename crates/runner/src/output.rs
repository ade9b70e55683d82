//! The output of a handler, line by line: its log, and the jobs that it emits.
//!
//! A line that starts with exactly `J: ` or `#J: `, followed by `type|payload`, emits a job; every
//! other line is log. However much is written, at most one line per stream and way, the tail of the
//! log and `EMITTED_BYTES_MAX` are held.

use std::sync::Arc;

use bytes::Bytes;
use windlass_core::limit::{
    EMITTED_MAX, LOG_LINE_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX, TYPE_BYTES_MAX,
};
use windlass_core::log::{self, Live, Log};
use windlass_core::runner::Emitted;
use windlass_core::{AddOptions, TypeName};

use crate::mask::{Mask, Masker};
use crate::tail::Tail;

/// Total size of the payloads that one attempt may emit.
pub(crate) const EMITTED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What an emitted job takes besides its payload, at most: its type and options.
const EMITTED_OVERHEAD_BYTES: usize = size_of::<Emitted>() + 1024;
const PREFIXES: [&[u8]; 2] = [b"J: ", b"#J: "];
const PREFIX_BYTES_MAX: usize = 4;
/// Longest line that can emit a job, including a carriage return at its end.
const JOB_LINE_BYTES_MAX: usize =
    PREFIX_BYTES_MAX + TYPE_BYTES_MAX + 1 + PAYLOAD_INLINE_BYTES_MAX + 1;
/// Line buffer that is kept between lines.
const HELD_BYTES_KEPT: usize = 64 * 1024;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Stream {
    Out,
    Err,
}

impl From<Stream> for log::Stream {
    fn from(stream: Stream) -> log::Stream {
        match stream {
            Stream::Out => log::Stream::Out,
            Stream::Err => log::Stream::Err,
        }
    }
}

/// How output arrives. Each way has lines of its own, because it is not known how far one was read
/// when the other was written: a line in one of them never begins or ends within a line, or within
/// the value of a secret, of the other.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// The pipes of a process and its children.
    Pipe,
    /// The streams of a language, in frames of its context.
    Frame,
}

/// Collects the output of one attempt, in the order in which its lines were completed.
pub(crate) struct Output {
    pieces: [Pieces; 4],
    sorted: SortedLines,
}

/// What has arrived of one stream in one way.
struct Pieces {
    stream: Stream,
    /// What is written passes this first, so that the value of a secret is found even if it is cut
    /// into lines.
    masker: Masker,
    line: LineBuffer,
}

impl Output {
    /// Output that becomes visible only at its end.
    pub(crate) fn new(log_bytes_max: usize) -> Output {
        Output::live(log_bytes_max, Arc::default())
    }

    /// Output whose log is visible in `live` while it grows.
    pub(crate) fn live(log_bytes_max: usize, live: Arc<Live>) -> Output {
        let tail = Tail::new(log_bytes_max, live);
        let sorted = SortedLines { tail, emitted: Vec::new(), emitted_bytes: 0 };
        let pieces = |stream| Pieces::new(stream, Arc::default());
        let pieces = [Stream::Out, Stream::Err, Stream::Out, Stream::Err].map(pieces);
        Output { pieces, sorted }
    }

    /// Hides the values of secrets.
    pub(crate) fn masked(mut self, mask: &Arc<Mask>) -> Output {
        self.pieces = self.pieces.map(|pieces| Pieces::new(pieces.stream, mask.clone()));
        self
    }

    /// Makes the log visible in `live` from now on.
    pub(crate) fn shown_in(mut self, live: Arc<Live>) -> Output {
        self.sorted.tail.move_to(live);
        self
    }

    /// Adds what was read from a pipe.
    pub(crate) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        self.add(Way::Pipe, stream, bytes);
    }

    /// Adds what a language's own stream sent in a frame.
    pub(crate) fn push_framed(&mut self, stream: Stream, bytes: &[u8]) {
        self.add(Way::Frame, stream, bytes);
    }

    fn add(&mut self, way: Way, stream: Stream, bytes: &[u8]) {
        let Pieces { masker, line, .. } = &mut self.pieces[2 * way as usize + stream as usize];
        let sorted = &mut self.sorted;
        masker.push(bytes, |bytes| line.push(bytes, |line, cut| sorted.line(stream, line, cut)));
    }

    /// Ends lines without a line feed, because no more input follows.
    pub(crate) fn end(&mut self) {
        let sorted = &mut self.sorted;
        for Pieces { stream, masker, line } in &mut self.pieces {
            let mut sort = |line: &[u8], cut| sorted.line(*stream, line, cut);
            masker.end(|bytes| line.push(bytes, &mut sort));
            line.end(sort);
        }
    }

    /// A job that the handler emits by other means than a line.
    pub(crate) fn emit(&mut self, emitted: Emitted) -> Result<(), String> {
        self.sorted.emit(emitted)
    }

    /// Adds a line of the runner to the log. It may cite the handler.
    pub(crate) fn note(&mut self, text: &str) {
        self.sorted.tail.note(&self.pieces[0].masker.mask().text(text));
    }

    /// The memory that this output takes.
    pub(crate) fn held_bytes(&self) -> usize {
        let lines: usize = self.pieces.iter().map(|pieces| pieces.line.held.capacity()).sum();
        let SortedLines { tail, emitted, emitted_bytes } = &self.sorted;
        lines + tail.len() + emitted_bytes + emitted.len() * EMITTED_OVERHEAD_BYTES
    }

    pub(crate) fn finish(self) -> (Log, Vec<Emitted>) {
        (self.sorted.tail.finish(), self.sorted.emitted)
    }
}

impl Pieces {
    fn new(stream: Stream, mask: Arc<Mask>) -> Pieces {
        Pieces { stream, masker: Masker::new(mask), line: LineBuffer::default() }
    }
}

/// Sorts lines into log and jobs.
struct SortedLines {
    tail: Tail,
    emitted: Vec<Emitted>,
    emitted_bytes: usize,
}

impl SortedLines {
    fn line(&mut self, stream: Stream, line: &[u8], cut: bool) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(request) = PREFIXES.iter().find_map(|prefix| line.strip_prefix(*prefix)) else {
            return self.tail.push(stream.into(), line, cut);
        };
        if let Err(reason) = self.read_emit(request, cut) {
            self.tail.push(stream.into(), line, cut);
            self.tail.note(&format!("warning: the line above adds no job: {reason}"));
        }
    }

    fn read_emit(&mut self, request: &[u8], cut: bool) -> Result<(), String> {
        let Some(bar) = memchr::memchr(b'|', request) else {
            return Err("it is not of the form type|payload".into());
        };
        let (name, payload) = (&request[..bar], &request[bar + 1..]);
        let name = str::from_utf8(name).map_err(|_| "its type is not UTF-8")?;
        let name = TypeName::new(name).map_err(|invalid| invalid.reason)?;
        if cut {
            return Err(too_long());
        }
        let payload = Bytes::copy_from_slice(payload);
        self.emit(Emitted { name, payload, options: AddOptions::default() })
    }

    /// Accepts an emitted job, within the bounds.
    fn emit(&mut self, emitted: Emitted) -> Result<(), String> {
        let bytes = emitted.payload.len();
        if bytes > PAYLOAD_INLINE_BYTES_MAX {
            return Err(too_long());
        }
        if self.emitted.len() == EMITTED_MAX {
            return Err(format!("an attempt adds at most {EMITTED_MAX} jobs"));
        }
        if self.emitted_bytes + bytes > EMITTED_BYTES_MAX {
            return Err(format!("an attempt adds at most {EMITTED_BYTES_MAX} bytes of payloads"));
        }
        self.emitted_bytes += bytes;
        self.emitted.push(emitted);
        Ok(())
    }
}

fn too_long() -> String {
    format!("its payload is longer than {PAYLOAD_INLINE_BYTES_MAX} bytes")
}

/// The beginning of an incomplete line.
#[derive(Default)]
struct LineBuffer {
    held: Vec<u8>,
    /// Whether part of the line was dropped.
    cut: bool,
}

impl LineBuffer {
    fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(&[u8], bool)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            if self.held.is_empty() {
                line(&bytes[..end], false);
            } else {
                self.hold(&bytes[..end]);
                self.end(&mut line);
            }
            bytes = &bytes[end + 1..];
        }
        self.hold(bytes);
    }

    fn end(&mut self, mut line: impl FnMut(&[u8], bool)) {
        if !self.held.is_empty() {
            line(&self.held, self.cut);
        }
        self.held.clear();
        self.held.shrink_to(HELD_BYTES_KEPT);
        self.cut = false;
    }

    fn hold(&mut self, bytes: &[u8]) {
        let missing = PREFIX_BYTES_MAX.saturating_sub(self.held.len()).min(bytes.len());
        let (start, rest) = bytes.split_at(missing);
        self.held.extend_from_slice(start);
        let asks = PREFIXES.iter().any(|prefix| self.held.starts_with(prefix));
        let bytes_max = if asks { JOB_LINE_BYTES_MAX } else { LOG_LINE_BYTES_MAX + 1 };
        let room = bytes_max.saturating_sub(self.held.len()).min(rest.len());
        self.held.extend_from_slice(&rest[..room]);
        self.cut |= room < rest.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::tests::mask;

    /// The log and the jobs of one stream, read in pieces of every size.
    fn check(written: &[u8], log: &str, jobs: &[(&str, &[u8])]) {
        for piece_bytes in [1, 2, 3, 7, written.len().max(1)] {
            let mut output = Output::new(1_000_000);
            for piece in written.chunks(piece_bytes) {
                output.push(Stream::Out, piece);
            }
            output.end();
            let (got_log, got_jobs) = output.finish();
            let got_jobs: Vec<_> =
                got_jobs.iter().map(|job| (job.name.as_str(), &job.payload[..])).collect();
            assert_eq!(got_log.to_string(), log, "{piece_bytes}");
            assert_eq!(got_jobs, jobs, "{piece_bytes}");
        }
    }

    #[test]
    fn s0_29_a_job_line_becomes_a_job_and_no_log() {
        check(b"J: mail|hello\n", "", &[("mail", b"hello")]);
        check(b"#J: mail|hello\n", "", &[("mail", b"hello")]);
        check(b"J: mail|a|b\nJ: x|\n", "", &[("mail", b"a|b"), ("x", b"")]);
        check(b"J: mail|\x00\xff \r\r\n", "", &[("mail", b"\x00\xff \r")]);
        check(b"J: a type|no line feed", "", &[("a type", b"no line feed")]);
    }

    #[test]
    fn s0_30_every_other_line_is_log() {
        let noise = " J: x|1\nj: x|1\nJ:x|1\n J|\n##J: x|1\nJ:\tx|1\n\nJ\n";
        check(noise.as_bytes(), noise, &[]);
        check(b"a\r\nb", "a\nb\n", &[]);
    }

    #[test]
    fn s0_29_a_job_line_that_cannot_be_read_is_log_with_a_warning_behind_it() {
        for (line, reason) in [
            ("J: no bar", "it is not of the form type|payload"),
            ("#J: ", "it is not of the form type|payload"),
            ("J: |payload", "a type has 1 to 255 bytes"),
            ("J: a\tb|payload", "a type has no control characters"),
        ] {
            let log = format!("{line}\n[windlass] warning: the line above adds no job: {reason}\n");
            check(format!("{line}\n").as_bytes(), &log, &[]);
        }
        let mut output = Output::new(1000);
        output.push(Stream::Err, b"J: \xff|x\n");
        assert!(output.finish().0.to_string().contains("its type is not UTF-8"));
    }

    #[test]
    fn lines_of_the_two_streams_do_not_mix() {
        let mut output = Output::new(1000);
        for (stream, piece) in
            [(Stream::Out, "J: a|"), (Stream::Err, "J: b|"), (Stream::Err, "2\n")]
        {
            output.push(stream, piece.as_bytes());
        }
        output.push(Stream::Out, b"1\nout");
        output.push(Stream::Err, b"err\n");
        output.end();
        let (log, jobs) = output.finish();
        assert_eq!(log.to_string(), "[stderr] err\nout\n");
        let jobs: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), &job.payload[..])).collect();
        assert_eq!(jobs, [("b", &b"2"[..]), ("a", &b"1"[..])]);
    }

    /// A child writes to the pipe while its parent, in the middle of a line, writes frames. Which
    /// of both is read first is not decided.
    #[test]
    fn a_child_that_writes_within_a_line_of_a_language_neither_cuts_it_nor_shows_a_secret() {
        let mut output = Output::new(1000).masked(&mask(&["hunter2!"]));
        output.push_framed(Stream::Out, b"of hunte");
        output.push(Stream::Out, b"child hunter2!\nJ: t|");
        output.push_framed(Stream::Out, b"r2! it\nJ: u");
        output.push(Stream::Out, b"1\n");
        output.push_framed(Stream::Out, b"|2\n");
        output.end();
        let (log, jobs) = output.finish();
        assert_eq!(log.to_string(), "child ***\nof *** it\n");
        let jobs: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), &job.payload[..])).collect();
        assert_eq!(jobs, [("t", &b"1"[..]), ("u", &b"2"[..])]);
    }

    #[test]
    fn a_payload_has_a_bound_and_the_line_beyond_it_is_cut_log() {
        for (extra, emitted) in [(0, 1), (1, 0), (5_000_000, 0)] {
            let mut output = Output::new(1_000_000);
            let mut line = b"J: t|".to_vec();
            line.resize(line.len() + PAYLOAD_INLINE_BYTES_MAX + extra, b'x');
            line.push(b'\n');
            for piece in line.chunks(65_536) {
                output.push(Stream::Out, piece);
                assert!(output.pieces[0].line.held.len() <= JOB_LINE_BYTES_MAX);
            }
            output.push(Stream::Out, b"next\n");
            let (log, jobs) = output.finish();
            let log = log.to_string();
            assert_eq!(jobs.len(), emitted, "{extra}");
            assert_eq!(log.contains("its payload is longer"), emitted == 0, "{extra}");
            assert!(log.len() < 20_000 && log.ends_with("next\n"));
        }
    }

    #[test]
    fn the_number_and_the_bytes_of_jobs_are_bounded() {
        let mut output = Output::new(100_000);
        for _ in 0..EMITTED_MAX + 1 {
            output.push(Stream::Out, b"J: t|x\n");
        }
        let (log, jobs) = output.finish();
        assert_eq!(jobs.len(), EMITTED_MAX);
        assert!(log.to_string().contains("at most 10000 jobs"));

        let mut output = Output::new(100_000);
        let mut line = b"J: t|".to_vec();
        line.resize(line.len() + PAYLOAD_INLINE_BYTES_MAX, b'x');
        line.push(b'\n');
        let fitting = EMITTED_BYTES_MAX / PAYLOAD_INLINE_BYTES_MAX;
        for _ in 0..fitting + 1 {
            output.push(Stream::Out, &line);
        }
        let (log, jobs) = output.finish();
        assert_eq!(jobs.len(), fitting);
        assert!(log.to_string().contains("bytes of payloads"));
    }

    #[test]
    fn a_line_without_end_holds_no_more_than_a_log_line() {
        let mut output = Output::new(1_000_000);
        for _ in 0..1000 {
            output.push(Stream::Out, &[b'x'; 65_536]);
        }
        assert!(output.pieces[0].line.held.len() <= LOG_LINE_BYTES_MAX + 1);
        output.push(Stream::Out, b"\nnext\n");
        let (log, _) = output.finish();
        assert!(log.to_string().ends_with("x [cut]\nnext\n"));
    }
}
