//! Frames: four bytes of length, most significant first, then that many bytes of JSON.

use bytes::{Buf, Bytes, BytesMut};
use serde::Serialize;

/// Longest frame in either direction.
pub(super) const FRAME_BYTES_MAX: usize = 32 * 1024 * 1024;
const LENGTH_BYTES: usize = 4;

/// The bytes cannot be the beginning of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoFrame;

/// Bytes that have been read and not yet split into frames.
#[derive(Default)]
pub(super) struct Frames {
    pub(super) buffer: BytesMut,
}

impl Frames {
    /// Takes the next complete frame, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, NoFrame> {
        let Some(length) = self.buffer.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > FRAME_BYTES_MAX {
            return Err(NoFrame);
        }
        if self.buffer.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

/// The message as a frame; `None` if it is too long.
pub(super) fn encode(message: &impl Serialize) -> Option<Vec<u8>> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, message).ok()?;
    let length = frame.len() - LENGTH_BYTES;
    if length > FRAME_BYTES_MAX {
        return None;
    }
    frame[..LENGTH_BYTES].copy_from_slice(&u32::try_from(length).ok()?.to_be_bytes());
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_whole_however_the_bytes_arrive() {
        let mut bytes = encode(&"one").unwrap();
        bytes.extend(encode(&vec![2, 3]).unwrap());
        for piece_bytes in 1..=bytes.len() {
            let mut frames = Frames::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(piece_bytes) {
                frames.buffer.extend_from_slice(piece);
                while let Some(frame) = frames.next().unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!(got, [&b"\"one\""[..], b"[2,3]"], "{piece_bytes}");
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused_before_anything_is_held_for_it() {
        for length in [0, FRAME_BYTES_MAX as u32 + 1, u32::MAX, u32::from_be_bytes(*b"garb")] {
            let mut frames = Frames::default();
            frames.buffer.extend_from_slice(&length.to_be_bytes());
            assert_eq!(frames.next(), Err(NoFrame), "{length}");
        }
        assert_eq!(encode(&"x".repeat(FRAME_BYTES_MAX)), None);
    }
}
