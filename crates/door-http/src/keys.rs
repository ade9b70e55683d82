//! API keys: made, listed, revoked and rotated. A key's text is in one answer only, the one that
//! makes it.

use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use windlass_core::audit::Subject;
use windlass_core::key::{Key, KeyId, KeyText, NewKey, Owner, Right, Role};
use windlass_core::name::Tenant;
use windlass_core::store::{KeyReplacement, KeyRotate};

use crate::access::Scope;
use crate::answer::{self, Done};
use crate::door::Door;
use crate::error::Failure;
use crate::json::{Command, NoBody};
use crate::path::KeyPath;
use crate::query::{NoQuery, Parameter, Query};
use crate::record;
use crate::route::Route;
use crate::time::{WireDuration, WireTime};

const PAGE_KEYS_MAX: i64 = 1000;
const PAGE_KEYS_DEFAULT: i64 = 100;
/// How long a key stays in force after it was rotated.
const OVERLAP_DEFAULT: Duration = Duration::from_secs(3600);
const OVERLAP_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

const LIST: &[Parameter] = &[
    Parameter { name: "tenant", what: "Only keys of this tenant." },
    Parameter { name: "limit", what: "Maximum number of keys, 1 to 1000; default 100." },
    Parameter { name: "after", what: "The `next` value of the previous page." },
];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::post("/v1/keys", Right::Keys, create)
            .about("keys", "key_create", "Make a key. Its text is in this answer only.")
            .takes::<CreateBody>()
            .answers::<WireMade>("201", "The key."),
        Route::get("/v1/keys", Right::Keys, list)
            .about("keys", "key_list", "List keys, without their secrets.")
            .query(LIST)
            .answers::<WireKeys>("200", "One page."),
        Route::delete("/v1/keys/{id}", Right::Keys, revoke)
            .about("keys", "key_revoke", "Revoke a key.")
            .answers::<Done>("200", "Revoked; every daemon refuses it within a second."),
        Route::post("/v1/keys/{id}/rotate", Right::Keys, rotate)
            .about("keys", "key_rotate", "Replace a key by a new one for the same owner.")
            .takes::<RotateBody>()
            .answers::<WireMade>("201", "The new key."),
    ]
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeyCreate)]
struct CreateBody {
    /// producer, worker, viewer, manager, admin or metrics.
    role: String,
    /// The tenant of the key; none for admin and metrics. Default for a manager: its own.
    tenant: Option<String>,
    /// For people.
    name: Option<String>,
    /// How long the key is in force; default: until it is revoked.
    expires: Option<WireDuration>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = KeyRotate)]
struct RotateBody {
    /// How long the old key stays in force; at most 30d, default 1h.
    overlap: Option<WireDuration>,
    /// How long the new key is in force; default: until it is revoked.
    expires: Option<WireDuration>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Key)]
struct WireKey {
    /// The public part of the key.
    id: String,
    role: &'static str,
    tenant: Option<String>,
    name: String,
    created_at: WireTime,
    expires_at: Option<WireTime>,
    /// Exact to a minute or two.
    last_used_at: Option<WireTime>,
    revoked_at: Option<WireTime>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = KeyMade)]
struct WireMade {
    /// The whole key.
    key: String,
    #[serde(flatten)]
    about: WireKey,
}

#[derive(Serialize, ToSchema)]
#[schema(as = KeyPage)]
struct WireKeys {
    keys: Vec<WireKey>,
    /// For `after`; null on the last page.
    next: Option<String>,
}

fn from_key(key: &Key) -> WireKey {
    let time = |at: Option<_>| at.map(WireTime);
    WireKey {
        id: key.id.to_string(),
        role: key.owner.role.as_str(),
        tenant: key.owner.tenant.as_ref().map(Tenant::to_string),
        name: key.owner.name.clone(),
        created_at: WireTime(key.created_at),
        expires_at: time(key.expires_at),
        last_used_at: time(key.last_used_at),
        revoked_at: time(key.revoked_at),
    }
}

