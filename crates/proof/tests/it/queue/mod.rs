//! A small queue in memory that keeps its promises, unless it is asked to break one.
//!
//! | module | owns |
//! |---|---|
//! | `job` | one job |
//! | `claim` | claims and leases |
//! | `family` | parents and children |
//! | `settle` | the ends of attempts |

mod claim;
mod family;
mod job;
mod settle;

use std::collections::{BTreeMap, HashMap, HashSet};

use windlass_proof::history::{Add, Answer, JobId, Operation, Outcome, State, Token};
use windlass_proof::workload::payload;

use job::{Job, TypeKey};

pub(crate) const MS: u64 = 1_000_000;
/// Of handlers, after a kill.
pub(crate) const LEASE_NS: u64 = 1000 * MS;
const RETRY_NS: u64 = 20 * MS;
pub(crate) const REPEAT_NS: u64 = 500 * MS;
const ATTEMPTS_MAX: u32 = 6;
/// Some bugs concern one job in so many.
const RARE: u64 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    LosesJobs,
    LeavesJobs,
    ForgetsCancels,
    RunsCancelled,
    BreaksLeasesEarly,
    RunsAgain,
    ReusesTokens,
    AcceptsLateOwners,
    FollowsTwice,
    EmitsEarly,
    AddsTwice,
    AddsWhatItRefuses,
    ForgetsKeys,
    SharesUniqueKeys,
    IgnoresConcurrency,
    IgnoresRates,
    NewestFirst,
    StartsEarly,
    RunsExpired,
    Miscounts,
    DamagesPayloads,
    ForgetsDeletes,
    IgnoresSuspends,
    PassesOver,
    ForgetsRounds,
    RunsFamiliesTogether,
    LeavesParents,
}

#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) bug: Option<Bug>,
    pub(crate) jobs: BTreeMap<u64, Job>,
    next_id: u64,
    next_token: u64,
    keys: HashMap<(String, String), (Add, Vec<JobId>)>,
    suspended: HashSet<TypeKey>,
    concurrency: HashMap<TypeKey, u32>,
    rates: HashMap<TypeKey, f64>,
    rests: HashMap<TypeKey, u64>,
    /// The children of each parent.
    families: HashMap<u64, Vec<u64>>,
    /// Claims of each tenant and list of types so far.
    turns: HashMap<(String, Vec<String>), usize>,
}

fn done() -> Answer {
    Answer::Done(Outcome::Nothing)
}

fn refused(status: u16) -> Answer {
    Answer::Refused { status }
}

impl Queue {
    pub(crate) fn new(bug: Option<Bug>) -> Queue {
        Queue { bug, ..Queue::default() }
    }

