//! `CreateJob`: creates a job, or returns the existing one with the same unique name. A job that
//! depends on no other goes into the journal like every add; one with a parent or `unique` is
//! decided in the store.

use std::sync::Arc;

use windlass_bedrock_rules::date_text::{due_at, set_next_run};
use windlass_bedrock_rules::merge::merge_patch;
use windlass_core::add::AddOptions;
use windlass_core::calendar::Modifiers;
use windlass_core::edit::{Decision, Edit, FamilyView, FullJob, Only, Put, Target};
use windlass_core::family::{self, Unfit};
use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_core::repeat::Repeat;
use windlass_core::{
    Extra, Job, JobId, NewJob, Payload, Priority, Tenant, Timestamp, TypeKey, TypeName,
};
use windlass_engine::api::{AddJob, AddPayload};

use crate::execute::Reply;
use crate::number::leading_integer;
use crate::wire::json::Object;
use crate::wire::{Request, Response};

use super::value;
use super::{Bedrock, Refusal, data, view};

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    let mock = request.header("mockRequest").is_some();
    let mut wanted = CreateRequest::new(&|name| request.header(name).map(str::to_owned), mock)?;
    match_parents(door, std::slice::from_mut(&mut wanted)).await?;
    let id = match wanted.depends_on_others() {
        true => decide(door, wanted).await?,
        false => add(door, wanted).await?,
    };
    Ok(Response::json(Object::new().number("jobID", id.get())).into())
}

/// A requested job; everything that can be checked without other jobs has been checked.
#[derive(Debug, Clone)]
pub(super) struct CreateRequest {
    pub(super) name: TypeName,
    data: Option<String>,
    first_run: Option<String>,
    repeat: String,
    /// As sent; checked when it is its turn.
    priority: Option<String>,
    job_priority: Option<Priority>,
    pub(super) unique: bool,
    overwrite: bool,
    /// Not 0.
    pub(super) parent: Option<i64>,
    retry_after: Option<Modifiers>,
    pub(super) mock: bool,
}

impl CreateRequest {
    /// `field` gives a header, or the value of a key, as text.
    pub(super) fn new(
        field: &dyn Fn(&str) -> Option<String>,
        mock: bool,
    ) -> Result<CreateRequest, Refusal> {
        let name = value::type_name(&field("name").unwrap_or_default())?;
        let job_priority = field("jobPriority").map(|text| value::priority(&text)).transpose()?;
        let data = field("data");
        if data.as_deref().is_some_and(|text| !data::is_acceptable(text)) {
            return Err((402, "Data is not a valid JSON Object").into());
        }
        let retry_after = value::retry_after(&field("retryAfter").unwrap_or_default())?;
        let overwrite = field("overwrite").unwrap_or_default();
        Ok(CreateRequest {
            name,
            data,
            first_run: field("firstRun").filter(|text| !text.is_empty()),
            repeat: field("repeat").unwrap_or_default(),
            priority: field("priority"),
            job_priority,
            unique: field("unique").as_deref() == Some("true"),
            overwrite: overwrite.is_empty() || overwrite == "true",
            parent: field("parentJobID").map(|text| leading_integer(&text)).filter(|id| *id != 0),
            retry_after,
            mock,
        })
    }

    fn depends_on_others(&self) -> bool {
        self.parent.is_some()
            || self.unique
            || self.data.as_ref().is_some_and(|data| data.len() > PAYLOAD_INLINE_BYTES_MAX)
    }

    /// What has to be read from the store before the decision.
    pub(super) fn target(&self) -> Target {
        let only = Only { name: self.name.clone(), hidden: self.mock };
        Target::New { only: self.unique.then_some(only), parent: self.parent.and_then(JobId::new) }
    }

    fn repeat(&self) -> Result<Option<Repeat>, Refusal> {
        value::repeat(&self.repeat)
    }

    fn priority(&self) -> Result<Priority, Refusal> {
        match (self.job_priority, &self.priority) {
            (Some(priority), _) => Ok(priority),
            (None, Some(text)) => value::priority(text),
            (None, None) => Ok(Priority::default()),
        }
    }

    fn data(&self) -> String {
        let data = self.data.as_deref().unwrap_or(data::EMPTY);
        if self.mock { data::with_mock(data) } else { data.to_owned() }
    }

    /// Additional fields of the job. A mocked job never repeats.
    fn extra(&self, repeat: Option<Repeat>, data: &str) -> Extra {
        let mut extra = Extra {
            repeat: repeat.filter(|_| !self.mock).map(|repeat| Arc::from(repeat.as_str())),
            door_text: self.retry_after.as_ref().map(|after| Arc::from(after.as_str())),
            hidden: data::is_mocked(data),
            ..Extra::default()
        };
        if let Some(text) = &self.first_run {
            set_next_run(&mut extra, text, due_at(text));
        }
        extra
    }
}

