//! Adds with one binary payload. A large one is never completely in memory: it is written to disk
//! as it arrives.

use axum::body::Body;
use axum::http::request::Parts;
use bytes::BytesMut;

use windlass_core::TypeKey;
use windlass_core::limit::{PAYLOAD_INLINE_BYTES_MAX, PAYLOAD_PIECE_BYTES};
use windlass_engine::api::{AddJob, AddPayload, Added};

use crate::add::{self, AddParameters, Keyed, not_spooled};
use crate::body::{Buffered, Reader, no_memory};
use crate::door::Door;
use crate::error::Failure;

pub(crate) async fn add(
    door: &Door,
    key: &TypeKey,
    parts: &Parts,
    body: Body,
) -> Result<Added, Failure> {
    let AddParameters { options, mut keyed } = add::parameters(door, key, parts, "bytes")?;
    let reader = Reader::new(&parts.headers, body, door.body_bytes_max, "", door.body_timeout)?;
    let payload = match reader.announced() {
        Some(bytes) if bytes <= PAYLOAD_INLINE_BYTES_MAX as u64 => {
            let whole = reader.whole(&door.memory).await?.counted();
            keyed.iter_mut().for_each(|keyed| keyed.update_body(&whole));
            AddPayload::Inline(whole)
        }
        _ => receive(door, reader, &mut keyed).await?,
    };
    add::accept(door, key, vec![AddJob { payload, options }], keyed).await
}

/// Holds at most `PAYLOAD_INLINE_BYTES_MAX` and what one read of the connection brings.
async fn receive(
    door: &Door,
    mut reader: Reader,
    keyed: &mut Option<Keyed>,
) -> Result<AddPayload, Failure> {
    let memory = door.memory.take(PAYLOAD_INLINE_BYTES_MAX).ok_or_else(no_memory)?;
    let mut buffer = BytesMut::new();
    let mut spool = None;
    while let Some(piece) = reader.next().await? {
        keyed.iter_mut().for_each(|keyed| keyed.update_body(&piece));
        buffer.extend_from_slice(&piece);
        if spool.is_none() && buffer.len() > PAYLOAD_INLINE_BYTES_MAX {
            spool = Some(door.engine.spool().await?);
        }
        if let Some(spool) = &mut spool
            && buffer.len() >= PAYLOAD_PIECE_BYTES
        {
            spool.write(buffer.split().freeze()).await.map_err(not_spooled)?;
        }
    }
    let Some(mut spool) = spool else {
        let whole = Buffered { bytes: buffer.freeze(), memory };
        return Ok(AddPayload::Inline(whole.counted()));
    };
    if !buffer.is_empty() {
        spool.write(buffer.freeze()).await.map_err(not_spooled)?;
    }
    Ok(AddPayload::Spooled(spool.finish().await.map_err(not_spooled)?))
}