    /// Carries out a request.
    pub(crate) fn apply(&mut self, now: u64, operation: &Operation) -> Answer {
        match operation {
            Operation::Add(add) => self.add(now, add),
            Operation::Cancel { job, .. } => self.cancel(*job),
            Operation::Retry { job, .. } => self.retry(now, *job),
            Operation::Delete { job, .. } | Operation::DeleteJob { job, .. } => {
                match self.jobs.get(&job.0).map(|job| job.state) {
                    None => refused(404),
                    Some(State::Running) => refused(409),
                    Some(_) => {
                        let forgets = self.bug == Some(Bug::ForgetsDeletes);
                        if !(forgets && job.0.is_multiple_of(RARE)) {
                            self.jobs.remove(&job.0);
                        }
                        done()
                    }
                }
            }
            Operation::Suspend { tenant, type_name } => {
                self.suspended.insert((tenant.clone(), type_name.clone()));
                done()
            }
            Operation::Resume { tenant, type_name } => {
                self.suspended.remove(&(tenant.clone(), type_name.clone()));
                done()
            }
            Operation::SetHandler { .. } | Operation::RemoveHandler { .. } => done(),
            Operation::SetLimits { tenant, type_name, concurrency, rate } => {
                let key = (tenant.clone(), type_name.clone());
                self.concurrency.remove(&key);
                self.rates.remove(&key);
                self.concurrency.extend(concurrency.map(|most| (key.clone(), most)));
                self.rates.extend(rate.map(|rate| (key, rate)));
                done()
            }
            Operation::Claim { tenant, types, limit, lease_ns } => {
                Answer::Done(Outcome::Jobs(self.claim(now, tenant, types, *limit, *lease_ns)))
            }
            Operation::Progress { job, token, .. } => match self.held(*job, *token) {
                Some(_) => done(),
                None => refused(409),
            },
            Operation::Renew { job, token, lease_ns, .. } => match self.held(*job, *token) {
                Some(job) => {
                    job.lease_until = now + lease_ns;
                    done()
                }
                None => refused(409),
            },
            Operation::Release { job, token, .. } => match self.held(*job, *token) {
                Some(job) => {
                    job.attempt -= 1;
                    job.state = State::Queued;
                    done()
                }
                None => refused(409),
            },
            Operation::Finish { job, token, status, data, .. } => {
                let late = self.bug == Some(Bug::AcceptsLateOwners);
                if self.held(*job, *token).is_none() && !(late && self.jobs.contains_key(&job.0)) {
                    return refused(409);
                }
                self.settle(now, *job, *status, data.clone(), 0);
                done()
            }
            Operation::Invalid { .. } => refused(400),
            _ => self.apply_of_bedrock(now, operation),
        }
    }

    fn apply_of_bedrock(&mut self, now: u64, operation: &Operation) -> Answer {
        match operation {
            Operation::GetJob { tenant, types } => {
                let mut jobs = self.claim(now, tenant, types, 1, u64::MAX / 2);
                jobs.iter_mut().for_each(|job| job.token = None);
                Answer::Done(Outcome::Jobs(jobs))
            }
            Operation::GetJobs { tenant, types, limit } => {
                let mut jobs = self.claim(now, tenant, types, *limit, u64::MAX / 2);
                jobs.iter_mut().for_each(|job| job.token = None);
                Answer::Done(Outcome::Jobs(jobs))
            }
            Operation::FinishJob { job, data, .. } => self.bedrock(now, *job, 200, data.clone()),
            Operation::FailJob { job, .. } => self.bedrock(now, *job, 400, None),
            Operation::RetryJob { job, .. } => self.bedrock(now, *job, 100, None),
            Operation::RequeueJobs { jobs, .. } => self.requeue(now, jobs),
            // It has no command for children.
            Operation::CancelJob { .. } => refused(404),
            _ => done(),
        }
    }

    fn add(&mut self, now: u64, add: &Add) -> Answer {
        let known = add.idempotency_key.clone().map(|key| (add.tenant.clone(), key));
        let forgets = self.bug == Some(Bug::ForgetsKeys);
        if let Some((first, ids)) = known.as_ref().and_then(|key| self.keys.get(key))
            && !forgets
        {
            let same = first == add;
            return if same { Answer::Done(Outcome::Ids(ids.clone())) } else { refused(409) };
        }
        if add.form.parent.is_some_and(|parent| !self.may_be_parent(parent)) {
            if self.bug == Some(Bug::AddsWhatItRefuses) {
                self.insert_of(now, add, 0);
            }
            return refused(409);
        }
        let ids: Vec<JobId> = (0..add.count).map(|index| self.insert_of(now, add, index)).collect();
        self.keys.extend(known.map(|key| (key, (add.clone(), ids.clone()))));
        if self.bug == Some(Bug::LosesJobs) {
            ids.iter()
                .filter(|id| id.0.is_multiple_of(RARE))
                .for_each(|id| drop(self.jobs.remove(&id.0)));
        }
        if self.bug == Some(Bug::AddsTwice) && add.mark.is_multiple_of(RARE) {
            self.insert_of(now, add, 0);
        }
        Answer::Done(Outcome::Ids(ids))
    }

