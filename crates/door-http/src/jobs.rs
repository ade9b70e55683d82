//! Listing, showing and changing jobs.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use windlass_core::audit::Subject;
use windlass_core::key::Right;
use windlass_core::limit::PAGE_JOBS_MAX;
use windlass_core::store::List;
use windlass_core::{JobId, State as JobState, TypeKey, TypeName};
use windlass_engine::PayloadReader;

use crate::answer::{self, Done};
use crate::door::Door;
use crate::error::Failure;
use crate::json::{Command, NoBody};
use crate::path::{JobPath, TenantPath};
use crate::presence::Presence;
use crate::query::{NoQuery, Parameter, Query};
use crate::record;
use crate::room;
use crate::route::{Route, WAIT_MAX};
use crate::wire_job::{self, WireJob, WirePage};

const PAGE_JOBS_DEFAULT: i64 = 50;
const REQUEUE_JOBS_DEFAULT: u32 = 100;
const REQUEUE_JOBS_MAX: u32 = 10_000;

const LIST: &[Parameter] = &[
    Parameter { name: "type", what: "Only jobs of this type." },
    Parameter { name: "state", what: "Only jobs in this state." },
    Parameter { name: "limit", what: "Maximum number of jobs, 1 to 1000; default 50." },
    Parameter { name: "after", what: "The `next` value of the previous page." },
];
const GET: &[Parameter] =
    &[Parameter { name: "wait", what: "Wait this long for the job to end; at most 5m." }];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/{tenant}/jobs", Right::Read, list)
            .about("jobs", "job_list", "List jobs, newest first.")
            .query(LIST)
            .answers::<WirePage<'static>>("200", "One page."),
        Route::post("/v1/{tenant}/jobs/requeue", Right::Manage, requeue)
            .about("jobs", "job_requeue", "Run ended jobs of a type again.")
            .takes::<RequeueBody>()
            .answers::<Requeued>("200", "The number of requeued jobs."),
        Route::get("/v1/{tenant}/jobs/{id_or_type}", Right::ReadJob, get)
            .about("jobs", "job_get", "Get one job.")
            .waits()
            .query(GET)
            .answers::<WireJob<'static>>("200", "The job."),
        Route::delete("/v1/{tenant}/jobs/{id_or_type}", Right::Manage, delete)
            .about("jobs", "job_delete", "Remove a job that is not running.")
            .answers::<Done>("200", "Removed."),
        Route::get("/v1/{tenant}/jobs/{id}/payload", Right::ReadJob, payload)
            .about("jobs", "job_payload", "Get the payload of a job.")
            .answers_as("200", "application/octet-stream", "The payload's bytes."),
        Route::post("/v1/{tenant}/jobs/{id}/cancel", Right::Manage, cancel)
            .about("jobs", "job_cancel", "Cancel a job that has not ended.")
            .answers::<Done>("200", "Cancelled."),
        Route::post("/v1/{tenant}/jobs/{id}/retry", Right::Manage, retry)
            .about("jobs", "job_retry", "Run an ended job again, immediately.")
            .answers::<Done>("200", "Queued."),
    ]
}

async fn list(
    State(door): State<Door>,
    TenantPath(tenant): TenantPath,
    uri: Uri,
) -> Result<Response, Failure> {
    let query = Query::read(&uri, LIST)?;
    let limit = query.number("limit", 1, PAGE_JOBS_MAX as i64)?.unwrap_or(PAGE_JOBS_DEFAULT);
    let list = List {
        tenant,
        name: query.get("type").map(TypeName::new).transpose()?,
        state: query.get("state").map(state).transpose()?,
        before: query.get("after").map(|text| id("after", text)).transpose()?,
        limit: limit as usize,
    };
    let page = door.engine.job_list(list).await?;
    let wire = WirePage {
        jobs: page.jobs.iter().map(wire_job::from_job).collect(),
        next: page.next.map(|id| id.to_string()),
    };
    Ok(answer::json(StatusCode::OK, &wire))
}

