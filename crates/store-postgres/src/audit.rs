//! The audit.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use windlass_core::audit::{Act, Actor, AuditCursor, AuditEntry, AuditId, Reason, Subject};
use windlass_core::key::{KeyId, Role};
use windlass_core::limit::AUDIT_LOOK_MAX;
use windlass_core::name::{Tenant, TypeName};
use windlass_core::store::{AuditList, AuditPage};
use windlass_core::time::Timestamp;

use crate::error::{Failure, Result};
use crate::tx::Tx;

const PUT: &str = include_str!("../sql/audit_put.sql");

pub(crate) async fn put(tx: &mut Tx<'_>, entries: &[AuditEntry]) -> Result<()> {
    for AuditEntry { at, id, act, status, reason, count, last_at } in entries {
        let Act { by, address, action, subject } = act;
        let Subject { tenant, name, id: subject_id, detail } = subject;
        let values: [&(dyn ToSql + Sync); 15] = [
            &at.ms(),
            &id.0,
            &by.as_str(),
            &by.key().map(|id| id.to_string()),
            &by.role().map(Role::as_str),
            &address.map(|address| address.to_string()),
            action,
            &tenant.as_ref().map(Tenant::as_str),
            &name.as_ref().map(TypeName::as_str),
            &subject_id.as_deref().map(without_nul),
            &detail.as_deref().map(without_nul),
            &status.map(i32::from),
            &reason.map(Reason::as_str),
            &(*count as i64),
            &last_at.ms(),
        ];
        tx.execute(PUT, &values).await?;
    }
    Ok(())
}

/// A client may have sent a NUL, which PostgreSQL's text cannot contain.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT at, id, actor, key_id, role, address, action, tenant, type_name, subject_id,
                    detail, status, reason, count, last_at
               FROM audit WHERE ",
            $rest,
            " (at, id) < ($1, $2) AND at >= $3 ORDER BY at DESC, id DESC LIMIT $4"
        )
    };
}
const LIST: &str = select!("");
const LIST_OF_TENANT: &str = select!("tenant = $5 AND");
const LIST_OF_KEY: &str = select!("key_id = $5 AND");

/// Rows in one part of a look: a page that is full soon does not read all that it may look at.
const LOOK_STEP: usize = 500;

/// Walks the index of the narrowest condition, and looks at a bounded number of rows for the rest.
pub(crate) async fn list(tx: &Tx<'_>, list: &AuditList) -> Result<AuditPage> {
    let filter = &list.filter;
    let until = filter.until.map(|at| AuditCursor { at, id: AuditId(i64::MIN) });
    let newest = AuditCursor { at: Timestamp(i64::MAX), id: AuditId(i64::MAX) };
    let mut before = list.before.into_iter().chain(until).min().unwrap_or(newest);
    let since = filter.since.map_or(i64::MIN, Timestamp::ms);
    let (sql, of) = match (&filter.key, &filter.tenant) {
        (Some(key), _) => (LIST_OF_KEY, Some(key.to_string())),
        (None, Some(tenant)) => (LIST_OF_TENANT, Some(tenant.to_string())),
        (None, None) => (LIST, None),
    };
    let (mut entries, mut looked) = (Vec::new(), 0);
    while looked < AUDIT_LOOK_MAX {
        let step = LOOK_STEP.min(AUDIT_LOOK_MAX - looked) as i64;
        let (at, id) = (before.at.ms(), before.id.0);
        let rows = match &of {
            Some(of) => tx.query(sql, &[&at, &id, &since, &step, of]).await?,
            None => tx.query(sql, &[&at, &id, &since, &step]).await?,
        };
        for row in &rows {
            let entry = entry(row)?;
            before = entry.cursor();
            looked += 1;
            if filter.has(&entry) {
                entries.push(entry);
            }
            if entries.len() >= list.limit {
                return Ok(AuditPage { entries, next: Some(before) });
            }
        }
        if (rows.len() as i64) < step {
            return Ok(AuditPage { entries, next: None });
        }
    }
    Ok(AuditPage { entries, next: Some(before) })
}

const PURGE: &str = "
    DELETE FROM audit
     WHERE (at, id) IN (SELECT at, id FROM audit WHERE at <= $1 ORDER BY at, id LIMIT $2
                           FOR UPDATE SKIP LOCKED)";

pub(crate) async fn purge(tx: &mut Tx<'_>, keep: Duration, limit: usize) -> Result<u64> {
    tx.execute(PURGE, &[&(tx.now - keep).ms(), &(limit as i64)]).await
}

fn entry(row: &Row) -> Result<AuditEntry> {
    let (at, id): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let corrupt = || Failure::corrupt(format!("entry {at}-{id} of the audit"));
    let text = |column: usize| Ok::<_, Failure>(row.try_get::<_, Option<&str>>(column)?);
    let key = text(3)?.map(str::parse::<KeyId>).transpose().map_err(|_| corrupt())?;
    let role = text(4)?.map(|name| Role::from_name(name).ok_or_else(corrupt)).transpose()?;
    let address = text(5)?.map(str::parse).transpose().map_err(|_| corrupt())?;
    let tenant = text(7)?.map(Tenant::new).transpose().map_err(|_| corrupt())?;
    let name = text(8)?.map(TypeName::new).transpose().map_err(|_| corrupt())?;
    let reason = text(12)?.map(|name| Reason::from_name(name).ok_or_else(corrupt)).transpose()?;
    let status: Option<i32> = row.try_get(11)?;
    Ok(AuditEntry {
        at: Timestamp(at),
        id: AuditId(id),
        act: Act {
            by: Actor::from_parts(row.try_get(2)?, key, role).ok_or_else(corrupt)?,
            address,
            action: row.try_get(6)?,
            subject: Subject {
                tenant,
                name,
                id: text(9)?.map(str::to_owned),
                detail: text(10)?.map(str::to_owned),
            },
        },
        status: status.map(|status| status.try_into().map_err(|_| corrupt())).transpose()?,
        reason,
        count: row.try_get::<_, i64>(13)? as u64,
        last_at: Timestamp(row.try_get(14)?),
    })
}
