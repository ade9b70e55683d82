//! Which types are open, in pages: by revision, by tenant, and by name. Reads by tenant and by
//! name walk an index of open types only (`type_open`), so types without ready jobs cost nothing.
//! The index by revision (`type_changed`) keeps closed types; a read skips those.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use windlass_core::glob::{self, Pattern};
use windlass_core::name::{Tenant, TypeKey, TypeName};
use windlass_core::store::{
    ChangedLook, ChangedTypes, NamedLook, NamedTypes, Revision, WaitingType,
};

use crate::error::{Failure, Result};
use crate::queue;
use crate::row;
use crate::tx;
use crate::type_row;

/// Matches of names against patterns in one read; the next one continues from there.
const TESTS_MAX: usize = 100_000;
/// Index entries that one read of changes visits, whether it returns them or not.
const CHANGES_MAX: usize = 50_000;
/// Types with a limit that one read by pattern checks.
const LIMITED_MAX: usize = 1000;

/// Answered by the index alone, so that skipping types of a tenant that has very many is cheap.
pub(crate) const CHANGED: &str = "
    SELECT rev, tenant, id FROM type INDEXED BY type_changed
     WHERE handled = ?1 AND rev > ?2 ORDER BY rev";

/// The columns that `waiting` reads: jobs that a claim would get are those that are ready, as far
/// as the type's limit allows.
macro_rules! waiting_columns {
    () => {
        "tenant, name, min(ready, coalesce(running_max - running, ready)), handler_id, settings, \
         rev"
    };
}

pub(crate) const OPEN_BY_ID: &str =
    concat!("SELECT ", waiting_columns!(), " FROM type WHERE id = ?1 AND open");

/// The caller has promoted due jobs.
pub(crate) fn changed(conn: &Connection, look: &ChangedLook) -> Result<ChangedTypes> {
    let newest = conn.prepare_cached(tx::REVISION)?.query_row([], |row| row.get(0))?;
    let mut answer = ChangedTypes {
        types: Vec::new(),
        cut: Vec::new(),
        up_to: Revision(newest),
        newest: Revision(newest),
        more: false,
        next_due_at: queue::next_due_at(conn)?,
    };
    let Some(since) = look.since else { return Ok(answer) };
    let mut find = conn.prepare_cached(CHANGED)?;
    let mut open_by_id = conn.prepare_cached(OPEN_BY_ID)?;
    let mut rows = find.query(params![look.handled, since.0])?;
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut passed = 0;
    while let Some(row) = rows.next()? {
        let revision: i64 = row.get(0)?;
        let tenant = row.get_ref(1)?.as_str().unwrap_or_default();
        let before = counts.get(tenant).copied().unwrap_or(0);
        if passed == CHANGES_MAX || (before < look.each && answer.types.len() == look.limit) {
            answer.more = true;
            answer.up_to = Revision(revision - 1);
            break;
        }
        passed += 1;
        // One more than is returned, to know that there are more.
        if before > look.each {
            continue;
        }
        let mut found = open_by_id.query([row.get::<_, i64>(2)?])?;
        let Some(of_type) = found.next()? else { continue };
        counts.insert(tenant.to_owned(), before + 1);
        if before < look.each {
            answer.types.extend(unless_damaged(of_type)?);
        }
    }
    let cut = counts.iter().filter(|(_, count)| **count > look.each);
    let tenant = |(text, _): (&String, _)| {
        Tenant::new(text).map_err(|bad| Failure::corrupt(bad.to_string()))
    };
    answer.cut = cut.map(tenant).collect::<Result<_>>()?;
    answer.cut.sort();
    Ok(answer)
}

pub(crate) const NEXT_TENANT: &str = "
    SELECT tenant FROM type INDEXED BY type_open
     WHERE handled = 1 AND tenant > ?1 AND open ORDER BY tenant LIMIT 1";
pub(crate) const NEXT_OF: &str = concat!(
    "SELECT ",
    waiting_columns!(),
    " FROM type INDEXED BY type_open
     WHERE handled = 1 AND tenant = ?1 AND name > ?2 AND open ORDER BY name"
);

pub(crate) fn first(
    conn: &Connection,
    after: Option<&Tenant>,
    each: usize,
    limit: usize,
) -> Result<Vec<WaitingType>> {
    let mut next = conn.prepare_cached(NEXT_TENANT)?;
    let mut after = after.map_or_else(String::new, |tenant| tenant.as_str().to_owned());
    let mut page = Vec::new();
    while page.len() < limit {
        let tenant: Option<String> = next.query_row([&after], |row| row.get(0)).optional()?;
        let Some(tenant) = tenant else { break };
        next_of(conn, &tenant, None, each, &mut page)?;
        after = tenant;
    }
    Ok(page)
}

