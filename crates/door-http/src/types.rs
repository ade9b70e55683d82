//! Types: their job counts and settings; suspend and resume.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use windlass_core::TypeKey;
use windlass_core::key::Right;
use windlass_core::store::TypeStats;

use crate::answer::{self, Done};
use crate::door::Door;
use crate::error::Failure;
use crate::json::{Command, NoBody};
use crate::path::{TenantPath, TypePath};
use crate::query::NoQuery;
use crate::route::Route;
use crate::time::WireTime;
use crate::wire_handler::{WireSettings, from_settings};

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/{tenant}/types", Right::Read, list)
            .about("types", "type_list", "List the types of a tenant with their job counts.")
            .answers::<Vec<WireType<'static>>>("200", "The types."),
        Route::post("/v1/{tenant}/types/{type}/suspend", Right::Manage, suspend)
            .about("types", "type_suspend", "Stop running jobs of a type; adds are still accepted.")
            .answers::<Done>("200", "Suspended."),
        Route::post("/v1/{tenant}/types/{type}/resume", Right::Manage, resume)
            .about("types", "type_resume", "Run jobs of a suspended type again.")
            .answers::<Done>("200", "Resumed."),
        Route::put("/v1/{tenant}/types/{type}/settings", Right::Manage, settings_put)
            .about("types", "type_settings_put", "Replace the settings of a type.")
            .takes::<WireSettings>()
            .answers::<Done>("200", "Replaced."),
        Route::get("/v1/{tenant}/types/{type}/settings", Right::Read, settings_get)
            .about("types", "type_settings_get", "Get the settings of a type.")
            .answers::<WireSettings>("200", "The settings."),
    ]
}

#[derive(Serialize, ToSchema)]
#[schema(as = TypeNumbers)]
struct WireType<'a> {
    r#type: &'a str,
    /// Whether the type has a handler.
    handler: bool,
    suspended: bool,
    ready: u64,
    deferred: u64,
    running: u64,
    paused: u64,
    finished: u64,
    failed: u64,
    cancelled: u64,
    oldest_ready_at: Option<WireTime>,
}

fn from_stats(stats: &TypeStats) -> WireType<'_> {
    WireType {
        r#type: stats.key.name.as_str(),
        handler: stats.handler,
        suspended: stats.suspended,
        ready: stats.ready,
        deferred: stats.deferred,
        running: stats.running,
        paused: stats.paused,
        finished: stats.finished,
        failed: stats.failed,
        cancelled: stats.cancelled,
        oldest_ready_at: stats.oldest_ready_at.map(WireTime),
    }
}

async fn list(
    State(door): State<Door>,
    TenantPath(tenant): TenantPath,
    _: NoQuery,
) -> Result<Response, Failure> {
    let types = door.engine.types(&tenant).await?;
    let wire: Vec<_> = types.iter().map(from_stats).collect();
    Ok(answer::json(StatusCode::OK, &wire))
}

async fn suspend(
    State(door): State<Door>,
    TypePath(key): TypePath,
    _: NoQuery,
    _: NoBody,
) -> Result<Response, Failure> {
    set_suspended(&door, &key, true).await
}

async fn resume(
    State(door): State<Door>,
    TypePath(key): TypePath,
    _: NoQuery,
    _: NoBody,
) -> Result<Response, Failure> {
    set_suspended(&door, &key, false).await
}

async fn set_suspended(door: &Door, key: &TypeKey, suspended: bool) -> Result<Response, Failure> {
    door.engine.type_suspend(key, suspended).await?;
    Ok(answer::done())
}

async fn settings_put(
    State(door): State<Door>,
    TypePath(key): TypePath,
    _: NoQuery,
    Command { body, .. }: Command<WireSettings>,
) -> Result<Response, Failure> {
    door.engine.type_settings_put(&key, body.into_settings()).await?;
    Ok(answer::done())
}

async fn settings_get(
    State(door): State<Door>,
    TypePath(key): TypePath,
    _: NoQuery,
) -> Result<Response, Failure> {
    let settings = door.engine.type_settings_get(&key).await?;
    Ok(answer::json(StatusCode::OK, &from_settings(&settings)))
}