    fn insert_of(&mut self, now: u64, add: &Add, index: u32) -> JobId {
        let key = (add.tenant.clone(), add.type_name.clone());
        let form = &add.form;
        let holder = self.jobs.iter().find(|(_, job)| {
            let same = form.unique.is_some() && job.unique == form.unique && job.key == key;
            same && !job.state.is_ended() && self.bug != Some(Bug::SharesUniqueKeys)
        });
        if let Some((id, _)) = holder {
            return JobId(*id);
        }
        let mut job = Job::new(key, payload::of_add(add, index), now);
        if self.bug != Some(Bug::StartsEarly) {
            job.run_at = now + form.delay_ns.unwrap_or(0);
        }
        job.expires_at = form.expires_ns.map(|expires| now + expires);
        job.priority = form.priority.unwrap_or(500);
        job.unique.clone_from(&form.unique);
        job.then.clone_from(&form.then);
        job.repeats = form.repeat.is_some();
        job.parent = form.parent;
        if self.bug == Some(Bug::DamagesPayloads) && add.mark.is_multiple_of(RARE) {
            job.payload.pop();
        }
        self.insert(job)
    }

    fn insert(&mut self, job: Job) -> JobId {
        self.next_id += 1;
        if let Some(parent) = job.parent {
            self.families.entry(parent.0).or_default().push(self.next_id);
        }
        self.jobs.insert(self.next_id, job);
        JobId(self.next_id)
    }

    fn cancel(&mut self, id: JobId) -> Answer {
        let forgets = self.bug == Some(Bug::ForgetsCancels) && id.0.is_multiple_of(RARE);
        match self.jobs.get_mut(&id.0) {
            None => refused(404),
            Some(job) if job.state.is_ended() => refused(409),
            Some(job) => {
                job.state = if forgets { job.state } else { State::Cancelled };
                done()
            }
        }
    }

    fn retry(&mut self, now: u64, id: JobId) -> Answer {
        let Some(job) = self.jobs.get(&id.0) else { return refused(404) };
        let held = self.jobs.values().any(|other| {
            let same = job.unique.is_some() && other.unique == job.unique && other.key == job.key;
            same && !other.state.is_ended()
        });
        if held || !job.state.is_ended() {
            return refused(409);
        }
        self.again(now, id);
        done()
    }

    fn again(&mut self, now: u64, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id.0) {
            (job.state, job.attempt, job.run_at) = (State::Queued, 0, now);
            job.expires_at = None;
        }
    }

    fn requeue(&mut self, now: u64, ids: &[JobId]) -> Answer {
        for id in ids {
            let open = |job: &Job| !matches!(job.state, State::Finished | State::Cancelled);
            // A second holder of a unique key is not what this queue is about.
            if self.jobs.get(&id.0).is_some_and(|job| open(job) && job.unique.is_none()) {
                self.again(now, *id);
            }
        }
        done()
    }

    fn held(&mut self, id: JobId, token: Token) -> Option<&mut Job> {
        let job = self.jobs.get_mut(&id.0)?;
        (job.state == State::Running && job.token == token.0).then_some(job)
    }

    /// Jobs that would never end by themselves.
    pub(crate) fn repeating(&self) -> Vec<(String, JobId)> {
        let repeating = self.jobs.iter().filter(|(_, job)| job.repeats && !job.state.is_ended());
        repeating.map(|(id, job)| (job.key.0.clone(), JobId(*id))).collect()
    }

    pub(crate) fn undelivered(&mut self, id: JobId) {
        let job = self.jobs.get_mut(&id.0).filter(|job| job.state == State::Running);
        if let Some(job) = job {
            job.attempt -= 1;
            job.state = State::Queued;
        }
    }

    fn bedrock(&mut self, now: u64, id: JobId, status: u16, data: Option<String>) -> Answer {
        match self.jobs.get(&id.0).map(|job| job.state) {
            Some(State::Running) => {
                self.settle(now, id, status, data, 0);
                done()
            }
            Some(_) => refused(405),
            None => refused(404),
        }
    }
}
