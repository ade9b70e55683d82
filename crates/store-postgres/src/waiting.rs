//! Which types are open, in pages: by revision, by tenant, and by name. Reads walk indexes of types
//! that may be open (`type_changed`, `type_open`), and then count ready jobs, up to a bound; types
//! without ready jobs cost nothing.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use windlass_core::glob::{self, Pattern};
use windlass_core::name::{Tenant, TypeKey, TypeName};
use windlass_core::store::{
    ChangedLook, ChangedTypes, NamedLook, NamedTypes, Revision, WaitingType,
};

use crate::claim::READY_COUNTED_MAX;
use crate::error::{Failure, Result};
use crate::queue;
use crate::row;
use crate::tx::Tx;
use crate::type_row;

/// Names that one step of a walk by name reads.
const NAMES_MAX: i64 = 1000;
/// Matches of names against patterns in one read; the next one continues from there.
const TESTS_MAX: usize = 100_000;
/// Changed types that one read visits, whether it returns them or not.
const CHANGES_MAX: usize = 10_000;
/// Of them, those that may be open and have no jobs.
const EMPTY_MAX: usize = 100;
/// Types with a limit that one read by pattern checks.
const LIMITED_MAX: usize = 1000;
/// Revisions that a server can give in a millisecond, at the very most.
const REVISIONS_PER_MS: i64 = 1 << 16;
/// Revisions that a server can lose, at the very most.
const REVISIONS_LOST_MAX: i64 = 1 << 32;

/// Types with what is counted for each: ready jobs, up to `$1`, and for those with a limit how many
/// more may run.
macro_rules! select_types {
    ($which:literal) => {
        concat!(
            "SELECT t.tenant, t.name, least(c.ready, c.room), t.handler_id, t.settings, t.rev,
                    NOT t.suspended AND c.ready > 0 AND c.room > 0 AS open,
                    NOT t.suspended AND c.ready > 0 AND c.room <= 0 AS full,
                    t.id, NOT t.suspended AND c.ready = 0 AS empty
               FROM type t
              CROSS JOIN LATERAL (
                    SELECT (SELECT count(*)
                              FROM (SELECT FROM segments(t.id) s
                                     CROSS JOIN LATERAL (
                                           SELECT FROM ready r
                                            WHERE r.type_id = t.id AND r.rank < s.until
                                              AND (r.rank, r.run_at, r.tie, r.id)
                                                  >= (s.rank, s.run_at, s.tie, s.id)
                                            ORDER BY r.rank, r.run_at, r.tie, r.id
                                            LIMIT $1) AS each
                                     LIMIT $1) AS counted) AS ready,
                           CASE WHEN t.running_max IS NULL THEN $1
                                ELSE t.running_max
                                     - (SELECT count(*) FROM lease l WHERE l.type_id = t.id)
                            END AS room) AS c
              WHERE t.open AND ",
            $which
        )
    };
}

/// The newest revision of which all changes, and all before it, can be seen.
///
/// Transactions that raise a revision hold a lock until they end. This waits for those that took
/// their number before it, so that a change which commits late is not passed over.
pub(crate) async fn settled_revision(tx: &mut Tx<'_>) -> Result<Revision> {
    revive_if_lost(tx).await?;
    let newest: i64 = tx.query_one("SELECT last_value FROM revision", &[]).await?.try_get(0)?;
    tx.execute("SELECT await_revisions()", &[]).await?;
    Ok(Revision(newest))
}

/// Before a revision is given or compared.
pub(crate) async fn revive_if_lost(tx: &mut Tx<'_>) -> Result<()> {
    if tx.query_opt("SELECT FROM alive", &[]).await?.is_none() {
        revive(tx).await?;
    }
    Ok(())
}

