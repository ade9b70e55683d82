//! A text for each job of a batch, which the bootstrap repeats when it speaks for that job.
//!
//! The code of a job can write to the descriptor on which its context answers. It does not know the
//! nonces of other jobs, so an answer that it writes for one of them does not count. Inside of one
//! process this cannot be a wall: code that searches the memory of its own interpreter finds them.

use std::io;

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Serialize, Serializer};

const BYTES: usize = 8;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// 64 random bits, as hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonce([u8; 2 * BYTES]);

impl Nonce {
    /// One for each of so many jobs. They come from the operating system, because a handler that
    /// sees one must not be able to calculate the next.
    pub(super) fn several(count: usize) -> io::Result<Vec<Nonce>> {
        let mut bytes = vec![0; count * BYTES];
        let mut filled = 0;
        while filled < bytes.len() {
            let rest = &mut bytes[filled..];
            filled += retry_on_intr(|| getrandom(&mut *rest, GetRandomFlags::empty()))?;
        }
        Ok(bytes.chunks_exact(BYTES).map(Nonce::of).collect())
    }

    pub(super) fn of(bytes: &[u8]) -> Nonce {
        let mut text = [0; 2 * BYTES];
        for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 0xf)];
        }
        Nonce(text)
    }

    pub(super) fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Serialize for Nonce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_job_has_its_own() {
        let nonces = Nonce::several(1000).unwrap();
        let texts: HashSet<&str> = nonces.iter().map(Nonce::as_str).collect();
        assert_eq!((nonces.len(), texts.len()), (1000, 1000));
        assert!(texts.iter().all(|text| text.len() == 16));
        assert!(Nonce::several(0).unwrap().is_empty());
    }

    #[test]
    fn it_is_written_in_hexadecimal() {
        assert_eq!(
            Nonce::of(&[0, 1, 0x2a, 0x9f, 0xf0, 0xff, 0x80, 0x7f]).as_str(),
            "00012a9ff0ff807f"
        );
    }
}
