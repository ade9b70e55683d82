//! Verdicts: what becomes of a job after an attempt. All settlements are made here, by core's
//! rules, whatever ended the attempt: its runner's report, its worker, a panic in the daemon, or an
//! expired lease.

use std::time::Duration;

use windlass_core::retry::{self, Verdict};
use windlass_core::runner::Stop;
use windlass_core::store::{LeaseRef, Settlement};
use windlass_core::time::format_time;
use windlass_core::{Job, Json, Log, NewJob, Status, Timestamp};

use crate::dispatch::policy::Policy;
use crate::error::{Error, storage_error};
use crate::shared::Shared;

/// What ended an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cause {
    /// It ended by itself.
    Ended(Status),
    /// It was stopped, and its runner reports this status.
    Stopped(Stop, Status),
    /// Its lease ran out; how far it came is unknown.
    LeaseExpired,
}

/// The policy of a verdict, and the time and random number that it depends on.
pub(crate) struct Rules<'a> {
    policy: &'a Policy,
    now: Timestamp,
    /// From 0 to 1.
    jitter: f64,
}

impl<'a> Rules<'a> {
    pub(crate) fn now(shared: &Shared, policy: &'a Policy) -> Rules<'a> {
        Rules { policy, now: shared.now(), jitter: shared.jitter() }
    }
}

/// The settlement of an attempt that ended. `log` is the attempt's own; notes about the verdict are
/// added. The caller adds the result, the progress and the new jobs.
pub(crate) fn end(
    job: &Job,
    lease: LeaseRef,
    cause: Cause,
    mut log: Log,
    rules: &Rules<'_>,
) -> Settlement {
    let Rules { policy, now, jitter } = *rules;
    let retry = &policy.retry;
    let (verdict, exhausted) = match cause {
        Cause::Ended(status) => retry::after_attempt(job, status, retry, now, jitter),
        Cause::Stopped(stop, _) => retry::after_stop(job, stop, retry, now, jitter),
        Cause::LeaseExpired => retry::after_lost_lease(job, retry, now),
    };
    // The runner has noted in the log that it stopped an expired attempt.
    let noted = matches!(cause, Cause::Stopped(Stop::Expired, _));
    if let Some(why) = exhausted.filter(|_| !noted) {
        log.note(why.as_str());
    }
    if let Verdict::Repeat { run_at } = verdict {
        log.note(&format!("repeats at {}", format_time(run_at)));
    }
    let status = match cause {
        Cause::Ended(status) | Cause::Stopped(_, status) => status,
        Cause::LeaseExpired => Status::ERROR,
    };
    let released = matches!(verdict, Verdict::Release { .. });
    Settlement {
        lease,
        verdict,
        ended: (!released).then(|| status.into()),
        data: None,
        progress: None,
        log,
        adds: Vec::new(),
        follow: None,
        keep: policy.retention,
        only_if_expired: matches!(cause, Cause::LeaseExpired),
    }
}

/// The log note of an attempt whose new jobs cannot enter.
pub(crate) fn not_accepted(error: &Error) -> String {
    format!("its new jobs were not accepted: {error}")
}

/// The settlement that replaces one whose new jobs the store refused. The attempt counts as an
/// error and no jobs enter, so it is not refused again. `log_own` is how many bytes of the log are
/// the attempt's own and not about the verdict.
pub(crate) fn refused(
    job: &Job,
    settlement: &Settlement,
    log_own: usize,
    why: &Error,
    rules: &Rules<'_>,
) -> Settlement {
    let Settlement { lease, log, data, progress, .. } = settlement;
    let mut log = Log::from_stored(log.as_stored()[..log_own].to_owned());
    log.note(&not_accepted(why));
    let (data, progress) = (data.clone(), progress.clone());
    let end = end(job, lease.clone(), Cause::Ended(Status::ERROR), log, rules);
    Settlement { data, progress, ..end }
}

/// A release: the attempt does not count and leaves no log. See `Verdict::Release`.
pub(crate) fn release(lease: LeaseRef, after: Option<Duration>) -> Settlement {
    Settlement {
        lease,
        verdict: Verdict::Release { after },
        ended: None,
        data: None,
        progress: None,
        log: Log::new(),
        adds: Vec::new(),
        follow: None,
        keep: Duration::ZERO,
        only_if_expired: false,
    }
}

/// The job that follows `job` if its attempt ended with this status and this result. It enters with
/// the settlement, so there is exactly one.
pub(crate) fn follow(
    shared: &Shared,
    job: &Job,
    status: Status,
    data: Option<&Json>,
) -> Result<Option<NewJob>, Error> {
    let Some(name) = job.followed_by(status) else { return Ok(None) };
    let id = shared.journal.make_id().map_err(storage_error)?;
    Ok(Some(job.follow(name.clone(), id, data, shared.now())))
}

#[cfg(test)]
mod tests {
    use windlass_core::job::Progress;
    use windlass_core::state::Ending;
    use windlass_core::{Extra, Payload};

