//! The store's time: the wall clock of the machine. `meta` records how far it is ahead of the
//! machine's steady clock, so every daemon notices when it was set. The first daemon that writes
//! after that shifts everything that stands for a duration by the same step.

use rusqlite::{Connection, params};
use windlass_core::rate::NANOS_PER_MS;
use windlass_core::time::{Clock, Moment, Timestamp};

use crate::change;
use crate::error::Result;
use crate::queue::{self, QueueKey};
use crate::row;
use crate::tx::Tx;
use crate::withheld;

/// Jobs waiting for a duration that are shifted when the clock is set, those due first. Bounds the
/// transaction; further ones keep their time of day.
const WAITS_MOVED_MAX: i64 = 10_000;

const OFFSET: &str = "SELECT value FROM meta WHERE name = 'clock_offset'";
const SET: &str = "UPDATE meta SET value = ?2 WHERE name = ?1";

/// The time for a read. Until a write has shifted the leases, this is the time before the step.
pub(crate) fn read(conn: &Connection, clock: &dyn Clock) -> Result<Timestamp> {
    let (moment, step) = look(conn, clock)?;
    Ok(moment.wall.shifted(-step.unwrap_or(0)))
}

/// Called when the file is opened. After a reboot, all daemons that had a sysid are gone, and
/// workers' leases that appear to start in the future are counted from now.
pub(crate) fn open(conn: &Connection, clock: &dyn Clock) -> Result<()> {
    let (moment, run) = (Moment::now(clock), clock.machine_run());
    if known_run(conn)? == run {
        return Ok(());
    }
    conn.execute_batch("BEGIN IMMEDIATE")?;
    // Another daemon may have done it in the meantime.
    if known_run(conn)? != run {
        conn.execute(SET, params!["machine_run", run])?;
        set_offset(conn, moment)?;
        let now = moment.wall.ms();
        conn.execute("UPDATE sysid SET expires_at = min(expires_at, ?1)", [now])?;
        conn.execute(
            "UPDATE lease SET expires_at = expires_at - started_at + ?1
              WHERE started_at > ?1 AND expires_at < ?2",
            [now, Timestamp::NEVER.ms()],
        )?;
    }
    Ok(conn.execute_batch("COMMIT")?)
}

fn known_run(conn: &Connection) -> Result<i64> {
    let find = "SELECT value FROM meta WHERE name = 'machine_run'";
    Ok(conn.query_row(find, [], |row| row.get(0))?)
}

/// The current time, and by how many milliseconds the clock was set since the recorded offset.
pub(crate) fn look(conn: &Connection, clock: &dyn Clock) -> Result<(Moment, Option<i64>)> {
    let moment = Moment::now(clock);
    let offset = conn.prepare_cached(OFFSET)?.query_row([], |row| row.get(0))?;
    Ok((moment, moment.step(offset)))
}

fn set_offset(conn: &Connection, moment: Moment) -> Result<()> {
    conn.prepare_cached(SET)?.execute(params!["clock_offset", moment.offset()])?;
    Ok(())
}

/// After the clock was set: shifts everything that stands for a duration.
pub(crate) fn follow(tx: &mut Tx<'_>, moment: Moment, step: i64) -> Result<()> {
    let (conn, now) = (tx.conn, moment.wall);
    set_offset(conn, moment)?;
    conn.prepare_cached("UPDATE sysid SET expires_at = expires_at + ?1")?.execute([step])?;
    let leases = "UPDATE lease SET expires_at = expires_at + ?1 WHERE expires_at < ?2";
    conn.prepare_cached(leases)?.execute([step, Timestamp::NEVER.ms()])?;
    let spent = "UPDATE type SET spent = spent + ?1 WHERE spent <> 0 AND rate IS NOT NULL";
    conn.prepare_cached(spent)?.execute([step * NANOS_PER_MS])?;
    conn.prepare_cached("UPDATE piece_waiting SET put_at = put_at + ?1")?.execute([step])?;
    let next = "SELECT id FROM deferred ORDER BY run_at, id LIMIT ?1";
    for id in change::ids(conn, next, [WAITS_MOVED_MAX])? {
        let found = row::find_undamaged(conn, id)?;
        let Some(stored) = found.filter(|stored| stored.job.waits_a_while()) else { continue };
        let key = change::queue_key(&stored);
        let run_at = key.run_at.shifted(step);
        queue::remove(tx, key)?;
        conn.prepare_cached("UPDATE job SET run_at = ?2 WHERE id = ?1")?
            .execute([id, run_at.ms()])?;
        queue::add(tx, QueueKey { run_at, ..key }, run_at <= now)?;
    }
    // Jobs that had expired before the clock was set back have not any more.
    withheld::put_back(tx)
}
