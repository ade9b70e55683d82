//! When a failed attempt is retried, and when it is not: pure decisions.

use std::time::Duration;

use crate::calendar::Civil;
use crate::job::Job;
use crate::limit::{RETRY_AGE, RETRY_ATTEMPTS, RETRY_DELAY, RETRY_FACTOR};
use crate::name::Invalid;
use crate::outcome::{Code, Status};
use crate::repeat::{Bases, Repeat};
use crate::runner::Stop;
use crate::state::Ending;
use crate::time::Timestamp;

/// How often and how long a job is tried. `attempts` includes the first one; `age` counts from when
/// the job first came due.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    pub delay: Duration,
    pub factor: f64,
    pub delay_max: Duration,
    pub attempts: u32,
    pub age: Duration,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            delay: Duration::from_secs(10),
            factor: 2.0,
            delay_max: Duration::from_secs(3600),
            attempts: 25,
            age: Duration::from_secs(24 * 3600),
        }
    }
}

/// Each delay varies by up to this share, so that retries do not run in step.
const JITTER: f64 = 0.1;

impl RetryPolicy {
    /// The delay after attempt number `attempt` (1 is the first). `jitter` is a random number from
    /// 0 to 1.
    pub fn delay_after(&self, attempt: u32, jitter: f64) -> Duration {
        if self.delay.is_zero() {
            return Duration::ZERO;
        }
        let power = self.factor.powi(attempt.saturating_sub(1).min(1000) as i32);
        let delay_s = (self.delay.as_secs_f64() * power).min(self.delay_max.as_secs_f64());
        Duration::from_secs_f64(delay_s * (1.0 - JITTER + 2.0 * JITTER * jitter))
    }

    /// `field` is the name of the policy, such as `retry`.
    pub fn check(&self, field: &str) -> Result<(), Invalid> {
        RETRY_DELAY.check(format!("{field}.delay"), self.delay)?;
        RETRY_FACTOR.check(format!("{field}.factor"), self.factor)?;
        RETRY_DELAY.check(format!("{field}.delay_max"), self.delay_max)?;
        RETRY_ATTEMPTS.check(format!("{field}.attempts"), self.attempts)?;
        RETRY_AGE.check(format!("{field}.age"), self.age)
    }

    /// The policy with every number clamped to its range, for values from a store.
    pub fn clamped(self) -> RetryPolicy {
        RetryPolicy {
            delay: RETRY_DELAY.clamp(self.delay),
            factor: RETRY_FACTOR.clamp(self.factor),
            delay_max: RETRY_DELAY.clamp(self.delay_max),
            attempts: RETRY_ATTEMPTS.clamp(self.attempts),
            age: RETRY_AGE.clamp(self.age),
        }
    }
}

/// What becomes of a job after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The job has ended.
    End(Ending),
    /// The attempt counts, and there will be another one after this time.
    Again { after: Duration },
    /// Released: the attempt does not count, and the job shows the start that it had before. It may
    /// run again after this time; `None` returns it to its old place in the queue.
    Release { after: Option<Duration> },
    /// It has ended and runs again at `run_at` as if it were new; its last outcome, result and logs
    /// stay.
    Repeat { run_at: Timestamp },
}

/// Why a job is not retried although its last attempt asked for it; goes into its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    Attempts,
    Age,
    Expired,
}

impl Exhausted {
    pub fn as_str(self) -> &'static str {
        match self {
            Exhausted::Attempts => "no attempts left",
            Exhausted::Age => "too old to be tried again",
            Exhausted::Expired => "expired",
        }
    }
}

/// The verdict after an attempt that ended with `status`. A job that repeats does not end.
pub fn after_attempt(
    job: &Job,
    status: Status,
    policy: &RetryPolicy,
    now: Timestamp,
    jitter: f64,
) -> (Verdict, Option<Exhausted>) {
    match status.code() {
        Code::Ok => (end_or_repeat(job, Ending::Finished, now), None),
        Code::Failed => (end_or_repeat(job, Ending::Failed, now), None),
        Code::Retry | Code::Error => {
            again_or_dead(job, policy, now, policy.delay_after(job.attempt, jitter))
        }
    }
}

/// The verdict after a lease was broken: how far the attempt came is unknown, so it counts, but
/// there is no delay.
pub fn after_lost_lease(
    job: &Job,
    policy: &RetryPolicy,
    now: Timestamp,
) -> (Verdict, Option<Exhausted>) {
    again_or_dead(job, policy, now, Duration::ZERO)
}

