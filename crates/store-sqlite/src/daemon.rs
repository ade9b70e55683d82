//! What daemons say of themselves: one row for each journal.

use rusqlite::{Connection, Row, params};
use windlass_core::JobId;
use windlass_core::job::Boot;
use windlass_core::limit::{DAEMON_GONE_RETENTION, DAEMON_LEFT_RETENTION};
use windlass_core::store::{Backlog, DaemonRecord, DaemonReport, JournalId, SysidGrant};
use windlass_core::time::Timestamp;

use crate::error::Result;
use crate::row;
use crate::tx::Tx;

pub(crate) fn put(tx: &Tx<'_>, grant: SysidGrant, report: &DaemonReport) -> Result<()> {
    let put = "
        INSERT OR REPLACE INTO daemon
               (journal, sysid, boot, beat_at, started_at, host, version, listen, picking, running,
                jobs, bytes, oldest, newest, layers_missing)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    let backlog = &report.backlog;
    tx.conn.prepare_cached(put)?.execute(params![
        report.journal.0,
        grant.sysid.get(),
        grant.boot.0,
        tx.now.ms(),
        report.started_at.ms(),
        report.host,
        report.version,
        report.listen,
        report.picking,
        report.running as i64,
        backlog.jobs as i64,
        backlog.bytes as i64,
        backlog.oldest.map(JobId::get),
        backlog.newest.map(JobId::get),
        report.layers_missing.join("\n"),
    ])?;
    Ok(())
}

/// The daemon gave its number back: it is forgotten unless its journal has jobs left.
pub(crate) fn leave(tx: &Tx<'_>, grant: SysidGrant) -> Result<()> {
    let leave = "
        DELETE FROM daemon
         WHERE sysid = ?1 AND boot = ?2
           AND (newest IS NULL
                OR newest <= (SELECT value FROM meta WHERE name = 'journal' AND id = journal))";
    tx.conn.prepare_cached(leave)?.execute(params![grant.sysid.get(), grant.boot.0])?;
    Ok(())
}

/// Forgets daemons that have been gone for long.
pub(crate) fn forget_old(tx: &Tx<'_>) -> Result<()> {
    let forget = "
        DELETE FROM daemon
         WHERE beat_at <= ?1 - CASE
                   WHEN newest IS NULL
                     OR newest <= (SELECT value FROM meta WHERE name = 'journal' AND id = journal)
                   THEN ?2 ELSE ?3 END
           AND NOT EXISTS (SELECT 1 FROM sysid s
                            WHERE s.sysid = daemon.sysid AND s.boot = daemon.boot
                              AND s.released = 0 AND s.expires_at > ?1)";
    let [gone, left] =
        [DAEMON_GONE_RETENTION, DAEMON_LEFT_RETENTION].map(|kept| kept.as_millis() as i64);
    tx.conn.prepare_cached(forget)?.execute([tx.now.ms(), gone, left])?;
    Ok(())
}

pub(crate) fn list(
    conn: &Connection,
    now: Timestamp,
    after: Option<JournalId>,
    limit: usize,
) -> Result<Vec<DaemonRecord>> {
    let page = "
        SELECT d.*, m.value AS position,
               EXISTS (SELECT 1 FROM sysid s
                        WHERE s.sysid = d.sysid AND s.boot = d.boot AND s.released = 0
                          AND s.expires_at > ?1) AS alive
          FROM daemon d LEFT JOIN meta m ON m.name = 'journal' AND m.id = d.journal
         WHERE (d.sysid, d.journal) > (?2, ?3)
         ORDER BY d.sysid, d.journal LIMIT ?4";
    let (number, journal) =
        after.map_or((-1, i64::MIN), |after| (i64::from(after.number()), after.0));
    let mut find = conn.prepare_cached(page)?;
    let mut rows = find.query([now.ms(), number, journal, limit as i64])?;
    let mut daemons = Vec::new();
    while let Some(row) = rows.next()? {
        daemons.push(record(row)?);
    }
    Ok(daemons)
}

fn record(row: &Row<'_>) -> Result<DaemonRecord> {
    let id = |name| row.get::<_, Option<i64>>(name)?.map(row::job_id).transpose();
    let layers: String = row.get("layers_missing")?;
    Ok(DaemonRecord {
        grant: SysidGrant { sysid: row::sysid(row.get("sysid")?)?, boot: Boot(row.get("boot")?) },
        beat_at: Timestamp(row.get("beat_at")?),
        alive: row.get("alive")?,
        position: id("position")?,
        report: DaemonReport {
            journal: JournalId(row.get("journal")?),
            host: row.get("host")?,
            version: row.get("version")?,
            listen: row.get("listen")?,
            started_at: Timestamp(row.get("started_at")?),
            picking: row.get("picking")?,
            running: row.get::<_, i64>("running")? as u64,
            backlog: Backlog {
                jobs: row.get::<_, i64>("jobs")? as u64,
                bytes: row.get::<_, i64>("bytes")? as u64,
                oldest: id("oldest")?,
                newest: id("newest")?,
            },
            layers_missing: layers.lines().map(str::to_owned).collect(),
        },
    })
}