/// The server crashed, or another one took its place: it may have lost relaxed commits, also ones
/// that raised a revision or closed a type. All types that may be open get a new revision, larger
/// than all that were given before; so do keys and settings of tenants with their next change.
async fn revive(tx: &mut Tx<'_>) -> Result<()> {
    tx.execute("SELECT pg_advisory_xact_lock(lock_class(), 0)", &[]).await?;
    let put = "INSERT INTO alive VALUES (true) ON CONFLICT DO NOTHING";
    if tx.execute(put, &[]).await? > 0 {
        tracing::warn!("the database server may have lost its newest changes");
        // By the clock, so that it holds even if this is lost too.
        let raise = "SELECT setval('revision', greatest(last_value + $1, $2)) FROM revision";
        let by_clock = tx.now.ms() * REVISIONS_PER_MS;
        tx.execute(raise, &[&REVISIONS_LOST_MAX, &by_clock]).await?;
        tx.execute("UPDATE type SET rev = nextval('revision') WHERE open", &[]).await?;
        let others = "UPDATE meta SET value = greatest(value + $1, $2)
                       WHERE name IN ('key_revision', 'tenant_revision')";
        tx.execute(others, &[&REVISIONS_LOST_MAX, &by_clock]).await?;
    }
    Ok(())
}

const CHANGED: &str = select_types!(
    "(t.handler_id IS NOT NULL) = $2 AND t.rev > $3 AND t.rev <= $4 ORDER BY t.rev LIMIT $5"
);

/// `newest` is the settled revision; due jobs have been promoted. Also returns types that may be
/// open but have no jobs, and so were passed over: `close_empty` closes them, so that they get a
/// new revision when they open.
pub(crate) async fn changed(
    tx: &mut Tx<'_>,
    look: &ChangedLook,
    newest: Revision,
) -> Result<(ChangedTypes, Vec<i32>)> {
    let mut answer = ChangedTypes {
        types: Vec::new(),
        cut: Vec::new(),
        up_to: newest,
        newest,
        more: false,
        next_due_at: queue::next_due_at(tx).await?,
    };
    let mut empty = Vec::new();
    let Some(since) = look.since.filter(|since| *since < newest) else {
        return Ok((answer, empty));
    };
    let visited = (CHANGES_MAX + 1) as i64;
    let rows = tx
        .query(CHANGED, &[&READY_COUNTED_MAX, &look.handled, &since.0, &newest.0, &visited])
        .await?;
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for (passed, row) in rows.iter().enumerate() {
        let of_tenant = counts.entry(row.try_get(0)?).or_default();
        let room = *of_tenant < look.each && answer.types.len() == look.limit;
        let is_empty = row.try_get(EMPTY)?;
        let is_bound = passed == CHANGES_MAX || (is_empty && empty.len() == EMPTY_MAX);
        if is_bound || (room && row.try_get(OPEN)?) {
            answer.more = true;
            answer.up_to = Revision(row.try_get::<_, i64>(REVISION)? - 1);
            break;
        }
        if is_empty {
            empty.push(row.try_get(ID)?);
        }
        if row.try_get(OPEN)? {
            *of_tenant += 1;
            if *of_tenant <= look.each {
                answer.types.extend(unless_damaged(row)?);
            }
        }
    }
    let cut = counts.iter().filter(|(_, count)| **count > look.each);
    let tenant =
        |(text, _): (&&str, _)| Tenant::new(text).map_err(|bad| Failure::corrupt(bad.to_string()));
    answer.cut = cut.map(tenant).collect::<Result<_>>()?;
    answer.cut.sort();
    Ok((answer, empty))
}

/// Closes types that have no jobs. Those that may be getting some have a new revision then.
pub(crate) async fn close_empty(tx: &Tx<'_>, types: &[i32]) -> Result<()> {
    tx.execute("SELECT close_empty($1)", &[&types]).await?;
    Ok(())
}

const NEXT_TENANT: &str = "
    SELECT tenant FROM type
     WHERE (handler_id IS NOT NULL) = true AND open AND tenant > $1 ORDER BY tenant LIMIT 1";
const NEXT_OF: &str = select_types!(
    "(t.handler_id IS NOT NULL) = true AND t.tenant = $2 AND t.name > $3 ORDER BY t.name LIMIT $4"
);

pub(crate) async fn first(
    tx: &mut Tx<'_>,
    after: Option<&Tenant>,
    each: usize,
    limit: usize,
) -> Result<Vec<WaitingType>> {
    let mut after = after.map_or_else(String::new, |tenant| tenant.as_str().to_owned());
    let mut page = Vec::new();
    while page.len() < limit {
        let Some(found) = tx.query_opt(NEXT_TENANT, &[&after]).await? else { break };
        after = found.try_get(0)?;
        next_of(tx, &after, None, each, &mut page).await?;
    }
    Ok(page)
}

