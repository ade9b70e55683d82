//! One job in a context: its state until it ends, and then its report.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::Value;
use windlass_core::limit::RESULT_BYTES_MAX;
use windlass_core::runner::{Assignment, Emitted, Report, Stop};
use windlass_core::{AddOptions, Code, Invalid, Json, Status, Timestamp, TypeName};

use super::message::{ContextAnswer, StreamName};
use super::result::ResultData;
use crate::mask::Mask;
use crate::output::{Output, Stream};

/// A job that a context is working on.
pub(super) struct Flight {
    pub(super) assignment: Assignment,
    pub(super) output: Output,
    /// A job that it emitted and that cannot be added.
    trouble: Option<String>,
    ended: Option<Ended>,
}

struct Ended {
    status: Status,
    stopped: Option<Stop>,
    data: Option<Json>,
    /// Its own time, without its share of the scripts around the batch.
    own_time: Duration,
}

impl Flight {
    pub(super) fn new(assignment: Assignment, log_bytes_max: usize, mask: &Arc<Mask>) -> Flight {
        let output = Output::live(log_bytes_max, Arc::clone(&assignment.live)).masked(mask);
        Flight { assignment, output, trouble: None, ended: None }
    }

    /// Output from the start of the context comes before the job's own lines.
    pub(super) fn prepend_output(&mut self, output: Output) {
        self.output = output.shown_in(Arc::clone(&self.assignment.live));
    }

    /// The handler emits a job.
    pub(super) fn emit(&mut self, answer: &ContextAnswer<'_>, now: Timestamp) {
        let emitted = emitted(answer, now).map_err(|invalid| invalid.to_string());
        let added = emitted.and_then(|emitted| self.output.emit(emitted));
        if let Err(reason) = added {
            self.trouble.get_or_insert(format!("emit adds no job: {reason}"));
        }
    }

    /// The handler has ended, in whatever way.
    pub(super) fn end(&mut self, answer: &ContextAnswer<'_>, data: ResultData) {
        let mut status = answer.status.and_then(Status::new).unwrap_or(Status::ERROR);
        if let Some(error) = &answer.error {
            self.output.push_framed(Stream::Err, error.as_bytes());
            self.output.end();
        }
        let data = match data {
            ResultData::Fits(data) => Some(data),
            ResultData::Absent => None,
            ResultData::TooLarge => {
                self.trouble.get_or_insert_with(too_large);
                None
            }
        };
        if let Some(trouble) = self.trouble.take() {
            self.output.end();
            self.output.note(&trouble);
            status = Status::ERROR;
        }
        self.ended = Some(Ended { status, stopped: None, data, own_time: answer.us() });
    }

    /// Fails the attempt for this reason.
    pub(super) fn fail(&mut self, reason: &str, stopped: Option<Stop>, own_time: Duration) {
        self.output.end();
        self.output.note(reason);
        self.ended = Some(Ended { status: Status::ERROR, stopped, data: None, own_time });
    }

    /// The work is void, because a script that had to follow it failed.
    pub(super) fn undo(&mut self, reason: &str) {
        if let Some(ended) = self.ended.as_mut().filter(|ended| ended.status.code() == Code::Ok) {
            ended.status = Status::ERROR;
            ended.data = None;
            self.output.note(reason);
        }
    }

    /// The memory that its log, its emitted jobs and its result take.
    pub(super) fn held_bytes(&self) -> usize {
        let data = self.ended.as_ref().and_then(|ended| ended.data.as_ref());
        self.output.held_bytes() + data.map_or(0, |data| data.as_str().len())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// The report of an ended job; `share` is its part of the scripts around the batch.
    pub(super) fn report(self, share: Duration) -> Option<Report> {
        let Ended { status, stopped, data, own_time } = self.ended?;
        let mut output = self.output;
        output.end();
        let (log, emitted) = output.finish();
        Some(Report { status, stopped, data, log, emitted, run_time: own_time + share })
    }
}

impl ContextAnswer<'_> {
    /// Adds output written through the language's own streams.
    pub(super) fn output_to(&self, output: &mut Output) {
        let stream = match self.stream {
            Some(StreamName::Stderr) => Stream::Err,
            Some(StreamName::Stdout) | None => Stream::Out,
        };
        output.push_framed(stream, self.text.as_deref().unwrap_or_default().as_bytes());
    }
}

fn too_large() -> String {
    format!("its result has more than {RESULT_BYTES_MAX} bytes")
}

fn emitted(answer: &ContextAnswer<'_>, now: Timestamp) -> Result<Emitted, Invalid> {
    let name = TypeName::new(answer.r#type.as_deref().unwrap_or_default())?;
    let payload: Bytes = match (&answer.payload, &answer.payload_base64) {
        (Some(text), _) => text.as_bytes().to_vec().into(),
        (None, Some(encoded)) => {
            let bytes = BASE64_STANDARD.decode(encoded.as_bytes());
            bytes.map_err(|_| Invalid::new("payload", "it is not base64"))?.into()
        }
        (None, None) => Bytes::new(),
    };
    let options = answer.options.map_or("null", |options| options.get());
    let options: Value = serde_json::from_str(options).unwrap_or_default();
    Ok(Emitted { name, payload, options: AddOptions::parse(&options, now)? })
}