/// Jobs are mocked if their parents are, regardless of the request. A job with children never
/// changes between mocked and not mocked, so this can be read before the jobs are created. It must
/// be, because unique jobs are looked up separately among mocked and other jobs.
pub(super) async fn match_parents(
    door: &Bedrock,
    all_wanted: &mut [CreateRequest],
) -> Result<(), Refusal> {
    let mut parents: Vec<JobId> =
        all_wanted.iter().filter_map(|wanted| JobId::new(wanted.parent?)).collect();
    parents.sort_unstable();
    parents.dedup();
    for id in parents {
        let Some(parent) = door.engine.full_job(&door.tenant, id).await? else { continue };
        if all_wanted.iter().any(|wanted| wanted.mock != parent.job.extra.hidden) {
            all_wanted.iter_mut().for_each(|wanted| wanted.mock = parent.job.extra.hidden);
            return Ok(());
        }
    }
    Ok(())
}

async fn add(door: &Bedrock, wanted: CreateRequest) -> Result<JobId, Refusal> {
    let repeat = wanted.repeat()?;
    let priority = wanted.priority()?;
    let data = wanted.data();
    let options = AddOptions {
        run_at: wanted.first_run.as_deref().map(due_at),
        priority,
        extra: wanted.extra(repeat, &data),
        ..AddOptions::default()
    };
    let key = TypeKey { tenant: door.tenant.clone(), name: wanted.name };
    let job = AddJob { payload: AddPayload::Inline(data::bytes(data)), options };
    let added = door.engine.add(&key, vec![job], None).await?;
    added.ids.first().copied().ok_or_else(|| (500, "Unhandled Exception").into())
}

async fn decide(door: &Bedrock, wanted: CreateRequest) -> Result<JobId, Refusal> {
    let (tenant, id) = (door.tenant.clone(), door.engine.make_id()?);
    let targets = vec![wanted.target()];
    let create = move |_, seen: &FamilyView, now| decision(&wanted, seen, &tenant, id, now);
    let decided = door.decide(targets, create).await?;
    decided.ids.first().copied().flatten().ok_or_else(|| (500, "Unhandled Exception").into())
}

/// Decides a request, with checks in Bedrock's order.
pub(super) fn decision(
    wanted: &CreateRequest,
    seen: &FamilyView,
    tenant: &Tenant,
    id: JobId,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let parent = match wanted.parent {
        None => None,
        Some(_) => {
            let there = seen.parent.as_ref().filter(|parent| view::exists(&parent.job));
            Some(there.ok_or((404, "parentJobID does not exist"))?)
        }
    };
    let fit = parent.map(|parent| family::child_is_paused(&parent.job)).transpose();
    if fit == Err(Unfit::NotOpen) {
        let line = (405, "Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED");
        return Err(line.into());
    }
    let existing = seen.job.as_ref().filter(|_| wanted.unique);
    if let Some(existing) = existing {
        let owner = existing.job.parent.map(JobId::get);
        if owner.is_some() && owner != wanted.parent {
            let line = (
                404,
                "Trying to create a child that already exists, but it is tied to a \
                        different parent",
            );
            return Err(line.into());
        }
        if data::text(&existing.payload).is_some_and(|text| text == wanted.data()) {
            return Ok(Decision { edits: Vec::new(), id: Some(existing.job.id) });
        }
    }
    let repeat = wanted.repeat()?;
    let priority = wanted.priority()?;
    let paused = fit.map_err(|_| Refusal::from((405, "Cannot create grandchildren")))?;
    if parent.is_some_and(|parent| parent.job.extra.hidden != wanted.mock) {
        let line = (405, "Parent and child jobs must have matching mockRequest setting");
        return Err(line.into());
    }
    if let Some(existing) = existing {
        return Ok(overwritten(wanted, existing, repeat, priority));
    }
    let data = wanted.data();
    let key = TypeKey { tenant: tenant.clone(), name: wanted.name.clone() };
    let new = NewJob {
        priority,
        run_at: wanted.first_run.as_deref().map_or(now, due_at),
        parent: wanted.parent.and_then(JobId::new),
        paused: paused.unwrap_or(false),
        extra: wanted.extra(repeat, &data),
        ..NewJob::new(id, key, Payload::Inline(data::bytes(data)), now)
    };
    Ok(Decision { edits: vec![Edit::Insert(Box::new(new))], id: Some(id) })
}

/// The existing job gets the data of the new one.
fn overwritten(
    wanted: &CreateRequest,
    existing: &FullJob,
    repeat: Option<Repeat>,
    priority: Priority,
) -> Decision {
    let id = Some(existing.job.id);
    if !wanted.overwrite {
        return Decision { edits: Vec::new(), id };
    }
    let merge = |old: &str| merge_patch(old, &wanted.data()).unwrap_or_else(|| wanted.data());
    // What is not JSON is replaced; what is too large to be parsed stays.
    let is_inline = matches!(existing.payload, Payload::Inline(_));
    let merged = is_inline.then(|| merge(&data::shown(&existing.payload)));
    let repeat = repeat.filter(|_| !wanted.mock).map(|repeat| Arc::from(repeat.as_str()));
    let mock = merged.as_deref().map_or(existing.job.extra.hidden, data::is_mocked);
    let extra = Extra { repeat, hidden: mock, ..existing.job.extra.clone() };
    let job = Job { priority, extra, ..existing.job.clone() };
    let put = Put { job, payload: merged.map(data::bytes), purge_at: None };
    Decision { edits: vec![Edit::Put(Box::new(put))], id }
}
