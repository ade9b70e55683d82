//! Health, metrics, status and control of the daemon.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use windlass_core::Sysid;
use windlass_core::key::Right;
use windlass_core::time::format_duration;
use windlass_engine::api::{
    DaemonCounts, DaemonStatus, FailingService, LeftJournal, ParkedResult, TenantCounts,
};

use crate::access;
use crate::answer::{self, Done};
use crate::door::Door;
use crate::error::Failure;
use crate::json::NoBody;
use crate::query::NoQuery;
use crate::route::Route;
use crate::time::WireTime;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/healthz", Right::Open, healthz)
            .about("operating", "healthz", "Whether the process is alive.")
            .answers_as("200", "text/plain", "ok"),
        Route::get("/readyz", Right::Open, readyz)
            .about(
                "operating",
                "readyz",
                "Whether adds are accepted, and whether the store answers.",
            )
            .answers_either::<ReadyOrNot, Ready>("200", "The journal accepts adds.")
            .answers_either::<ReadyOrNot, Ready>("503", "It does not."),
        Route::get("/metrics", Right::Metrics, metrics)
            .about("operating", "metrics", "Metrics for Prometheus.")
            .answers_as("200", OPENMETRICS, "The metrics."),
        Route::get("/openapi.json", Right::AnyKey, openapi)
            .about("operating", "openapi", "This document.")
            .answers_as("200", "application/json", "The document."),
        Route::get("/v1/status", Right::Operate, status)
            .about("operating", "status", "The state of this daemon.")
            .answers::<WireStatus>("200", "The status."),
        Route::get("/v1/events", Right::Operate, events)
            .about("operating", "events", "Not supported in this version yet.")
            .answers::<crate::error::ErrorBody<'static>>("501", "Always."),
        Route::post("/v1/control/stop", Right::Operate, stop)
            .about("operating", "control_stop", "Stop picking jobs on this daemon.")
            .answers::<Done>("200", "Running jobs continue; no new ones are started."),
        Route::post("/v1/control/start", Right::Operate, start)
            .about("operating", "control_start", "Resume picking jobs on this daemon.")
            .answers::<Done>("200", "Picking."),
    ]
}

async fn healthz(_: NoQuery) -> Result<Response, Failure> {
    Ok(answer::text("ok"))
}

/// For everybody.
#[derive(Serialize, ToSchema)]
struct ReadyOrNot {
    /// ok or not ok.
    ready: &'static str,
}

/// For keys of the roles admin and metrics: `ok`, or what is wrong.
#[derive(Serialize, ToSchema)]
struct Ready {
    journal: String,
    store: String,
    services: String,
    takeover: String,
}

async fn readyz(
    State(door): State<Door>,
    headers: HeaderMap,
    _: NoQuery,
) -> Result<Response, Failure> {
    let readiness = door.engine.readiness().await;
    let status = match &readiness.journal {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    if !access::may_see_details(&door, &headers) {
        let ready = if status == StatusCode::OK { "ok" } else { "not ok" };
        return Ok(answer::json(status, &ReadyOrNot { ready }));
    }
    let word = |state: Result<(), String>| state.err().unwrap_or_else(|| "ok".to_owned());
    let ready = Ready {
        journal: word(readiness.journal),
        store: word(readiness.store),
        services: word(readiness.services),
        takeover: word(readiness.takeover),
    };
    Ok(answer::json(status, &ready))
}

async fn metrics(State(door): State<Door>, _: NoQuery) -> Result<Response, Failure> {
    let body = Body::from(door.engine.metrics_text().await);
    Ok(answer::with_type(StatusCode::OK, HeaderValue::from_static(OPENMETRICS), body))
}

async fn openapi(State(door): State<Door>, _: NoQuery) -> Result<Response, Failure> {
    Ok(answer::json_text(StatusCode::OK, door.openapi.clone()))
}

async fn events(_: NoQuery) -> Result<Response, Failure> {
    Err(Failure::not_built("the stream of events"))
}

async fn stop(State(door): State<Door>, _: NoQuery, _: NoBody) -> Result<Response, Failure> {
    door.engine.set_picking(false);
    Ok(answer::done())
}

async fn start(State(door): State<Door>, _: NoQuery, _: NoBody) -> Result<Response, Failure> {
    door.engine.set_picking(true);
    Ok(answer::done())
}

#[derive(Serialize, ToSchema)]
#[schema(as = Status)]
struct WireStatus {
    /// The number of this daemon, unique in its store.
    sysid: u16,
    version: &'static str,
    uptime: String,
    uptime_seconds: u64,
    started_at: WireTime,
    /// The kind of store.
    store: &'static str,
    /// Whether this daemon picks jobs.
    picking: bool,
    /// Jobs running in this daemon.
    running: u64,
    journal: WireJournal,
    /// Services of this daemon that panicked in the last 5 minutes, and how often.
    services: BTreeMap<&'static str, usize>,
    services_failing: Vec<WireFailing>,
    results_parked: Vec<WireParked>,
    journals_left: Vec<WireLeft>,
    /// Layers of isolation that handlers lack on this machine, with reasons and what would help.
    layers_missing: Vec<String>,
    /// `null` while the store does not answer.
    daemons: Option<WireDaemonCounts>,
    tenants: BTreeMap<String, WireCounts>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = JournalStatus)]