pub(crate) fn next(
    conn: &Connection,
    of: &[(Tenant, Option<TypeName>)],
    each: usize,
) -> Result<Vec<WaitingType>> {
    let mut page = Vec::new();
    for (tenant, after) in of {
        next_of(conn, tenant.as_str(), after.as_ref(), each, &mut page)?;
    }
    Ok(page)
}

fn next_of(
    conn: &Connection,
    tenant: &str,
    after: Option<&TypeName>,
    each: usize,
    page: &mut Vec<WaitingType>,
) -> Result<()> {
    let mut find = conn.prepare_cached(NEXT_OF)?;
    let mut rows = find.query([tenant, after.map_or("", TypeName::as_str)])?;
    // The caller takes a page that is not full for the last one, so damaged types do not count.
    let full = page.len().saturating_add(each);
    while page.len() < full {
        let Some(row) = rows.next()? else { break };
        page.extend(unless_damaged(row)?);
    }
    Ok(())
}

pub(crate) const NAMED: &str = concat!(
    "SELECT ",
    waiting_columns!(),
    ", ready > 0 AND running >= running_max, open
       FROM type WHERE tenant = ?1 AND name = ?2"
);
pub(crate) const OPEN_FROM: &str = "
    SELECT name FROM type INDEXED BY type_open
     WHERE handled = 0 AND tenant = ?1 AND name >= ?2 AND open
     UNION ALL
    SELECT name FROM type INDEXED BY type_open
     WHERE handled = 1 AND tenant = ?1 AND name >= ?2 AND open
     ORDER BY name";

pub(crate) fn named(conn: &Connection, look: &NamedLook) -> Result<NamedTypes> {
    let mut answer = NamedTypes { types: Vec::new(), next: None, full: false };
    let (mut names, globs): (Vec<&String>, Vec<&String>) =
        look.names.iter().partition(|text| glob::is_literal(text));
    names.sort();
    names.dedup();
    for name in &names {
        let (open, full) = of_name(conn, &look.tenant, name)?;
        answer.types.extend(open);
        answer.full |= full;
    }
    let mut globs: Vec<Pattern> = globs.into_iter().map(|text| Pattern::new(text)).collect();
    answer.full |= !globs.is_empty() && any_full(conn, &look.tenant, &globs)?;
    // Sorted by prefix, one walk by name covers all patterns.
    globs.sort_by_key(Pattern::prefix);
    let tests_each = globs.len().max(1);
    let mut names_left = (TESTS_MAX / tests_each).max(1);
    let mut at: Option<String> = look.after.as_ref().map(|after| after.as_str().to_owned());
    for glob in &globs {
        let prefix = glob.prefix();
        let mut find = conn.prepare_cached(OPEN_FROM)?;
        let from = at.as_deref().map_or(prefix.as_str(), |at| at.max(prefix.as_str()));
        let mut rows = find.query([look.tenant.as_str(), from])?;
        while let Some(row) = rows.next()? {
            let name = row.get_ref(0)?.as_str().unwrap_or_default();
            if !name.starts_with(&prefix) {
                break;
            }
            if at.as_deref().is_some_and(|at| name <= at) {
                continue;
            }
            if answer.types.len() >= look.limit || names_left == 0 {
                answer.next = at.and_then(|at| TypeName::new(&at).ok());
                return Ok(answer);
            }
            names_left -= 1;
            at = Some(name.to_owned());
            let matches = globs.iter().any(|glob| glob.matches(name));
            if matches && names.binary_search_by(|other| other.as_str().cmp(name)).is_err() {
                answer.types.extend(of_name(conn, &look.tenant, name)?.0);
            }
        }
    }
    Ok(answer)
}

pub(crate) const LIMITED: &str = "
    SELECT name, ready > 0 AND running >= running_max FROM type INDEXED BY type_limited
     WHERE tenant = ?1 AND running_max IS NOT NULL ORDER BY name";

