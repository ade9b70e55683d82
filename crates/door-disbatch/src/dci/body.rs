//! Reads request bodies within the bounds of `windlass_net`; the data parsed from them counts, too.

use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;

use windlass_net::{BodyError, BodyReader, Memory, SMALL_BYTES_MAX, Share};

use super::error::Failure;

/// Maximum size of a body; the largest are lists of new tasks.
pub(crate) const BODY_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Memory for the larger bodies of all requests and for what is parsed from them.
pub(crate) const MEMORY_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Memory for what is parsed from one body.
const READ_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Longest pause between two pieces of a body.
const PATIENCE: Duration = Duration::from_secs(30);

/// The memory of one request: its body and what is parsed from it.
pub(crate) struct RequestMemory {
    memory: Share,
    /// Bytes reserved so far for parsed data.
    made: u64,
}

impl RequestMemory {
    /// For a request without a body.
    pub(crate) fn new(memory: &Memory) -> RequestMemory {
        RequestMemory { memory: memory.share(), made: 0 }
    }

    /// Reserves memory for parsed data as long as this lives.
    pub(crate) fn permit(&mut self, bytes: u64) -> Result<(), Failure> {
        if self.made + bytes > READ_BYTES_MAX {
            let message = "the request has too many values; split it";
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        if bytes > SMALL_BYTES_MAX && !self.memory.add(bytes as usize) {
            return Err(refusal(BodyError::NoMemory));
        }
        self.made += bytes;
        Ok(())
    }
}

pub(crate) async fn read(body: Body, memory: &Memory) -> Result<(Bytes, RequestMemory), Failure> {
    let reader = BodyReader::new(body, BODY_BYTES_MAX, PATIENCE).map_err(refusal)?;
    let (bytes, memory) = reader.whole(memory).await.map_err(refusal)?;
    Ok((bytes, RequestMemory { memory, made: 0 }))
}

fn refusal(error: BodyError) -> Failure {
    let (status, message) = match error {
        BodyError::TooLarge => {
            let message = format!("a body has at most {BODY_BYTES_MAX} bytes; split the request");
            (StatusCode::PAYLOAD_TOO_LARGE, message)
        }
        BodyError::TooSlow => {
            (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned())
        }
        BodyError::Broken(why) => {
            (StatusCode::BAD_REQUEST, format!("the body ended before it was complete: {why}"))
        }
        BodyError::NoMemory => {
            let message = "too many large requests at the same time; try again in a moment";
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
        check(large, &memory, 413, "split the request").await;
        let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        check(stalled, &memory, 408, "in time").await;
        let broken = stream::iter([Err::<Bytes, _>("cut off")]);
        check(Body::from_stream(broken), &memory, 400, "complete: cut off").await;
        let _taken = memory.take(4096).unwrap();
        let large = Body::from(vec![b'x'; BODY_BYTES_MAX as usize]);
        check(large, &memory, 503, "at the same time").await;
    }

    #[tokio::test]
    async fn what_is_made_of_a_body_counts_too() {
        let memory = Memory::new(MEMORY_BYTES_MAX);
        let room = async || read(Body::from("x"), &memory).await.unwrap().1;
        let refused =
            |room: &mut RequestMemory, bytes| room.permit(bytes).unwrap_err().status.as_u16();
        let (mut first, mut second) = (room().await, RequestMemory::new(&memory));
        assert_eq!(refused(&mut first, READ_BYTES_MAX + 1), 413);
        first.permit(READ_BYTES_MAX / 2).unwrap();
        assert_eq!(refused(&mut first, READ_BYTES_MAX), 413, "all of a request counts");
        first.permit(READ_BYTES_MAX / 2).unwrap();
        second.permit(READ_BYTES_MAX).unwrap();
        let mut third = room().await;
        assert_eq!(refused(&mut third, READ_BYTES_MAX), 503);
        assert!(third.permit(10).is_ok(), "little needs none");
        drop((first, second));
        assert!(room().await.permit(READ_BYTES_MAX).is_ok());
    }
}
