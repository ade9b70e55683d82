//! The rules for whatever a context or a handler writes, for the fuzzer and the tests: how it
//! arrives does not matter, and what is kept of it stays within its bounds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use windlass_core::fuzz::{however_it_arrives, pieces};
use windlass_core::job::Token;
use windlass_core::limit::{EMITTED_MAX, PAYLOAD_INLINE_BYTES_MAX, RESULT_BYTES_MAX};
use windlass_core::runner::{Assignment, Emitted, Report};
use windlass_core::{AttemptId, Job, JobId, NewJob, Payload, Timestamp, TypeKey};

use super::flight::Flight;
use super::frame::{FRAME_BYTES_MAX, Frames, encode};
use super::message::{ContextAnswer, Kind};
use super::result;
use crate::mask::Mask;
use crate::output::{Output, Stream};

const NOW: Timestamp = Timestamp(1_800_000_000_123);
const LOG_BYTES_MAX: usize = 1000;

/// Bytes on the channel of a context that runs one job. Accepts them if they are whole frames, each
/// of them an answer.
pub fn channel(bytes: &[u8]) -> bool {
    let frames = frames_of(bytes);
    let written: usize = frames.iter().map(|frame| 4 + frame.len()).sum();
    let mut flight = Flight::new(assignment(), LOG_BYTES_MAX, &Arc::default());
    let mut answers = 0;
    for frame in &frames {
        assert!((1..=FRAME_BYTES_MAX).contains(&frame.len()));
        if let Ok(value) = serde_json::from_slice::<&RawValue>(frame) {
            let again = encode(&value).expect("it was a frame");
            assert_eq!(frames_of(&again), [Bytes::from(value.get().to_owned())]);
        }
        let Some(answer) = ContextAnswer::parse(frame) else { continue };
        answers += 1;
        match answer.kind {
            Kind::Output => answer.output_to(&mut flight.output),
            Kind::Emit => flight.emit(&answer, NOW),
            Kind::End if !flight.has_ended() => {
                flight.end(&answer, result::prepare(&Mask::default(), answer.data));
            }
            _ => {}
        }
    }
    if let Some(report) = flight.report(Duration::ZERO) {
        check_report(&report);
    }
    !frames.is_empty() && answers == frames.len() && written == bytes.len()
}

/// Bytes that a handler writes to its output. Accepts them if they emit a job.
pub fn output(bytes: &[u8]) -> bool {
    let collect = |pieces: &[&[u8]]| {
        let mut output = Output::new(LOG_BYTES_MAX);
        pieces.iter().for_each(|piece| output.push(Stream::Out, piece));
        output.end();
        output.finish()
    };
    let (log, emitted) = collect(&[bytes]);
    assert_eq!(collect(&pieces(bytes)), (log.clone(), emitted.clone()), "in pieces");
    assert!(log.len() <= LOG_BYTES_MAX, "{}", log.len());
    assert!(!log.to_string().contains('\0'));
    check_emitted(&emitted);
    !emitted.is_empty()
}

fn check_report(report: &Report) {
    assert!(report.log.len() <= LOG_BYTES_MAX, "{}", report.log.len());
    assert!(report.data.as_ref().is_none_or(|data| data.as_str().len() <= RESULT_BYTES_MAX));
    check_emitted(&report.emitted);
}

fn check_emitted(emitted: &[Emitted]) {
    assert!(emitted.len() <= EMITTED_MAX);
    assert!(emitted.iter().all(|emitted| emitted.payload.len() <= PAYLOAD_INLINE_BYTES_MAX));
}

fn frames_of(bytes: &[u8]) -> Vec<Bytes> {
    let add = |frames: &mut Frames, piece: &[u8]| frames.buffer.extend_from_slice(piece);
    however_it_arrives(bytes, add, Frames::next).0
}

pub(super) fn assignment() -> Assignment {
    let id = JobId::new(1).expect("a valid id");
    let key = TypeKey::new("acme", "mail").expect("a valid type");
    let payload = Payload::Inline(Bytes::new());
    let job = Job::queued(NewJob::new(id, key, payload.clone(), NOW));
    Assignment {
        id: AttemptId { job: id, token: Token(1) },
        job: Arc::new(job),
        payload,
        timeout: Duration::from_secs(1),
        live: Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use windlass_test_kit::corpus;

    #[test]
    fn channels() {
        corpus::check("context_channel", 10_000, super::channel);
    }

    #[test]
    fn outputs() {
        corpus::check("handler_output", 10_000, super::output);
    }
}
