//! Leases: who has them, renewals, and which have expired.

use std::collections::HashSet;

use tokio_postgres::types::ToSql;
use windlass_core::job::{Boot, Token};
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::{LeaseRef, Renew};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, Lease, Sysid};

use crate::error::Result;
use crate::row;
use crate::tx::{Tx, values};

/// `$7` is NULL for a lease on the beat of its owner's number, whose boot is `$8`; without that, it
/// is on the beat of the boot that has the number now.
const ADD: &str = "
    INSERT INTO lease (id, type_id, attempt, started_at, owner, token, expires_at, boot)
    SELECT n.id, n.type_id, n.attempt, n.started_at, $5, $6, $7,
           coalesce($8, (SELECT boot FROM sysid WHERE sysid = $5), 0)
      FROM unnest($1::int8[], $2::int4[], $3::int4[], $4::int8[])
           AS n (id, type_id, attempt, started_at)";

/// Stores the same lease for all these running jobs, each with the id of its type.
pub(crate) async fn add_all<'a>(
    tx: &mut Tx<'_>,
    lease: &Lease,
    boot: Option<Boot>,
    jobs: impl Iterator<Item = (&'a Job, i32)>,
) -> Result<()> {
    let (mut ids, mut types, mut attempts, mut starts) = (vec![], vec![], vec![], vec![]);
    for (job, type_id) in jobs {
        ids.push(job.id.get());
        types.push(type_id);
        attempts.push(job.attempt as i32);
        starts.push(job.started_at.unwrap_or(tx.now).ms());
    }
    if ids.is_empty() {
        return Ok(());
    }
    let owner = i32::from(lease.owner.get());
    let expires_at = (!lease.on_beat).then_some(lease.expires_at.ms());
    let boot = boot.map(|boot| boot.0);
    let token = lease.token.0;
    tx.later(ADD, values![ids, types, attempts, starts, owner, token, expires_at, boot]).await
}

/// Those of these leases that are held: the jobs run under them. `nth` counts from 1.
const HELD: &str = "
    SELECT w.nth
      FROM unnest($1::int8[], $2::int8[], $3::text[]) WITH ORDINALITY AS w (id, token, tenant, nth)
      JOIN lease l ON l.id = w.id AND l.token = w.token
      JOIN type t ON t.id = l.type_id AND t.tenant = w.tenant
     ORDER BY l.id
       FOR NO KEY UPDATE OF l";

/// Which of these leases are held, by their index. They stay so until the transaction ends.
pub(crate) async fn held(
    tx: &Tx<'_>,
    leases: impl Iterator<Item = &LeaseRef>,
) -> Result<HashSet<usize>> {
    let (mut ids, mut tokens, mut tenants) = (vec![], vec![], vec![]);
    for lease in leases {
        ids.push(lease.id.get());
        tokens.push(lease.token.0);
        tenants.push(lease.tenant.as_str());
    }
    let rows = tx.query(HELD, &[&ids, &tokens, &tenants]).await?;
    rows.iter().map(|row| Ok(row.try_get::<_, i64>(0)? as usize - 1)).collect()
}

/// Extends leases; returns those that are lost.
pub(crate) async fn renew(tx: &mut Tx<'_>, by: &Renew) -> Result<Vec<LeaseRef>> {
    let held = held(tx, by.leases.iter()).await?;
    let ids: Vec<i64> = held.iter().map(|index| by.leases[*index].id.get()).collect();
    let expires_at = by.hold.map_or(Timestamp::NEVER, |hold| tx.now + hold).ms();
    let renew = "UPDATE lease SET expires_at = $2 WHERE id = ANY ($1)";
    tx.execute(renew, &[&ids, &expires_at]).await?;
    let lost = by.leases.iter().enumerate().filter(|(index, _)| !held.contains(index));
    Ok(lost.map(|(_, lease)| lease.clone()).collect())
}

const ON_BEAT: &str = "
    SELECT l.id, t.tenant, t.name, l.token FROM lease l JOIN type t ON t.id = l.type_id
     WHERE l.owner = $1 AND l.expires_at IS NULL AND l.id > $2 ORDER BY l.id LIMIT $3";

/// The leases on this daemon's beat, after a job id.
pub(crate) async fn mine(
    tx: &mut Tx<'_>,
    owner: Sysid,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<LeaseRef>> {
    let (owner, after) = (i32::from(owner.get()), after.map_or(0, JobId::get));
    leases(tx, ON_BEAT, &[&owner, &after, &bounded(limit)]).await
}

/// Reads all leases, but only after claims have failed.
const CLAIMED: &str = "
    SELECT l.id, t.tenant, t.name, l.token FROM lease l JOIN type t ON t.id = l.type_id
     WHERE l.token = ANY ($1) ORDER BY l.id LIMIT $2";

/// The leases of the claims with these tokens.
pub(crate) async fn claimed(
    tx: &mut Tx<'_>,
    tokens: &[Token],
    limit: usize,
) -> Result<Vec<LeaseRef>> {
    let tokens: Vec<i64> = tokens.iter().map(|token| token.0).collect();
    leases(tx, CLAIMED, &[&tokens, &bounded(limit)]).await
}

fn bounded(limit: usize) -> i64 {
    limit.min(BATCH_JOBS_MAX) as i64
}

async fn leases(
    tx: &Tx<'_>,
    sql: &'static str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Vec<LeaseRef>> {
    let rows = tx.query(sql, values).await?;
    let decode = |row: &tokio_postgres::Row| {
        let tenant = row::type_key(row.try_get(1)?, row.try_get(2)?)?.tenant;
        let token = Token(row.try_get(3)?);
        Ok(LeaseRef { tenant, id: row::job_id(row.try_get(0)?)?, token })
    };
    rows.iter().map(decode).collect()
}

/// The leases that have their own expiry by index, and those on the beat of a number that has run
/// out, or has another boot now.
const EXPIRED: &str = concat!(
    "WITH dead AS (
        (SELECT id, expires_at AS at FROM lease
          WHERE expires_at <= $1 ORDER BY expires_at, id LIMIT $2)
        UNION ALL
        (SELECT l.id, coalesce(s.expires_at, l.started_at) FROM lease l
           LEFT JOIN sysid s ON s.sysid = l.owner AND s.boot = l.boot
          WHERE l.expires_at IS NULL AND (s.sysid IS NULL OR s.expires_at <= $1)
          ORDER BY 2, 1 LIMIT $2)
     )
     SELECT ",
    row::columns!(),
    " FROM dead JOIN job_now j ON j.id = dead.id ORDER BY dead.at, dead.id LIMIT $2"
);

/// Running jobs whose lease has expired.
pub(crate) async fn expired(tx: &mut Tx<'_>, limit: usize) -> Result<Vec<Job>> {
    let rows = tx.query(EXPIRED, &[&tx.now.ms(), &bounded(limit)]).await?;
    let mut jobs = Vec::with_capacity(rows.len());
    for found in &rows {
        let stored = row::unless_damaged(found.try_get(0)?, row::stored(found))?;
        jobs.extend(stored.map(|stored| stored.job));
    }
    Ok(jobs)
}
