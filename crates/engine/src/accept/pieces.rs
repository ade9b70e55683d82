//! Copies large payloads from spooled files into the store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use windlass_core::JobId;
use windlass_core::file_name::FileName;
use windlass_core::limit::PAYLOAD_PIECE_BYTES;
use windlass_core::store::{self, Piece};
use windlass_journal::{Disk, on_disk};

use crate::accept::step;
use crate::error::{Error, store_error};
use crate::shared::Shared;

/// Why a payload was not copied.
pub(crate) enum NotPut {
    Unreadable(PathBuf, io::Error),
    Store(store::Error),
}

impl From<NotPut> for Error {
    fn from(not_put: NotPut) -> Error {
        match not_put {
            NotPut::Unreadable(file, error) => {
                Error::Unavailable(format!("cannot read {}: {error}", FileName(&file)))
            }
            NotPut::Store(error) => store_error(error),
        }
    }
}

/// Copies a spooled payload of `bytes` bytes into the store, one piece at a time. `patience` is for
/// each piece.
pub(crate) async fn put_pieces(
    shared: &Shared,
    id: JobId,
    file: &Path,
    bytes: u64,
    patience: Option<Duration>,
) -> Result<(), NotPut> {
    let disk = &shared.disk;
    let unreadable = |error| NotPut::Unreadable(file.to_owned(), error);
    let named = file.to_owned();
    let found = reading(disk, move |disk| disk.bytes(&named)).await.map_err(unreadable)?;
    if found != bytes {
        let what = format!("it has {found} bytes instead of {bytes}");
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, what)));
    }
    for (index, offset) in (0..).zip((0..bytes).step_by(PAYLOAD_PIECE_BYTES)) {
        let piece = read_piece(disk, file, offset, bytes).await.map_err(unreadable)?;
        let put = shared.store.payload_put(vec![Piece { id, index, bytes: piece }]);
        step(shared, patience, put).await.map_err(NotPut::Store)?;
    }
    Ok(())
}

/// The piece at `offset` of a spooled payload of `bytes` bytes.
pub(crate) async fn read_piece(
    disk: &Arc<dyn Disk>,
    file: &Path,
    offset: u64,
    bytes: u64,
) -> io::Result<Bytes> {
    let length = bytes.saturating_sub(offset).min(PAYLOAD_PIECE_BYTES as u64) as usize;
    let named = file.to_owned();
    let piece = reading(disk, move |disk| disk.read(&named, offset, length)).await?;
    Ok(Bytes::from(piece))
}

async fn reading<T: Send + 'static>(
    disk: &Arc<dyn Disk>,
    read: impl FnOnce(&dyn Disk) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let its = disk.clone();
    on_disk(&**disk, move || read(&*its)).await.map_err(io::Error::other)?
}

/// Renames an unreadable payload file, so that nothing removes it and an operator can try to rescue
/// it.
pub(crate) async fn set_aside(disk: &Arc<dyn Disk>, file: &Path) {
    let Some(name) = file.file_name() else { return };
    let aside = file.with_file_name(format!("unreadable-{}", name.display()));
    let file = file.to_owned();
    // Usually the file does not exist.
    let _ =
        reading(disk, move |disk| disk.link(&file, &aside).and_then(|()| disk.remove(&file))).await;
}
