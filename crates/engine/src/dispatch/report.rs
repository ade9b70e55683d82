//! The runner's reports on a batch become settlements.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;

use windlass_core::limit::RESULT_BYTES_MAX;
use windlass_core::runner::{Report, Reports};
use windlass_core::store::Settlement;
use windlass_core::sync::lock;
use windlass_core::{AttemptId, Job, Log, NewJob, Status, TypeKey};

use crate::accept;
use crate::dispatch::progress::Progresses;
use crate::dispatch::running::RunningJob;
use crate::event;
use crate::secret::NotOpened;
use crate::settle::queue::SettleItem;
use crate::settle::verdict::{self, Cause, Rules};
use crate::shared::Shared;

/// How long a job waits that the runner could not start.
pub(super) const RETURN_PAUSE: Duration = Duration::from_millis(500);

/// The reports on one batch.
pub(super) struct BatchReports {
    shared: Arc<Shared>,
    key: TypeKey,
    /// Attempts whose settlement is not in the settle queue yet.
    open: Mutex<HashMap<AttemptId, OpenAttempt>>,
    progresses: Arc<Progresses>,
}

/// An attempt of the batch that has no settlement yet.
#[derive(Clone, Copy, PartialEq)]
enum OpenAttempt {
    Running,
    /// It has ended, and the metrics have counted that; the settlement is being made.
    Ended,
}

impl BatchReports {
    pub(super) fn new(
        shared: Arc<Shared>,
        key: TypeKey,
        attempts: impl Iterator<Item = AttemptId>,
    ) -> BatchReports {
        let open = Mutex::new(attempts.map(|attempt| (attempt, OpenAttempt::Running)).collect());
        BatchReports { shared, key, open, progresses: Arc::default() }
    }

