//! Large payloads on their way from a spooled file into the store.

use tokio::io::AsyncReadExt;

use windlass_core::limit::PAYLOAD_PIECE_BYTES;
use windlass_core::store::Piece;
use windlass_core::{JobId, Store};

use crate::error::{Error, store_error};

/// Copies a spooled payload into the store, one piece at a time.
pub(crate) async fn put_pieces(
    store: &dyn Store,
    id: JobId,
    file: &std::path::Path,
) -> Result<(), Error> {
    let unreadable = |e| Error::Unavailable(format!("cannot read {}: {e}", file.display()));
    let mut file_open = tokio::fs::File::open(file).await.map_err(unreadable)?;
    for index in 0.. {
        let mut piece = Vec::with_capacity(PAYLOAD_PIECE_BYTES);
        let mut limited = (&mut file_open).take(PAYLOAD_PIECE_BYTES as u64);
        limited.read_to_end(&mut piece).await.map_err(unreadable)?;
        if piece.is_empty() {
            break;
        }
        let piece = Piece { id, index, bytes: piece.into() };
        store.payload_put(vec![piece]).await.map_err(store_error)?;
    }
    Ok(())
}
