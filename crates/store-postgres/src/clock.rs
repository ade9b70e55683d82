//! The store's time: the server's clock. Each daemon compares it with its own steady clock, at the
//! beginning of every transaction, and so notices when it was set. The first daemon to notice
//! shifts everything that stands for a duration by the same step, and counts the step in `meta`.
//! The others see the new count, and only take a new base for their comparison.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_core::rate::NANOS_PER_MS;
use windlass_core::store::Durability;
use windlass_core::sync::lock;
use windlass_core::time::{Clock, Timestamp};

use crate::Inner;
use crate::error::Result;
use crate::pool::Mode;
use crate::queue::{self, QueueKey};
use crate::row;
use crate::tx::Tx;
use crate::withheld;

/// The server's clock was set if it moved at least this much relative to the steady one.
const STEP_MIN_MS: i64 = 1000;
/// Jobs waiting for a duration that are shifted when the clock is set, those due first. Bounds the
/// transaction; further ones keep their time of day.
const WAITS_MOVED_MAX: i64 = 10_000;

/// What a daemon knows about the server's clock.
pub(crate) struct ServerClock {
    steady: Arc<dyn Clock>,
    base: Mutex<Option<Base>>,
}

/// How far the server's clock was ahead of the steady one, in milliseconds, after this many steps:
/// between these two, because a reading takes some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Base {
    steps: i64,
    low: i64,
    high: i64,
}

/// A step of the server's clock that durations have not followed yet, after `steps` others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    ms: i64,
    steps: i64,
}

/// The server's clock, read between two readings of the steady one.
#[derive(Debug, Clone, Copy)]
struct Reading {
    now: Timestamp,
    steps: i64,
    steady: (Duration, Duration),
}

impl ServerClock {
    pub(crate) fn new(steady: Arc<dyn Clock>) -> ServerClock {
        ServerClock { steady, base: Mutex::new(None) }
    }

    /// The next reading begins a new comparison.
    fn forget_base(&self) {
        *lock(&self.base) = None;
    }

    /// The step since the last reading. The base follows what is not a step: the clocks' drift.
    fn step(&self, reading: Reading) -> Option<Step> {
        let mut base = lock(&self.base);
        let (ms, next) = compare(*base, reading);
        *base = Some(next);
        ms.map(|ms| Step { ms, steps: reading.steps })
    }
}

/// The step from the base to the reading, and the base for the next one. A step is not part of the
/// base before all durations have followed it.
fn compare(base: Option<Base>, reading: Reading) -> (Option<i64>, Base) {
    let Reading { now, steps, steady: (before, after) } = reading;
    let low = now.ms() - after.as_millis() as i64;
    let high = now.ms() - before.as_millis() as i64;
    let Some(base) = base.filter(|base| base.steps == steps) else {
        return (None, Base { steps, low, high });
    };
    let next = Base { steps, low: base.low.clamp(low, high), high: base.high.clamp(low, high) };
    // How far the two are apart, if no offset fits both.
    let moved = (next.low - base.high).max(0) + (next.high - base.low).min(0);
    match moved.abs() >= STEP_MIN_MS {
        true => (Some(moved), base),
        false => (None, next),
    }
}

const READ: &str = "SELECT now_ms(), (SELECT value FROM meta WHERE name = 'clock')";

/// Begins a transaction, and reads the clock.
pub(crate) async fn begin(store: &Inner, mode: Mode) -> Result<Tx<'_>> {
    let session = store.pool.session(mode).await?;
    let before = store.clock.steady.steady();
    let begun = session.send_batch(store.pool.begin(mode)).await;
    let read = session.query_one(READ, &[]).await;
    // If it has not begun, that is the reason why the clock could not be read.
    begun.await?;
    let row = read?;
    let steady = (before, store.clock.steady.steady());
    let reading = Reading { now: Timestamp(row.try_get(0)?), steps: row.try_get(1)?, steady };
    let step = store.clock.step(reading);
    Ok(Tx::new(session, mode, reading.now, step))
}

/// A living daemon whose last beat was after this time.
const ANY_BEAT: &str = "
    SELECT FROM daemon d JOIN sysid s ON s.sysid = d.sysid AND s.boot = d.boot
     WHERE d.beat_at > $1 AND s.expires_at > $2 LIMIT 1";

/// Follows a step of the server's clock, unless another daemon has done so. If the server's clock
/// seems to have leapt ahead although a daemon has beaten in the time that it left out, it is this
/// machine that stood still, with its steady clock: a virtual machine that was paused. A pause that
/// is shorter than the time between two beats may be taken for a step; then leases and waits last
/// that much longer.
pub(crate) async fn follow(store: &Inner) -> Result<()> {
    let mut tx = begin(store, Mode::Write(Durability::Synced)).await?;
    // Only one daemon at a time gets this far; the next one reads the new count.
    let count = "SELECT value FROM meta WHERE name = 'clock' FOR UPDATE";
    let steps: i64 = tx.query_one(count, &[]).await?.try_get(0)?;
    let step = tx.step.filter(|step| step.steps == steps);
    let now = tx.now.ms();
    if let Some(Step { ms: leap @ 1.., .. }) = step
        && tx.query_opt(ANY_BEAT, &[&(now - leap), &now]).await?.is_some()
    {
        tracing::warn!("this machine stood still; the clock of the database server was not set");
        store.clock.forget_base();
    } else if let Some(step) = step {
        tracing::warn!(step_ms = step.ms, "the clock of the database server was set");
        tx.execute("UPDATE meta SET value = value + 1 WHERE name = 'clock'", &[]).await?;
        shift(&mut tx, step.ms).await?;
    }
    match tx.commit().await {
        Ok(_) => {
            tx.keep();
            Ok(())
        }
        Err(failure) => Err(tx.fail(failure).await),
    }
}

