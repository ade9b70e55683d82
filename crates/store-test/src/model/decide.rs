//! Decisions of the model test: plans that can be printed, and that decide the same for every
//! store. They follow the rules of families, as all real decisions do.

use std::sync::Arc;

use bytes::Bytes;

use windlass_core::edit::{
    Ask, ChildMove, Claimant, Decision, Edit, FamilyView, FullJob, Names, Only, Put, Refusal, Take,
    TakeDecision, Target,
};
use windlass_core::job::Token;
use windlass_core::store::Durability;
use windlass_core::{
    Extra, Job, JobId, Lease, NewJob, Priority, State, Sysid, Tenant, Timestamp, TypeName, family,
};

use crate::fixture::LEASE;

/// The plan for one job.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    Look(JobId),
    /// With a parent, which must be able to have children.
    AddChild(NewJob),
    /// Refused if there is another job of its type.
    AddOnly(NewJob),
    /// Like the end of an attempt; refused if no worker has the job.
    Finish(JobId, Option<Timestamp>),
    Fail(JobId, Option<Timestamp>),
    CancelChild(JobId, Option<Timestamp>),
    Requeue(JobId),
    /// Under a lease of this owner.
    Run(JobId, Sysid, Token),
    Alter(JobId, Box<Alteration>),
    Delete(JobId),
    /// Removes the parent from ended children.
    Detach(JobId, Timestamp),
    Refuse,
}

/// The job's new fields, in whatever state it is.
#[derive(Debug, Clone)]
pub(super) struct Alteration {
    pub(super) name: TypeName,
    pub(super) priority: Priority,
    pub(super) run_at: Timestamp,
    pub(super) unique: Option<String>,
    pub(super) extra: Extra,
    /// So many bytes.
    pub(super) payload: Option<usize>,
    pub(super) purge_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(super) struct DecidePlan {
    pub(super) tenant: Tenant,
    pub(super) plans: Vec<Plan>,
    pub(super) durability: Durability,
}

impl DecidePlan {
    pub(super) fn ask(&self) -> Ask {
        let plans = self.plans.clone();
        Ask {
            tenant: self.tenant.clone(),
            targets: plans.iter().map(Plan::target).collect(),
            decide: Arc::new(move |index, seen, now| {
                plans[index].decide(seen, now).map_err(|why| Refusal::new(index as u16, why))
            }),
            durability: self.durability,
        }
    }
}

impl Plan {
    fn target(&self) -> Target {
        match self {
            Plan::AddChild(new) => Target::New { only: None, parent: new.parent },
            Plan::AddOnly(new) => {
                let only = Only { name: new.key.name.clone(), hidden: new.extra.hidden };
                Target::New { only: Some(only), parent: None }
            }
            Plan::Refuse => Target::New { only: None, parent: None },
            Plan::Look(id)
            | Plan::Finish(id, _)
            | Plan::Fail(id, _)
            | Plan::CancelChild(id, _)
            | Plan::Requeue(id)
            | Plan::Run(id, ..)
            | Plan::Alter(id, _)
            | Plan::Delete(id)
            | Plan::Detach(id, _) => Target::Job(*id),
        }
    }

    fn decide(&self, seen: &FamilyView, now: Timestamp) -> Result<Decision, &'static str> {
        let edits = match self {
            Plan::AddChild(new) => {
                let parent = seen.parent.as_ref().ok_or("no parent")?;
                let paused = family::child_is_paused(&parent.job).map_err(|_| "unfit")?;
                vec![Edit::Insert(Box::new(NewJob { paused, ..new.clone() }))]
            }
            Plan::AddOnly(_) if seen.job.is_some() => return Err("not the only one"),
            Plan::AddOnly(new) => vec![Edit::Insert(Box::new(new.clone()))],
            Plan::Refuse => return Err("refused"),
            plan => plan.change(seen.job.as_ref().ok_or("no job")?, seen, now)?,
        };
        // What was shown is part of the answer, so that it is compared.
        let id = seen.job.as_ref().or(seen.parent.as_ref()).map(|whole| whole.job.id);
        Ok(Decision { edits, id })
    }

