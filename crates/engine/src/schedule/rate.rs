//! Rests of types: a type that has used up its `rate` is not claimed from until the time that the
//! store named. The store counts the starts of all daemons (`windlass_core::rate`); what is kept
//! here only spares claims in vain. A type takes memory only while it rests. Times are of the
//! steady clock, so setting the wall clock does not change a rest.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use windlass_core::TypeKey;
use windlass_core::rate::burst;
use windlass_core::store::Rest;

/// The longest rest, for any rate: then the store is asked again.
const REST_MAX: Duration = Duration::from_secs(24 * 3600);
/// Types that rest at once; when there are more, those with the earliest end stop resting early.
const RESTS_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct Rates {
    rests: HashMap<TypeKey, Until>,
    /// The same, by the end of their rest.
    ends: BTreeSet<(Duration, TypeKey)>,
}

#[derive(Debug, Clone, Copy)]
struct Until {
    at: Duration,
    rate: f64,
}

impl Rates {
    pub(crate) fn rests(&self, key: &TypeKey) -> bool {
        self.rests.contains_key(key)
    }

    /// The same at this moment: a rest that is over may not have been removed yet.
    pub(crate) fn rests_at(&self, key: &TypeKey, now: Duration) -> bool {
        self.rests.get(key).is_some_and(|until| until.at > now)
    }

    /// The store has answered that a type rests from now on. That of a claim in vain, which names
    /// the next single start, does not shorten the rest after a batch.
    pub(crate) fn rest(&mut self, rest: &Rest, now: Duration) {
        let at = now + rest.time.min(REST_MAX);
        let before = self.rests.get(&rest.key).filter(|until| until.rate == rest.rate);
        let at = before.map_or(at, |until| until.at.max(at));
        self.set(&rest.key, Until { at, rate: rest.rate });
    }

    /// A rest with another rate than that of the type is over: the store has to be asked again.
    pub(crate) fn follow(&mut self, key: &TypeKey, rate: Option<f64>) {
        let rate = rate.unwrap_or(f64::INFINITY);
        if self.rests.get(key).is_some_and(|until| until.rate != rate) {
            self.set(key, Until { at: Duration::ZERO, rate });
        }
    }

    pub(crate) fn next_end(&self) -> Option<Duration> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Types whose rest is over, each with how many jobs it may start at most.
    pub(crate) fn take_rested(&mut self, now: Duration) -> Vec<(TypeKey, u32)> {
        let mut rested = Vec::new();
        let due = |ends: &BTreeSet<(Duration, TypeKey)>| {
            let first = ends.first().filter(|(at, _)| *at <= now || ends.len() > RESTS_MAX);
            first.cloned()
        };
        while let Some((at, key)) = due(&self.ends) {
            self.ends.remove(&(at, key.clone()));
            if let Some(until) = self.rests.remove(&key) {
                rested.push((key, burst(until.rate)));
            }
        }
        rested
    }

    fn set(&mut self, key: &TypeKey, until: Until) {
        if let Some(before) = self.rests.insert(key.clone(), until) {
            self.ends.remove(&(before.at, key.clone()));
        }
        self.ends.insert((until.at, key.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    fn key(n: usize) -> TypeKey {
        TypeKey::new("a", &format!("t{n}")).unwrap()
    }

    fn rest(n: usize, rate: f64, time: Duration) -> Rest {
        Rest { key: key(n), rate, time }
    }

    #[test]
    fn a_type_rests_until_the_latest_time_that_the_store_named() {
        let mut rates = Rates::default();
        rates.rest(&rest(0, 5.0, SECOND), NOW);
        rates.rest(&rest(0, 5.0, SECOND / 5), NOW);
        let over = NOW + SECOND;
        assert_eq!(rates.next_end(), Some(over));
        assert!(rates.rests_at(&key(0), NOW) && !rates.rests_at(&key(0), over));
        assert!(rates.take_rested(NOW).is_empty() && rates.rests(&key(0)));
        assert_eq!(rates.take_rested(over), [(key(0), 5)]);
        assert!(!rates.rests(&key(0)) && rates.next_end().is_none());
    }

    #[test]
    fn a_new_rate_ends_a_rest_once() {
        for (rate, starts) in [(Some(10.0), 10), (None, u32::MAX)] {
            let mut rates = Rates::default();
            rates.rest(&rest(0, 5.0, SECOND), NOW);
            rates.follow(&key(0), Some(5.0));
            assert!(rates.take_rested(NOW).is_empty(), "it is the same rate");
            rates.follow(&key(0), rate);
            assert_eq!(rates.take_rested(NOW), [(key(0), starts)]);
            rates.follow(&key(0), Some(7.0));
            assert!(rates.take_rested(NOW).is_empty(), "it does not rest any more");
        }
    }

    #[test]
    fn of_too_many_rests_those_that_end_first_end_early() {
        let mut rates = Rates::default();
        for n in 0..RESTS_MAX + 2 {
            rates.rest(&rest(n, 0.001, SECOND), NOW + Duration::from_millis(n as u64));
        }
        assert_eq!(rates.take_rested(NOW), [(key(0), 1), (key(1), 1)]);
        assert!(rates.rests.len() == RESTS_MAX && rates.ends.len() == RESTS_MAX);
    }

    #[test]
    fn no_rest_is_longer_than_a_day() {
        let mut rates = Rates::default();
        rates.rest(&rest(0, 0.000_001, Duration::MAX), NOW);
        assert_eq!(rates.next_end(), Some(NOW + REST_MAX));
    }
}
