//! Output in files, as text. It may be very long, so that only a few answers with such output are
//! in memory at a time: from before it is read until the client has it.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use mongodb::bson::{Bson, Document};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::show::OUTPUT;
use crate::dci::Dci;
use crate::dci::error::Failure;
use crate::gridfs;

/// Answers with output of files.
const AT_ONCE_MAX: usize = 2;
/// How long another one waits for its turn.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Leave to have the output of files in memory.
pub(crate) type Leave = OwnedSemaphorePermit;

/// Gives leave, to all requests together.
#[derive(Clone)]
pub(crate) struct Files(Arc<Semaphore>);

impl Default for Files {
    fn default() -> Files {
        Files(Arc::new(Semaphore::new(AT_ONCE_MAX)))
    }
}

impl Files {
    async fn leave(&self) -> Result<Leave, Failure> {
        match timeout(WAIT_MAX, self.0.clone().acquire_owned()).await {
            Ok(Ok(leave)) => Ok(leave),
            Ok(Err(_)) | Err(_) => {
                let message = "too many ask for long output at once; ask again in a moment";
                Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, message))
            }
        }
    }
}

/// Puts the text of files in the place of their ids; what cannot be read keeps its id. One leave is
/// enough for all that is sent together.
pub(crate) async fn fill(
    dci: &Dci,
    task: &mut Document,
    leave: &mut Option<Leave>,
) -> Result<(), Failure> {
    for name in OUTPUT {
        let Some(Bson::ObjectId(file)) = task.get(name) else { continue };
        if leave.is_none() {
            *leave = Some(dci.files().leave().await?);
        }
        match gridfs::load(dci.database(), *file).await {
            Ok(text) => drop(task.insert(name, text)),
            Err(error) => {
                let id = task.get("_id").map(ToString::to_string).unwrap_or_default();
                tracing::warn!("Could not get task {id} {name}: {error}");
            }
        }
    }
    Ok(())
}

/// Bytes that keep the leave until they are sent.
pub(crate) fn sent(text: String, leave: Option<Leave>) -> Bytes {
    struct Sent(String, #[expect(dead_code, reason = "held until it is dropped")] Option<Leave>);
    impl AsRef<[u8]> for Sent {
        fn as_ref(&self) -> &[u8] {
            self.0.as_bytes()
        }
    }
    Bytes::from_owner(Sent(text, leave))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn leave_comes_back_with_what_was_sent() {
        let files = Files::default();
        let first = sent("text".into(), Some(files.leave().await.unwrap()));
        let _second = files.leave().await.unwrap();
        assert_eq!(files.leave().await.unwrap_err().status.as_u16(), 503);
        let part = first.slice(..1);
        drop(first);
        assert!(files.leave().await.is_err(), "a part of it is still to be sent");
        drop(part);
        assert!(files.leave().await.is_ok());
    }
}
