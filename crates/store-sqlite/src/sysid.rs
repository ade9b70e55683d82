//! Reservations of sysids. A sysid's row is kept for ever: it says how long the sysid has been
//! free, and the newest id that its daemons made.

use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::job::Boot;
use windlass_core::limit::SYSID_MAX;
use windlass_core::store::{Error, SysidGrant, SysidRenew, SysidReserve};
use windlass_core::time::Timestamp;
use windlass_core::{JobId, Sysid};

use crate::daemon;
use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

pub(crate) fn reserve(tx: &mut Tx<'_>, reserve: &SysidReserve) -> Result<SysidGrant> {
    let (conn, now) = (tx.conn, tx.now);
    let sysid = match reserve.wanted {
        Some(wanted) if is_free(conn, wanted, now)? => wanted,
        Some(wanted) => return Err(conflict(format!("sysid {wanted} is taken"))),
        None => freest(conn, now)?
            .ok_or_else(|| conflict(format!("all {SYSID_MAX} sysids of this store are taken")))?,
    };
    let boot = boot_next(tx)?;
    // The leases of the last owner have expired with it, and must not be revived.
    let end = "
        UPDATE lease SET expires_at = (SELECT expires_at FROM sysid WHERE sysid = ?1)
         WHERE owner = ?1 AND expires_at IS NULL";
    conn.prepare_cached(end)?.execute([sysid.get()])?;
    let take = "
        INSERT INTO sysid (sysid, boot, expires_at, released) VALUES (?1, ?2, ?3, 0)
        ON CONFLICT (sysid) DO UPDATE
           SET boot = excluded.boot, expires_at = excluded.expires_at, released = 0";
    let until = (now + reserve.lease).ms();
    conn.prepare_cached(take)?.execute(params![sysid.get(), boot.0, until])?;
    daemon::forget_old(tx)?;
    Ok(SysidGrant { sysid, boot })
}

pub(crate) fn renew(tx: &mut Tx<'_>, renew: &SysidRenew) -> Result<Timestamp> {
    let SysidGrant { sysid, boot } = renew.grant;
    let prolong = "
        UPDATE sysid
           SET expires_at = ?3, released = 0,
               id_newest = nullif(max(coalesce(id_newest, 0), coalesce(?4, 0)), 0)
         WHERE sysid = ?1 AND boot = ?2";
    let now = tx.now;
    let (id_newest, until) = (renew.id_newest.map(JobId::get), now + renew.lease);
    let values = params![sysid.get(), boot.0, until.ms(), id_newest];
    if tx.conn.prepare_cached(prolong)?.execute(values)? == 0 {
        return Err(not_yours(sysid));
    }
    if let Some(report) = &renew.report {
        daemon::put(tx, renew.grant, report)?;
    }
    Ok(now)
}

pub(crate) fn boot_next(tx: &mut Tx<'_>) -> Result<Boot> {
    let now = tx.now;
    let last = "SELECT value FROM meta WHERE name = 'boot'";
    let last = Boot(tx.conn.prepare_cached(last)?.query_row([], |row| row.get(0))?);
    let boot = Boot::after(last, now);
    let note = "UPDATE meta SET value = ?1 WHERE name = 'boot'";
    tx.conn.prepare_cached(note)?.execute([boot.0])?;
    Ok(boot)
}

/// When leases on the beat of this sysid expire, if it belongs to that boot and has not run out.
pub(crate) fn beat_until(tx: &Tx<'_>, sysid: Sysid, boot: Boot) -> Result<Timestamp> {
    let find = "SELECT expires_at FROM sysid WHERE sysid = ?1 AND boot = ?2 AND released = 0";
    let mut find = tx.conn.prepare_cached(find)?;
    let until = find.query_row(params![sysid.get(), boot.0], |row| row.get(0)).optional()?;
    match until.map(Timestamp) {
        None => Err(not_yours(sysid)),
        Some(until) if until <= tx.now => {
            let why = format!("sysid {sysid} has run out and was not renewed yet");
            Err(Failure::Store(Error::Unavailable(why.into())))
        }
        Some(until) => Ok(until),
    }
}

/// When the lease of this job, which is on its owner's beat, expires.
pub(crate) fn lease_until(conn: &Connection, id: i64) -> Result<Timestamp> {
    let find = "SELECT s.expires_at FROM lease l JOIN sysid s ON s.sysid = l.owner WHERE l.id = ?1";
    Ok(Timestamp(conn.prepare_cached(find)?.query_row([id], |row| row.get(0))?))
}

pub(crate) fn release(tx: &mut Tx<'_>, sysid: Sysid, boot: Boot) -> Result<()> {
    let now = tx.now;
    let release = "UPDATE sysid SET released = 1, expires_at = min(expires_at, ?3)
                   WHERE sysid = ?1 AND boot = ?2";
    tx.conn.prepare_cached(release)?.execute(params![sysid.get(), boot.0, now.ms()])?;
    daemon::leave(tx, SysidGrant { sysid, boot })
}

pub(crate) fn list(conn: &Connection, now: Timestamp) -> Result<Vec<Sysid>> {
    let find = "SELECT sysid FROM sysid WHERE released = 0 AND expires_at > ?1 ORDER BY sysid";
    let mut find = conn.prepare_cached(find)?;
    let mut rows = find.query([now.ms()])?;
    let mut taken = Vec::new();
    while let Some(row) = rows.next()? {
        taken.push(row::sysid(row.get(0)?)?);
    }
    Ok(taken)
}

pub(crate) fn id_newest(conn: &Connection) -> Result<Option<JobId>> {
    let find = "
        SELECT max(id) FROM (
            SELECT max(id) AS id FROM job
            UNION ALL SELECT max(value) FROM meta WHERE name = 'journal'
            UNION ALL SELECT max(id_newest) FROM sysid)";
    let newest: Option<i64> = conn.prepare_cached(find)?.query_row([], |row| row.get(0))?;
    newest.map(row::job_id).transpose()
}

fn is_free(conn: &Connection, sysid: Sysid, now: Timestamp) -> Result<bool> {
    let taken = "SELECT 1 FROM sysid WHERE sysid = ?1 AND released = 0 AND expires_at > ?2";
    Ok(!conn.prepare_cached(taken)?.exists(params![sysid.get(), now.ms()])?)
}

/// A sysid that was never used, or the one that has been free the longest.
fn freest(conn: &Connection, now: Timestamp) -> Result<Option<Sysid>> {
    let mut used = conn.prepare_cached("SELECT sysid FROM sysid ORDER BY sysid")?;
    let used = used.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<u16>>>()?;
    let unused = (1..=SYSID_MAX).zip(used.iter().map(Some).chain(std::iter::repeat(None)));
    // Both lists are in order, so the first difference is an unused sysid.
    if let Some((number, _)) = unused.into_iter().find(|(number, used)| *used != Some(number)) {
        return Ok(Sysid::new(number));
    }
    let oldest = "
        SELECT sysid FROM sysid WHERE released = 1 OR expires_at <= ?1
         ORDER BY expires_at, sysid LIMIT 1";
    let mut oldest = conn.prepare_cached(oldest)?;
    let number = oldest.query_row([now.ms()], |row| row.get(0)).optional()?;
    number.map(row::sysid).transpose()
}

fn not_yours(sysid: Sysid) -> Failure {
    conflict(format!("sysid {sysid} now belongs to another daemon"))
}

fn conflict(message: String) -> Failure {
    Failure::Store(Error::Conflict(message))
}
