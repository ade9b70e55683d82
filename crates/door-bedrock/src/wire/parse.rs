//! Parses requests from a byte stream. No byte is examined twice, however the stream is split, and
//! nothing beyond the limits is kept.

use std::borrow::Cow;
use std::fmt;

use super::body::Body;
use super::escape::unescape;
use super::request::Request;

/// Limits of a request.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// The method line, which may contain SQL.
    pub(crate) method_line_bytes_max: usize,
    /// A header line, which may contain many jobs.
    pub(crate) header_line_bytes_max: usize,
    /// The method line and all headers.
    pub(crate) head_bytes_max: usize,
    /// Header lines, without those that continue a line before them.
    pub(crate) headers_max: usize,
    /// The body, which is dropped.
    pub(crate) body_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            method_line_bytes_max: 2 * 1024 * 1024,
            header_line_bytes_max: 16 * 1024 * 1024,
            head_bytes_max: 18 * 1024 * 1024,
            headers_max: 256,
            body_bytes_max: 16 * 1024 * 1024,
        }
    }
}

/// Why no more requests can be read from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    MethodLineTooLong,
    HeaderLineTooLong,
    HeadTooLong,
    TooManyHeaders,
    Encoding,
    ContentLength,
    BodyTooLong,
    Chunk,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bad::MethodLineTooLong => "Method line is too long",
            Bad::HeaderLineTooLong => "Header line is too long",
            Bad::HeadTooLong => "Headers are too long",
            Bad::TooManyHeaders => "Too many headers",
            Bad::Encoding => "Request is not valid UTF-8",
            Bad::ContentLength => "Malformed Content-Length",
            Bad::BodyTooLong => "Body is too long",
            Bad::Chunk => "Malformed chunk",
        })
    }
}

/// The result of parsing some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Incomplete,
    Request(Request),
    Bad(Bad),
}

/// The state of the parser.
#[derive(Debug)]
pub(crate) struct Parser {
    limits: Limits,
    state: State,
}

#[derive(Debug)]
enum State {
    Head(Scan),
    Body { request: Request, body: Body },
}

/// Progress of the search for the end of a head; positions count from its first byte.
#[derive(Debug, Default)]
struct Scan {
    /// Everything before it has been examined.
    at: usize,
    line_start: usize,
    in_headers: bool,
    headers: usize,
}

impl Parser {
    pub(crate) fn new(limits: Limits) -> Parser {
        Parser { limits, state: State::Head(Scan::default()) }
    }

    /// `bytes` is everything received and not yet consumed. The caller drops the consumed bytes and
    /// calls again: at once after a request, with more bytes after `Incomplete`, never after `Bad`.
    pub(crate) fn parse(&mut self, bytes: &[u8]) -> (usize, Step) {
        let mut used = 0;
        if let State::Head(scan) = &mut self.state {
            if scan.at == 0 {
                used = bytes.iter().take_while(|byte| is_line_end(**byte)).count();
            }
            let end = match scan.find_end(&bytes[used..], &self.limits) {
                Ok(Some(end)) => end,
                Ok(None) => return (used, Step::Incomplete),
                Err(bad) => return (used, Step::Bad(bad)),
            };
            let head = read_head(&bytes[used..used + end]);
            used += end;
            let found = head.and_then(|request| {
                let body = Body::of(&request, &self.limits)?;
                Ok(State::Body { request, body })
            });
            match found {
                Ok(state) => self.state = state,
                Err(bad) => return (used, Step::Bad(bad)),
            }
        }
        let State::Body { body, .. } = &mut self.state else {
            return (used, Step::Incomplete);
        };
        match body.skip(&bytes[used..]) {
            Err(bad) => (used, Step::Bad(bad)),
            Ok((skipped, false)) => (used + skipped, Step::Incomplete),
            Ok((skipped, true)) => (used + skipped, self.finish()),
        }
    }

    /// Whether a request has been partly consumed.
    pub(crate) fn in_body(&self) -> bool {
        matches!(self.state, State::Body { .. })
    }

