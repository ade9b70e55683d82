//! Adding jobs: `POST /v1/{tenant}/jobs/{id_or_type}`, here a type. The body's content type decides
//! how it becomes jobs (`add_text`, `add_binary`, `add_json`); options, the idempotency key and the
//! answer are the same for all: the forms use `parameters`, `read_body`, `payload` and `accept` of
//! this file.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use bytes::Bytes;

use windlass_core::add::{RawOptions, check_key};
use windlass_core::key::Right;
use windlass_core::limit::{PAYLOAD_INLINE_BYTES_MAX, PAYLOAD_PIECE_BYTES};
use windlass_core::{AddOptions, Timestamp, TypeKey};
use windlass_engine::api::{AddJob, AddPayload, Added, Fingerprint, IdempotencyKey};

use crate::add_json::JobsBody;
use crate::body::{self, BUFFERED_BYTES_MAX, Kind, Reader};
use crate::door::Door;
use crate::error::Failure;
use crate::path::TypePath;
use crate::query::{Parameter, Query};
use crate::route::Route;
use crate::time::WireTime;
use crate::wire_job::{Ids, ids_text};
use crate::{add_binary, add_json, add_text, answer};

/// Jobs in one add.
pub(crate) const ADD_JOBS_MAX: usize = 100_000;

/// The options of an add, as query parameters.
pub(crate) const OPTIONS: &[Parameter] = &[
    Parameter { name: "run_at", what: "Don't run before this time; excludes delay." },
    Parameter { name: "delay", what: "Don't run before this much time has passed." },
    Parameter { name: "priority", what: "0 to 1000, higher first; default 500." },
    Parameter { name: "timeout", what: "Time limit of one attempt." },
    Parameter { name: "expires", what: "Give up this long from now." },
    Parameter { name: "unique", what: "Add nothing if an unfinished job has this key." },
    Parameter { name: "repeat", what: "When the job repeats: FINISHED, +1 HOUR." },
    Parameter { name: "parent", what: "ID of a job that waits for this one." },
    Parameter { name: "then", what: "Type of the follow-up job, which gets the result." },
    Parameter { name: "durable", what: "Answer when the jobs are in: journal or store." },
];

/// Makes an add safe to repeat.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post("/v1/{tenant}/jobs/{id_or_type}", Right::Add, add)
            .about("jobs", "job_add", "Add jobs of a type; answers when they are durable.")
            .query(OPTIONS)
            .header("Idempotency-Key", "Within 24 h, the same key returns the first ids.")
            .takes_also::<JobsBody<'static>>(&["text/plain", "application/octet-stream"])
            .answers::<Ids>("201", "Added.")
            .answers::<Ids>("200", "The ids of an earlier add with the same key."),
    ]
}

async fn add(
    State(door): State<Door>,
    TypePath(key): TypePath,
    request: Request,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let added = match body::kind(&parts.headers) {
        Kind::Text | Kind::Absent => add_text::add(&door, &key, &parts, body).await?,
        Kind::Binary => add_binary::add(&door, &key, &parts, body).await?,
        Kind::Json => add_json::add(&door, &key, &parts, body).await?,
        Kind::Other => {
            let accepted = "text/plain, application/octet-stream or application/json";
            return Err(body::wrong_kind(&parts.headers, accepted));
        }
    };
    let status = if added.repeated { StatusCode::OK } else { StatusCode::CREATED };
    Ok(answer::json_text(status, ids_text(&added.ids)))
}

/// Options and idempotency key of a request.
pub(crate) struct AddParameters {
    pub(crate) options: AddOptions,
    pub(crate) keyed: Option<Keyed>,
}

/// Reads options and key of a text or binary add.
pub(crate) fn parameters(
    door: &Door,
    key: &TypeKey,
    parts: &Parts,
    form: &str,
) -> Result<AddParameters, Failure> {
    let query = Query::read(&parts.uri, OPTIONS)?;
    let options = options_from_query(&query, door.clock.now())?;
    let keyed = Keyed::read(&parts.headers, key, form, &query)?;
    Ok(AddParameters { options, keyed })
}

/// A JSON add has its options in the body, so none may be in the query.
pub(crate) fn key_of_json(key: &TypeKey, parts: &Parts) -> Result<Option<Keyed>, Failure> {
    let query = Query::read(&parts.uri, &[]).map_err(|mut failure| {
        failure.message.push_str("; the options of a JSON add are fields of its jobs");
        failure
    })?;
    Keyed::read(&parts.headers, key, "json", &query)
}