/// Whether a matching type has ready jobs but has reached its limit; also true if there are too
/// many types to check.
fn any_full(conn: &Connection, tenant: &Tenant, globs: &[Pattern]) -> Result<bool> {
    let mut find = conn.prepare_cached(LIMITED)?;
    let mut rows = find.query([tenant.as_str()])?;
    for _ in 0..LIMITED_MAX {
        let Some(row) = rows.next()? else { return Ok(false) };
        let name = row.get_ref(0)?.as_str().unwrap_or_default();
        if row.get(1)? && globs.iter().any(|glob| glob.matches(name)) {
            return Ok(true);
        }
    }
    Ok(true)
}

/// The type if it is open, and whether it has ready jobs but has reached its limit.
fn of_name(conn: &Connection, tenant: &Tenant, name: &str) -> Result<(Option<WaitingType>, bool)> {
    let mut find = conn.prepare_cached(NAMED)?;
    let mut rows = find.query([tenant.as_str(), name])?;
    let Some(row) = rows.next()? else { return Ok((None, false)) };
    let full = row.get::<_, Option<bool>>(6)?.unwrap_or(false);
    let open = row.get(7)?;
    Ok((if open { unless_damaged(row)? } else { None }, full))
}

pub(crate) const HANDLED: &str = "SELECT 1 FROM type WHERE tenant = ?1 AND name = ?2 AND handled";

pub(crate) fn unhandled(conn: &Connection, keys: &[TypeKey]) -> Result<Vec<TypeKey>> {
    let mut find = conn.prepare_cached(HANDLED)?;
    let mut unhandled = Vec::new();
    for key in keys {
        if !find.exists([key.tenant.as_str(), key.name.as_str()])? {
            unhandled.push(key.clone());
        }
    }
    Ok(unhandled)
}

/// `None` for a type whose row is damaged: it is named in the log and skipped, so that it does not
/// block the others.
fn unless_damaged(row: &Row<'_>) -> Result<Option<WaitingType>> {
    match waiting(row) {
        Err(failure) if failure.is_of_one_row() => {
            let (tenant, name) = (row.get_ref(0)?.as_str(), row.get_ref(1)?.as_str());
            tracing::error!(?tenant, ?name, ?failure, "skipping a type whose row is damaged");
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// Decodes `waiting_columns`.
fn waiting(row: &Row<'_>) -> Result<WaitingType> {
    let key: TypeKey = row::type_key(row.get_ref(0)?.as_str(), row.get_ref(1)?.as_str())?;
    Ok(WaitingType {
        key,
        ready: row.get::<_, i64>(2)?.max(0) as u64,
        handler: row.get::<_, Option<i64>>(3)?.map(row::job_id).transpose()?,
        settings: type_row::settings(row.get(4)?)?,
        revision: Revision(row.get(5)?),
    })
}

#[cfg(test)]
mod tests {
    use windlass_core::time::{SystemClock, Timestamp};

    use super::*;
    use crate::open::{self, Options};
    use crate::tx::{Counter, Tx};
    use crate::type_row::TypeCache;

    /// Other operations may follow a claim in its transaction, after its answer was made.
    #[test]
    fn a_type_that_closes_and_opens_in_one_transaction_has_a_new_revision() {
        let directory = tempfile::TempDir::new().unwrap();
        let conn = open::writer(&Options::new(directory.path().join("jobs.db"))).unwrap();
        let mut types = TypeCache::default();
        let mut tx = Tx::begin(&conn, &mut types, &SystemClock).unwrap();
        let key = TypeKey::new("acme", "t").unwrap();
        let type_id = tx.types.ensure(tx.conn, &key).unwrap();
        tx.count(type_id, Counter::Ready, 5);
        tx.apply_counts().unwrap();
        let look = |since| ChangedLook { since: Some(since), handled: false, each: 9, limit: 9 };
        let open = changed(&conn, &look(Revision(0))).unwrap();
        assert_eq!(open.types.len(), 1);
        tx.count(type_id, Counter::Ready, -5);
        tx.claimed(type_id, 5, Timestamp(0));
        tx.answered_closed(type_id);
        tx.count(type_id, Counter::Ready, 1);
        tx.apply_counts().unwrap();
        let again = changed(&conn, &look(open.up_to)).unwrap();
        assert_eq!(again.types.len(), 1, "the claimer must see it in the next read of changes");
        tx.count(type_id, Counter::Ready, -1);
        tx.claimed(type_id, 1, Timestamp(0));
        tx.answered_closed(type_id);
        tx.apply_counts().unwrap();
        assert!(changed(&conn, &look(Revision(0))).unwrap().types.is_empty());
    }
}
