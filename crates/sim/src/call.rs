//! Requests to daemons, as a door makes them, written down as clients see them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use windlass_core::add::RawOptions;
use windlass_core::handler::{HandlerSpec, Lang, TypeSettings};
use windlass_core::job::Token;
use windlass_core::store::{self, LeaseRef};
use windlass_core::{Json, Payload, Status, Tenant, TypeKey};
use windlass_engine::api::{
    AddJob, AddPayload, Fingerprint, IdempotencyKey, PullClaim, PullFinish,
};
use windlass_engine::{Engine, Error};
use windlass_proof::history::{self, Add, Answer, Claimed, Event, JobId, Operation, Outcome, Plan};
use windlass_proof::workload::payload;

use crate::control::Control;
use crate::world::{Up, World};

/// A request that takes longer has an unknown outcome.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// One of so many callers gives up early, within this time.
const IMPATIENT: u64 = 40;
const IMPATIENT_MS_MAX: u64 = 30;
/// How long a claim waits for jobs.
const CLAIM_WAIT: Duration = Duration::from_millis(400);
/// Payloads from this size on go another way, as very large ones do.
const SPOOLED_BYTES_MIN: usize = 16 * 1024;

/// A client or worker.
pub(crate) struct Caller {
    pub(crate) world: Arc<World>,
    pub(crate) who: String,
}

/// An answer, and what the jobs of a claim are to do.
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) plans: Vec<Plan>,
}

/// The outcome of a request that was carried out.
type Done = (Outcome, Vec<Plan>);

impl Caller {
    /// Sends a request to one of the daemons; `None` if that is down.
    pub(crate) async fn perform(&self, operation: &Operation) -> Option<Reply> {
        let (world, up) = (&self.world, self.any_daemon()?);
        let (op, via) = (world.next_operation(), Some(format!("daemon-{}", up.0)));
        let (who, what) = (self.who.clone(), operation.clone());
        world.record(Event::Sent { op, who, via, what });
        let (answer, plans) = self.answer(&up.1, operation).await;
        world.record(Event::Answered { op, answer: answer.clone() });
        Some(Reply { answer, plans })
    }

    /// One of the daemons, if that is up.
    pub(crate) fn any_daemon(&self) -> Option<(u64, Up)> {
        let number = self.world.draw(self.world.daemons() as u64);
        Some((number, self.world.up(number as usize)?))
    }

    async fn answer(&self, up: &Up, operation: &Operation) -> (Answer, Vec<Plan>) {
        let unknown = |why: &str| (Answer::Unknown { why: why.to_owned() }, Vec::new());
        let patience = match self.world.draw(IMPATIENT) {
            0 => Duration::from_millis(self.world.draw(IMPATIENT_MS_MAX)),
            _ => ANSWER_TIME_MAX,
        };
        let done = tokio::select! {
            biased;
            () = up.life.ended() => return unknown("the connection was lost"),
            done = self.act(&up.engine, operation) => done,
            () = tokio::time::sleep(patience) => return unknown("no answer in time"),
        };
        // What a dead daemon says, nobody hears.
        if up.life.is_over() {
            return unknown("the connection was lost");
        }
        let refused = |status| (Answer::Refused { status }, Vec::new());
        match done {
            Ok((outcome, plans)) => (Answer::Done(outcome), plans),
            Err(Error::Invalid(_) | Error::Above(_)) => refused(400),
            Err(Error::NotFound(_)) => refused(404),
            Err(Error::Conflict(_) | Error::KeyReused | Error::Refused(_)) => refused(409),
            Err(Error::Unavailable(why)) => unknown(&why),
            Err(Error::Internal(why)) => {
                self.world.problem(format!("{operation:?}: {why}"));
                unknown(&why)
            }
        }
    }

    async fn act(&self, engine: &Engine, operation: &Operation) -> Result<Done, Error> {
        let nothing = |()| (Outcome::Nothing, Vec::new());
        match operation {
            Operation::Add(add) => add_jobs(engine, add).await,
            Operation::Cancel { tenant, job } => {
                engine.job_cancel(&Tenant::new(tenant)?, id(*job)?).await.map(nothing)
            }
            Operation::Retry { tenant, job } => {
                engine.job_retry(&Tenant::new(tenant)?, id(*job)?).await.map(nothing)
            }
            Operation::Delete { tenant, job } => {
                engine.job_delete(&Tenant::new(tenant)?, id(*job)?).await.map(nothing)
            }
            Operation::Suspend { tenant, type_name } => {
                engine.type_suspend(&TypeKey::new(tenant, type_name)?, true).await.map(nothing)
            }
            Operation::Resume { tenant, type_name } => {
                engine.type_suspend(&TypeKey::new(tenant, type_name)?, false).await.map(nothing)
            }
            Operation::SetHandler { tenant, type_name, version } => {
                let spec = HandlerSpec::new(Lang::Sh, format!("version {version}"));
                let set = engine.handler_set(&TypeKey::new(tenant, type_name)?, spec).await;
                set.map(|_| nothing(()))
            }
            Operation::RemoveHandler { tenant, type_name } => {
                engine.handler_delete(&TypeKey::new(tenant, type_name)?).await.map(nothing)
            }
            Operation::SetLimits { tenant, type_name, concurrency, rate } => {
                let (concurrency, rate) = (*concurrency, *rate);
                let limits = TypeSettings { concurrency, rate, ..TypeSettings::default() };
                let key = TypeKey::new(tenant, type_name)?;
                engine.type_settings_put(&key, limits).await.map(nothing)
            }
            Operation::Claim { tenant, types, limit, lease_ns } => {
                let (tenant, types, limit) = (Tenant::new(tenant)?, types.clone(), *limit);
                let (lease, wait) = (Duration::from_nanos(*lease_ns), CLAIM_WAIT);
                claim(engine, PullClaim { tenant, types, limit, lease, wait }).await
            }
            other => self.report(engine, other).await.map(nothing),
        }
    }

