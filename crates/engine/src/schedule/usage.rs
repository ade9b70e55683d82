//! What tenants have used: the time of slots, divided by the tenant's weight. Half of it is
//! forgotten every `HALF_LIFE`.
//!
//! Accounts do not shrink as time passes. Instead, later time counts more: a second at time t is
//! worth 2^(t / `HALF_LIFE`). The order of tenants is the same, and an account changes only when
//! something is charged to it.

use std::collections::HashMap;
use std::f64::consts::LN_2;
use std::time::Duration;

use windlass_core::Tenant;

use super::line::Line;

/// After this time, what a tenant has used counts half.
pub(super) const HALF_LIFE: Duration = Duration::from_secs(300);
/// What a pick costs, however short its batch is: the work around it.
pub(super) const PICK_COST: Duration = Duration::from_millis(1);
/// Tenants without jobs whose use is remembered.
const PAST_MAX: usize = 20_000;

/// The account of a tenant: `mantissa` * 2^`exponent` weighted seconds. A floating-point number has
/// no room for the exponents of later years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Level {
    exponent: i64,
    /// The bits of a number from 1 up to 2, or of 0. They have the order of the numbers.
    mantissa: u64,
}

/// Exponents that differ by more have nothing in common.
const MANTISSA_BITS: i64 = 52;
const EXPONENT_OF_ONE: i64 = 1023;

impl Level {
    /// The level of a tenant that has used nothing.
    pub(super) const EMPTY: Level = Level { exponent: i64::MIN, mantissa: 0 };

    /// A pick was made for the tenant.
    pub(super) fn after_pick(self, weight: u32, now: Duration) -> Level {
        self.plus(Level::of(PICK_COST.as_secs_f64() / f64::from(weight), now))
    }

    /// So many of its batches ran between two moments: the integral over that time.
    pub(super) fn after_running(
        self,
        batches: usize,
        weight: u32,
        from: Duration,
        to: Duration,
    ) -> Level {
        let grown = -(-LN_2 * age(to.saturating_sub(from))).exp_m1();
        let seconds = batches as f64 / f64::from(weight) * HALF_LIFE.as_secs_f64() / LN_2 * grown;
        self.plus(Level::of(seconds, to))
    }

    /// The worth of so many seconds at a moment.
    fn of(seconds: f64, at: Duration) -> Level {
        let age = age(at);
        Level::normal(seconds * (age - age.floor()).exp2(), age.floor() as i64)
    }

    fn plus(self, other: Level) -> Level {
        let (high, low) = (self.max(other), self.min(other));
        let apart = high.exponent.saturating_sub(low.exponent);
        if apart > MANTISSA_BITS {
            return high;
        }
        let low = f64::from_bits(low.mantissa) * (-apart as f64).exp2();
        Level::normal(f64::from_bits(high.mantissa) + low, high.exponent)
    }

    /// `number` * 2^`exponent`.
    fn normal(number: f64, exponent: i64) -> Level {
        if !number.is_normal() {
            return Level::EMPTY;
        }
        let of_number = (number.to_bits() >> MANTISSA_BITS) as i64 - EXPONENT_OF_ONE;
        let mantissa = (number.to_bits() & ((1 << MANTISSA_BITS) - 1)) | 1.0_f64.to_bits();
        Level { exponent: exponent + of_number, mantissa }
    }
}

/// A time in half-lives.
fn age(time: Duration) -> f64 {
    time.as_secs_f64() / HALF_LIFE.as_secs_f64()
}

/// The levels of tenants that have neither jobs nor batches, so that none gets rid of what it has
/// used by pausing for a moment.
#[derive(Debug, Default)]
pub(super) struct Past {
    levels: HashMap<Tenant, Level>,
    oldest: Line<Tenant>,
}

impl Past {
    pub(super) fn put(&mut self, tenant: &Tenant, level: Level) {
        self.levels.insert(tenant.clone(), level);
        self.oldest.push(tenant);
        if self.levels.len() > PAST_MAX
            && let Some(oldest) = self.oldest.pop()
        {
            self.levels.remove(&oldest);
        }
    }

    pub(super) fn take(&mut self, tenant: &Tenant) -> Option<Level> {
        let level = self.levels.remove(tenant)?;
        self.oldest.remove(tenant);
        Some(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    /// The weighted seconds that a level stands for at a moment.
    fn seconds(level: Level, now: Duration) -> f64 {
        let apart = (level.exponent as f64 - age(now)).exp2();
        f64::from_bits(level.mantissa) * apart
    }

    #[track_caller]
    fn assert_near(is: f64, should: f64) {
        assert!((is - should).abs() <= should * 1e-6, "{is} is not {should}");
    }

    #[test]
    fn use_counts_by_time_batches_and_weight() {
        let ran =
            |batches, weight| Level::EMPTY.after_running(batches, weight, NOW, NOW + SECOND / 1000);
        let at = NOW + SECOND / 1000;
        assert!((seconds(ran(1, 1), at) - 0.001).abs() < 1e-8);
        assert_near(seconds(ran(6, 3), at), 2.0 * seconds(ran(1, 1), at));
        assert_near(seconds(Level::EMPTY.after_pick(4, NOW), NOW), 0.000_25);
        assert_eq!(ran(0, 1), Level::EMPTY);
        assert_eq!(Level::EMPTY.after_running(1, 1, NOW, NOW), Level::EMPTY);
    }

    #[test]
    fn half_is_forgotten_in_a_half_life() {
        let used = Level::EMPTY.after_pick(1, NOW);
        assert_near(seconds(used, NOW + HALF_LIFE), 0.000_5);
        assert!(Level::EMPTY.after_pick(1, NOW + HALF_LIFE) > used);
        let both = used.after_pick(1, NOW + HALF_LIFE);
        assert_near(seconds(both, NOW + HALF_LIFE), 0.001_5);
    }

    #[test]
    fn a_run_costs_the_same_however_often_it_is_counted() {
        let once = Level::EMPTY.after_running(3, 2, NOW, NOW + 600 * SECOND);
        let steps = (0..600).fold(Level::EMPTY, |level, second| {
            let from = NOW + second * SECOND;
            level.after_running(3, 2, from, from + SECOND)
        });
        let end = NOW + 600 * SECOND;
        assert_near(seconds(steps, end), seconds(once, end));
    }

    #[test]
    fn levels_are_exact_after_years() {
        let years = Duration::from_secs(10 * 366 * 24 * 3600);
        let busy = Level::EMPTY.after_running(1000, 1, NOW, years);
        let picked = busy.after_pick(1000, years);
        assert!(picked > busy, "the smallest charge is noticed beside the largest use");
        assert!(seconds(busy, years).is_finite());
    }

    #[test]
    fn of_too_many_tenants_the_longest_away_is_forgotten() {
        let mut past = Past::default();
        let tenant = |number: usize| Tenant::new(&format!("t{number}")).unwrap();
        let level = Level::EMPTY.after_pick(1, NOW);
        (0..=PAST_MAX).for_each(|number| past.put(&tenant(number), level));
        assert_eq!(past.take(&tenant(0)), None);
        assert_eq!(past.take(&tenant(1)), Some(level));
        assert_eq!(past.take(&tenant(1)), None);
    }
}