    use super::*;
    use crate::dispatch::running::tests::attempt;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn job(attempts: u32) -> Job {
        let job = Job::clone(&attempt(1, 1).job);
        Job { attempt: attempts, due_at: NOW, run_at: NOW, started_at: Some(NOW), ..job }
    }

    fn rules(policy: &Policy) -> Rules<'_> {
        Rules { policy, now: NOW, jitter: 0.5 }
    }

    fn judged(job: &Job, cause: Cause, log: Log) -> Settlement {
        let running = attempt(1, 1);
        end(job, running.lease(), cause, log, &rules(&running.policy))
    }

    fn notes(settlement: &Settlement) -> Vec<&str> {
        settlement.log.lines().map(|(_, text)| text).collect()
    }

    #[test]
    fn an_attempt_that_counts_has_a_status_and_a_released_one_has_none() {
        let ended = |cause| judged(&job(1), cause, Log::new()).ended.map(|ended| ended.status);
        let status = Status::new(204).unwrap();
        assert_eq!(ended(Cause::Ended(status)), Some(status));
        assert_eq!(ended(Cause::Stopped(Stop::TimedOut, Status::ERROR)), Some(Status::ERROR));
        assert_eq!(ended(Cause::LeaseExpired), Some(Status::ERROR));
        assert_eq!(ended(Cause::Stopped(Stop::Shutdown, Status::ERROR)), None);
    }

    #[test]
    fn the_log_says_why_there_is_no_other_attempt_and_when_the_job_repeats() {
        let last = job(u32::MAX);
        let settlement = judged(&last, Cause::LeaseExpired, Log::of_note("its own"));
        assert_eq!(notes(&settlement), ["its own", "no attempts left"]);
        assert_eq!(settlement.verdict, Verdict::End(Ending::Failed));
        let expired = Cause::Stopped(Stop::Expired, Status::ERROR);
        let settlement = judged(&last, expired, Log::of_note("expired"));
        assert_eq!(notes(&settlement), ["expired"], "the runner's note is enough");

        let extra = Extra { repeat: Some("FINISHED, +1 HOUR".into()), ..Extra::default() };
        let repeats = Job { extra, ..job(1) };
        let settlement = judged(&repeats, Cause::Ended(Status::OK), Log::new());
        let [note] = notes(&settlement)[..] else { panic!("{:?}", settlement.log) };
        assert!(note.starts_with("repeats at "), "{note}");
    }

    #[test]
    fn only_a_lease_that_ran_out_is_settled_on_condition() {
        let is_conditional = |cause| judged(&job(1), cause, Log::new()).only_if_expired;
        assert!(is_conditional(Cause::LeaseExpired));
        assert!(!is_conditional(Cause::Ended(Status::OK)));
    }

    #[test]
    fn a_refused_settlement_keeps_what_the_attempt_said_and_adds_nothing() {
        let job = job(1);
        let log = Log::of_note("its own");
        let log_own = log.len();
        let mut settlement = judged(&job, Cause::Ended(Status::OK), log);
        settlement.data = Json::parse("1".to_owned()).ok();
        settlement.progress = Some(Progress { percent: 50.0, message: "half".into(), at: NOW });
        let payload = Payload::Inline("x".into());
        settlement.adds = vec![NewJob::new(job.id, job.key.clone(), payload, NOW)];
        let why = Error::Conflict("no".into());
        let policy = attempt(1, 1).policy;
        let instead = refused(&job, &settlement, log_own, &why, &rules(&policy));
        assert_eq!(notes(&instead), ["its own", "its new jobs were not accepted: no"]);
        assert!(instead.adds.is_empty());
        assert_eq!((instead.data, instead.progress), (settlement.data, settlement.progress));
        assert!(matches!(instead.verdict, Verdict::Again { .. }));
    }
}
