//! Reservations of sysids. A sysid's row is kept for ever: it says how long the sysid has been
//! free, and the newest id that its daemons made.

use windlass_core::job::Boot;
use windlass_core::limit::SYSID_MAX;
use windlass_core::store::{SysidGrant, SysidRenew, SysidReserve};
use windlass_core::time::Timestamp;
use windlass_core::{JobId, Sysid};

use crate::daemon;
use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

pub(crate) async fn reserve(tx: &mut Tx<'_>, reserve: &SysidReserve) -> Result<SysidGrant> {
    // The row of the newest boot number is locked: reservations come one after the other.
    let boot = boot_next(tx).await?;
    let now = tx.now;
    let sysid = match reserve.wanted {
        Some(wanted) if is_free(tx, wanted).await? => wanted,
        Some(wanted) => return Err(taken(wanted)),
        None => freest(tx).await?.ok_or_else(|| {
            Failure::conflict(format!("all {SYSID_MAX} sysids of this store are taken"))
        })?,
    };
    let number = i32::from(sysid.get());
    // The leases of the last owner have expired with it. Those that it is just making are not
    // renewed either: they have its boot number.
    let end = "
        UPDATE lease l SET expires_at = s.expires_at FROM sysid s
         WHERE l.owner = $1 AND l.expires_at IS NULL AND s.sysid = l.owner AND s.boot = l.boot";
    tx.execute(end, &[&number]).await?;
    // A late beat of its owner may have renewed it meanwhile.
    let take = "
        INSERT INTO sysid AS s (sysid, boot, expires_at, released) VALUES ($1, $2, $3, false)
        ON CONFLICT (sysid) DO UPDATE
           SET boot = excluded.boot, expires_at = excluded.expires_at, released = false
         WHERE s.released OR s.expires_at <= $4";
    let until = now + reserve.lease;
    if tx.execute(take, &[&number, &boot.0, &until.ms(), &now.ms()]).await? == 0 {
        return Err(reserve.wanted.map_or(Failure::Moved, taken));
    }
    daemon::forget_old(tx).await?;
    Ok(SysidGrant { sysid, boot })
}

pub(crate) async fn renew(tx: &mut Tx<'_>, renew: &SysidRenew) -> Result<Timestamp> {
    let SysidGrant { sysid, boot } = renew.grant;
    let prolong = "
        UPDATE sysid
           SET expires_at = $3, released = false, id_newest = greatest(id_newest, $4)
         WHERE sysid = $1 AND boot = $2";
    let (id_newest, until) = (renew.id_newest.map(JobId::get), tx.now + renew.lease);
    let number = i32::from(sysid.get());
    if tx.execute(prolong, &[&number, &boot.0, &until.ms(), &id_newest]).await? == 0 {
        return Err(not_yours(sysid));
    }
    if let Some(report) = &renew.report {
        daemon::put(tx, renew.grant, report).await?;
    }
    Ok(tx.now)
}

pub(crate) async fn boot_next(tx: &mut Tx<'_>) -> Result<Boot> {
    let last = "SELECT value FROM meta WHERE name = 'boot' FOR UPDATE";
    let last = Boot(tx.query_one(last, &[]).await?.try_get(0)?);
    let boot = Boot::after(last, tx.now);
    tx.execute("UPDATE meta SET value = $1 WHERE name = 'boot'", &[&boot.0]).await?;
    Ok(boot)
}

/// When leases on the beat of this sysid expire, if it belongs to that boot and has not run out.
pub(crate) async fn beat_until(tx: &Tx<'_>, sysid: Sysid, boot: Boot) -> Result<Timestamp> {
    let find = "SELECT expires_at FROM sysid WHERE sysid = $1 AND boot = $2 AND NOT released";
    match tx.query_opt(find, &[&i32::from(sysid.get()), &boot.0]).await? {
        None => Err(not_yours(sysid)),
        Some(row) => match Timestamp(row.try_get(0)?) {
            until if until <= tx.now => {
                let why = format!("sysid {sysid} has run out and was not renewed yet");
                Err(Failure::unavailable(why))
            }
            until => Ok(until),
        },
    }
}

pub(crate) async fn release(tx: &mut Tx<'_>, sysid: Sysid, boot: Boot) -> Result<()> {
    let release = "UPDATE sysid SET released = true, expires_at = least(expires_at, $3)
                   WHERE sysid = $1 AND boot = $2";
    tx.execute(release, &[&i32::from(sysid.get()), &boot.0, &tx.now.ms()]).await?;
    daemon::leave(tx, SysidGrant { sysid, boot }).await
}

pub(crate) async fn list(tx: &mut Tx<'_>) -> Result<Vec<Sysid>> {
    let find = "SELECT sysid FROM sysid WHERE NOT released AND expires_at > $1 ORDER BY sysid";
    let rows = tx.query(find, &[&tx.now.ms()]).await?;
    rows.iter().map(|row| row::sysid(row.try_get(0)?)).collect()
}

pub(crate) async fn id_newest(tx: &mut Tx<'_>) -> Result<Option<JobId>> {
    let find = "
        SELECT greatest((SELECT max(id) FROM job), (SELECT max(position) FROM journal),
                        (SELECT max(id_newest) FROM sysid))";
    let newest: Option<i64> = tx.query_one(find, &[]).await?.try_get(0)?;
    newest.map(row::job_id).transpose()
}

async fn is_free(tx: &Tx<'_>, sysid: Sysid) -> Result<bool> {
    let taken = "SELECT FROM sysid WHERE sysid = $1 AND NOT released AND expires_at > $2";
    let taken = tx.query_opt(taken, &[&i32::from(sysid.get()), &tx.now.ms()]).await?;
    Ok(taken.is_none())
}

const UNUSED: &str = "
    SELECT n FROM generate_series(1, $1::int4) AS n
     WHERE NOT EXISTS (SELECT FROM sysid WHERE sysid = n) ORDER BY n LIMIT 1";
const OLDEST: &str = "
    SELECT sysid FROM sysid WHERE released OR expires_at <= $1
     ORDER BY expires_at, sysid LIMIT 1";

/// A sysid that was never used, or the one that has been free the longest.
async fn freest(tx: &Tx<'_>) -> Result<Option<Sysid>> {
    let found = match tx.query_opt(UNUSED, &[&i32::from(SYSID_MAX)]).await? {
        Some(unused) => Some(unused),
        None => tx.query_opt(OLDEST, &[&tx.now.ms()]).await?,
    };
    found.map(|row| row::sysid(row.try_get(0)?)).transpose()
}

fn taken(sysid: Sysid) -> Failure {
    Failure::conflict(format!("sysid {sysid} is taken"))
}

fn not_yours(sysid: Sysid) -> Failure {
    Failure::conflict(format!("sysid {sysid} now belongs to another daemon"))
}