pub(crate) async fn next(
    tx: &mut Tx<'_>,
    of: &[(Tenant, Option<TypeName>)],
    each: usize,
) -> Result<Vec<WaitingType>> {
    let mut page = Vec::new();
    for (tenant, after) in of {
        next_of(tx, tenant.as_str(), after.as_ref(), each, &mut page).await?;
    }
    Ok(page)
}

/// Adds up to `each` open types of a tenant. Those that are not open after all do not count.
async fn next_of(
    tx: &Tx<'_>,
    tenant: &str,
    after: Option<&TypeName>,
    each: usize,
    page: &mut Vec<WaitingType>,
) -> Result<()> {
    let full = page.len().saturating_add(each);
    let mut after = after.map_or_else(String::new, |name| name.as_str().to_owned());
    while page.len() < full {
        let wanted = i64::try_from(full - page.len()).unwrap_or(i64::MAX).min(NAMES_MAX);
        let rows = tx.query(NEXT_OF, &[&READY_COUNTED_MAX, &tenant, &after, &wanted]).await?;
        for row in &rows {
            if row.try_get(OPEN)? {
                page.extend(unless_damaged(row)?);
            }
        }
        match rows.last() {
            Some(last) if rows.len() as i64 == wanted => after = last.try_get(NAME)?,
            _ => break,
        }
    }
    Ok(())
}

const NAMED: &str = select_types!("t.tenant = $2 AND t.name = ANY ($3) ORDER BY t.name");
const NAMES_FROM: &str = "
    SELECT name FROM type
     WHERE (handler_id IS NOT NULL) IN (true, false) AND open AND tenant = $1
       AND name > $2 AND name >= $3
     ORDER BY name LIMIT $4";

pub(crate) async fn named(tx: &mut Tx<'_>, look: &NamedLook) -> Result<NamedTypes> {
    let mut answer = NamedTypes { types: Vec::new(), next: None, full: false };
    let (mut names, globs): (Vec<&str>, Vec<&str>) =
        look.names.iter().map(String::as_str).partition(|text| glob::is_literal(text));
    names.sort_unstable();
    names.dedup();
    answer.full = of_names(tx, &look.tenant, &names, &mut answer.types).await?;
    if globs.is_empty() {
        return Ok(answer);
    }
    let mut globs: Vec<Pattern> = globs.into_iter().map(Pattern::new).collect();
    answer.full |= any_full(tx, &look.tenant, &globs).await?;
    // Sorted by prefix, one walk by name covers all patterns.
    globs.sort_by_key(Pattern::prefix);
    let room = look.limit.saturating_sub(answer.types.len());
    let (found, next) = matching(tx, look, &globs, &names, room).await?;
    answer.types.extend(found);
    answer.next = next;
    Ok(answer)
}

/// Up to `room` open types, by name, that match one of the patterns and are none of `names`; and
/// where the search goes on.
async fn matching(
    tx: &Tx<'_>,
    look: &NamedLook,
    globs: &[Pattern],
    names: &[&str],
    room: usize,
) -> Result<(Vec<WaitingType>, Option<TypeName>)> {
    let mut open = Vec::new();
    let mut names_left = (TESTS_MAX / globs.len()).max(1);
    let mut at = look.after.as_ref().map_or_else(String::new, |name| name.as_str().to_owned());
    for prefix in globs.iter().map(Pattern::prefix) {
        loop {
            let page = names_left.min(NAMES_MAX as usize);
            let values: [&(dyn ToSql + Sync); 4] =
                [&look.tenant.as_str(), &at, &prefix, &(page as i64)];
            let rows = tx.query(NAMES_FROM, &values).await?;
            let found: Vec<&str> =
                rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<_>>()?;
            let found: Vec<&str> =
                found.into_iter().take_while(|name| name.starts_with(&prefix)).collect();
            let is_wanted = |name: &&str| {
                names.binary_search(name).is_err() && globs.iter().any(|glob| glob.matches(name))
            };
            let wanted: Vec<&str> = found.iter().copied().filter(is_wanted).collect();
            of_names(tx, &look.tenant, &wanted, &mut open).await?;
            if open.len() > room {
                open.truncate(room);
                let last = open.last().map(|last| last.key.name.clone());
                return Ok((open, last.or_else(|| look.after.clone())));
            }
            at = found.last().map_or(at, |last| (*last).to_owned());
            names_left -= found.len();
            if names_left == 0 {
                return Ok((open, TypeName::new(&at).ok()));
            }
            if found.len() < page {
                break;
            }
        }
    }
    Ok((open, None))
}

