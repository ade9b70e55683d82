//! Finds the end of a request's body. No command uses a body, so its bytes are counted and dropped
//! as they arrive.

use super::parse::{Bad, Limits};
use super::request::Request;

/// Longest line with a chunk's length, or after the last chunk.
const CHUNK_LINE_BYTES_MAX: usize = 4096;
/// Lines after the last chunk.
const TRAILERS_MAX: usize = 256;

/// The rest of a body that has not arrived yet.
#[derive(Debug)]
pub(super) enum Body {
    Plain { left: u64 },
    Chunked { part: Part, left_max: u64 },
}

#[derive(Debug)]
pub(super) enum Part {
    Size,
    Data { left: u64 },
    DataEnd,
    Trailer { seen: usize },
}

impl Body {
    /// A request without `Content-Length` has no body.
    pub(super) fn of(request: &Request, limits: &Limits) -> Result<Body, Bad> {
        let encoding = request.header("Transfer-Encoding");
        if encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case("chunked")) {
            return Ok(Body::Chunked { part: Part::Size, left_max: limits.body_bytes_max });
        }
        let left = match request.header("Content-Length") {
            Some(length) => length_of(length)?,
            None => 0,
        };
        if left > limits.body_bytes_max { Err(Bad::BodyTooLong) } else { Ok(Body::Plain { left }) }
    }

    /// How many of the bytes belong to the body, and whether it is complete.
    pub(super) fn skip(&mut self, bytes: &[u8]) -> Result<(usize, bool), Bad> {
        match self {
            Body::Plain { left } => {
                let used = take(left, bytes);
                Ok((used, *left == 0))
            }
            Body::Chunked { part, left_max } => skip_chunks(part, left_max, bytes),
        }
    }
}

fn length_of(text: &str) -> Result<u64, Bad> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(Bad::ContentLength);
    }
    // More digits than fit mean that the body is too long.
    text.parse().map_err(|_| Bad::BodyTooLong)
}

fn take(left: &mut u64, bytes: &[u8]) -> usize {
    let used = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
    *left -= used as u64;
    used
}

fn skip_chunks(part: &mut Part, left_max: &mut u64, bytes: &[u8]) -> Result<(usize, bool), Bad> {
    let mut used = 0;
    loop {
        let rest = &bytes[used..];
        if let Part::Data { left } = part {
            used += take(left, rest);
            if *left > 0 {
                return Ok((used, false));
            }
            *part = Part::DataEnd;
            continue;
        }
        let Some((line, line_used)) = line_of(rest)? else { return Ok((used, false)) };
        used += line_used;
        *part = match part {
            Part::Size => {
                let size = chunk_size(line).ok_or(Bad::Chunk)?;
                *left_max = left_max.checked_sub(size).ok_or(Bad::BodyTooLong)?;
                if size == 0 { Part::Trailer { seen: 0 } } else { Part::Data { left: size } }
            }
            Part::DataEnd if line.is_empty() => Part::Size,
            Part::Trailer { .. } if line.is_empty() => return Ok((used, true)),
            Part::Trailer { seen } if *seen < TRAILERS_MAX => Part::Trailer { seen: *seen + 1 },
            _ => return Err(Bad::Chunk),
        };
    }
}

/// The next line without its end, and how long it is with it.
fn line_of(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Bad> {
    let near = &bytes[..bytes.len().min(CHUNK_LINE_BYTES_MAX)];
    match memchr::memchr(b'\n', near) {
        Some(end) => Ok(Some((near[..end].trim_ascii_end(), end + 1))),
        None if near.len() == CHUNK_LINE_BYTES_MAX => Err(Bad::Chunk),
        None => Ok(None),
    }
}

/// Up to eight hexadecimal digits; what follows a semicolon is ignored.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    let digits = str::from_utf8(digits).ok()?;
    let hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fits = (1..=8).contains(&digits.len());
    (hexadecimal && fits).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}
