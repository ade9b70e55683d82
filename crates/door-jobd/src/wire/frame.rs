//! Framing: turns a byte stream into complete messages, within bounds.

use bytes::{Buf, Bytes, BytesMut};

/// The byte after every message.
pub(crate) const END: u8 = 0x04;
/// Maximum length of a message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum length while an answer is due: answers carry the output of many jobs.
pub(crate) const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Collects bytes and returns complete messages.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    buffer: BytesMut,
    /// How many bytes have been searched for the end.
    searched: usize,
}

impl Splitter {
    /// The buffer to append to.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next complete message without its end; `None` if more bytes are needed.
    pub(crate) fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, TooLong> {
        let found = memchr::memchr(END, &self.buffer[self.searched..]);
        let length = self.searched + found.unwrap_or(self.buffer.len() - self.searched);
        if length > bytes_max {
            return Err(TooLong);
        }
        if found.is_none() {
            self.searched = length;
            return Ok(None);
        }
        self.searched = 0;
        let message = self.buffer.split_to(length).freeze();
        self.buffer.advance(1);
        if self.buffer.is_empty() {
            // Free the memory of a connection that was busy once.
            self.buffer = BytesMut::new();
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All messages in the pieces.
    fn split(pieces: &[&[u8]], bytes_max: usize) -> Result<Vec<Bytes>, TooLong> {
        let (mut splitter, mut messages) = (Splitter::default(), Vec::new());
        for piece in pieces {
            splitter.buffer().extend_from_slice(piece);
            while let Some(message) = splitter.next(bytes_max)? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    #[test]
    fn messages_come_out_whole_however_they_came_in() {
        let bytes: &[u8] = b"[2]\x04\x04[0,{}]\x04rest";
        let whole = split(&[bytes], 10).unwrap();
        assert_eq!(whole, [&b"[2]"[..], b"", b"[0,{}]"]);
        let singles: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(split(&singles, 10).unwrap(), whole);
        for at in 0..bytes.len() {
            assert_eq!(split(&[&bytes[..at], &bytes[at..]], 10).unwrap(), whole, "{at}");
        }
    }

    #[test]
    fn a_message_may_be_as_long_as_the_bound_and_not_longer() {
        assert_eq!(split(&[b"12345\x04"], 5).unwrap(), [&b"12345"[..]]);
        assert_eq!(split(&[b"12345"], 5), Ok(Vec::new()));
        assert_eq!(split(&[b"123456"], 5), Err(TooLong));
        assert_eq!(split(&[b"123456\x04"], 5), Err(TooLong));
        assert_eq!(split(&[b"123", b"456"], 5), Err(TooLong));
    }

    #[test]
    fn what_was_searched_is_not_searched_again() {
        let mut splitter = Splitter::default();
        splitter.buffer().extend_from_slice(b"abc");
        assert_eq!(splitter.next(10), Ok(None));
        assert_eq!(splitter.searched, 3);
        splitter.buffer().extend_from_slice(b"d\x04e\x04");
        assert_eq!(splitter.next(10), Ok(Some(Bytes::from_static(b"abcd"))));
        assert_eq!(splitter.next(10), Ok(Some(Bytes::from_static(b"e"))));
    }
}