    /// What a worker says about a job that it has.
    async fn report(&self, engine: &Engine, operation: &Operation) -> Result<(), Error> {
        match operation {
            Operation::Renew { tenant, job, token, lease_ns } => {
                let lease = self.lease(engine, tenant, *job, *token).await?;
                engine.renew(lease, Duration::from_nanos(*lease_ns)).await
            }
            Operation::Finish { tenant, job, token, status, data } => {
                let lease = self.lease(engine, tenant, *job, *token).await?;
                let status = Status::new(i64::from(*status)).unwrap_or(Status::ERROR);
                let data = data.as_deref().map(Json::string);
                engine.finish(PullFinish { lease, status, data }).await
            }
            Operation::Progress { tenant, job, token, percent } => {
                let lease = self.lease(engine, tenant, *job, *token).await?;
                engine.progress(lease, f64::from(*percent), String::new()).await
            }
            Operation::Release { tenant, job, token } => {
                let lease = self.lease(engine, tenant, *job, *token).await?;
                engine.release(lease, Duration::ZERO).await
            }
            other => Err(Error::Internal(format!("{other:?} is not simulated"))),
        }
    }

    async fn lease(
        &self,
        engine: &Engine,
        tenant: &str,
        job: JobId,
        token: history::Token,
    ) -> Result<LeaseRef, Error> {
        let (tenant, id) = (Tenant::new(tenant)?, id(job)?);
        let mut token = Token(token.0 as i64);
        if self.world.control == Some(Control::NoTokens) {
            let now = engine.job(&tenant, id).await?.job.lease;
            token = now.map_or(token, |lease| lease.token);
        }
        Ok(LeaseRef { tenant, id, token })
    }
}

pub(crate) fn id(job: JobId) -> Result<windlass_core::JobId, Error> {
    windlass_core::JobId::new(job.0 as i64).ok_or(Error::NotFound("job"))
}

async fn add_jobs(engine: &Engine, add: &Add) -> Result<Done, Error> {
    let form = &add.form;
    let options = RawOptions {
        delay: form.delay_ns.map(Duration::from_nanos),
        priority: form.priority.map(i64::from),
        expires: form.expires_ns.map(Duration::from_nanos),
        unique: form.unique.clone(),
        repeat: form.repeat.clone(),
        parent: form.parent.map(|parent| parent.to_string()),
        then: form.then.clone(),
        ..RawOptions::default()
    };
    let options = options.check(engine.now())?;
    let mut jobs = Vec::with_capacity(add.count as usize);
    let mut fingerprint = Fingerprint::default();
    for index in 0..add.count {
        let bytes = payload::of_add(add, index);
        fingerprint.update(&bytes);
        let payload = add_payload(engine, bytes.into()).await?;
        jobs.push(AddJob { payload, options: options.clone() });
    }
    fingerprint.update(add.type_name.as_bytes());
    let fingerprint = fingerprint.finish();
    let key = add.idempotency_key.clone().map(|key| IdempotencyKey { key, fingerprint });
    let added = engine.add(&TypeKey::new(&add.tenant, &add.type_name)?, jobs, key).await?;
    let ids = added.ids.into_iter().map(|id| JobId(id.get() as u64)).collect();
    Ok((Outcome::Ids(ids), Vec::new()))
}

async fn add_payload(engine: &Engine, bytes: Bytes) -> Result<AddPayload, Error> {
    if bytes.len() < SPOOLED_BYTES_MIN {
        return Ok(AddPayload::Inline(bytes));
    }
    let failed = |error: windlass_journal::Error| Error::Unavailable(error.to_string());
    let mut spool = engine.spool().await?;
    spool.write(bytes).await.map_err(failed)?;
    Ok(AddPayload::Spooled(spool.finish().await.map_err(failed)?))
}

async fn claim(engine: &Engine, claim: PullClaim) -> Result<Done, Error> {
    let tenant = claim.tenant.clone();
    let (mut jobs, mut plans) = (Vec::new(), Vec::new());
    for claimed in engine.claim(claim).await? {
        let (origin, plan) = payload::read(&whole(engine, &tenant, &claimed).await?);
        let store::Claimed { job, .. } = claimed;
        jobs.push(Claimed {
            job: JobId(job.id.get() as u64),
            type_name: job.key.name.as_str().to_owned(),
            attempt: job.attempt,
            token: job.lease.map(|lease| history::Token(lease.token.0 as u64)),
            lease_ns: None,
            resumed: job.children,
            origin,
        });
        plans.push(plan);
    }
    Ok((Outcome::Jobs(jobs), plans))
}

async fn whole(
    engine: &Engine,
    tenant: &Tenant,
    claimed: &store::Claimed,
) -> Result<Vec<u8>, Error> {
    match &claimed.payload {
        Payload::Inline(bytes) => Ok(bytes.to_vec()),
        Payload::Pieces { .. } => read_payload(engine, tenant, claimed.job.id).await,
    }
}

pub(crate) async fn read_payload(
    engine: &Engine,
    tenant: &Tenant,
    id: windlass_core::JobId,
) -> Result<Vec<u8>, Error> {
    let mut reader = engine.job_payload(tenant, id).await?;
    let mut whole = Vec::new();
    while let Some(piece) = reader.next().await? {
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}
