//! What runs jobs: does what their payloads say, and writes down every run. Everything that runs
//! ends with its daemon.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Notify;
use windlass_core::runner::{Assignment, Batch, Emitted, Pieces, Report, Reports, Stop};
use windlass_core::sync::lock;
use windlass_core::{
    AddOptions, AttemptId, Handler, HandlerId, HandlerSpec, Invalid, Json, Log, Payload, Runner,
    Status,
};
use windlass_proof::history::{Began, Ended, Event, JobId, Origin, Plan, Token};
use windlass_proof::workload::payload;

use crate::life::Life;
use crate::world::World;

/// Jobs in one batch.
const BATCH_JOBS: u32 = 3;

pub(crate) struct SimRunner {
    pub(crate) world: Arc<World>,
    pub(crate) life: Arc<Life>,
    pub(crate) daemon: String,
    /// Names contexts: no two of a simulation have the same.
    pub(crate) boot: u32,
    pub(crate) batches: AtomicU64,
    pub(crate) attempts: Mutex<BTreeMap<AttemptId, Arc<Attempt>>>,
}

#[derive(Default)]
pub(crate) struct Attempt {
    why: Mutex<Option<Stop>>,
    stopped: Notify,
}

impl Attempt {
    fn stop(&self, why: Stop) {
        lock(&self.why).get_or_insert(why);
        self.stopped.notify_one();
    }

    fn why(&self) -> Option<Stop> {
        *lock(&self.why)
    }
}

impl SimRunner {
    async fn run_one(&self, one: &Assignment, pieces: &dyn Pieces, context: &str) -> Report {
        let (origin, plan) = payload::read(&whole(one, pieces).await);
        self.alive().await;
        let job = JobId(one.job.id.get() as u64);
        self.world.record(Event::Began(began(one, &self.daemon, context, origin)));
        let attempt = self.attempt(one.id);
        let work = Duration::from_millis(u64::from(plan.run_ms) + self.world.draw(5));
        tokio::select! {
            biased;
            () = attempt.stopped.notified() => {}
            () = tokio::time::sleep(one.timeout) => attempt.stop(Stop::TimedOut),
            () = tokio::time::sleep(work) => {}
        }
        self.alive().await;
        if let Some(why) = attempt.why() {
            return report(Status::ERROR, Some(why));
        }
        let status = plan.status(one.job.attempt);
        let (context, emitted) = (context.to_owned(), plan.emits);
        let by = format!("{context}-{}", one.job.attempt);
        let result = payload::of_result(job, &by);
        let data = Some(Json::string(&result));
        let ended = Ended { job, context, status, emitted, children: 0, data: Some(result) };
        self.world.record(Event::Ended(ended));
        let status = Status::new(i64::from(status)).unwrap_or(Status::ERROR);
        Report { data, emitted: emits(one, job, &plan), ..report(status, None) }
    }

    /// Does not return if the daemon is dead.
    async fn alive(&self) {
        if self.life.is_over() {
            pending::<()>().await;
        }
    }

    fn attempt(&self, id: AttemptId) -> Arc<Attempt> {
        lock(&self.attempts).entry(id).or_default().clone()
    }
}

#[async_trait]
impl Runner for SimRunner {
    fn check(&self, _: &HandlerSpec) -> Result<(), Invalid> {
        Ok(())
    }

    fn batch_max(&self, _: &Handler) -> u32 {
        BATCH_JOBS
    }

    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>) {
        let number = self.batches.fetch_add(1, Ordering::Relaxed);
        let context = format!("{}-{}-{number}", self.daemon, self.boot);
        batch.jobs.iter().for_each(|one| drop(self.attempt(one.id)));
        for one in &batch.jobs {
            self.alive().await;
            if self.attempt(one.id).why().is_some() {
                reports.returned(one.id).await;
            } else {
                reports.started(one.id).await;
                self.alive().await;
                let report = self.run_one(one, &*batch.pieces, &context).await;
                reports.ended(one.id, report).await;
            }
            lock(&self.attempts).remove(&one.id);
        }
    }

    fn stop(&self, attempt: AttemptId, why: Stop) {
        if let Some(attempt) = lock(&self.attempts).get(&attempt) {
            attempt.stop(why);
        }
    }

    fn warm(&self) -> Vec<HandlerId> {
        Vec::new()
    }

    async fn close(&self) {}
}

/// A payload that cannot be read is that of a plain job.
async fn whole(one: &Assignment, pieces: &dyn Pieces) -> Vec<u8> {
    if let Payload::Inline(bytes) = &one.payload {
        return bytes.to_vec();
    }
    let mut whole = Vec::new();
    for index in 0.. {
        match pieces.piece(one.job.id, index).await {
            Ok(Some(piece)) => whole.extend_from_slice(&piece),
            Ok(None) | Err(_) => break,
        }
    }
    whole
}

fn began(one: &Assignment, daemon: &str, context: &str, origin: Option<Origin>) -> Began {
    let key = &one.job.key;
    Began {
        job: JobId(one.job.id.get() as u64),
        tenant: key.tenant.as_str().to_owned(),
        type_name: key.name.as_str().to_owned(),
        attempt: one.job.attempt,
        daemon: daemon.to_owned(),
        context: context.to_owned(),
        token: Some(Token(one.id.token.0 as u64)),
        origin,
    }
}

fn emits(one: &Assignment, job: JobId, plan: &Plan) -> Vec<Emitted> {
    let emit = |index| Emitted {
        name: one.job.key.name.clone(),
        payload: Bytes::from(payload::of_emit(job, index)),
        options: AddOptions::default(),
    };
    (0..plan.emits).map(emit).collect()
}

fn report(status: Status, stopped: Option<Stop>) -> Report {
    let (log, emitted, run_time) = (Log::new(), Vec::new(), Duration::ZERO);
    Report { status, stopped, data: None, log, emitted, run_time }
}