async fn get(
    State(door): State<Door>,
    job: JobPath,
    presence: Presence,
    uri: Uri,
) -> Result<Response, Failure> {
    let JobPath { tenant, id } = job;
    let wait = Query::read(&uri, GET)?.duration("wait")?.unwrap_or_default();
    if wait > WAIT_MAX {
        return Err(Failure::invalid("wait", "a wait is at most 5m"));
    }
    let place = (!wait.is_zero()).then(|| door.room.place()).flatten();
    let view = if place.is_none() {
        door.engine.job(&tenant, id).await?
    } else {
        tokio::select! {
            view = door.engine.job_wait(&tenant, id, wait) => view?,
            () = door.closing.cancelled() => door.engine.job(&tenant, id).await?,
            () = presence.ended() => door.engine.job(&tenant, id).await?,
        }
    };
    let answer = answer::json(StatusCode::OK, &wire_job::from_view(&view));
    Ok(if !wait.is_zero() && place.is_none() { room::and_leave(answer) } else { answer })
}

async fn payload(State(door): State<Door>, job: JobPath, _: NoQuery) -> Result<Response, Failure> {
    let mut reader = door.engine.job_payload(&job.tenant, job.id).await?;
    let bytes = reader.bytes();
    // Reading the first piece before sending the status lets early failures become proper errors.
    let first = reader.next().await?;
    let rest = stream::try_unfold(reader, |mut reader: PayloadReader| async move {
        let piece = reader.next().await.inspect_err(|error| {
            tracing::error!(%error, "cannot read a payload completely");
        })?;
        Ok::<_, windlass_engine::Error>(piece.map(|piece| (piece, reader)))
    });
    let body = match first {
        None => Body::empty(),
        Some(first) if first.len() as u64 == bytes => Body::from(first),
        Some(first) => {
            use futures_util::StreamExt;
            Body::from_stream(stream::iter([Ok(first)]).chain(rest))
        }
    };
    let content_type = HeaderValue::from_static("application/octet-stream");
    let mut response = answer::with_type(StatusCode::OK, content_type, body);
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    Ok(response)
}

async fn cancel(
    State(door): State<Door>,
    job: JobPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Response, Failure> {
    door.engine.job_cancel(&job.tenant, job.id).await?;
    Ok(answer::done())
}

async fn retry(
    State(door): State<Door>,
    job: JobPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Response, Failure> {
    door.engine.job_retry(&job.tenant, job.id).await?;
    Ok(answer::done())
}

async fn delete(
    State(door): State<Door>,
    job: JobPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Response, Failure> {
    door.engine.job_delete(&job.tenant, job.id).await?;
    Ok(answer::done())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Requeue)]
struct RequeueBody {
    r#type: String,
    /// One of failed, finished, cancelled.
    state: String,
    /// 1 to 10000; default 100.
    limit: Option<u32>,
}

#[derive(Serialize, ToSchema)]
struct Requeued {
    requeued: u64,
}

async fn requeue(
    State(door): State<Door>,
    TenantPath(tenant): TenantPath,
    _: NoQuery,
    Command { body, .. }: Command<RequeueBody>,
) -> Result<Response, Failure> {
    let key = TypeKey { tenant, name: TypeName::new(&body.r#type)? };
    let ended = JobState::from_name(&body.state).filter(|state| state.is_ended());
    let Some(state) = ended else {
        let message = format!("'{}' is not one of failed, finished, cancelled", body.state);
        return Err(Failure::invalid("state", message));
    };
    let limit = body.limit.unwrap_or(REQUEUE_JOBS_DEFAULT);
    if limit == 0 || limit > REQUEUE_JOBS_MAX {
        let message = format!("a limit is a whole number from 1 to {REQUEUE_JOBS_MAX}");
        return Err(Failure::invalid("limit", message));
    }
    let requeued = door.engine.job_requeue(&key, state, limit as usize).await?;
    let detail = Some(format!("{requeued} {state} jobs"));
    let subject = Subject { name: Some(key.name), detail, ..Subject::default() };
    Ok(record::about(answer::json(StatusCode::OK, &Requeued { requeued }), subject))
}

fn state(name: &str) -> Result<JobState, Failure> {
    JobState::from_name(name).ok_or_else(|| {
        let known: Vec<_> = JobState::ALL.iter().map(|state| state.as_str()).collect();
        Failure::invalid("state", format!("'{name}' is not one of {}", known.join(", ")))
    })
}

pub(crate) fn id(field: &str, text: &str) -> Result<JobId, Failure> {
    text.parse().map_err(|error| {
        Failure::invalid(field, format!("'{text}' is not a valid job ID: {error}"))
    })
}