/// Adds those of these types that are open, by name. Returns whether one has ready jobs but has
/// reached its limit.
async fn of_names(
    tx: &Tx<'_>,
    tenant: &Tenant,
    names: &[&str],
    open: &mut Vec<WaitingType>,
) -> Result<bool> {
    if names.is_empty() {
        return Ok(false);
    }
    let mut any_full = false;
    for row in tx.query(NAMED, &[&READY_COUNTED_MAX, &tenant.as_str(), &names]).await? {
        any_full |= row.try_get::<_, bool>(FULL)?;
        if row.try_get(OPEN)? {
            open.extend(unless_damaged(&row)?);
        }
    }
    Ok(any_full)
}

const LIMITED: &str =
    select_types!("t.tenant = $2 AND t.running_max IS NOT NULL ORDER BY t.name LIMIT $3");

/// Whether a matching type has ready jobs but has reached its limit; also true if there are too
/// many types to check.
async fn any_full(tx: &Tx<'_>, tenant: &Tenant, globs: &[Pattern]) -> Result<bool> {
    let limit = LIMITED_MAX as i64;
    let rows = tx.query(LIMITED, &[&READY_COUNTED_MAX, &tenant.as_str(), &limit]).await?;
    for row in &rows {
        let name: &str = row.try_get(NAME)?;
        if row.try_get(FULL)? && globs.iter().any(|glob| glob.matches(name)) {
            return Ok(true);
        }
    }
    Ok(rows.len() == LIMITED_MAX)
}

const HANDLED: &str = "
    SELECT t.tenant, t.name
      FROM unnest($1::text[], $2::text[]) AS k (tenant, name)
      JOIN type t ON t.tenant = k.tenant AND t.name = k.name
     WHERE t.handler_id IS NOT NULL";

pub(crate) async fn unhandled(tx: &mut Tx<'_>, keys: &[TypeKey]) -> Result<Vec<TypeKey>> {
    let (tenants, names): (Vec<&str>, Vec<&str>) =
        keys.iter().map(|key| (key.tenant.as_str(), key.name.as_str())).unzip();
    let rows = tx.query(HANDLED, &[&tenants, &names]).await?;
    let handled = rows.iter().map(|row| row::type_key(row.try_get(0)?, row.try_get(1)?));
    let handled: HashSet<TypeKey> = handled.collect::<Result<_>>()?;
    Ok(keys.iter().filter(|key| !handled.contains(key)).cloned().collect())
}

/// `None` for a type whose row is damaged: it is named in the log and skipped, so that it does not
/// block the others.
fn unless_damaged(row: &Row) -> Result<Option<WaitingType>> {
    match waiting(row) {
        Err(failure) if failure.is_of_one_row() => {
            let (tenant, name): (&str, &str) = (row.try_get(0)?, row.try_get(NAME)?);
            tracing::error!(tenant, name, ?failure, "skipping a type whose row is damaged");
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// Columns of `select_types!`.
const NAME: usize = 1;
const REVISION: usize = 5;
const OPEN: usize = 6;
const FULL: usize = 7;
const ID: usize = 8;
const EMPTY: usize = 9;

fn waiting(row: &Row) -> Result<WaitingType> {
    Ok(WaitingType {
        key: row::type_key(row.try_get(0)?, row.try_get(NAME)?)?,
        ready: row.try_get::<_, i64>(2)?.max(0) as u64,
        handler: row.try_get::<_, Option<i64>>(3)?.map(row::job_id).transpose()?,
        settings: type_row::settings(row.try_get(4)?)?,
        revision: Revision(row.try_get(REVISION)?),
    })
}
