//! Rates: how many jobs of a type may start now, counted over all daemons.
//!
//! Each start costs 1/`rate` of a second. A type has spent the time up to a moment, `Spent`, which
//! may be ahead of the clock by the cost of as many starts as its rate allows in a second, or of
//! one. So in any time there are at most that many starts, and those that the rate gives for it.
//! A store keeps `Spent` with the type and changes it in the transaction that starts the jobs.

use std::time::Duration;

use crate::time::Timestamp;

/// The moment up to which the starts of a type have been paid, in nanoseconds since the epoch; the
/// default is before any start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent(pub i64);

pub const NANOS_PER_MS: i64 = 1_000_000;
const NANOS_PER_SECOND: f64 = 1e9;
/// Against rounding, because `Spent` is never rounded down: nanoseconds, and a part of a start.
const ROUNDING_NANOS: f64 = 1e3;
const ROUNDING_PART: f64 = 1e-3;

/// How many jobs of a type may start at one moment.
pub fn burst(rate: f64) -> u32 {
    (rate as u32).max(1)
}

impl Spent {
    /// How many jobs may start now.
    pub fn left(self, rate: f64, now: Timestamp) -> u32 {
        let left = f64::from(burst(rate)) * cost(rate) - self.ahead(rate, now);
        let rounding = ROUNDING_NANOS.min(ROUNDING_PART * cost(rate));
        ((left + rounding) / cost(rate)).min(f64::from(burst(rate))) as u32
    }

    /// After so many starts.
    pub fn after(self, jobs: u32, rate: f64, now: Timestamp) -> Spent {
        let ahead = self.ahead(rate, now) + f64::from(jobs) * cost(rate);
        Spent::ahead_of(now, ahead)
    }

    /// The time until so many jobs may start at once, if none may start now. What started together
    /// starts together again, so that a busy type is claimed in batches.
    pub fn rest(self, jobs: u32, rate: f64, now: Timestamp) -> Option<Duration> {
        if self.left(rate, now) > 0 {
            return None;
        }
        let others = burst(rate) - jobs.clamp(1, burst(rate));
        let over = self.ahead(rate, now) - f64::from(others) * cost(rate);
        Some(Duration::from_nanos(over.ceil().max(1.0) as u64))
    }

    /// With another rate: what has been started costs what it costs with that one. Without a rate
    /// before or from now on, nothing was spent.
    pub fn follow(self, before: Option<f64>, rate: Option<f64>, now: Timestamp) -> Spent {
        match (before, rate) {
            (Some(before), Some(rate)) => {
                let starts = self.ahead(before, now) / cost(before);
                Spent::ahead_of(now, starts.min(burst(rate).into()) * cost(rate))
            }
            _ => Spent::default(),
        }
    }

    /// The same after the clock was set by so many milliseconds.
    pub fn shifted(self, ms: i64) -> Spent {
        match self {
            Spent(0) => self,
            Spent(at) => Spent(at.saturating_add(ms.saturating_mul(NANOS_PER_MS))),
        }
    }

    /// Nanoseconds that are spent ahead of the clock: never more than a burst costs, whatever the
    /// clock does.
    fn ahead(self, rate: f64, now: Timestamp) -> f64 {
        let ahead = self.0.saturating_sub(now.ms().saturating_mul(NANOS_PER_MS));
        (ahead as f64).clamp(0.0, f64::from(burst(rate)) * cost(rate))
    }

    fn ahead_of(now: Timestamp, ahead: f64) -> Spent {
        let now = now.ms().saturating_mul(NANOS_PER_MS);
        Spent(now.saturating_add(ahead.ceil() as i64))
    }
}

