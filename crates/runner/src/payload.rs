//! The payload as a handler receives it. A large one is read piece by piece while it is sent. If a
//! piece cannot be read, the attempt fails, so that a part is never taken for the whole.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use windlass_core::runner::Pieces;
use windlass_core::{JobId, Payload};

/// How long a job waits for the beginning of its payload before it is returned.
const FIRST_PIECE_WAIT_MAX: Duration = Duration::from_secs(30);

/// Reads one payload from its beginning to its end, once.
pub(crate) struct PayloadReader {
    id: JobId,
    bytes: u64,
    /// Bytes not yet read from `pieces`.
    missing: u64,
    next_index: u32,
    ready: Option<Bytes>,
    pieces: Arc<dyn Pieces>,
}

impl PayloadReader {
    /// Reads the first piece, so that a job whose payload cannot be read is not started at all.
    pub(crate) async fn open(
        id: JobId,
        payload: &Payload,
        pieces: &Arc<dyn Pieces>,
    ) -> Result<PayloadReader, String> {
        let (ready, missing) = match payload {
            Payload::Inline(bytes) => (Some(bytes.clone()), 0),
            Payload::Pieces { bytes } => (None, *bytes),
        };
        let pieces = Arc::clone(pieces);
        let bytes = payload.len();
        let mut reader = PayloadReader { id, bytes, missing, next_index: 0, ready, pieces };
        let first = timeout(FIRST_PIECE_WAIT_MAX, reader.next()).await;
        reader.ready = first.map_err(|_| "the first piece of the payload did not arrive")??;
        Ok(reader)
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    /// The next bytes; `None` only after the whole payload.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        if let Some(ready) = self.ready.take() {
            return Ok(Some(ready));
        }
        if self.missing == 0 {
            return Ok(None);
        }
        let index = self.next_index;
        let piece = self.pieces.piece(self.id, index).await;
        let piece = piece.map_err(|reason| format!("piece {index} of the payload: {reason}"))?;
        let piece = piece.filter(|piece| !piece.is_empty()).unwrap_or_default();
        if piece.is_empty() || piece.len() as u64 > self.missing {
            return Err(format!(
                "the pieces of the payload do not add up to its {} bytes",
                self.bytes
            ));
        }
        self.missing -= piece.len() as u64;
        self.next_index += 1;
        Ok(Some(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Listed(Vec<Result<Option<Bytes>, String>>);

    #[async_trait::async_trait]
    impl Pieces for Listed {
        async fn piece(&self, _: JobId, index: u32) -> Result<Option<Bytes>, String> {
            self.0.get(index as usize).cloned().unwrap_or(Ok(None))
        }
    }

    async fn read(bytes: u64, pieces: &[Result<&'static str, &str>]) -> Result<String, String> {
        let listed = pieces.iter().map(|piece| {
            piece.map(|text| Some(Bytes::from_static(text.as_bytes()))).map_err(str::to_owned)
        });
        let pieces: Arc<dyn Pieces> = Arc::new(Listed(listed.collect()));
        let payload = Payload::Pieces { bytes };
        let mut reader = PayloadReader::open(JobId::new(1).unwrap(), &payload, &pieces).await?;
        let mut whole = Vec::new();
        while let Some(piece) = reader.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(String::from_utf8(whole).unwrap())
    }

    #[tokio::test]
    async fn pieces_come_in_order_and_whole() {
        assert_eq!(read(5, &[Ok("abc"), Ok("de")]).await, Ok("abcde".into()));
        assert_eq!(read(0, &[]).await, Ok(String::new()));
    }

    #[tokio::test]
    async fn a_payload_that_is_not_whole_is_an_error() {
        for pieces in [&[Ok("abc")][..], &[Ok("abc"), Ok("def")], &[], &[Ok("")]] {
            assert!(read(5, pieces).await.unwrap_err().contains("add up to its 5 bytes"));
        }
        let broken = read(5, &[Ok("abc"), Err("disk gone")]).await;
        assert_eq!(broken, Err("piece 1 of the payload: disk gone".into()));
    }
}
