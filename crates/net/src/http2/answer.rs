//! The body of an answer in pieces. The server library takes what it is given whether or not the
//! client reads; each piece shows when the client has read so far.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::activity::InProgress;

/// The largest frame that every client accepts. A client that takes `read_wait_max` for one reads
/// a few hundred bytes per second.
const PIECE_BYTES_MAX: usize = 16 * 1024;

pub(super) struct Answer<B> {
    body: B,
    /// What is left of the body's last piece.
    rest: Bytes,
    in_progress: Arc<InProgress>,
}

impl<B> Answer<B> {
    pub(super) fn new(body: B, in_progress: Arc<InProgress>) -> Answer<B> {
        Answer { body, rest: Bytes::new(), in_progress }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let length = self.rest.len().min(PIECE_BYTES_MAX);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(self.in_progress.piece(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let upper = hint.upper().map(|upper| upper + rest);
        hint.set_lower(hint.lower() + rest);
        if let Some(upper) = upper {
            hint.set_upper(upper);
        }
        hint
    }
}