/// The verdict after an attempt that was stopped.
pub fn after_stop(
    job: &Job,
    stop: Stop,
    policy: &RetryPolicy,
    now: Timestamp,
    jitter: f64,
) -> (Verdict, Option<Exhausted>) {
    match stop {
        Stop::TimedOut => after_attempt(job, Status::ERROR, policy, now, jitter),
        Stop::Expired => (Verdict::End(Ending::Failed), Some(Exhausted::Expired)),
        Stop::Cancelled => (Verdict::End(Ending::Cancelled), None),
        Stop::Shutdown | Stop::LeaseLost => {
            (Verdict::Release { after: Some(Duration::ZERO) }, None)
        }
    }
}

fn again_or_dead(
    job: &Job,
    policy: &RetryPolicy,
    now: Timestamp,
    after: Duration,
) -> (Verdict, Option<Exhausted>) {
    if job.expires_at.is_some_and(|at| at <= now + after) {
        return (Verdict::End(Ending::Failed), Some(Exhausted::Expired));
    }
    let dead = |why| (end_or_repeat(job, Ending::Failed, now), Some(why));
    if job.attempt >= policy.attempts {
        return dead(Exhausted::Attempts);
    }
    if now.since(job.due_at) >= policy.age {
        return dead(Exhausted::Age);
    }
    (Verdict::Again { after }, None)
}

