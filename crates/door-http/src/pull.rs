//! Routes for pull workers: claim jobs, renew leases, report results.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use windlass_core::job::Token;
use windlass_core::key::Right;
use windlass_core::limit::{RESULT_BYTES_MAX, TYPE_BYTES_MAX};
use windlass_core::store::LeaseRef;
use windlass_core::{Json, Status, Tenant};
use windlass_engine::api::{PullClaim, PullFinish};
use windlass_net::SMALL_BYTES_MAX;

use crate::answer::{self, Done};
use crate::door::Door;
use crate::error::Failure;
use crate::json::{self, Command};
use crate::path::{JobPath, TenantPath};
use crate::presence::Presence;
use crate::query::NoQuery;
use crate::room;
use crate::route::{Route, WAIT_MAX};
use crate::time::WireDuration;
use crate::wire_job::{WireClaim, from_claim};

const LEASE_DEFAULT: Duration = Duration::from_secs(60);
const LEASE_MIN: Duration = Duration::from_secs(1);
/// Maximum number of patterns in one claim.
const PATTERNS_MAX: usize = 1000;
/// Bound of a finish body: the result and a little around it.
const FINISH_BODY_BYTES_MAX: u64 = RESULT_BYTES_MAX as u64 + 64 * 1024;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post("/v1/{tenant}/claim", Right::Work, claim)
            .about("workers", "claim", "Claim jobs to work on, or wait for some.")
            .waits()
            .takes::<ClaimBody>()
            .answers::<WireClaim<'static>>("200", "The claimed jobs; may be empty."),
        Route::post("/v1/{tenant}/jobs/{id}/renew", Right::Work, renew)
            .about("workers", "job_renew", "Renew the lease of a job.")
            .takes::<RenewBody>()
            .answers::<Done>("200", "Renewed."),
        Route::post("/v1/{tenant}/jobs/{id}/finish", Right::Work, finish)
            .about("workers", "job_finish", "Report how a job ended.")
            .takes::<FinishBody<'static>>()
            .answers::<Done>("200", "Accepted."),
        Route::post("/v1/{tenant}/jobs/{id}/release", Right::Work, release)
            .about(
                "workers",
                "job_release",
                "Return a job to the queue; the attempt does not count.",
            )
            .takes::<ReleaseBody>()
            .answers::<Done>("200", "Queued again."),
        Route::post("/v1/{tenant}/jobs/{id}/progress", Right::Work, progress)
            .about("workers", "job_progress", "Report the progress of a job.")
            .takes::<ProgressBody>()
            .answers::<Done>("200", "Accepted."),
    ]
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Claim)]
struct ClaimBody {
    /// Patterns with `*`, `?` and `[a-z]`; default: all types.
    types: Option<Vec<String>>,
    /// 1 to 1000; default 1.
    limit: Option<u32>,
    /// 1s to the operator's maximum (24h unless it is set); default 60s.
    lease: Option<WireDuration>,
    /// How long to wait if there are no jobs; at most 5m, default 0s.
    wait: Option<WireDuration>,
}

async fn claim(
    State(door): State<Door>,
    TenantPath(tenant): TenantPath,
    presence: Presence,
    _: NoQuery,
    Command { body, mut memory }: Command<ClaimBody>,
) -> Result<Response, Failure> {
    let mut claim = body.into_claim(&door, tenant)?;
    let wants_to_wait = claim.wait > Duration::ZERO;
    let place = wants_to_wait.then(|| door.room.place()).flatten();
    let waits = place.is_some();
    if !waits {
        claim.wait = Duration::ZERO;
    }
    // It may wait for minutes: a padded body must not take the memory from everybody else.
    memory.shrink(kept_bytes(&claim));
    let pulled = tokio::select! {
        // Waiting claims are answered when the door closes; one that has jobs takes precedence.
        biased;
        pulled = door.engine.claim(claim) => pulled?,
        () = door.closing.cancelled(), if waits => Vec::new(),
        () = presence.ended(), if waits => Vec::new(),
    };
    let answer = answer::json(StatusCode::OK, &from_claim(&pulled));
    Ok(if wants_to_wait && !waits { room::and_leave(answer) } else { answer })
}

/// What a waiting claim takes of the memory bound.
fn kept_bytes(claim: &PullClaim) -> usize {
    let bytes = claim.types.iter().map(|pattern| size_of::<String>() + pattern.len()).sum();
    if bytes as u64 <= SMALL_BYTES_MAX { 0 } else { bytes }
}