    fn finish(&mut self) -> Step {
        match std::mem::replace(&mut self.state, State::Head(Scan::default())) {
            State::Body { request, .. } => Step::Request(request),
            State::Head(_) => Step::Incomplete,
        }
    }
}

impl Scan {
    /// Where the head ends: after the first `\n\n` or `\r\n\r\n`.
    fn find_end(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Bad> {
        for found in memchr::memchr2_iter(b'\r', b'\n', &bytes[self.at..]) {
            let end = self.at + found;
            self.check_line(end, limits)?;
            if end >= limits.head_bytes_max {
                return Err(Bad::HeadTooLong);
            }
            self.count_line(&bytes[self.line_start..end], limits)?;
            self.line_start = end + 1;
            let head = &bytes[..=end];
            if head.ends_with(b"\n\n") || head.ends_with(b"\r\n\r\n") {
                return Ok(Some(end + 1));
            }
        }
        self.at = bytes.len();
        self.check_line(self.at, limits)?;
        Ok(None)
    }

    /// The current line extends to `end`.
    fn check_line(&self, end: usize, limits: &Limits) -> Result<(), Bad> {
        let (line_bytes_max, too_long) = if self.in_headers {
            (limits.header_line_bytes_max, Bad::HeaderLineTooLong)
        } else {
            (limits.method_line_bytes_max, Bad::MethodLineTooLong)
        };
        // Check the first bound that is hit, so that the answer does not depend on how bytes are
        // split.
        let line_end_max = self.line_start + line_bytes_max;
        if end <= line_end_max.min(limits.head_bytes_max) {
            Ok(())
        } else if line_end_max <= limits.head_bytes_max {
            Err(too_long)
        } else {
            Err(Bad::HeadTooLong)
        }
    }

    fn count_line(&mut self, line: &[u8], limits: &Limits) -> Result<(), Bad> {
        let Some(first) = line.first() else { return Ok(()) };
        if self.in_headers && !is_space(*first) {
            self.headers += 1;
            if self.headers > limits.headers_max {
                return Err(Bad::TooManyHeaders);
            }
        }
        self.in_headers = true;
        Ok(())
    }
}

/// Lines end with CR, LF or both in any order, so an empty piece between two ends is not a line.
fn read_head(head: &[u8]) -> Result<Request, Bad> {
    let head = str::from_utf8(head).map_err(|_| Bad::Encoding)?;
    let mut lines = lines_of(head);
    let mut method_line = lines.next().unwrap_or_default().to_owned();
    let mut headers: Vec<(String, String)> = Vec::new();
    // The line that a line starting with a space continues.
    let mut last = Some(Last::MethodLine);
    for line in lines {
        if is_space(line.as_bytes()[0]) {
            match last {
                Some(Last::MethodLine) => method_line.push_str(line),
                Some(Last::Header(index)) => headers[index].1.push_str(line),
                None => {}
            }
            continue;
        }
        last = header_of(line).map(|(name, value)| {
            let known = headers.iter().position(|(known, _)| known.eq_ignore_ascii_case(name));
            let index = known.unwrap_or_else(|| {
                headers.push((name.to_owned(), String::new()));
                headers.len() - 1
            });
            headers[index].1 = value.to_owned();
            Last::Header(index)
        });
    }
    for (_, value) in &mut headers {
        if let Cow::Owned(plain) = unescape(value) {
            *value = plain;
        }
    }
    Ok(Request::new(method_line.trim_matches(' ').to_owned(), headers))
}

fn lines_of(head: &str) -> impl Iterator<Item = &str> {
    let mut start = 0;
    let ends = memchr::memchr2_iter(b'\r', b'\n', head.as_bytes());
    let lines = ends.map(move |end| &head[std::mem::replace(&mut start, end + 1)..end]);
    lines.filter(|line| !line.is_empty())
}

enum Last {
    MethodLine,
    Header(usize),
}

/// A line without a name or a colon is skipped, as in Bedrock.
fn header_of(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let name = name.trim_matches(' ');
    (!name.is_empty()).then(|| (name, value.trim_matches(' ')))
}

fn is_line_end(byte: u8) -> bool {
    byte == b'\r' || byte == b'\n'
}

fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