/// Reads a complete body of several jobs, and digests it.
pub(crate) async fn read_body(
    door: &Door,
    parts: &Parts,
    body: Body,
    too_large: &'static str,
    keyed: &mut Option<Keyed>,
) -> Result<Bytes, Failure> {
    let bytes_max = BUFFERED_BYTES_MAX.min(door.body_bytes_max);
    let reader = Reader::new(&parts.headers, body, bytes_max, too_large, door.body_timeout)?;
    let whole = reader.whole(&door.memory).await?.counted();
    keyed.iter_mut().for_each(|keyed| keyed.update_body(&whole));
    Ok(whole)
}

pub(crate) async fn accept(
    door: &Door,
    key: &TypeKey,
    jobs: Vec<AddJob>,
    keyed: Option<Keyed>,
) -> Result<Added, Failure> {
    Ok(door.engine.add(key, jobs, keyed.map(Keyed::finish)).await?)
}

/// A payload that is already in memory; a large one is written to disk in pieces.
pub(crate) async fn payload(door: &Door, bytes: Bytes) -> Result<AddPayload, Failure> {
    if bytes.len() <= PAYLOAD_INLINE_BYTES_MAX {
        return Ok(AddPayload::Inline(bytes));
    }
    let mut spool = door.engine.spool().await?;
    for start in (0..bytes.len()).step_by(PAYLOAD_PIECE_BYTES) {
        let end = bytes.len().min(start + PAYLOAD_PIECE_BYTES);
        spool.write(bytes.slice(start..end)).await.map_err(not_spooled)?;
    }
    Ok(AddPayload::Spooled(spool.finish().await.map_err(not_spooled)?))
}

pub(crate) fn not_spooled(error: impl std::fmt::Display) -> Failure {
    Failure::unavailable(format!("cannot store the payload: {error}"))
}

/// An idempotency key and the running digest of the whole request.
pub(crate) struct Keyed {
    key: String,
    fingerprint: Fingerprint,
}

impl Keyed {
    fn read(
        headers: &HeaderMap,
        key: &TypeKey,
        form: &str,
        query: &Query,
    ) -> Result<Option<Keyed>, Failure> {
        let mut values = headers.get_all(IDEMPOTENCY_KEY).into_iter();
        let Some(value) = values.next() else { return Ok(None) };
        let (Ok(text), None) = (std::str::from_utf8(value.as_bytes()), values.next()) else {
            let message = "an Idempotency-Key is UTF-8 and is given once";
            return Err(Failure::invalid("Idempotency-Key", message));
        };
        check_key("Idempotency-Key", text)?;
        let mut keyed = Keyed { key: text.to_owned(), fingerprint: Fingerprint::default() };
        keyed.update_part(key.name.as_str());
        keyed.update_part(form);
        for (name, value) in query.sorted() {
            keyed.update_part(name);
            keyed.update_part(value);
        }
        Ok(Some(keyed))
    }

    /// Prefixes each part with its length, so that different adds have different digests.
    fn update_part(&mut self, text: &str) {
        self.fingerprint.update(&(text.len() as u64).to_le_bytes());
        self.fingerprint.update(text.as_bytes());
    }

    pub(crate) fn update_body(&mut self, bytes: &[u8]) {
        self.fingerprint.update(bytes);
    }

    fn finish(self) -> IdempotencyKey {
        IdempotencyKey { key: self.key, fingerprint: self.fingerprint.finish() }
    }
}

pub(crate) fn options_from_query(query: &Query, now: Timestamp) -> Result<AddOptions, Failure> {
    let time = |text| WireTime::parse(text).map_err(|reason| Failure::invalid("run_at", reason));
    let raw = RawOptions {
        run_at: query.get("run_at").map(time).transpose()?.map(|time| time.0),
        delay: query.duration("delay")?,
        priority: query.number("priority", 0, i64::from(windlass_core::limit::PRIORITY_MAX))?,
        timeout: query.duration("timeout")?,
        expires: query.duration("expires")?,
        unique: query.get("unique").map(str::to_owned),
        repeat: query.get("repeat").map(str::to_owned),
        parent: query.get("parent").map(str::to_owned),
        then: query.get("then").map(str::to_owned),
        durable: query.get("durable").map(str::to_owned),
    };
    Ok(raw.check(now)?)
}
