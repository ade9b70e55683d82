//! Leases: renews those of this worker's jobs, and recovers the rows of dead workers.
//!
//! After an outage of the database every lease may have expired, including those of live workers
//! that are about to renew them. So rows are recovered only after the database has been available
//! for a full lease, and therefore not right after the start.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{ROWS_AT_ONCE_MAX, Worker};
use crate::table::{Origin, TableError};

/// How often a lease is renewed before it would expire.
const RENEWALS: u32 = 3;
/// The longest pause between two recoveries.
const RECOVER_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of calls per recovery; the rest is left for the next one.
const RECOVER_CALLS_MAX: u32 = 1000;

/// Renews the leases of all held jobs.
pub(super) async fn renew_all(worker: &Worker) {
    let pause = worker.rules.lease / RENEWALS;
    let mut away = false;
    loop {
        sleep(pause).await;
        match renew(worker).await {
            Ok(()) => away = false,
            Err(error) => {
                if !std::mem::replace(&mut away, true) {
                    worker.log.error(format_args!("cannot renew leases: {error}"));
                }
                worker.database_was_away();
            }
        }
    }
}

async fn renew(worker: &Worker) -> Result<(), TableError> {
    let ids = worker.state().held_ids();
    for some in ids.chunks(ROWS_AT_ONCE_MAX) {
        let lost = worker.table.renew(some, worker.rules.lease).await?;
        let (waiting, running) = worker.state().lost(&lost);
        if waiting + running > 0 {
            worker.log.warn(format_args!(
                "{waiting} waiting and {running} running jobs are no longer ours"
            ));
            worker.changed();
        }
    }
    Ok(())
}

/// Recovers the rows of dead workers, as long as this one runs.
pub(super) async fn recover_all(worker: &Worker) {
    let lease = worker.rules.lease;
    let pause = lease.min(RECOVER_PAUSE_MAX);
    let mut next = Instant::now() + lease;
    loop {
        tokio::time::sleep_until(next).await;
        next = match worker.away_at() {
            Some(away_at) if away_at + lease > Instant::now() => away_at + lease,
            _ => {
                if let Err(error) = recover(worker).await {
                    worker.log.error(format_args!("cannot look for lost jobs: {error}"));
                    worker.database_was_away();
                }
                Instant::now() + pause
            }
        };
    }
}

async fn recover(worker: &Worker) -> Result<(), TableError> {
    let reason = "the worker that ran this job was lost, and how the job ended is not known";
    for _ in 0..RECOVER_CALLS_MAX {
        let now = worker.seconds();
        let (held, interrupted) = (worker.state().held_ids(), worker.rules.interrupted);
        let recovered = worker.table.recover(&held, interrupted, now, reason).await?;
        for row in &recovered.back {
            worker.log.warn(format_args!("job {} of a lost worker waits again", row.id));
        }
        for id in &recovered.failed {
            worker.log.warn(format_args!("job {id} ran on a lost worker and has failed"));
        }
        let waiting = recovered.back.into_iter().filter(|row| row.origin == Origin::Waiting);
        let mut targets: Vec<String> = waiting.map(|row| row.target).collect();
        targets.sort();
        targets.dedup();
        if !targets.is_empty() {
            worker.poll(Some(&targets));
            worker.poke(targets);
        }
        if !recovered.more {
            break;
        }
    }
    Ok(())
}
