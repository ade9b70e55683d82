//! The end of a run: waits until nothing is left to do, then lists everything.

use std::time::Duration;

use windlass_core::limit::PAGE_JOBS_MAX;
use windlass_core::store::{List, TypeStats};
use windlass_core::{Job, State as JobState, Tenant};
use windlass_engine::{Engine, Error};
use windlass_proof::history::{Event, JobId, Operation, Seen, State};
use windlass_proof::workload::payload;

use crate::call::{Caller, read_payload};
use crate::client::certainly;

/// How long the rest may take when clients and faults have stopped.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(600);
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Nothing is left if this many looks in a row found nothing.
const LOOKS: u32 = 2;
/// Attempts at one question, all daemons being up.
const ASK_ATTEMPTS_MAX: u32 = 200;

pub(crate) struct Closing {
    pub(crate) caller: Caller,
    pub(crate) tenants: Vec<Tenant>,
}

impl Closing {
    /// Waits until nothing can run any more; false if that takes too long.
    pub(crate) async fn drain(&self) -> bool {
        let world = &self.caller.world;
        let until = world.now_ns() + DRAIN_TIME_MAX.as_nanos() as u64;
        let mut quiet = 0;
        while quiet < LOOKS {
            let Some(left) = self.left().await else { return false };
            quiet = if left == 0 { quiet + 1 } else { 0 };
            if left > 0 {
                self.cancel_repeats().await;
            }
            if world.now_ns() > until {
                world.problem(format!("{left} jobs are left, and the run cannot be drained"));
                return false;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        true
    }

    /// Jobs that will still run, or are running, also those that are only in a journal: what could
    /// not be read is tried again after a pause. Those that wait for others are not counted: a
    /// failed child keeps its parent waiting.
    async fn left(&self) -> Option<u64> {
        let mut left = self.in_journals().await;
        for tenant in &self.tenants {
            let types = self.ask(|engine| types(engine, tenant.clone())).await?;
            left += types.iter().map(|of| of.ready + of.deferred + of.running).sum::<u64>();
        }
        Some(left)
    }

    async fn in_journals(&self) -> u64 {
        let world = &self.caller.world;
        let mut waiting = 0;
        for up in (0..world.daemons()).filter_map(|number| world.up(number)) {
            tokio::select! {
                biased;
                () = up.life.ended() => {}
                status = up.engine.status() => {
                    waiting += status.journal.waiting + status.journals_left.len() as u64;
                }
            }
        }
        waiting
    }

    /// Repeating jobs never end, also those whose add was not answered.
    async fn cancel_repeats(&self) {
        for tenant in &self.tenants {
            let Some(jobs) = self.ask(|engine| jobs(engine, tenant.clone())).await else { return };
            let repeats = |job: &&Job| job.extra.repeat.is_some() && !job.state.is_ended();
            for job in jobs.iter().filter(repeats) {
                let (tenant, job) = (tenant.as_str().to_owned(), JobId(job.id.get() as u64));
                certainly(&self.caller, &Operation::Cancel { tenant, job }).await;
            }
        }
    }

    /// Writes down every job of every tenant, and what the status counts.
    pub(crate) async fn list(&self) {
        for tenant in &self.tenants {
            let Some(jobs) = self.ask(|engine| jobs(engine, tenant.clone())).await else { return };
            for job in &jobs {
                let Some(seen) = self.ask(|engine| seen(engine, job.clone())).await else { return };
                self.caller.world.record(Event::Seen(seen));
            }
            let Some(types) = self.ask(|engine| types(engine, tenant.clone())).await else {
                return;
            };
            types.iter().for_each(|of| self.count(of));
            let tenant = tenant.as_str().to_owned();
            self.caller.world.record(Event::Listed { tenant });
        }
    }

    fn count(&self, of: &TypeStats) {
        let counts = [
            (State::Queued, of.ready + of.deferred),
            (State::Running, of.running),
            (State::Paused, of.paused),
            (State::Finished, of.finished),
            (State::Failed, of.failed),
            (State::Cancelled, of.cancelled),
        ];
        for (state, count) in counts {
            let tenant = of.key.tenant.as_str().to_owned();
            let type_name = of.key.name.as_str().to_owned();
            self.caller.world.record(Event::Counted { tenant, type_name, state, count });
        }
    }

    /// Asks until there is an answer.
    async fn ask<T, F>(&self, question: impl Fn(Engine) -> F) -> Option<T>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut why = "no daemon is up".to_owned();
        for _ in 0..ASK_ATTEMPTS_MAX {
            if let Some((_, up)) = self.caller.any_daemon() {
                let answer = tokio::select! {
                    biased;
                    () = up.life.ended() => continue,
                    answer = question(up.engine) => answer,
                };
                match answer {
                    Ok(answer) => return Some(answer),
                    Err(error) => why = error.to_string(),
                }
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        self.caller.world.problem(format!("a question has no answer: {why}"));
        None
    }
}

async fn types(engine: Engine, tenant: Tenant) -> Result<Vec<TypeStats>, Error> {
    engine.types(&tenant).await
}

/// All jobs of a tenant, page by page.
async fn jobs(engine: Engine, tenant: Tenant) -> Result<Vec<Job>, Error> {
    let (mut jobs, mut before) = (Vec::new(), None);
    loop {
        let (name, state, limit) = (None, None, PAGE_JOBS_MAX);
        let list = List { tenant: tenant.clone(), name, state, before, limit };
        let page = engine.job_list(list).await?;
        jobs.extend(page.jobs);
        match page.next {
            Some(next) => before = Some(next),
            None => return Ok(jobs),
        }
    }
}

async fn seen(engine: Engine, job: Job) -> Result<Seen, Error> {
    let tenant = &job.key.tenant;
    let view = engine.job(tenant, job.id).await?;
    let payload = read_payload(&engine, tenant, job.id).await?;
    let result = view.result.and_then(|json| serde_json::from_str(json.as_str()).ok());
    Ok(Seen {
        job: JobId(job.id.get() as u64),
        tenant: tenant.as_str().to_owned(),
        type_name: job.key.name.as_str().to_owned(),
        state: state(job.state),
        attempts: job.attempt,
        status: job.last.map(|ended| ended.status.get()),
        parent: job.parent.map(|parent| JobId(parent.get() as u64)),
        result,
        origin: payload::read(&payload).0,
    })
}

fn state(state: JobState) -> State {
    match state {
        JobState::Queued => State::Queued,
        JobState::Running => State::Running,
        JobState::Paused => State::Paused,
        JobState::Finished => State::Finished,
        JobState::Failed => State::Failed,
        JobState::Cancelled => State::Cancelled,
    }
}