async fn create(
    State(door): State<Door>,
    Scope(own): Scope,
    _: NoQuery,
    Command { body, .. }: Command<CreateBody>,
) -> Result<Response, Failure> {
    let role = Role::from_name(&body.role).ok_or_else(|| {
        let known = Role::ALL.map(Role::as_str).join(", ");
        Failure::invalid("role", format!("'{}' is not one of {known}", body.role))
    })?;
    let tenant = body.tenant.as_deref().map(Tenant::new).transpose()?;
    let tenant = match (own, tenant) {
        (Some(_), _) if !role.has_tenant() => {
            let message = format!("only an admin makes keys of the role {role}");
            return Err(Failure::forbidden(&message));
        }
        (Some(own), Some(other)) if own != other => return Err(Failure::no_such_tenant()),
        (Some(own), _) => Some(own),
        (None, tenant) => tenant,
    };
    let owner = Owner { role, tenant, name: body.name.unwrap_or_default() };
    let text = new_text()?;
    let lifetime = body.expires.map(|WireDuration(lifetime)| lifetime);
    let new = NewKey { id: text.id(), digest: text.digest(), owner, lifetime };
    let key = door.engine.key_create(new).await?;
    let detail = Some(format!("role {role}"));
    let id = Some(key.id.to_string());
    Ok(record::about(made(&text, &key), Subject { id, detail, ..subject(&key) }))
}

async fn list(State(door): State<Door>, scope: Scope, uri: Uri) -> Result<Response, Failure> {
    let query = Query::read(&uri, LIST)?;
    let limit = query.number("limit", 1, PAGE_KEYS_MAX)?.unwrap_or(PAGE_KEYS_DEFAULT) as usize;
    let tenant = scope.narrow(query.get("tenant").map(Tenant::new).transpose()?)?;
    let after = query.get("after").map(|text| {
        text.parse::<KeyId>().map_err(|invalid| Failure::invalid("after", invalid.reason))
    });
    let keys = door.engine.key_list(tenant.as_ref(), after.transpose()?, limit).await?;
    let next = keys.last().filter(|_| keys.len() == limit).map(|key| key.id.to_string());
    let wire = WireKeys { keys: keys.iter().map(from_key).collect(), next };
    Ok(answer::json(StatusCode::OK, &wire))
}

async fn revoke(
    State(door): State<Door>,
    Scope(own): Scope,
    KeyPath(id): KeyPath,
    _: NoQuery,
    _: NoBody,
) -> Result<Response, Failure> {
    let key = door.engine.key_revoke(own.as_ref(), id).await?;
    Ok(record::about(answer::done(), subject(&key)))
}

async fn rotate(
    State(door): State<Door>,
    Scope(own): Scope,
    KeyPath(old): KeyPath,
    _: NoQuery,
    Command { body, .. }: Command<RotateBody>,
) -> Result<Response, Failure> {
    let overlap = body.overlap.map_or(OVERLAP_DEFAULT, |WireDuration(overlap)| overlap);
    if overlap > OVERLAP_MAX {
        return Err(Failure::invalid("overlap", "an overlap is at most 30d"));
    }
    let text = new_text()?;
    let lifetime = body.expires.map(|WireDuration(lifetime)| lifetime);
    if lifetime.is_some_and(|lifetime| lifetime.is_zero()) {
        return Err(Failure::invalid("expires", "a key is in force for 1ms or longer"));
    }
    let new = KeyReplacement { id: text.id(), digest: text.digest(), lifetime };
    let key = door.engine.key_rotate(KeyRotate { tenant: own, old, new, overlap }).await?;
    let detail = Some(format!("new key {}", key.id));
    Ok(record::about(made(&text, &key), Subject { detail, ..subject(&key) }))
}

/// For the audit: managers see what is done with keys of their tenant.
fn subject(key: &Key) -> Subject {
    Subject { tenant: key.owner.tenant.clone(), ..Subject::default() }
}

fn new_text() -> Result<KeyText, Failure> {
    KeyText::random().map_err(|error| {
        tracing::error!(%error, "the operating system gives no random numbers");
        Failure::internal()
    })
}

fn made(text: &KeyText, key: &Key) -> Response {
    let wire = WireMade { key: text.reveal(), about: from_key(key) };
    answer::json(StatusCode::CREATED, &wire)
}