impl ClaimBody {
    fn into_claim(self, door: &Door, tenant: Tenant) -> Result<PullClaim, Failure> {
        let types = self.types.unwrap_or_else(|| vec!["*".to_owned()]);
        let fits = |pattern: &String| !pattern.is_empty() && pattern.len() <= TYPE_BYTES_MAX;
        if types.is_empty() || types.len() > PATTERNS_MAX || !types.iter().all(fits) {
            let message = format!(
                "types are 1 to {PATTERNS_MAX} patterns of 1 to {TYPE_BYTES_MAX} bytes each"
            );
            return Err(Failure::invalid("types", message));
        }
        let limit = self.limit.unwrap_or(1);
        let wait = self.wait.map_or(Duration::ZERO, |wait| wait.0);
        if wait > WAIT_MAX {
            return Err(Failure::invalid("wait", "a wait is at most 5m"));
        }
        Ok(PullClaim { tenant, types, limit, lease: lease(door, self.lease)?, wait })
    }
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Renew)]
struct RenewBody {
    token: i64,
    /// Counts from now; from 1s to what the operator allows (24h), default 60s.
    lease: Option<WireDuration>,
}

async fn renew(
    State(door): State<Door>,
    job: JobPath,
    _: NoQuery,
    Command { body, .. }: Command<RenewBody>,
) -> Result<Response, Failure> {
    let lease = lease(&door, body.lease)?;
    door.engine.renew(lease_ref(job, body.token), lease).await?;
    Ok(answer::done())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Finish)]
struct FinishBody<'a> {
    token: i64,
    /// 100 to 599, with the meaning of a handler's status.
    status: i64,
    /// The job's result: any JSON value, including null.
    #[serde(borrow, default, deserialize_with = "present")]
    #[schema(value_type = serde_json::Value)]
    data: Option<&'a RawValue>,
}

/// Distinguishes an explicit null from an absent value.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

async fn finish(
    State(door): State<Door>,
    job: JobPath,
    _: NoQuery,
    request: Request,
) -> Result<Response, Failure> {
    let whole = json::read(request, &door, FINISH_BODY_BYTES_MAX).await?;
    let body: FinishBody<'_> = json::parse(&whole.bytes)?;
    let Some(status) = Status::new(body.status) else {
        let message = format!("a status is a whole number from 100 to 599, not {}", body.status);
        return Err(Failure::invalid("status", message));
    };
    let text = body.data.map(|data| data.get());
    if text.is_some_and(|text| text.len() > RESULT_BYTES_MAX) {
        let message = format!("result data has at most {RESULT_BYTES_MAX} bytes");
        return Err(Failure::too_large("data", message));
    }
    let data = text.map(|text| Json::parse(text.to_owned()).expect("it was read as JSON before"));
    let finish = PullFinish { lease: lease_ref(job, body.token), status, data };
    door.engine.finish(finish).await?;
    Ok(answer::done())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Release)]
struct ReleaseBody {
    token: i64,
    /// Don't run again before this much time has passed; default 0s.
    delay: Option<WireDuration>,
}

async fn release(
    State(door): State<Door>,
    job: JobPath,
    _: NoQuery,
    Command { body, .. }: Command<ReleaseBody>,
) -> Result<Response, Failure> {
    let delay = body.delay.map_or(Duration::ZERO, |delay| delay.0);
    door.engine.release(lease_ref(job, body.token), delay).await?;
    Ok(answer::done())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ProgressReport)]
struct ProgressBody {
    token: i64,
    /// 0 to 100.
    percent: f64,
    message: Option<String>,
}

async fn progress(
    State(door): State<Door>,
    job: JobPath,
    _: NoQuery,
    Command { body, .. }: Command<ProgressBody>,
) -> Result<Response, Failure> {
    let message = body.message.unwrap_or_default();
    door.engine.progress(lease_ref(job, body.token), body.percent, message).await?;
    Ok(answer::done())
}

fn lease_ref(job: JobPath, token: i64) -> LeaseRef {
    LeaseRef { tenant: job.tenant, id: job.id, token: Token(token) }
}

/// The engine checks the maximum.
fn lease(door: &Door, given: Option<WireDuration>) -> Result<Duration, Failure> {
    match given {
        None => Ok(LEASE_DEFAULT.min(door.engine.lease_max())),
        Some(WireDuration(lease)) if lease >= LEASE_MIN => Ok(lease),
        Some(_) => Err(Failure::invalid("lease", "a lease is at least 1s")),
    }
}
