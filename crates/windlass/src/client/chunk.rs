//! Splits any number of lines into requests of bounded size. The split depends only on the input,
//! so the same input is always sent in the same requests.

use std::io::{self, BufRead, Read};

/// Lines in one request.
pub(crate) const CHUNK_LINES_MAX: usize = 10_000;
/// Bytes in one request; a longer line gets its own request.
pub(crate) const CHUNK_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Longest line.
const LINE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Whole lines, each with its newline.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) body: Vec<u8>,
    pub(crate) lines: usize,
}

pub(crate) struct Chunks<R> {
    reader: R,
    /// The line that did not fit into the previous chunk.
    held: Vec<u8>,
}

impl<R: BufRead> Chunks<R> {
    pub(crate) fn new(reader: R) -> Chunks<R> {
        Chunks { reader, held: Vec::new() }
    }

    /// The next chunk; `None` at the end of the input. Empty lines are skipped.
    pub(crate) fn next(&mut self) -> io::Result<Option<Chunk>> {
        let mut body = std::mem::take(&mut self.held);
        let mut lines = usize::from(!body.is_empty());
        while lines < CHUNK_LINES_MAX && body.len() < CHUNK_BYTES_MAX {
            let Some(line) = self.line()? else { break };
            if lines > 0 && body.len() + line.len() > CHUNK_BYTES_MAX {
                self.held = line;
                break;
            }
            body.extend_from_slice(&line);
            lines += 1;
        }
        Ok((lines > 0).then_some(Chunk { body, lines }))
    }

    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            let bytes = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if bytes == 0 {
                return Ok(None);
            }
            if line.last() != Some(&b'\n') {
                if bytes as u64 == LINE_BYTES_MAX {
                    let reason = format!("a line has more than {LINE_BYTES_MAX} bytes");
                    return Err(io::Error::other(reason));
                }
                line.push(b'\n');
            }
            if !matches!(&line[..], b"\n" | b"\r\n") {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(input: &[u8]) -> Vec<Chunk> {
        let mut chunks = Chunks::new(input);
        std::iter::from_fn(|| chunks.next().unwrap()).collect()
    }

    #[test]
    fn a_chunk_has_a_bounded_number_of_lines_and_none_is_lost() {
        let input: String = (0..25_000).map(|number| format!("{number}\n")).collect();
        let chunks = chunks(input.as_bytes());
        let lines: Vec<_> = chunks.iter().map(|chunk| chunk.lines).collect();
        assert_eq!(lines, [10_000, 10_000, 5_000]);
        let bodies: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.body).collect();
        assert_eq!(bodies, input.as_bytes());
    }

    #[test]
    fn a_chunk_has_a_bounded_size_unless_one_line_alone_is_larger() {
        let third = "x".repeat(CHUNK_BYTES_MAX / 3);
        let huge = "y".repeat(CHUNK_BYTES_MAX + 5);
        let input = format!("{third}\n{third}\n{third}\n{huge}\nz\n");
        let lines: Vec<_> = chunks(input.as_bytes()).iter().map(|chunk| chunk.lines).collect();
        assert_eq!(lines, [2, 1, 1, 1]);
    }

    #[test]
    fn empty_lines_are_left_out_and_the_last_newline_is_optional() {
        let expected = Chunk { body: b"a\nb\r\nc\n".to_vec(), lines: 3 };
        assert_eq!(chunks(b"\na\n\n\r\nb\r\nc"), [expected]);
        assert!(chunks(b"\n\n").is_empty() && chunks(b"").is_empty());
    }
}
