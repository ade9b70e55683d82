//! Rates of types: a type that has started as many jobs as its rate allows rests. All kinds of
//! claims of this daemon count together; a type takes memory only while it rests. Times are of the
//! steady clock, so setting the wall clock does not change a rest.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use windlass_core::{TypeKey, TypeSettings};

/// The longest rest after one claim, for any rate.
const REST_MAX: Duration = Duration::from_secs(24 * 3600);
/// Types that rest at once; when there are more, those with the earliest end stop resting early.
const RESTS_MAX: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct Rates {
    rests: HashMap<TypeKey, Rest>,
    /// The same, by the end of their rest.
    ends: BTreeSet<(Duration, TypeKey)>,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    from: Duration,
    until: Duration,
    rate: f64,
    /// Because of this rest, workers were not woken for ready jobs, or looked for some in vain.
    missed: bool,
}

impl Rates {
    pub(crate) fn rests(&self, key: &TypeKey) -> bool {
        self.rests.contains_key(key)
    }

    /// Whether jobs of a type cannot start because it rests. Then workers are woken when the rest
    /// is over, even if that is because its starts were given back.
    pub(crate) fn holds_back(&mut self, key: &TypeKey) -> bool {
        self.rests.get_mut(key).map(|rest| rest.missed = true).is_some()
    }

    /// The same at this moment: a rest that is over may not have been removed yet.
    pub(crate) fn holds_back_at(&mut self, key: &TypeKey, now: Duration) -> bool {
        let rest = self.rests.get_mut(key).filter(|rest| rest.until > now);
        rest.map(|rest| rest.missed = true).is_some()
    }

    /// Takes up to `wanted` starts of a type; returns how many it may have now.
    pub(crate) fn reserve(
        &mut self,
        key: &TypeKey,
        settings: &TypeSettings,
        wanted: u32,
        now: Duration,
    ) -> u32 {
        self.follow(key, settings.rate);
        let Some(rate) = settings.rate else { return wanted };
        if wanted == 0 || self.holds_back_at(key, now) {
            return 0;
        }
        let jobs = wanted.min(burst(settings));
        // A rest that is over may not have been taken yet, with the workers that it held back.
        let missed = self.rests.get(key).is_some_and(|rest| rest.missed);
        self.set(key, Some(Rest { from: now, until: now + time_of(jobs, rate), rate, missed }));
        jobs
    }

    /// Returns starts that were reserved at `from` and not used. If that rest is over, they have
    /// lapsed: a later rest is not shortened by them.
    pub(crate) fn give_back(&mut self, key: &TypeKey, jobs: u32, from: Duration, now: Duration) {
        let rest = self.rests.get(key).copied();
        if let Some(rest) = rest.filter(|rest| jobs > 0 && rest.from == from) {
            let until = rest.until.saturating_sub(time_of(jobs, rest.rate)).max(now);
            self.set(key, (until > now || rest.missed).then_some(Rest { until, ..rest }));
        }
    }

    /// Applies a new rate to the current rest: it lasts as long as it would have with this rate.
    /// Without a rate it is over, and `take_rested` returns the type.
    pub(crate) fn follow(&mut self, key: &TypeKey, rate: Option<f64>) {
        let rate = rate.unwrap_or(f64::INFINITY);
        let rest = self.rests.get(key).copied().filter(|rest| rest.rate != rate);
        if let Some(rest) = rest {
            let rested = (rest.until - rest.from).as_secs_f64();
            let starts = if rest.rate.is_finite() { rested * rest.rate } else { 0.0 };
            let until = rest.from + time_of(starts, rate);
            self.set(key, Some(Rest { until, rate, ..rest }));
        }
    }

    pub(crate) fn next_end(&self) -> Option<Duration> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Types whose rest is over, each with how many jobs it may start now.
    pub(crate) fn take_rested(&mut self, now: Duration) -> Vec<(TypeKey, u32)> {
        let mut rested = Vec::new();
        let due = |ends: &BTreeSet<(Duration, TypeKey)>| {
            let first = ends.first().filter(|(at, _)| *at <= now || ends.len() > RESTS_MAX);
            first.cloned()
        };
        while let Some((at, key)) = due(&self.ends) {
            self.ends.remove(&(at, key.clone()));
            if let Some(rest) = self.rests.remove(&key) {
                rested.push((key, burst_of(rest.rate)));
            }
        }
        rested
    }

