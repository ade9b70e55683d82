//! The audit.

use std::time::Duration;

use rusqlite::{Connection, Row, params};
use windlass_core::audit::{Act, Actor, AuditCursor, AuditEntry, AuditId, Reason, Subject};
use windlass_core::key::{KeyId, Role};
use windlass_core::limit::AUDIT_LOOK_MAX;
use windlass_core::name::{Tenant, TypeName};
use windlass_core::store::{AuditList, AuditPage};
use windlass_core::time::Timestamp;

use crate::error::{Failure, Result};
use crate::tx::Tx;

const PUT: &str = "
    INSERT OR REPLACE INTO audit (at, id, actor, key_id, role, address, action, tenant, type_name,
                                  subject_id, detail, status, reason, count, last_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

pub(crate) fn put(tx: &mut Tx<'_>, entries: &[AuditEntry]) -> Result<()> {
    let mut put = tx.conn.prepare_cached(PUT)?;
    for AuditEntry { at, id, act, status, reason, count, last_at } in entries {
        let Act { by, address, action, subject } = act;
        let Subject { tenant, name, id: subject_id, detail } = subject;
        put.execute(params![
            at.ms(),
            id.0,
            by.as_str(),
            by.key().map(|id| id.to_string()),
            by.role().map(Role::as_str),
            address.map(|address| address.to_string()),
            action,
            tenant.as_ref().map(Tenant::as_str),
            name.as_ref().map(TypeName::as_str),
            subject_id,
            detail,
            status,
            reason.map(Reason::as_str),
            *count as i64,
            last_at.ms(),
        ])?;
    }
    Ok(())
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT at, id, actor, key_id, role, address, action, tenant, type_name, subject_id,
                    detail, status, reason, count, last_at
               FROM audit WHERE ",
            $rest,
            " (at, id) < (?1, ?2) AND at >= ?3 ORDER BY at DESC, id DESC LIMIT ?4"
        )
    };
}
pub(crate) const LIST: &str = select!("");
pub(crate) const LIST_OF_TENANT: &str = select!("tenant = ?5 AND");
pub(crate) const LIST_OF_KEY: &str = select!("key_id = ?5 AND");

/// Walks the index of the narrowest condition, and looks at a bounded number of rows for the rest.
pub(crate) fn list(conn: &Connection, list: &AuditList) -> Result<AuditPage> {
    let filter = &list.filter;
    let until = filter.until.map(|at| AuditCursor { at, id: AuditId(i64::MIN) });
    let newest = AuditCursor { at: Timestamp(i64::MAX), id: AuditId(i64::MAX) };
    let before = list.before.into_iter().chain(until).min().unwrap_or(newest);
    let since = filter.since.map_or(i64::MIN, Timestamp::ms);
    let bounds = (before.at.ms(), before.id.0, since, AUDIT_LOOK_MAX as i64);
    let (at, id, since, look_max) = bounds;
    let (sql, of) = match (&filter.key, &filter.tenant) {
        (Some(key), _) => (LIST_OF_KEY, Some(key.to_string())),
        (None, Some(tenant)) => (LIST_OF_TENANT, Some(tenant.to_string())),
        (None, None) => (LIST, None),
    };
    let mut find = conn.prepare_cached(sql)?;
    let mut rows = match of {
        Some(of) => find.query(params![at, id, since, look_max, of])?,
        None => find.query(params![at, id, since, look_max])?,
    };
    let (mut entries, mut looked) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let entry = entry(row)?;
        let cursor = entry.cursor();
        looked += 1;
        if filter.has(&entry) {
            entries.push(entry);
        }
        if entries.len() >= list.limit || looked == AUDIT_LOOK_MAX {
            return Ok(AuditPage { entries, next: Some(cursor) });
        }
    }
    Ok(AuditPage { entries, next: None })
}

pub(crate) const OLDEST: &str = "SELECT at, id FROM audit WHERE at <= ?1 ORDER BY at, id LIMIT ?2";
const REMOVE: &str = "DELETE FROM audit WHERE at = ?1 AND id = ?2";

pub(crate) fn purge(tx: &mut Tx<'_>, keep: Duration, limit: usize) -> Result<u64> {
    let mut oldest = tx.conn.prepare_cached(OLDEST)?;
    let old = oldest.query_map([(tx.now - keep).ms(), limit as i64], |row| {
        Ok([row.get::<_, i64>(0)?, row.get(1)?])
    })?;
    let old = old.collect::<rusqlite::Result<Vec<[i64; 2]>>>()?;
    let mut remove = tx.conn.prepare_cached(REMOVE)?;
    for place in &old {
        remove.execute(*place)?;
    }
    Ok(old.len() as u64)
}

fn entry(row: &Row<'_>) -> Result<AuditEntry> {
    let (at, id): (i64, i64) = (row.get(0)?, row.get(1)?);
    let corrupt = || Failure::corrupt(format!("entry {at}-{id} of the audit"));
    let text = |column| Ok::<_, Failure>(row.get::<_, Option<String>>(column)?);
    let key = text(3)?.map(|text| text.parse::<KeyId>()).transpose().map_err(|_| corrupt())?;
    let role = text(4)?.map(|name| Role::from_name(&name).ok_or_else(corrupt)).transpose()?;
    let actor: String = row.get(2)?;
    let address = text(5)?.map(|text| text.parse()).transpose().map_err(|_| corrupt())?;
    let tenant = text(7)?.map(|name| Tenant::new(&name)).transpose().map_err(|_| corrupt())?;
    let name = text(8)?.map(|name| TypeName::new(&name)).transpose().map_err(|_| corrupt())?;
    let reason = text(12)?.map(|name| Reason::from_name(&name).ok_or_else(corrupt)).transpose()?;
    Ok(AuditEntry {
        at: Timestamp(at),
        id: AuditId(id),
        act: Act {
            by: Actor::from_parts(&actor, key, role).ok_or_else(corrupt)?,
            address,
            action: row.get(6)?,
            subject: Subject { tenant, name, id: text(9)?, detail: text(10)? },
        },
        status: row.get(11)?,
        reason,
        count: row.get::<_, i64>(13)? as u64,
        last_at: Timestamp(row.get(14)?),
    })
}
