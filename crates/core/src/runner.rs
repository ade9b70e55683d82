//! The seam to what runs jobs. A runner gets batches of one handler, reports each job as it starts
//! and ends, and leaves every decision about the job to the engine.

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

#[async_trait]
pub trait Runner: Send + Sync + 'static {
    /// Whether this machine can run the handler. Checked when it is set, so that its author gets
    /// the error.
    fn check(&self, spec: &HandlerSpec) -> Result<(), Invalid>;

    /// Whether the sources can be read in their language; asked once, when the handler is set. It
    /// may take as long as a process takes to start.
    async fn compile(&self, _key: &TypeKey, _spec: &HandlerSpec) -> Result<(), Invalid> {
        Ok(())
    }

    /// The handler is being set: a hint to get ready for its first job.
    fn prepare(&self, _handler: Arc<Handler>) {}

    /// The handler of this type was deleted: nothing has to be kept ready for it.
    fn forget(&self, _key: &TypeKey) {}

    /// The most jobs of this handler that are worth handing over at once.
    fn batch_max(&self, handler: &Handler) -> u32;

    /// The most batches of this handler that are worth running at once; `None` if there cannot be
    /// too many.
    fn batches_max(&self, handler: &Handler) -> Option<u32> {
        handler.spec.options.contexts
    }

    /// Runs the batch to its end. Each job is reported exactly once as ended or as returned; one
    /// that is ended was reported as started before.
    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>);

    /// Ends one attempt now, with everything that it started. It is then reported as ended with
    /// this reason. An unknown attempt is ignored: it may just have ended by itself. Another
    /// attempt of the same job is not touched.
    fn stop(&self, attempt: AttemptId, why: Stop);

    /// Handlers that have an idle context, as a hint to the scheduler.
    fn warm(&self) -> Vec<HandlerId>;

    /// Ends every idle context. Called once, after the last batch.
    async fn close(&self);
}

/// Jobs of one handler version, in the order in which they are to start.
pub struct Batch {
    pub handler: Arc<Handler>,
    pub jobs: Vec<Assignment>,
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

/// Reads a large payload piece by piece, so that it is never whole in memory.
#[async_trait]
pub trait Pieces: Send + Sync {
    /// Piece number `index`, from 0; `None` behind the last.
    async fn piece(&self, id: JobId, index: u32) -> Result<Option<Bytes>, String>;
}

/// Receives the reports of a runner, attempt by attempt.
#[async_trait]
pub trait Reports: Send + Sync {
    async fn started(&self, attempt: AttemptId);
    /// How far the attempt has come, in its handler's words; between its start and its end.
    async fn progress(&self, attempt: AttemptId, percent: f64, message: String);
    async fn ended(&self, attempt: AttemptId, report: Report);
    /// Not started, for no fault of its own: goes back to the queue unharmed.
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
    /// The tail of what it wrote, and what the runner has to say about its end.
    pub log: Log,
    /// Jobs that it asked for, in order; at most `EMITTED_MAX`.
    pub emitted: Vec<Emitted>,
    /// The job's own share of the batch's time.
    pub run_time: Duration,
}

/// A job that a handler asks for. The tenant is always the handler's.
#[derive(Debug, Clone, PartialEq)]
pub struct Emitted {
    pub name: TypeName,
    /// At most `PAYLOAD_INLINE_BYTES_MAX`.
    pub payload: Bytes,
    pub options: AddOptions,
}

/// Why an attempt was ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Ran longer than its time limit.
    TimedOut,
    /// Its time to give up came while it ran.
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
