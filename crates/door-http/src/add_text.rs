//! Adds with one payload per line.

use axum::body::Body;
use axum::http::request::Parts;
use bytes::Bytes;

use windlass_core::TypeKey;
use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_engine::api::{AddJob, AddPayload, Added};

use crate::add::{self, ADD_JOBS_MAX, AddParameters};
use crate::door::Door;
use crate::error::Failure;

const TOO_LARGE: &str = "; send the lines in several adds, or one large payload as \
                         application/octet-stream";

pub(crate) async fn add(
    door: &Door,
    key: &TypeKey,
    parts: &Parts,
    body: Body,
) -> Result<Added, Failure> {
    let AddParameters { options, mut keyed } = add::parameters(door, key, parts, "lines")?;
    let whole = add::read_body(door, parts, body, TOO_LARGE, &mut keyed).await?;
    let mut jobs = Vec::new();
    for line in Lines(whole) {
        if jobs.len() == ADD_JOBS_MAX {
            let message = format!("an add has at most {ADD_JOBS_MAX} lines; send several adds");
            return Err(Failure::too_large("body", message));
        }
        jobs.push(AddJob { payload: AddPayload::Inline(line), options: options.clone() });
    }
    if jobs.is_empty() {
        let message = "the body has no non-empty line; each such line becomes a job";
        return Err(Failure::invalid("body", message));
    }
    // Comes last because it writes to disk.
    for job in &mut jobs {
        if let AddPayload::Inline(line) = &job.payload
            && line.len() > PAYLOAD_INLINE_BYTES_MAX
        {
            job.payload = add::payload(door, line.clone()).await?;
        }
    }
    add::accept(door, key, jobs, keyed).await
}

/// The non-empty lines of a body, without line ends and without copying.
pub(crate) struct Lines(pub(crate) Bytes);

impl Iterator for Lines {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        while !self.0.is_empty() {
            let mut line = match memchr::memchr(b'\n', &self.0) {
                Some(at) => {
                    let mut line = self.0.split_to(at + 1);
                    line.truncate(at);
                    line
                }
                None => std::mem::take(&mut self.0),
            };
            if line.ends_with(b"\r") {
                line.truncate(line.len() - 1);
            }
            if !line.is_empty() {
                return Some(line);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &'static str) -> Vec<Bytes> {
        Lines(Bytes::from_static(text.as_bytes())).collect()
    }

    #[test]
    fn lines_end_with_either_ending_and_the_last_needs_none() {
        assert_eq!(lines("a\nb\r\nc"), ["a", "b", "c"]);
        assert_eq!(lines("a\nb\n"), ["a", "b"]);
        assert_eq!(lines("a\r\n"), ["a"]);
    }

    #[test]
    fn empty_lines_are_skipped() {
        for empty in ["", "\n", "\r\n", "\n\r\n\n"] {
            assert!(lines(empty).is_empty(), "{empty:?}");
        }
        assert_eq!(lines("\n\na\n\r\nb\n\n"), ["a", "b"]);
    }

    #[test]
    fn everything_else_belongs_to_the_line() {
        assert_eq!(lines(" a \n\t\n"), [" a ", "\t"]);
        assert_eq!(lines("a\rb\nc\r\r\n"), ["a\rb", "c\r"]);
        let bytes: Vec<_> = Lines(Bytes::from_static(b"\xff\0\n\xfe")).collect();
        assert_eq!(bytes, [&b"\xff\0"[..], b"\xfe"]);
    }

    #[test]
    fn no_line_is_copied() {
        let body = Bytes::from("first\nsecond".to_owned());
        let start = body.as_ptr() as usize;
        for line in Lines(body.clone()) {
            assert!((start..start + body.len()).contains(&(line.as_ptr() as usize)));
        }
    }
}