/// Shifts everything that stands for a duration.
async fn shift(tx: &mut Tx<'_>, step: i64) -> Result<()> {
    tx.execute("UPDATE sysid SET expires_at = expires_at + $1", &[&step]).await?;
    let leases = "UPDATE lease SET expires_at = expires_at + $1 WHERE expires_at < $2";
    tx.execute(leases, &[&step, &Timestamp::NEVER.ms()]).await?;
    let spent = "UPDATE type SET spent = spent + $1 WHERE spent <> 0 AND rate IS NOT NULL";
    tx.execute(spent, &[&(step * NANOS_PER_MS)]).await?;
    tx.execute("UPDATE piece_waiting SET put_at = put_at + $1", &[&step]).await?;
    let next = "SELECT id FROM deferred ORDER BY run_at, id LIMIT $1";
    let rows = tx.query(next, &[&WAITS_MOVED_MAX]).await?;
    let ids = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Result<Vec<i64>>>()?;
    let found = row::find_all(tx, &ids).await?;
    let waiting = found.values().filter(|stored| stored.job.waits_a_while());
    let keys: Vec<QueueKey> = waiting.map(queue::key).collect();
    queue::remove_all(tx, &keys).await?;
    let moved: Vec<QueueKey> =
        keys.iter().map(|key| QueueKey { run_at: key.run_at.shifted(step), ..*key }).collect();
    let (ids, times): (Vec<i64>, Vec<i64>) =
        moved.iter().map(|key| (key.id, key.run_at.ms())).unzip();
    let set = "UPDATE job j SET run_at = m.run_at
                 FROM unnest($1::int8[], $2::int8[]) AS m (id, run_at) WHERE j.id = m.id";
    tx.execute(set, &[&ids, &times]).await?;
    let now = tx.now;
    queue::add_all(tx, moved.into_iter().map(|key| (key, key.run_at <= now))).await?;
    // Jobs that had expired before the clock was set back have not any more.
    withheld::put_back(tx).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(steps: i64, now: i64, before: u64, after: u64) -> Reading {
        let steady = (Duration::from_millis(before), Duration::from_millis(after));
        Reading { now: Timestamp(now), steps, steady }
    }

    fn point(steps: i64, offset: i64) -> Base {
        Base { steps, low: offset, high: offset }
    }

    #[test]
    fn a_slow_first_answer_makes_no_step_of_the_next() {
        // The server read its clock at any time within three seconds.
        let (_, base) = compare(None, reading(0, 3000, 0, 3000));
        for offset in [0, 3000] {
            assert_eq!(compare(Some(base), reading(0, offset, 0, 0)), (None, point(0, offset)));
        }
        assert_eq!(compare(Some(base), reading(0, 4000, 0, 0)).0, Some(1000));
        assert_eq!(compare(Some(base), reading(0, -1000, 0, 0)).0, Some(-1000));
    }

    #[test]
    fn a_step_is_what_no_slow_answer_explains() {
        let base = Some(point(3, 1000));
        for (now, before, after, step) in [
            (1500, 500, 500, None),
            (2499, 500, 500, None),
            (2500, 500, 500, Some(1000)),
            (500, 500, 500, Some(-1000)),
            // The answer took two seconds: the server may have read its clock at any time.
            (3500, 500, 2500, None),
            (4500, 500, 2500, Some(1000)),
        ] {
            assert_eq!(compare(base, reading(3, now, before, after)).0, step, "{now}");
        }
    }

    #[test]
    fn a_slow_drift_moves_the_base() {
        let mut base = Some(point(0, 0));
        for offset in (0..100_000).step_by(500) {
            let (step, next) = compare(base, reading(0, offset, 0, 0));
            assert_eq!((step, next), (None, point(0, offset)));
            base = Some(next);
        }
    }

    #[test]
    fn a_step_that_another_daemon_followed_is_a_new_base() {
        let (step, next) = compare(Some(point(3, 1000)), reading(4, 9000, 0, 0));
        assert_eq!((step, next), (None, point(4, 9000)));
    }

    #[test]
    fn a_step_stays_one_until_it_was_followed() {
        let (step, next) = compare(Some(point(3, 1000)), reading(3, 9000, 0, 0));
        assert_eq!((step, next), (Some(8000), point(3, 1000)));
    }
}
