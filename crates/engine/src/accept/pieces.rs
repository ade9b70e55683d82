//! Copies large payloads from spooled files into the store.

use std::io;
use std::path::{Path, PathBuf};

use tokio::io::AsyncReadExt;

use windlass_core::limit::PAYLOAD_PIECE_BYTES;
use windlass_core::store::{self, Piece};
use windlass_core::{JobId, Store};

use crate::error::{Error, store_error};

/// Why a payload was not copied.
pub(crate) enum NotPut {
    Unreadable(PathBuf, io::Error),
    Store(store::Error),
}

impl From<NotPut> for Error {
    fn from(not_put: NotPut) -> Error {
        match not_put {
            NotPut::Unreadable(file, error) => {
                Error::Unavailable(format!("cannot read {}: {error}", file.display()))
            }
            NotPut::Store(error) => store_error(error),
        }
    }
}

/// Copies a spooled payload of `bytes` bytes into the store, one piece at a time.
pub(crate) async fn put_pieces(
    store: &dyn Store,
    id: JobId,
    file: &Path,
    bytes: u64,
) -> Result<(), NotPut> {
    let unreadable = |error| NotPut::Unreadable(file.to_owned(), error);
    let mut put_bytes = 0;
    let mut file_open = tokio::fs::File::open(file).await.map_err(unreadable)?;
    for index in 0.. {
        let mut piece = Vec::with_capacity(PAYLOAD_PIECE_BYTES);
        let mut limited = (&mut file_open).take(PAYLOAD_PIECE_BYTES as u64);
        limited.read_to_end(&mut piece).await.map_err(unreadable)?;
        if piece.is_empty() {
            break;
        }
        put_bytes += piece.len() as u64;
        let piece = Piece { id, index, bytes: piece.into() };
        store.payload_put(vec![piece]).await.map_err(NotPut::Store)?;
    }
    if put_bytes != bytes {
        let what = format!("it has {put_bytes} bytes instead of {bytes}");
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, what)));
    }
    Ok(())
}

/// Renames an unreadable payload file, so that nothing removes it and an operator can try to rescue
/// it.
pub(crate) async fn set_aside(file: &Path) {
    let Some(name) = file.file_name() else { return };
    let aside = file.with_file_name(format!("unreadable-{}", name.display()));
    // Usually the file does not exist.
    let _ = tokio::fs::rename(file, aside).await;
}
