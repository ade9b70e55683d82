//! Shutdown: start nothing new, return waiting jobs, give running jobs some time, and write the
//! ends.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use windlass_program::Stop;

use super::Worker;
use super::state::State;

/// Time limit for pending database work and the last results.
pub(super) const WRITE_TIME_MAX: Duration = Duration::from_secs(10);
/// The same for an immediate stop.
pub(super) const WRITE_TIME_SHORT: Duration = Duration::from_secs(1);
/// How long killed jobs may take to exit.
const DEATH_TIME_MAX: Duration = Duration::from_secs(15);
/// Total time limit, without the time for running jobs.
pub(super) const TIME_MAX: Duration = Duration::from_secs(40);

/// Returns the targets of which jobs went back.
pub(super) async fn stop(worker: &Arc<Worker>, stop: &Stop) -> Vec<String> {
    let back = worker.state().close();
    worker.wake_start_and_fetch();
    worker.changed();
    let mut targets: Vec<String> = back.iter().map(|row| row.target.clone()).collect();
    targets.sort();
    targets.dedup();
    let orderly = async {
        worker.hand_back(&back).await;
        // Rows that are being accepted right now are handed back by the code that accepts them.
        let _ = timeout(WRITE_TIME_MAX, until(worker, |state| !state.is_accepting())).await;
        let ended = until(worker, |state| !state.runs_any());
        timeout(worker.rules.shutdown_timeout, ended).await.is_ok()
    };
    let all_ended = tokio::select! {
        all_ended = orderly => all_ended,
        () = stop.now.cancelled() => false,
    };
    if !all_ended {
        let killed = worker.state().kill();
        if killed > 0 {
            worker.log.warn(format_args!("ending {killed} jobs that still run"));
        }
        let _ = timeout(DEATH_TIME_MAX, until(worker, |state| !state.runs_any())).await;
    }
    let time_max = if stop.now.is_cancelled() { WRITE_TIME_SHORT } else { WRITE_TIME_MAX };
    if timeout(time_max, until(worker, State::is_idle)).await.is_err() {
        let left = worker.state().held_ids().len();
        worker.log.error(format_args!(
            "the results of {left} jobs are not in the database; their rows are recovered when \
             their leases have run out"
        ));
    }
    worker.state().abandon_clients();
    targets
}

/// Waits until the condition holds.
async fn until(worker: &Worker, is_so: impl Fn(&State) -> bool) {
    let mut changed = std::pin::pin!(worker.changed.notified());
    loop {
        changed.as_mut().enable();
        if is_so(&worker.state()) {
            return;
        }
        changed.as_mut().await;
        changed.set(worker.changed.notified());
    }
}
