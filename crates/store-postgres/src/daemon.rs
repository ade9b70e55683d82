//! What daemons say of themselves: one row for each journal.

use tokio_postgres::Row;
use windlass_core::JobId;
use windlass_core::job::Boot;
use windlass_core::limit::{DAEMON_GONE_RETENTION, DAEMON_LEFT_RETENTION};
use windlass_core::store::{Backlog, DaemonRecord, DaemonReport, JournalId, SysidGrant};
use windlass_core::time::Timestamp;

use crate::error::Result;
use crate::row;
use crate::tx::Tx;

pub(crate) async fn put(tx: &Tx<'_>, grant: SysidGrant, report: &DaemonReport) -> Result<()> {
    const PUT: &str = "
        INSERT INTO daemon (journal, sysid, boot, beat_at, started_at, host, version, listen,
                            picking, running, jobs, bytes, oldest, newest, layers_missing)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
        ON CONFLICT (journal) DO UPDATE
           SET sysid = excluded.sysid, boot = excluded.boot, beat_at = excluded.beat_at,
               started_at = excluded.started_at, host = excluded.host,
               version = excluded.version, listen = excluded.listen,
               picking = excluded.picking, running = excluded.running,
               jobs = excluded.jobs, bytes = excluded.bytes,
               oldest = excluded.oldest, newest = excluded.newest,
               layers_missing = excluded.layers_missing";
    let backlog = &report.backlog;
    tx.execute(
        PUT,
        &[
            &report.journal.0,
            &i32::from(grant.sysid.get()),
            &grant.boot.0,
            &tx.now.ms(),
            &report.started_at.ms(),
            &report.host,
            &report.version,
            &report.listen,
            &report.picking,
            &(report.running as i64),
            &(backlog.jobs as i64),
            &(backlog.bytes as i64),
            &backlog.oldest.map(JobId::get),
            &backlog.newest.map(JobId::get),
            &report.layers_missing,
        ],
    )
    .await?;
    Ok(())
}

/// The daemon gave its number back: it is forgotten unless its journal has jobs left.
pub(crate) async fn leave(tx: &Tx<'_>, grant: SysidGrant) -> Result<()> {
    const LEAVE: &str = "
        DELETE FROM daemon d
         WHERE d.sysid = $1 AND d.boot = $2
           AND (d.newest IS NULL
                OR d.newest <= (SELECT j.position FROM journal j WHERE j.journal = d.journal))";
    tx.execute(LEAVE, &[&i32::from(grant.sysid.get()), &grant.boot.0]).await?;
    Ok(())
}

/// Forgets daemons that have been gone for long.
pub(crate) async fn forget_old(tx: &Tx<'_>) -> Result<()> {
    const FORGET: &str = "
        DELETE FROM daemon d
         WHERE d.beat_at <= CASE
                   WHEN d.newest IS NULL
                     OR d.newest <= (SELECT j.position FROM journal j WHERE j.journal = d.journal)
                   THEN $1::int8 - $2::int8 ELSE $1::int8 - $3::int8 END
           AND NOT EXISTS (SELECT FROM sysid s
                            WHERE s.sysid = d.sysid AND s.boot = d.boot AND NOT s.released
                              AND s.expires_at > $1)";
    let [gone, left] =
        [DAEMON_GONE_RETENTION, DAEMON_LEFT_RETENTION].map(|kept| kept.as_millis() as i64);
    tx.execute(FORGET, &[&tx.now.ms(), &gone, &left]).await?;
    Ok(())
}

pub(crate) async fn list(
    tx: &Tx<'_>,
    after: Option<JournalId>,
    limit: usize,
) -> Result<Vec<DaemonRecord>> {
    const PAGE: &str = "
        SELECT d.*, j.position,
               EXISTS (SELECT FROM sysid s
                        WHERE s.sysid = d.sysid AND s.boot = d.boot AND NOT s.released
                          AND s.expires_at > $1) AS alive
          FROM daemon d LEFT JOIN journal j ON j.journal = d.journal
         WHERE (d.sysid, d.journal) > ($2, $3)
         ORDER BY d.sysid, d.journal LIMIT $4";
    let (number, journal) =
        after.map_or((-1, i64::MIN), |after| (i32::from(after.number()), after.0));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = tx.query(PAGE, &[&tx.now.ms(), &number, &journal, &limit]).await?;
    rows.iter().map(record).collect()
}

fn record(row: &Row) -> Result<DaemonRecord> {
    let id = |name| row.try_get::<_, Option<i64>>(name)?.map(row::job_id).transpose();
    let number = |name| Ok::<_, tokio_postgres::Error>(row.try_get::<_, i64>(name)? as u64);
    Ok(DaemonRecord {
        grant: SysidGrant {
            sysid: row::sysid(row.try_get("sysid")?)?,
            boot: Boot(row.try_get("boot")?),
        },
        beat_at: Timestamp(row.try_get("beat_at")?),
        alive: row.try_get("alive")?,
        position: id("position")?,
        report: DaemonReport {
            journal: JournalId(row.try_get("journal")?),
            host: row.try_get("host")?,
            version: row.try_get("version")?,
            listen: row.try_get("listen")?,
            started_at: Timestamp(row.try_get("started_at")?),
            picking: row.try_get("picking")?,
            running: number("running")?,
            backlog: Backlog {
                jobs: number("jobs")?,
                bytes: number("bytes")?,
                oldest: id("oldest")?,
                newest: id("newest")?,
            },
            layers_missing: row.try_get("layers_missing")?,
        },
    })
}
