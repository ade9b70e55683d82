//! The routes of the original API, kept unchanged: the tenant comes first in the
//! path, and an add takes any content type as lines.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use windlass_core::key::Right;

use crate::answer::{self, Done};
use crate::body::{self, Kind, Reader};
use crate::door::Door;
use crate::error::Failure;
use crate::handlers::{HANDLER_BODY_BYTES_MAX, HandlerSet, set};
use crate::json::{self, NoBody};
use crate::path::{SeedHandlerPath, SeedJobPath};
use crate::query::{NoQuery, Parameter, Query};
use crate::route::Route;
use crate::wire_handler::{WireHandler, WireSpec, from_handler, plain_spec};
use crate::wire_job::{Ids, ids_text};
use crate::{add, add_text};

const SET: &[Parameter] =
    &[Parameter { name: "method", what: "The language; required unless the body is JSON." }];

pub(crate) fn routes() -> Vec<Route> {
    let tag = "seed";
    vec![
        Route::post("/{client}/job/{type}/add", Right::Add, job_add)
            .about(tag, "seed_job_add", "Add jobs, one per line.")
            .query(add::OPTIONS)
            .header("Idempotency-Key", "Within 24 h, the same key returns the first ids.")
            .answers::<Ids>("200", "Added."),
        Route::post("/{client}/handler/add/{type}/add", Right::Manage, handler_add)
            .about(tag, "seed_handler_add", "Set a new version of a handler.")
            .query(SET)
            .takes_also::<WireSpec>(&["text/plain"])
            .answers::<HandlerSet>("200", "The id of the version."),
        Route::post("/{client}/handler/del/{type}/delete", Right::Manage, handler_delete)
            .about(tag, "seed_handler_delete", "Remove the handler of a type.")
            .answers::<Done>("200", "Removed."),
        Route::delete("/{client}/handler/del/{type}/delete", Right::Manage, handler_delete)
            .about(tag, "seed_handler_delete_too", "Remove the handler of a type.")
            .answers::<Done>("200", "Removed."),
        Route::get("/{client}/handler/get/{type}", Right::Read, handler_get)
            .about(tag, "seed_handler_get", "Get the current handler.")
            .answers::<WireHandler<'static>>("200", "The handler."),
    ]
}

async fn job_add(
    State(door): State<Door>,
    SeedJobPath(key): SeedJobPath,
    request: Request,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let added = add_text::add(&door, &key, &parts, body).await?;
    Ok(answer::json_text(StatusCode::OK, ids_text(&added.ids)))
}

async fn handler_add(
    State(door): State<Door>,
    SeedHandlerPath(key): SeedHandlerPath,
    request: Request,
) -> Result<Response, Failure> {
    let query = Query::read(request.uri(), SET)?;
    let method = query.get("method");
    let (parts, body) = request.into_parts();
    let is_json = body::kind(&parts.headers) == Kind::Json;
    let reader = Reader::new(&parts.headers, body, HANDLER_BODY_BYTES_MAX, "", door.body_timeout)?;
    let spec = match (is_json, method) {
        (true, method) => {
            let whole = reader.whole(&door.memory).await?;
            let mut spec: WireSpec = json::parse(&whole.bytes)?;
            if method.is_some() && spec.lang.is_some() && method != spec.lang.as_deref() {
                let message = "'method' and the body's 'lang' name different languages";
                return Err(Failure::invalid("method", message));
            }
            spec.lang = spec.lang.or_else(|| method.map(str::to_owned));
            spec.into_spec()?
        }
        (false, Some(lang)) => {
            let whole = reader.whole(&door.memory).await?;
            let source = String::from_utf8(whole.bytes.to_vec())
                .map_err(|_| Failure::invalid("body", "the source of a handler must be UTF-8"))?;
            plain_spec(lang, source)?
        }
        (false, None) => {
            let message = "'method' must name the handler's language, unless the body is JSON \
                           with the content type application/json";
            return Err(Failure::invalid("method", message));
        }
    };
    set(&door, &key, spec).await
}

async fn handler_delete(
    State(door): State<Door>,
    SeedHandlerPath(key): SeedHandlerPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Response, Failure> {
    door.engine.handler_delete(&key).await?;
    Ok(answer::done())
}

async fn handler_get(
    State(door): State<Door>,
    SeedHandlerPath(key): SeedHandlerPath,
    _: NoQuery,
) -> Result<Response, Failure> {
    let handler = door.engine.handler_get(&key, None).await?;
    Ok(answer::json(StatusCode::OK, &from_handler(&handler)))
}