    fn change(
        &self,
        whole: &FullJob,
        seen: &FamilyView,
        now: Timestamp,
    ) -> Result<Vec<Edit>, &'static str> {
        let job = &whole.job;
        let parent = seen.parent.as_ref().map(|whole| &whole.job);
        let wake = || parent.and_then(|parent| family::after_child(parent, seen.siblings));
        let as_state = |state| Job { state, lease: None, ..job.clone() };
        let is_out = job.state == State::Running || job.extra.lent;
        let edits = match self {
            Plan::Finish(..) | Plan::Fail(..) if !is_out => return Err("nobody has it"),
            Plan::Finish(_, purge_at) => match family::wait_for_children(job, seen.children) {
                Some(edits) => edits,
                None => {
                    let ended = put(as_state(State::Finished), *purge_at);
                    [ended].into_iter().chain(wake()).collect()
                }
            },
            Plan::Fail(_, purge_at) => vec![put(as_state(State::Failed), *purge_at)],
            Plan::CancelChild(_, purge_at) => {
                let fit = matches!(job.state, State::Queued | State::Failed) && parent.is_some();
                if !fit || seen.children.any() {
                    return Err("not to be cancelled");
                }
                let resumed = parent.filter(|_| !seen.siblings.active).and_then(family::resume);
                [put(as_state(State::Cancelled), *purge_at)].into_iter().chain(resumed).collect()
            }
            Plan::Requeue(_) => {
                let run_at_text = Some("created".into());
                let extra = Extra { run_at_text, order_key: -7, ..job.extra.clone() };
                let run_at = job.created_at;
                vec![put(Job { run_at, extra, ..as_state(State::Queued) }, None)]
            }
            Plan::Run(..) if job.state != State::Queued => return Err("not queued"),
            Plan::Run(_, owner, token) => vec![put(leased(whole, *owner, *token, now), None)],
            Plan::Alter(_, to) => vec![to.edit(job)],
            Plan::Delete(_) => [Edit::Delete(job.id)].into_iter().chain(wake()).collect(),
            Plan::Detach(_, purge_at) => {
                let to = ChildMove::Detach { purge_at: *purge_at };
                let all = |from| Edit::Children { parent: job.id, from, to };
                vec![all(State::Finished), all(State::Cancelled)]
            }
            _ => Vec::new(),
        };
        Ok(edits)
    }
}

fn put(job: Job, purge_at: Option<Timestamp>) -> Edit {
    Edit::Put(Box::new(Put { job, payload: None, purge_at }))
}

fn leased(whole: &FullJob, owner: Sysid, token: Token, now: Timestamp) -> Job {
    Job {
        state: State::Running,
        attempt: whole.job.attempt + 1,
        started_at: Some(now),
        lease: Some(Lease { owner, token, expires_at: now + LEASE, on_beat: false }),
        ..whole.job.clone()
    }
}

impl Alteration {
    fn edit(&self, job: &Job) -> Edit {
        let mut job = job.clone();
        job.key.name = self.name.clone();
        (job.priority, job.run_at) = (self.priority, self.run_at);
        (job.unique, job.extra) = (self.unique.clone(), self.extra.clone());
        let payload = self.payload.map(|bytes| Bytes::from(vec![b'p'; bytes]));
        let purge_at = self.purge_at;
        Edit::Put(Box::new(Put { job, payload, purge_at }))
    }
}

#[derive(Debug, Clone)]
pub(super) struct TakePlan {
    pub(super) tenant: Tenant,
    pub(super) names: Names,
    pub(super) priority: Option<Priority>,
    pub(super) hidden: bool,
    pub(super) limit: u32,
    pub(super) payload_bytes_max: u64,
    pub(super) bytes_max: u64,
    pub(super) owner: Sysid,
    pub(super) token: Token,
    /// When lent jobs are due again; without it, jobs are leased.
    pub(super) lend: Option<Timestamp>,
    /// Jobs whose id is divisible by this are not handed out.
    pub(super) keep: i64,
    pub(super) now: Timestamp,
}

impl TakePlan {
    pub(super) fn take(&self) -> Take {
        let plan = self.clone();
        Take {
            tenant: self.tenant.clone(),
            names: self.names.clone(),
            priority: self.priority,
            hidden: self.hidden,
            limit: self.limit,
            payload_bytes_max: self.payload_bytes_max,
            bytes_max: self.bytes_max,
            after: None,
            claimant: Claimant::UNSET,
            decide: Arc::new(move |whole, _, _| plan.decide(whole)),
        }
    }

    fn decide(&self, whole: &FullJob) -> TakeDecision {
        let give = whole.job.id.get() % self.keep != 0;
        let job = match self.lend.filter(|_| give) {
            _ if !give => Job { state: State::Failed, ..whole.job.clone() },
            Some(run_at) => {
                let extra = Extra { lent: true, ..whole.job.extra.clone() };
                Job { run_at, started_at: Some(self.now), extra, ..whole.job.clone() }
            }
            None => leased(whole, self.owner, self.token, self.now),
        };
        TakeDecision { put: Put { job, payload: None, purge_at: Some(self.now + LEASE) }, give }
    }
}
