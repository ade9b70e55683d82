//! The two outputs of a command: the beginning of each is kept, the rest is counted, and all of it
//! is read, so that the command never blocks on a write.

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};
use windlass_core::launch::Output;

const READ_BYTES: usize = 16 * 1024;

pub(super) struct Pipes {
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
}

impl Pipes {
    pub(super) fn new(stdout: ChildStdout, stderr: ChildStderr, bytes_max: usize) -> Pipes {
        Pipes { stdout: Pipe::new(stdout, bytes_max), stderr: Pipe::new(stderr, bytes_max) }
    }

    pub(super) fn are_open(&self) -> bool {
        self.stdout.is_open() || self.stderr.is_open()
    }

    /// Reads what comes next. Cancelling it loses nothing.
    pub(super) async fn read(&mut self) {
        tokio::select! {
            () = self.stdout.read(), if self.stdout.is_open() => {}
            () = self.stderr.read(), if self.stderr.is_open() => {}
            else => {}
        }
    }

    pub(super) async fn read_to_end(&mut self) {
        while self.are_open() {
            self.read().await;
        }
    }

    /// What has been kept so far. Nothing more is kept from now on.
    pub(super) fn taken(&mut self) -> (Output, Output) {
        (self.stdout.taken(), self.stderr.taken())
    }
}

struct Pipe<S> {
    /// Absent once it is closed.
    stream: Option<S>,
    buffer: Vec<u8>,
    kept: Output,
    bytes_max: usize,
}

impl<S: AsyncRead + Unpin> Pipe<S> {
    fn new(stream: S, bytes_max: usize) -> Pipe<S> {
        Pipe {
            stream: Some(stream),
            buffer: vec![0; READ_BYTES],
            kept: Output::default(),
            bytes_max,
        }
    }

    fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// A stream that cannot be read counts as ended.
    async fn read(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let count = stream.read(&mut self.buffer).await.unwrap_or(0);
        if count == 0 {
            self.stream = None;
        }
        let room = self.bytes_max.saturating_sub(self.kept.bytes.len()).min(count);
        self.kept.bytes.extend_from_slice(&self.buffer[..room]);
        self.kept.dropped += (count - room) as u64;
    }

    fn taken(&mut self) -> Output {
        self.bytes_max = 0;
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_beginning_is_kept_and_the_rest_is_counted() {
        for (written, kept, dropped) in
            [(&b""[..], &b""[..], 0), (b"abc", b"abc", 0), (b"abcde", b"abc", 2)]
        {
            let mut pipe = Pipe::new(written, 3);
            while pipe.is_open() {
                pipe.read().await;
            }
            assert_eq!(pipe.taken(), Output { bytes: kept.to_vec(), dropped });
            assert_eq!(pipe.taken(), Output::default());
        }
    }
}