/// A job that repeats runs again at its next time, if that is before its expiry.
fn end_or_repeat(job: &Job, ending: Ending, now: Timestamp) -> Verdict {
    let next = || {
        let repeat = Repeat::parse(job.extra.repeat.as_deref()?).ok()?;
        // Retries move `run_at`, and a first time in the past is not `due_at`.
        let scheduled = Some(Civil::from_timestamp(job.run_at.min(job.due_at)));
        let run_at = repeat.next(&Bases { scheduled, started: job.started_at, now })?;
        job.expires_at.is_none_or(|at| run_at < at).then_some(run_at)
    };
    next().map_or(Verdict::End(ending), |run_at| Verdict::Repeat { run_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::running_job;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const MIDDLE: f64 = 0.5;

    fn policy() -> RetryPolicy {
        RetryPolicy { attempts: 3, ..RetryPolicy::default() }
    }

    #[test]
    fn delays_grow_by_the_factor_up_to_the_bound() {
        let delays: Vec<u64> =
            (1..=10).map(|n| policy().delay_after(n, MIDDLE).as_secs()).collect();
        assert_eq!(delays, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600]);
        assert_eq!(policy().delay_after(u32::MAX, MIDDLE).as_secs(), 3600);
    }

    #[test]
    fn no_delay_stays_no_delay_after_any_number_of_attempts() {
        let policy = RetryPolicy { delay: Duration::ZERO, ..policy() };
        for attempt in [1, 2, 2000, u32::MAX] {
            assert_eq!(policy.delay_after(attempt, MIDDLE), Duration::ZERO, "{attempt}");
        }
    }

    #[test]
    fn jitter_moves_a_delay_by_a_tenth_at_most() {
        assert_eq!(policy().delay_after(1, 0.0).as_millis(), 9000);
        assert_eq!(policy().delay_after(1, 1.0).as_millis(), 11000);
    }

    #[test]
    fn each_number_outside_its_range_is_refused_by_name() {
        let far = Duration::from_secs(u64::from(u32::MAX));
        assert_eq!(policy().check("retry"), Ok(()));
        for (field, wrong) in [
            ("delay", RetryPolicy { delay: far, ..policy() }),
            ("factor", RetryPolicy { factor: 0.5, ..policy() }),
            ("delay_max", RetryPolicy { delay_max: far, ..policy() }),
            ("attempts", RetryPolicy { attempts: 0, ..policy() }),
            ("age", RetryPolicy { age: far, ..policy() }),
        ] {
            assert_eq!(wrong.check("retry").unwrap_err().field, format!("retry.{field}"));
        }
    }

    #[test]
    fn the_log_says_why_a_job_is_not_retried() {
        let texts =
            [Exhausted::Attempts, Exhausted::Age, Exhausted::Expired].map(Exhausted::as_str);
        assert_eq!(texts, ["no attempts left", "too old to be tried again", "expired"]);
    }

    #[test]
    fn ok_and_failed_end_a_job_retry_and_error_run_it_again() {
        let job = running_job(1, NOW);
        let decide = |status| after_attempt(&job, status, &policy(), NOW, MIDDLE).0;
        assert_eq!(decide(Status::OK), Verdict::End(Ending::Finished));
        assert_eq!(decide(Status::FAILED), Verdict::End(Ending::Failed));
        let later = Verdict::Again { after: Duration::from_secs(10) };
        assert_eq!(decide(Status::RETRY), later);
        assert_eq!(decide(Status::ERROR), later);
    }

    #[test]
    fn s0_17_an_attempt_that_keeps_failing_reaches_a_final_state() {
        let last = running_job(3, NOW);
        let decided = after_attempt(&last, Status::ERROR, &policy(), NOW, MIDDLE);
        assert_eq!(decided, (Verdict::End(Ending::Failed), Some(Exhausted::Attempts)));

        let old = running_job(1, NOW - policy().age);
        let decided = after_attempt(&old, Status::ERROR, &policy(), NOW, MIDDLE);
        assert_eq!(decided, (Verdict::End(Ending::Failed), Some(Exhausted::Age)));
    }

    #[test]
    fn a_retry_that_would_come_after_the_expiry_is_not_made() {
        let mut job = running_job(1, NOW);
        for (expires_ms, retried) in [(5000, false), (10_000, false), (10_001, true)] {
            job.expires_at = Some(NOW + Duration::from_millis(expires_ms));
            let decided = after_attempt(&job, Status::RETRY, &policy(), NOW, MIDDLE);
            let ended = (Verdict::End(Ending::Failed), Some(Exhausted::Expired));
            let again = (Verdict::Again { after: Duration::from_secs(10) }, None);
            assert_eq!(decided, if retried { again } else { ended }, "{expires_ms}");
        }
    }

    #[test]
    fn a_lost_lease_counts_and_runs_again_at_once() {
        let decided = after_lost_lease(&running_job(1, NOW), &policy(), NOW);
        assert_eq!(decided, (Verdict::Again { after: Duration::ZERO }, None));
        let decided = after_lost_lease(&running_job(3, NOW), &policy(), NOW);
        assert_eq!(decided.1, Some(Exhausted::Attempts));
    }

    #[test]
    fn a_job_stopped_for_our_own_reasons_goes_back_unharmed() {
        let decide = |stop| after_stop(&running_job(3, NOW), stop, &policy(), NOW, MIDDLE).0;
        assert_eq!(decide(Stop::Shutdown), Verdict::Release { after: Some(Duration::ZERO) });
        assert_eq!(decide(Stop::Cancelled), Verdict::End(Ending::Cancelled));
        assert_eq!(decide(Stop::TimedOut), Verdict::End(Ending::Failed));
    }

    fn repeating(repeat: &str) -> Job {
        let mut job = running_job(1, NOW);
        job.extra.repeat = Some(repeat.into());
        job
    }

    #[test]
    fn a_job_that_repeats_runs_again_after_its_end_good_or_bad() {
        let job = repeating("FINISHED, +90 SECONDS");
        let later = Verdict::Repeat { run_at: NOW + Duration::from_secs(90) };
        for status in [Status::OK, Status::FAILED] {
            assert_eq!(after_attempt(&job, status, &policy(), NOW, MIDDLE), (later, None));
        }
        let last = Job { attempt: 3, ..job };
        let dead = (later, Some(Exhausted::Attempts));
        assert_eq!(after_attempt(&last, Status::ERROR, &policy(), NOW, MIDDLE), dead);
        assert_eq!(after_lost_lease(&last, &policy(), NOW), dead);
    }

    #[test]
    fn a_repeat_counts_from_when_the_job_was_to_run_whatever_retries_did() {
        let second = Duration::from_secs(1);
        let mut job = repeating("SCHEDULED, +1 HOUR");
        job.run_at = NOW + second * 600;
        let now = NOW + second * 700;
        let next = Verdict::Repeat { run_at: NOW + second * 3600 };
        assert_eq!(after_attempt(&job, Status::OK, &policy(), now, MIDDLE).0, next);
    }

    #[test]
    fn a_repeat_ends_with_a_cancel_and_with_the_expiry() {
        let mut job = repeating("FINISHED, +90 SECONDS");
        let stop = |job: &Job, why| after_stop(job, why, &policy(), NOW, MIDDLE).0;
        assert_eq!(stop(&job, Stop::Cancelled), Verdict::End(Ending::Cancelled));
        job.expires_at = Some(NOW + Duration::from_secs(90));
        let ended = Verdict::End(Ending::Finished);
        assert_eq!(after_attempt(&job, Status::OK, &policy(), NOW, MIDDLE).0, ended);
        assert_eq!(stop(&job, Stop::Expired), Verdict::End(Ending::Failed));
        job.expires_at = Some(NOW + Duration::from_millis(90_001));
        let once_more = Verdict::Repeat { run_at: NOW + Duration::from_secs(90) };
        assert_eq!(after_attempt(&job, Status::OK, &policy(), NOW, MIDDLE).0, once_more);
    }
}
