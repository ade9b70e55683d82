//! Jobs from start to end. Starts and ends are written in batches: while one write is in progress,
//! the next batch collects.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::launch::{Input, LaunchSpec, Launched, Output, Running};

use super::retry::Failures;
use super::state::State;
use super::{ROWS_AT_ONCE_MAX, Rules, STOPS, Worker};
use crate::table::{End, Row, Unwritten};

/// Placeholder for the job's id in the command.
const ID: &str = "{id}";

/// Starts jobs when it is their turn.
pub(super) async fn start_all(worker: &Arc<Worker>) {
    let mut failures = Failures::new(&worker.log, "starting jobs");
    loop {
        let rows = worker.state().starting(ROWS_AT_ONCE_MAX);
        if rows.is_empty() {
            worker.start.notified().await;
            continue;
        }
        let ids: Vec<u64> = rows.iter().map(|row| row.id).collect();
        let started = loop {
            match worker.table.start(&ids, worker.seconds()).await {
                Ok(started) => break Some(started),
                Err(_) if worker.state().queue.is_closed() => break None,
                Err(error) => failures.pause(error).await,
            }
        };
        match started {
            Some(started) => {
                failures.succeeded();
                launch(worker, rows, &started.into_iter().collect());
            }
            None => {
                let back = give_up(worker, rows, STOPS, State::returning);
                worker.hand_back(&back).await;
            }
        }
    }
}

fn launch(worker: &Arc<Worker>, rows: Vec<Row>, started: &HashSet<u64>) {
    let (ours, lost): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| started.contains(&row.id));
    for row in &lost {
        worker.log.warn(format_args!("job {} is no longer ours and will not run", row.id));
    }
    give_up(worker, lost, "the job was given to another worker", |_, _| ());
    for row in ours {
        if worker.state().is_starting(row.id) {
            tokio::spawn(run(Arc::clone(worker), row.id));
        }
    }
}

/// Gives up jobs that are not running, calls `then` with them under the same lock, and returns
/// them.
fn give_up(
    worker: &Worker,
    mut rows: Vec<Row>,
    reason: &str,
    then: impl FnOnce(&mut State, &[Row]),
) -> Vec<Row> {
    let mut state = worker.state();
    rows.retain(|row| state.is_starting(row.id));
    for row in &rows {
        if state.not_started(row, reason) {
            worker.fetch.notify_one();
        }
    }
    then(&mut state, &rows);
    drop(state);
    worker.changed();
    rows
}

async fn run(worker: Arc<Worker>, id: u64) {
    worker.log.debug(format_args!("job {id} is started"));
    let running: Arc<dyn Running> = Arc::from(worker.launcher.launch(spec(&worker.rules, id)));
    worker.state().running(id, &running);
    let launched = running.wait().await;
    let killed = worker.state().is_killing();
    let end = outcome(&worker.rules, id, launched, killed, worker.seconds());
    let result = if end.ok { "ok" } else { "fail" };
    worker.log.debug(format_args!("job {id} has ended: {result}"));
    let due = worker.state().ended(end);
    if due {
        worker.fetch.notify_one();
    }
    worker.start.notify_one();
    worker.ends.notify_one();
    worker.changed();
}

/// The command of a job: words separated by spaces, with no other special characters.
fn spec(rules: &Rules, id: u64) -> LaunchSpec {
    let line = rules.launcher.replace(ID, &id.to_string());
    let mut words = line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned);
    LaunchSpec {
        program: words.next().unwrap_or_default(),
        args: words.collect(),
        cwd: rules.cwd.clone(),
        env: rules.env.clone(),
        input: Input::Open,
        output_bytes_max: rules.output_bytes_max,
        time_limit: rules.time_limit,
    }
}

/// The row values for a run's outcome.
fn outcome(rules: &Rules, id: u64, launched: Launched, killed: bool, now: i64) -> End {
    let mut stderr = launched.stderr;
    if let Some(failure) = launched.failure {
        stderr = Output { bytes: format!("{failure}\n").into_bytes(), dropped: 0 };
    }
    let note = if launched.timed_out {
        let limit = rules.time_limit.unwrap_or_default();
        Some(format!("the job was ended at its time limit of {}", seconds(limit)))
    } else if killed && launched.signal.is_some() {
        Some("the job was ended because the worker stopped".to_owned())
    } else {
        None
    };
    End {
        id,
        ok: launched.code == Some(0) && !launched.timed_out,
        code: launched.code,
        signal: launched.signal,
        stdout: launched.stdout,
        stderr,
        note,
        finished_at: now,
    }
}

fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds == 1.0 { "1 second".to_owned() } else { format!("{seconds} seconds") }
}

/// Writes the ends of jobs, and keeps them until the database has them.
pub(super) async fn write_ends(worker: &Worker) {
    let mut failures = Failures::new(&worker.log, "writing the results of jobs");
    loop {
        let ends = worker.state().take_ends();
        if ends.is_empty() {
            worker.ends.notified().await;
            continue;
        }
        let unwritten = loop {
            match worker.table.finish(&ends).await {
                Ok(unwritten) => break unwritten,
                Err(error) => failures.pause(error).await,
            }
        };
        failures.succeeded();
        for end in &unwritten {
            match end {
                Unwritten::Lost(id) => worker.log.warn(format_args!(
                    "the result of job {id} is not written: the row is no longer ours"
                )),
                Unwritten::Refused(id, reason) => {
                    worker.log.error(format_args!("the result of job {id} is refused: {reason}"));
                }
            }
        }
        worker.state().written(&ends, &unwritten);
        worker.start.notify_one();
        worker.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(launcher: &str) -> Rules {
        Rules { launcher: launcher.into(), ..Rules::default() }
    }

    #[test]
    fn a_command_is_split_at_spaces_and_nothing_else() {
        for (launcher, words) in [
            ("/bin/true {id}", &["/bin/true", "7"][..]),
            ("  a   b{id}{id}  ", &["a", "b77"]),
            ("printf <%s> {id} \"a b\"", &["printf", "<%s>", "7", "\"a", "b\""]),
            ("a\tb {ID} { id }", &["a\tb", "{ID}", "{", "id", "}"]),
            (" ", &[""]),
        ] {
            let spec = spec(&rules(launcher), 7);
            let mut got = vec![spec.program];
            got.extend(spec.args);
            assert_eq!(got, words, "{launcher}");
        }
    }

    #[test]
    fn only_the_exit_code_0_is_ok() {
        let of = |launched: Launched| outcome(&rules("x"), 1, launched, false, 5);
        let ok = of(Launched { code: Some(0), ..Launched::default() });
        assert!(ok.ok && ok.note.is_none() && ok.finished_at == 5);
        assert!(!of(Launched { code: Some(1), ..Launched::default() }).ok);
        let signal = of(Launched { signal: Some("SIGKILL".into()), ..Launched::default() });
        assert!(!signal.ok && signal.code.is_none());
        assert_eq!(signal.signal.as_deref(), Some("SIGKILL"));
    }

    #[test]
    fn what_was_not_started_says_so_in_stderr() {
        let failure = Some("spawn x ENOENT".to_owned());
        let launched = Launched { failure, ..Launched::default() };
        let end = outcome(&rules("x"), 1, launched, false, 0);
        assert!(!end.ok && end.code.is_none() && end.signal.is_none());
        assert_eq!(end.stderr.bytes, b"spawn x ENOENT\n");
    }

    #[test]
    fn why_a_job_was_ended_is_noted() {
        let rules = Rules { time_limit: Some(Duration::from_millis(1500)), ..rules("x") };
        let killed = Launched { signal: Some("SIGKILL".into()), ..Launched::default() };
        let late = Launched { timed_out: true, ..killed.clone() };
        let note = |launched, killing| outcome(&rules, 1, launched, killing, 0).note;
        let limit = "the job was ended at its time limit of 1.5 seconds";
        assert_eq!(note(late, true).as_deref(), Some(limit));
        let stopped = "the job was ended because the worker stopped";
        assert_eq!(note(killed.clone(), true).as_deref(), Some(stopped));
        assert_eq!(note(killed, false), None);
        assert_eq!(note(Launched { code: Some(0), ..Launched::default() }, true), None);
    }
}
