//! Setting, showing, listing and removing handlers.

use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use windlass_core::audit::Subject;
use windlass_core::key::Right;
use windlass_core::{HandlerSpec, TypeKey};

use crate::answer::{self, Done};
use crate::door::Door;
use crate::error::Failure;
use crate::jobs;
use crate::json::{self, NoBody};
use crate::path::{TenantPath, TypePath};
use crate::query::{NoQuery, Parameter, Query};
use crate::record;
use crate::route::Route;
use crate::wire_handler::{WireHandler, WireSpec, from_handler};

/// Bound of a handler in JSON: larger than the bound of its source, since escapes need room.
pub(crate) const HANDLER_BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;

const GET: &[Parameter] =
    &[Parameter { name: "version", what: "ID of an older version; default: the newest." }];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/{tenant}/handlers", Right::Read, list)
            .about("handlers", "handler_list", "List the current handlers, by type.")
            .answers::<Vec<WireHandler<'static>>>("200", "The handlers."),
        Route::put("/v1/{tenant}/handlers/{type}", Right::Manage, put)
            .about("handlers", "handler_set", "Set a new version of a handler.")
            .takes::<WireSpec>()
            .answers::<HandlerSet>("200", "The id of the version."),
        Route::get("/v1/{tenant}/handlers/{type}", Right::Read, get)
            .about("handlers", "handler_get", "Get a handler.")
            .query(GET)
            .answers::<WireHandler<'static>>("200", "The handler."),
        Route::delete("/v1/{tenant}/handlers/{type}", Right::Manage, delete)
            .about("handlers", "handler_delete", "Remove the handler of a type.")
            .answers::<Done>("200", "Removed."),
    ]
}

#[derive(Serialize, ToSchema)]
pub(crate) struct HandlerSet {
    id: String,
    /// What its jobs will fail for until it is mended; absent if there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Sets a handler. Secrets that it names may be set later.
pub(crate) async fn set(
    door: &Door,
    key: &TypeKey,
    spec: HandlerSpec,
) -> Result<Response, Failure> {
    let secrets = spec.options.secrets.clone();
    let id = door.engine.handler_set(key, spec).await?;
    // The handler is set, whether or not this can be answered.
    let missing = door.engine.secret_missing(&key.tenant, &secrets).await.unwrap_or_default();
    let warning = |name| format!("there is no secret {name} yet: jobs fail until it is set");
    let warnings = missing.iter().map(warning).collect();
    let id = id.to_string();
    let subject = Subject { id: Some(id.clone()), ..Subject::default() };
    Ok(record::about(answer::json(StatusCode::OK, &HandlerSet { id, warnings }), subject))
}

async fn list(
    State(door): State<Door>,
    TenantPath(tenant): TenantPath,
    _: NoQuery,
) -> Result<Response, Failure> {
    let handlers = door.engine.handler_list(&tenant).await?;
    let wire: Vec<_> = handlers.iter().map(from_handler).collect();
    Ok(answer::json(StatusCode::OK, &wire))
}

async fn put(
    State(door): State<Door>,
    TypePath(key): TypePath,
    _: NoQuery,
    request: Request,
) -> Result<Response, Failure> {
    let whole = json::read(request, &door, HANDLER_BODY_BYTES_MAX).await?;
    let spec = json::parse::<WireSpec>(&whole.bytes)?.into_spec()?;
    set(&door, &key, spec).await
}

async fn get(
    State(door): State<Door>,
    TypePath(key): TypePath,
    uri: Uri,
) -> Result<Response, Failure> {
    let query = Query::read(&uri, GET)?;
    let version = query.get("version").map(|text| jobs::id("version", text)).transpose()?;
    let handler = door.engine.handler_get(&key, version).await?;
    Ok(answer::json(StatusCode::OK, &from_handler(&handler)))
}

async fn delete(
    State(door): State<Door>,
    TypePath(key): TypePath,
    _: NoQuery,
    _: NoBody,
) -> Result<Response, Failure> {
    door.engine.handler_delete(&key).await?;
    Ok(answer::done())
}
