//! The interface to what runs jobs. A runner gets batches of one handler, reports each job's start
//! and end, and leaves every decision about the job to the engine.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::add::AddOptions;
use crate::handler::{Handler, HandlerId, HandlerSpec};
use crate::id::JobId;
use crate::job::{AttemptId, Job, Payload};
use crate::log::{Live, Log};
use crate::name::{Invalid, TypeKey, TypeName};
use crate::outcome::{Json, Status};
use crate::secret::OpenSecrets;

#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Whether this machine can run the handler. Checked when the handler is set, so that the
    /// client gets the error.
    fn check(&self, spec: &HandlerSpec) -> Result<(), Invalid>;

    /// Whether the sources compile in their language, and its author asks for nothing that is not
    /// allowed now; called once, when the handler is set. May take as long as starting a process.
    async fn compile(&self, _key: &TypeKey, _spec: &HandlerSpec) -> Result<(), NotCompiled> {
        Ok(())
    }

    /// The handler is being set: a hint to prepare for its first job, with these secrets.
    fn prepare(&self, _handler: Arc<Handler>, _secrets: Arc<OpenSecrets>) {}

    /// The handler of this type was deleted: nothing needs to be kept ready for it.
    fn forget(&self, _key: &TypeKey) {}

    /// The largest useful batch of this handler.
    fn batch_max(&self, handler: &Handler) -> u32;

    /// The largest useful number of batches of this handler at once; `None` for no limit.
    fn batches_max(&self, handler: &Handler) -> Option<u32> {
        handler.spec.options.contexts
    }

    /// Runs the batch to its end. Each job is reported exactly once as ended or as returned, and as
    /// started before it is reported as ended.
    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>);

    /// Ends one attempt now, with all its processes. It is then reported as ended with this reason.
    /// An unknown attempt is ignored: it may just have ended by itself. Other attempts of the same
    /// job are not affected.
    fn stop(&self, attempt: AttemptId, why: Stop);

    /// Handlers that have an idle context, as a hint to the scheduler.
    fn warm(&self) -> Vec<HandlerId>;

    /// The layers of isolation that handlers lack on this machine: a sentence for each, with the
    /// reason and what would help.
    fn layers_missing(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ends every idle context. Called once, after the last batch.
    async fn close(&self);
}

/// Why a handler is not set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCompiled {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Too many are being compiled; the caller may try again later.
    #[error("{0}")]
    Busy(String),
}

/// Jobs of one handler version, in the order in which they are to start.
pub struct Batch {
    pub handler: Arc<Handler>,
    pub jobs: Vec<Assignment>,
    /// What the handler gets in its environment; replaced in everything that it says.
    pub secrets: Arc<OpenSecrets>,
    /// Where the pieces of large payloads come from.
    pub pieces: Arc<dyn Pieces>,
}

/// One attempt of a job. Two attempts of one job may be in the runner at once, in two batches.
pub struct Assignment {
    pub id: AttemptId,
    pub job: Arc<Job>,
    pub payload: Payload,
    /// The attempt is stopped with `Stop::TimedOut` when it runs longer.
    pub timeout: Duration,
    /// Where its lines are shown while it runs.
    pub live: Arc<Live>,
}

/// Reads a large payload piece by piece, so that it is never in memory as a whole.
#[async_trait]
pub trait Pieces: Send + Sync {
    /// Piece number `index`, from 0; `None` after the last.
    async fn piece(&self, id: JobId, index: u32) -> Result<Option<Bytes>, String>;
}

/// Receives the reports of a runner, attempt by attempt.
#[async_trait]
pub trait Reports: Send + Sync {
    async fn started(&self, attempt: AttemptId);
    /// The handler's progress report, between start and end of the attempt.
    async fn progress(&self, attempt: AttemptId, percent: f64, message: String);
    async fn ended(&self, attempt: AttemptId, report: Report);
    /// It did not run, through no fault of its own: the job is released. It may have been reported
    /// as started.
    async fn returned(&self, attempt: AttemptId);
}

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub status: Status,
    /// Set when the attempt did not end by itself.
    pub stopped: Option<Stop>,
    /// At most `RESULT_BYTES_MAX`.
    pub data: Option<Json>,
    /// The tail of its output, and the runner's notes on its end.
    pub log: Log,
    /// Jobs that it emitted, in order; at most `EMITTED_MAX`.
    pub emitted: Vec<Emitted>,
    /// The job's own share of the batch's time.
    pub run_time: Duration,
}

/// A job that a handler emits. The tenant is always the handler's.
#[derive(Debug, Clone, PartialEq)]
pub struct Emitted {
    pub name: TypeName,
    /// At most `PAYLOAD_INLINE_BYTES_MAX`.
    pub payload: Bytes,
    pub options: AddOptions,
}

/// Why an attempt was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Ran longer than its time limit.
    TimedOut,
    /// The job expired while it ran.
    Expired,
    Cancelled,
    /// A newer attempt owns the job by now.
    LeaseLost,
    /// The daemon stops.
    Shutdown,
}

impl Stop {
    /// The text in the job's log.
    pub fn as_str(self) -> &'static str {
        match self {
            Stop::TimedOut => "timed out",
            Stop::Expired => "expired",
            Stop::Cancelled => "cancelled",
            Stop::LeaseLost => "lease lost",
            Stop::Shutdown => "stopped by shutdown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::{HandlerOptions, Lang};
    use crate::time::Timestamp;

    /// Says nothing that it need not say.
    struct Plain;

    #[async_trait]
    impl Runner for Plain {
        fn check(&self, _: &HandlerSpec) -> Result<(), Invalid> {
            Ok(())
        }
        fn batch_max(&self, _: &Handler) -> u32 {
            1
        }
        async fn run(&self, _: Batch, _: Arc<dyn Reports>) {}
        fn stop(&self, _: AttemptId, _: Stop) {}
        fn warm(&self) -> Vec<HandlerId> {
            Vec::new()
        }
        async fn close(&self) {}
    }

    #[test]
    fn batches_at_once_are_bounded_by_the_handlers_contexts() {
        for contexts in [None, Some(7)] {
            let options = HandlerOptions { contexts, ..HandlerOptions::default() };
            let spec = HandlerSpec { options, ..HandlerSpec::new(Lang::Sh, "true") };
            let key = TypeKey::new("acme", "t").unwrap();
            let id = JobId::new(1).unwrap();
            let handler = Handler { id, key, created_at: Timestamp(0), spec };
            assert_eq!(Plain.batches_max(&handler), contexts);
        }
        assert!(Plain.layers_missing().is_empty());
    }

    #[test]
    fn a_log_says_why_an_attempt_was_stopped() {
        let reasons =
            [Stop::TimedOut, Stop::Expired, Stop::Cancelled, Stop::LeaseLost, Stop::Shutdown];
        let texts = ["timed out", "expired", "cancelled", "lease lost", "stopped by shutdown"];
        assert_eq!(reasons.map(Stop::as_str), texts);
    }
}