    fn set(&mut self, key: &TypeKey, rest: Option<Rest>) {
        let before = match rest {
            Some(rest) => self.rests.insert(key.clone(), rest),
            None => self.rests.remove(key),
        };
        if let Some(before) = before {
            self.ends.remove(&(before.until, key.clone()));
        }
        if let Some(rest) = rest {
            self.ends.insert((rest.until, key.clone()));
        }
    }
}

/// How many jobs of a type may start at one moment: what its rate allows in a second.
pub(crate) fn burst(settings: &TypeSettings) -> u32 {
    settings.rate.map_or(u32::MAX, burst_of)
}

fn burst_of(rate: f64) -> u32 {
    (rate as u32).max(1)
}

fn time_of(jobs: impl Into<f64>, rate: f64) -> Duration {
    Duration::try_from_secs_f64(jobs.into() / rate).map_or(REST_MAX, |time| time.min(REST_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(3600);

    #[test]
    fn workers_that_a_claim_in_vain_held_back_are_woken_when_its_starts_are_given_back() {
        let (mut rates, t) = (Rates::default(), TypeKey::new("a", "t").unwrap());
        let five = TypeSettings { rate: Some(5.0), ..TypeSettings::default() };
        let mut claim_in_vain = |meanwhile: &dyn Fn(&mut Rates) -> bool| {
            assert_eq!(rates.reserve(&t, &five, 9, NOW), 5);
            assert!(meanwhile(&mut rates));
            rates.give_back(&t, 5, NOW, NOW);
            rates.take_rested(NOW)
        };
        let woken = [(t.clone(), 5)];
        assert_eq!(claim_in_vain(&|rates| rates.holds_back(&t)), woken, "jobs became ready");
        assert_eq!(claim_in_vain(&|rates| rates.holds_back_at(&t, NOW)), woken, "a worker looked");
        assert_eq!(claim_in_vain(&|rates| rates.reserve(&t, &five, 1, NOW) == 0), woken);
        assert_eq!(claim_in_vain(&|_| true), [], "nobody was held back");
    }

    #[test]
    fn workers_that_a_rest_held_back_are_woken_although_a_claim_came_in_between() {
        let (mut rates, t) = (Rates::default(), TypeKey::new("a", "t").unwrap());
        let five = TypeSettings { rate: Some(5.0), ..TypeSettings::default() };
        assert_eq!(rates.reserve(&t, &five, 5, NOW), 5);
        assert!(rates.holds_back_at(&t, NOW));
        let over = NOW + Duration::from_secs(1);
        assert_eq!(rates.reserve(&t, &five, 5, over), 5, "the rest is over, and was not taken");
        rates.give_back(&t, 5, over, over);
        assert_eq!(rates.take_rested(over), [(t, 5)]);
    }

    #[test]
    fn starts_that_are_given_back_late_do_not_shorten_a_later_rest() {
        let (mut rates, t) = (Rates::default(), TypeKey::new("a", "t").unwrap());
        let five = TypeSettings { rate: Some(5.0), ..TypeSettings::default() };
        assert_eq!(rates.reserve(&t, &five, 5, NOW), 5);
        let over = NOW + Duration::from_secs(1);
        assert_eq!(rates.take_rested(over), [(t.clone(), 5)]);
        assert_eq!(rates.reserve(&t, &five, 5, over), 5);
        rates.give_back(&t, 5, NOW, over);
        assert_eq!(rates.reserve(&t, &five, 5, over), 0, "five have just started");
    }

    #[test]
    fn a_claim_that_used_all_of_its_starts_leaves_its_rest_to_be_taken() {
        let (mut rates, t) = (Rates::default(), TypeKey::new("a", "t").unwrap());
        let five = TypeSettings { rate: Some(5.0), ..TypeSettings::default() };
        assert_eq!(rates.reserve(&t, &five, 5, NOW), 5);
        let over = NOW + Duration::from_secs(1);
        rates.give_back(&t, 0, NOW, over);
        assert_eq!(rates.take_rested(over), [(t, 5)]);
    }

    #[test]
    fn a_claim_that_used_some_of_its_starts_rests_for_those() {
        let (mut rates, t) = (Rates::default(), TypeKey::new("a", "t").unwrap());
        let five = TypeSettings { rate: Some(5.0), ..TypeSettings::default() };
        assert_eq!(rates.reserve(&t, &five, 5, NOW), 5);
        rates.give_back(&t, 3, NOW, NOW);
        assert_eq!(rates.next_end(), Some(NOW + Duration::from_millis(400)));
    }

    #[test]
    fn a_new_rate_changes_a_rest_once_however_often_it_is_told() {
        let (mut rates, t) = (Rates::default(), TypeKey::new("a", "t").unwrap());
        let five = TypeSettings { rate: Some(5.0), ..TypeSettings::default() };
        assert_eq!(rates.reserve(&t, &five, 5, NOW), 5);
        (0..2).for_each(|_| rates.follow(&t, Some(10.0)));
        let over = NOW + Duration::from_millis(500);
        assert_eq!(rates.next_end(), Some(over));
        assert_eq!(rates.take_rested(over), [(t, 10)]);
    }

    #[test]
    fn a_rate_that_is_removed_and_set_again_is_no_longer_rest() {
        let (mut rates, t) = (Rates::default(), TypeKey::new("a", "t").unwrap());
        let five = TypeSettings { rate: Some(5.0), ..TypeSettings::default() };
        assert_eq!(rates.reserve(&t, &five, 5, NOW), 5);
        rates.follow(&t, None);
        rates.follow(&t, Some(0.1));
        assert_eq!(rates.next_end(), Some(NOW));
    }

    #[test]
    fn a_type_rests_for_what_it_started_and_not_for_what_it_gave_back() {
        let (mut rates, t) = (Rates::default(), TypeKey::new("a", "t").unwrap());
        let five = TypeSettings { rate: Some(5.0), ..TypeSettings::default() };
        assert_eq!(rates.reserve(&t, &TypeSettings::default(), 9, NOW), 9, "it has no rate");
        assert_eq!(rates.reserve(&t, &five, 9, NOW), 5);
        assert_eq!(rates.reserve(&t, &five, 9, NOW), 0, "others get nothing meanwhile");
        rates.give_back(&t, 3, NOW, NOW);
        assert_eq!(rates.next_end(), Some(NOW + Duration::from_millis(400)));
        assert!(rates.take_rested(NOW).is_empty() && rates.rests(&t));
        assert_eq!(rates.take_rested(NOW + Duration::from_secs(1)), [(t.clone(), 5)]);
        assert_eq!(rates.reserve(&t, &five, 2, NOW), 2);
        rates.give_back(&t, 2, NOW, NOW);
        assert!(!rates.rests(&t) && rates.next_end().is_none());
    }

    #[test]
    fn of_too_many_rests_those_that_end_first_end_early() {
        let mut rates = Rates::default();
        let slow = TypeSettings { rate: Some(0.001), ..TypeSettings::default() };
        let key = |n: usize| TypeKey::new("a", &format!("t{n}")).unwrap();
        for n in 0..RESTS_MAX + 2 {
            let now = NOW + Duration::from_millis(n as u64);
            assert_eq!(rates.reserve(&key(n), &slow, 1, now), 1);
        }
        let early = [(key(0), 1), (key(1), 1)];
        assert_eq!(rates.take_rested(NOW), early);
        assert!(rates.rests.len() == RESTS_MAX && rates.ends.len() == RESTS_MAX);
    }

    #[test]
    fn the_smallest_rate_is_a_long_rest_and_no_panic() {
        let (mut rates, t) = (Rates::default(), TypeKey::new("a", "t").unwrap());
        let slow = TypeSettings { rate: Some(1e-300), ..TypeSettings::default() };
        assert_eq!(rates.reserve(&t, &slow, 9, NOW), 1);
        assert_eq!(rates.next_end(), Some(NOW + Duration::from_secs(86_400)), "a day");
    }
}