struct WireJournal {
    /// Accepted jobs that are not in the store yet.
    waiting: u64,
    /// How long the oldest of them has waited.
    oldest_seconds: u64,
    bytes: u64,
}

/// A service of this daemon that has not been able to do its work for 30 seconds or more.
#[derive(Serialize, ToSchema)]
#[schema(as = FailingService)]
struct WireFailing {
    service: &'static str,
    failing_seconds: u64,
    /// The last error.
    why: String,
}

/// The end of a job that the store cannot accept, because the job is damaged there. It is retried
/// every few seconds.
#[derive(Serialize, ToSchema)]
#[schema(as = ParkedResult)]
struct WireParked {
    id: String,
    why: String,
}

/// A dead daemon's journal that cannot be taken over; its jobs do not run.
#[derive(Serialize, ToSchema)]
#[schema(as = LeftJournal)]
struct WireLeft {
    /// The number of the dead daemon; `null` if the journals cannot even be listed.
    sysid: Option<u16>,
    why: String,
}

/// All daemons of the queue; `/v1/daemons` lists them.
#[derive(Serialize, ToSchema)]
#[schema(as = DaemonCounts)]
struct WireDaemonCounts {
    alive: u64,
    gone: u64,
    /// Jobs in journals of daemons that are gone, as far as they are known.
    jobs_left: u64,
}

#[derive(Serialize, ToSchema)]
#[schema(as = TenantCounts)]
struct WireCounts {
    types: u64,
    ready: u64,
    deferred: u64,
    running: u64,
    paused: u64,
    finished: u64,
    failed: u64,
    cancelled: u64,
}

async fn status(State(door): State<Door>, _: NoQuery) -> Result<Response, Failure> {
    let wire = from_status(door.engine.status().await, door.version);
    Ok(answer::json(StatusCode::OK, &wire))
}

fn from_status(status: DaemonStatus, version: &'static str) -> WireStatus {
    let uptime_seconds = status.now.since(status.started_at).as_secs();
    let (services, tenants) = (status.services.into_iter(), status.tenants.into_iter());
    WireStatus {
        sysid: status.sysid.get(),
        version,
        uptime: format_duration(Duration::from_secs(uptime_seconds)),
        uptime_seconds,
        started_at: WireTime(status.started_at),
        store: status.store,
        picking: status.picking,
        running: status.running,
        journal: WireJournal {
            waiting: status.journal.waiting,
            oldest_seconds: status.journal.oldest.as_secs(),
            bytes: status.journal.bytes,
        },
        services_failing: status.services_failing.into_iter().map(from_failing).collect(),
        results_parked: status.results_parked.into_iter().map(from_parked).collect(),
        journals_left: status.journals_left.into_iter().map(from_left).collect(),
        layers_missing: status.layers_missing,
        daemons: status.daemons.map(from_daemon_counts),
        services: services.map(|service| (service.name, service.failures)).collect(),
        tenants: tenants
            .map(|(tenant, counts)| (tenant.to_string(), from_counts(counts)))
            .collect(),
    }
}

fn from_daemon_counts(counts: DaemonCounts) -> WireDaemonCounts {
    let DaemonCounts { alive, gone, jobs_left } = counts;
    WireDaemonCounts { alive, gone, jobs_left }
}

fn from_failing(FailingService { name, failing_for, why }: FailingService) -> WireFailing {
    WireFailing { service: name, failing_seconds: failing_for.as_secs(), why }
}

fn from_parked(parked: ParkedResult) -> WireParked {
    WireParked { id: parked.id.to_string(), why: parked.why }
}

fn from_left(left: LeftJournal) -> WireLeft {
    WireLeft { sysid: left.sysid.map(Sysid::get), why: left.why }
}

fn from_counts(counts: TenantCounts) -> WireCounts {
    WireCounts {
        types: counts.types,
        ready: counts.ready,
        deferred: counts.deferred,
        running: counts.running,
        paused: counts.paused,
        finished: counts.finished,
        failed: counts.failed,
        cancelled: counts.cancelled,
    }
}
