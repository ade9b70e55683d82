//! The audit, for admins, and for managers within their tenant.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use windlass_core::audit::{Act, AuditCursor, AuditEntry, AuditFilter, Reason, Subject};
use windlass_core::key::{KeyId, Right, Role};
use windlass_core::name::{Tenant, TypeName};
use windlass_core::store::AuditList;

use crate::access::Scope;
use crate::answer;
use crate::door::Door;
use crate::error::Failure;
use crate::query::{Parameter, Query};
use crate::route::Route;
use crate::time::WireTime;

const PAGE_ENTRIES_MAX: i64 = 1000;
const PAGE_ENTRIES_DEFAULT: i64 = 100;

const LIST: &[Parameter] = &[
    Parameter { name: "tenant", what: "Only entries of this tenant." },
    Parameter { name: "key", what: "Only acts of the key with this id." },
    Parameter { name: "action", what: "Only this action, such as handler_set." },
    Parameter { name: "since", what: "Only entries from this time on." },
    Parameter { name: "until", what: "Only entries before this time." },
    Parameter { name: "limit", what: "Maximum number of entries, 1 to 1000; default 100." },
    Parameter { name: "after", what: "The `next` value of the previous page." },
];

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/audit", Right::Audit, list)
            .about("audit", "audit_list", "List changes and refusals, newest first.")
            .query(LIST)
            .answers::<WireEntries>("200", "One page; it may be short although others follow."),
    ]
}

#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
struct WireEntry {
    /// When it began; of several refusals, the first.
    at: WireTime,
    /// When it ended; of several refusals, the last.
    last_at: WireTime,
    /// How many refusals this entry counts; 1 for a change.
    count: u64,
    /// Who: key, insecure (keys are switched off), nobody (no valid key), bedrock (a client of the
    /// Bedrock door) or daemon.
    by: String,
    /// The public id of the key.
    key: Option<String>,
    /// The role of the key.
    role: Option<&'static str>,
    /// The client's address, or that of a proxy in front of the daemon.
    address: Option<String>,
    /// The id of an operation in this document, a command of the Bedrock door, or admin_key_create,
    /// start_insecure, site, tls_handshake, bedrock_connect or audit_dropped.
    action: String,
    tenant: Option<String>,
    r#type: Option<String>,
    /// Of the job, the key or the version of the handler.
    id: Option<String>,
    detail: Option<String>,
    /// The status of the answer; null if there was none, or not yet.
    status: Option<u16>,
    /// Why it was refused: no_key, wrong_key, limited, expired, revoked, ended, role, tenant,
    /// site, maximum, certificate or address.
    reason: Option<&'static str>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AuditPage)]
struct WireEntries {
    entries: Vec<WireEntry>,
    /// For `after`; null on the last page.
    next: Option<String>,
}

fn from_entry(entry: &AuditEntry) -> WireEntry {
    let AuditEntry { at, act, status, reason, count, last_at, .. } = entry;
    let Act { by, address, action, subject } = act;
    let Subject { tenant, name, id, detail } = subject;
    WireEntry {
        at: WireTime(*at),
        last_at: WireTime(*last_at),
        count: *count,
        by: by.as_str().to_owned(),
        key: by.key().map(|id| id.to_string()),
        role: by.role().map(Role::as_str),
        address: address.map(|address| address.to_string()),
        action: action.clone(),
        tenant: tenant.as_ref().map(Tenant::to_string),
        r#type: name.as_ref().map(TypeName::to_string),
        id: id.clone(),
        detail: detail.clone(),
        status: *status,
        reason: reason.map(Reason::as_str),
    }
}

async fn list(State(door): State<Door>, scope: Scope, uri: Uri) -> Result<Response, Failure> {
    let query = Query::read(&uri, LIST)?;
    let limit =
        query.number("limit", 1, PAGE_ENTRIES_MAX)?.unwrap_or(PAGE_ENTRIES_DEFAULT) as usize;
    let tenant = scope.narrow(query.get("tenant").map(Tenant::new).transpose()?)?;
    let key = query.get("key").map(|text| {
        text.parse::<KeyId>().map_err(|invalid| Failure::invalid("key", invalid.reason))
    });
    let time = |name| {
        let read = |text| WireTime::parse(text).map_err(|why| Failure::invalid(name, why));
        query.get(name).map(read).transpose().map(|time| time.map(|WireTime(at)| at))
    };
    let filter = AuditFilter {
        tenant,
        key: key.transpose()?,
        action: query.get("action").map(str::to_owned),
        since: time("since")?,
        until: time("until")?,
    };
    let before = query.get("after").map(str::parse::<AuditCursor>).transpose()?;
    let page = door.engine.audit_list(AuditList { filter, before, limit }).await?;
    let wire = WireEntries {
        entries: page.entries.iter().map(from_entry).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
    };
    Ok(answer::json(StatusCode::OK, &wire))
}
