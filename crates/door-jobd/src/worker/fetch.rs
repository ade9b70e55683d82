//! Fetches wanted jobs, one fetch at a time. A poll is never lost: a failed fetch is retried until
//! the database answers.

use std::time::Duration;

use tokio::time::sleep;

use super::Worker;
use super::retry::Failures;

/// Pause before a retry when other workers held all candidate rows.
const HELD_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn run(worker: &Worker) {
    let mut failures = Failures::new(&worker.log, "fetching jobs");
    loop {
        let due = worker.state().queue.next_fetch();
        let Some(targets) = due else {
            worker.fetch.notified().await;
            continue;
        };
        let rules = &worker.rules;
        match worker.table.fetch(&targets, rules.fetch_limit, rules.lease).await {
            Ok(fetched) => {
                failures.succeeded();
                for id in &fetched.ignored {
                    worker.log.warn(format_args!("job {id} is ignored: its target is not served"));
                }
                let nothing = fetched.rows.is_empty();
                let back = worker.state().fetched(&targets, fetched.rows, fetched.more);
                worker.changed();
                worker.start.notify_one();
                worker.hand_back(&back).await;
                if nothing && fetched.more {
                    sleep(HELD_PAUSE).await;
                }
            }
            Err(error) => {
                worker.state().queue.fetch_failed(&targets);
                worker.changed();
                failures.pause(error).await;
            }
        }
    }
}