/// Nanoseconds.
fn cost(rate: f64) -> f64 {
    NANOS_PER_SECOND / rate
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::RATE;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn after(ms: i64) -> Timestamp {
        Timestamp(NOW.ms() + ms)
    }

    #[test]
    fn a_rate_allows_a_burst_and_then_one_start_after_the_other() {
        let mut spent = Spent::default();
        assert_eq!((spent.left(5.0, NOW), spent.rest(1, 5.0, NOW)), (5, None));
        spent = spent.after(5, 5.0, NOW);
        assert_eq!(spent.left(5.0, NOW), 0);
        let rest = |jobs| spent.rest(jobs, 5.0, NOW).unwrap().as_millis();
        assert_eq!([rest(0), rest(1), rest(2), rest(5), rest(99)], [200, 200, 400, 1000, 1000]);
        assert_eq!(spent.left(5.0, after(199)), 0);
        assert_eq!(spent.left(5.0, after(200)), 1);
        assert_eq!(spent.left(5.0, after(1000)), 5);
        assert_eq!(spent.left(5.0, after(100_000)), 5, "unused starts are not saved up");
    }

    /// Whatever the rate, its starts are neither lost to rounding nor multiplied by it.
    #[test]
    fn starts_one_by_one_are_as_many_as_at_once() {
        for rate in [0.3, 1.0, 3.0, 7.0, 49.9, 999.0] {
            let (mut spent, mut starts) = (Spent::default(), 0);
            while spent.left(rate, NOW) > 0 {
                spent = spent.after(1, rate, NOW);
                starts += 1;
            }
            assert_eq!(starts, burst(rate), "{rate}");
        }
    }

    #[test]
    fn no_time_has_more_starts_than_its_rate_and_a_burst() {
        for rate in [0.5, 3.0, 40.0] {
            let (mut spent, mut starts) = (Spent::default(), 0);
            for ms in 0..20_000 {
                let jobs = spent.left(rate, after(ms)).min(1 + (ms % 3) as u32);
                spent = spent.after(jobs, rate, after(ms));
                starts += jobs;
            }
            let (most, least) = (20.0 * rate + f64::from(burst(rate)), 20.0 * rate);
            let starts = f64::from(starts);
            assert!(starts <= most && starts >= least - 1.0, "{starts} with a rate of {rate}");
        }
    }

    #[test]
    fn a_rest_ends_when_a_job_may_start_and_not_before() {
        for rate in [0.1, 3.0, 70.0] {
            let spent = Spent::default().after(burst(rate), rate, NOW);
            let rest = spent.rest(1, rate, NOW).unwrap().as_micros() as i64;
            assert_eq!(spent.left(rate, after((rest + 999) / 1000)), 1, "{rate}");
            assert_eq!(spent.left(rate, after(rest / 1000 - 1)), 0, "{rate}");
        }
    }

    #[test]
    fn another_rate_changes_what_was_started_to_its_own_cost() {
        let spent = Spent::default().after(5, 5.0, NOW);
        let faster = spent.follow(Some(5.0), Some(10.0), NOW);
        assert_eq!(faster.left(10.0, NOW), 5, "five of ten have started");
        let slower = spent.follow(Some(5.0), Some(0.5), NOW);
        assert_eq!((slower.left(0.5, after(1999)), slower.left(0.5, after(2000))), (0, 1));
        assert_eq!(spent.follow(Some(5.0), None, NOW), Spent::default());
        assert_eq!(spent.follow(None, Some(1.0), NOW), Spent::default());
    }

    #[test]
    fn a_clock_that_was_set_costs_no_more_than_a_burst() {
        let spent = Spent::default().after(5, 5.0, NOW);
        let hour = 3_600_000;
        assert_eq!(spent.left(5.0, after(-hour)), 0);
        assert_eq!(spent.after(0, 5.0, after(-hour)).left(5.0, after(1000 - hour)), 5);
        assert_eq!(spent.shifted(-hour).left(5.0, after(200 - hour)), 1, "it follows the clock");
        assert_eq!(Spent::default().shifted(hour), Spent::default());
    }

    #[test]
    fn the_ends_of_the_range_neither_panic_nor_overflow() {
        for rate in [RATE.min, RATE.max] {
            let spent = Spent::default().after(burst(rate), rate, NOW);
            assert_eq!(spent.left(rate, NOW), 0);
            assert!(spent.rest(1, rate, NOW) > Some(Duration::ZERO));
            assert_eq!(Spent(i64::MAX).left(rate, NOW), 0);
            assert_eq!(Spent(i64::MIN).left(rate, NOW), burst(rate));
        }
    }
}