    pub(super) fn is_open(&self, attempt: AttemptId) -> bool {
        self.open().contains_key(&attempt)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<AttemptId, OpenAttempt>> {
        lock(&self.open)
    }

    /// The job as it was claimed; `None` when its end was already reported or its lease is lost.
    fn take(&self, attempt: AttemptId) -> Option<RunningJob> {
        let was = std::mem::replace(self.open().get_mut(&attempt)?, OpenAttempt::Ended);
        let Some(running) = self.shared.running.get(attempt) else {
            self.open().remove(&attempt);
            return None;
        };
        if was == OpenAttempt::Running && running.started {
            let held = self.shared.now().since(running.job.started_at.unwrap_or_default());
            self.shared.metrics.stopped(&self.key, held);
        }
        if running.lost {
            self.open().remove(&attempt);
            self.shared.running.remove(attempt);
            event::returned(&running.job, "lease lost");
            self.shared.job_waiters.wake(&attempt.job);
            return None;
        }
        Some(running)
    }

    /// The started jobs may have caused the panic, or the first job if none was started. Their
    /// attempts count, so that a job that always panics eventually ends. The others are released.
    pub(super) async fn after_panic(&self, left: Vec<AttemptId>) {
        let started = |id: &AttemptId| self.shared.running.get(*id).is_some_and(|job| job.started);
        let any_started = left.iter().any(started);
        for (index, id) in left.into_iter().enumerate() {
            let at_fault = if any_started { started(&id) } else { index == 0 };
            if at_fault {
                self.ended(id, panicked()).await;
            } else {
                self.hand_back(id).await;
            }
        }
    }

    /// The batch cannot run: its jobs fail if that is the fault of their secrets.
    pub(super) async fn without_secrets(&self, attempts: Vec<AttemptId>, why: &NotOpened) {
        if let NotOpened::Away(why) = why {
            tracing::warn!(r#type = %self.key, %why, "cannot read secrets; jobs are returned");
        }
        for attempt in attempts {
            match why {
                NotOpened::Away(_) => self.hand_back(attempt).await,
                NotOpened::Failed(why) => {
                    self.started(attempt).await;
                    self.ended(attempt, failed(why)).await;
                }
            }
        }
    }

    /// The jobs that enter with the end of this attempt; an error says what cannot be accepted of
    /// its result or its jobs.
    fn accept(&self, job: &Job, report: &mut Report) -> Result<Vec<NewJob>, String> {
        let bytes = report.data.as_ref().map_or(0, |data| data.as_str().len());
        if bytes > RESULT_BYTES_MAX {
            report.data = None;
            return Err(format!("its result has {bytes} bytes; the limit is {RESULT_BYTES_MAX}"));
        }
        let emitted = std::mem::take(&mut report.emitted);
        if report.stopped.is_some() || !report.status.code().ends_job() || emitted.is_empty() {
            return Ok(Vec::new());
        }
        accept::emitted(&self.shared, &job.key.tenant, emitted)
            .map_err(|error| verdict::not_accepted(&error))
    }

    fn follow(&self, job: &Job, report: &Report) -> Result<Option<NewJob>, String> {
        let follow = verdict::follow(&self.shared, job, report.status, report.data.as_ref());
        follow.map_err(|error| format!("the job that follows could not be created: {error}"))
    }

    pub(super) async fn hand_back(&self, attempt: AttemptId) {
        let Some(running) = self.take(attempt) else { return };
        // A daemon that does not pick jobs does not start it again at once; others may.
        let picks = self.shared.picking.load(Ordering::SeqCst);
        self.settle(SettleItem::release(running, picks.then_some(RETURN_PAUSE))).await;
    }

    async fn settle(&self, item: SettleItem) {
        let attempt = item.attempt.running.attempt_id();
        self.shared.settle.send(item).await;
        self.open().remove(&attempt);
    }
}

#[async_trait]
impl Reports for BatchReports {
    async fn started(&self, attempt: AttemptId) {
        if let Some(running) = self.shared.running.set_started(attempt) {
            self.shared.metrics.started(&self.key);
            event::started(&running.job);
        }
    }

    async fn progress(&self, attempt: AttemptId, percent: f64, message: String) {
        if let Some(running) = self.shared.running.get(attempt).filter(|running| running.started) {
            self.progresses.report(&self.shared, running.lease(), percent, message);
        }
    }

    async fn ended(&self, attempt: AttemptId, mut report: Report) {
        let rest = self.progresses.end(attempt);
        let Some(running) = self.take(attempt) else { return };
        rest.note.iter().for_each(|note| report.log.note(note));
        let (run, progress) = (report.run_time, rest.progress);
        let entering = match self.accept(&running.job, &mut report) {
            Ok(adds) => self.follow(&running.job, &report).map(|follow| (adds, follow)),
            Err(why) => Err(why),
        };
        let (adds, follow) = entering.unwrap_or_else(|why| {
            report.status = Status::ERROR;
            report.log.note(&why);
            (Vec::new(), None)
        });
        let Report { status, stopped, data, log, .. } = report;
        let cause = stopped.map_or(Cause::Ended(status), |stop| Cause::Stopped(stop, status));
        let (log_own, rules) = (log.len(), Rules::now(&self.shared, &running.policy));
        let end = verdict::end(&running.job, running.lease(), cause, log, &rules);
        let settlement = Settlement { data, progress, adds, follow, ..end };
        self.settle(SettleItem::new(running, settlement, log_own, run)).await;
    }

    async fn returned(&self, attempt: AttemptId) {
        self.hand_back(attempt).await;
    }
}

/// The report of an attempt that ended in a panic of the runner.
fn panicked() -> Report {
    failed("the daemon's runner panicked; its log says where")
}

/// The report of an attempt that Windlass could not carry out.
fn failed(why: &str) -> Report {
    let log = Log::of_note(why);
    let (status, run_time) = (Status::ERROR, Duration::ZERO);
    Report { status, stopped: None, data: None, log, emitted: Vec::new(), run_time }
}
