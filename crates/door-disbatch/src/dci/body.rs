//! Reading request bodies, within the bounds of `windlass_net`; what is made of them counts too.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;

use windlass_net::{BodyError, BodyReader, Memory, SMALL_BYTES_MAX, Share};

use super::error::Failure;

/// A body; the largest are lists of new tasks.
pub(crate) const BODY_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Larger bodies of all requests together, and what is made of them.
pub(crate) const MEMORY_BYTES_MAX: usize = 512 * 1024 * 1024;
/// What is made of one body.
const READ_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The longest time between two pieces of a body.
const PATIENCE: Duration = Duration::from_secs(30);

/// A body in memory, with its share of it.
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    memory: Share,
}

impl Buffered {
    /// Leave to keep what is made of the body, which takes so many bytes, and the body.
    pub(crate) fn permit(mut self, bytes: u64) -> Result<Share, Failure> {
        if bytes > READ_BYTES_MAX {
            let message = "the body has too many values; send it in parts";
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        if bytes > SMALL_BYTES_MAX && !self.memory.add(bytes as usize) {
            return Err(refusal(BodyError::NoMemory));
        }
        Ok(self.memory)
    }
}

pub(crate) async fn read(body: Body, memory: &Memory) -> Result<Buffered, Failure> {
    let reader = BodyReader::new(body, BODY_BYTES_MAX, PATIENCE).map_err(refusal)?;
    let (bytes, memory) = reader.whole(memory).await.map_err(refusal)?;
    Ok(Buffered { bytes, memory })
}

fn refusal(error: BodyError) -> Failure {
    let (status, message) = match error {
        BodyError::TooLarge => {
            let message = format!("a body has at most {BODY_BYTES_MAX} bytes; send it in parts");
            (StatusCode::PAYLOAD_TOO_LARGE, message)
        }
        BodyError::TooSlow => {
            (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned())
        }
        BodyError::Broken(why) => {
            (StatusCode::BAD_REQUEST, format!("the body ended before it was complete: {why}"))
        }
        BodyError::NoMemory => {
            let message = "too many large requests at once; send it again in a moment";
            (StatusCode::SERVICE_UNAVAILABLE, message.to_owned())
        }
    };
    Failure::new(status, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use std::convert::Infallible;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_is_refused_in_words() {
        let check = async |body: Body, memory: &Memory, status: u16, says: &str| {
            let failure = read(body, memory).await.err().unwrap();
            assert_eq!(failure.status.as_u16(), status);
            let message = failure.body["error"].as_str().unwrap();
            assert!(message.contains(says), "{message}");
        };
        let memory = Memory::new(BODY_BYTES_MAX as usize);
        let large = Body::from(vec![b'x'; BODY_BYTES_MAX as usize + 1]);
        check(large, &memory, 413, "send it in parts").await;
        let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        check(stalled, &memory, 408, "in time").await;
        let broken = stream::iter([Err::<Bytes, _>("cut off")]);
        check(Body::from_stream(broken), &memory, 400, "complete: cut off").await;
        let _taken = memory.take(4096).unwrap();
        let large = Body::from(vec![b'x'; BODY_BYTES_MAX as usize]);
        check(large, &memory, 503, "at once").await;
    }

    #[tokio::test]
    async fn what_is_made_of_a_body_counts_too() {
        let memory = Memory::new(MEMORY_BYTES_MAX);
        let body = async || read(Body::from("x"), &memory).await.unwrap();
        let too_much = body().await.permit(READ_BYTES_MAX + 1).err().unwrap();
        assert_eq!(too_much.status.as_u16(), 413);
        let first = body().await.permit(READ_BYTES_MAX).unwrap();
        let second = body().await.permit(READ_BYTES_MAX).unwrap();
        let busy = body().await.permit(READ_BYTES_MAX).err().unwrap();
        assert_eq!(busy.status.as_u16(), 503);
        assert!(body().await.permit(10).is_ok(), "little needs none");
        drop((first, second));
        assert!(body().await.permit(READ_BYTES_MAX).is_ok());
    }
}
