//! Merges bursts of pokes: the first is sent at once, the others together at the end of the
//! interval.

use std::time::{Duration, Instant};

use super::wanted::Wanted;

#[derive(Debug)]
pub(crate) struct Throttle {
    interval: Duration,
    /// Nothing is sent before this.
    closed_until: Option<Instant>,
    waiting: Wanted,
}

impl Throttle {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, closed_until: None, waiting: Wanted::default() }
    }

    /// Takes a poke; returns what is to go out now.
    pub(crate) fn poke(&mut self, targets: &[String], now: Instant) -> Option<Wanted> {
        targets.iter().for_each(|target| self.waiting.add(target));
        self.release(now)
    }

    /// When waiting pokes are due.
    pub(crate) fn due(&self) -> Option<Instant> {
        if self.waiting.is_empty() { None } else { self.closed_until }
    }

    /// The waiting pokes, if they are due.
    pub(crate) fn release(&mut self, now: Instant) -> Option<Wanted> {
        if self.waiting.is_empty() || self.closed_until.is_some_and(|until| now < until) {
            return None;
        }
        // An interval beyond the range of the clock cannot be intended.
        self.closed_until = now.checked_add(self.interval);
        Some(std::mem::take(&mut self.waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(500);

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn wanted(list: &[&str]) -> Option<Wanted> {
        Some(list.iter().copied().collect())
    }

    #[test]
    fn the_first_goes_at_once_and_the_rest_of_a_burst_together_at_the_end() {
        let start = Instant::now();
        let mut throttle = Throttle::new(INTERVAL);
        assert_eq!(throttle.poke(&names(&["a"]), start), wanted(&["a"]));
        assert_eq!(throttle.due(), None);
        for name in ["b", "a", "b", "c"] {
            let now = start + Duration::from_millis(100);
            assert_eq!(throttle.poke(&names(&[name]), now), None);
        }
        assert_eq!(throttle.due(), Some(start + INTERVAL));
        assert_eq!(throttle.release(start + INTERVAL - Duration::from_millis(1)), None);
        assert_eq!(throttle.release(start + INTERVAL), wanted(&["a", "b", "c"]));
        assert_eq!(throttle.due(), None);
        assert_eq!(throttle.release(start + 9 * INTERVAL), None);
    }

    #[test]
    fn the_end_of_a_burst_closes_the_next_interval() {
        let start = Instant::now();
        let mut throttle = Throttle::new(INTERVAL);
        throttle.poke(&names(&["a"]), start);
        throttle.poke(&names(&["b"]), start);
        throttle.release(start + INTERVAL);
        assert_eq!(throttle.poke(&names(&["c"]), start + INTERVAL), None);
        assert_eq!(throttle.due(), Some(start + 2 * INTERVAL));
        let now = start + 2 * INTERVAL;
        assert_eq!(throttle.poke(&names(&["d"]), now), wanted(&["c", "d"]));
    }

    #[test]
    fn after_a_quiet_interval_a_poke_goes_at_once() {
        let start = Instant::now();
        let mut throttle = Throttle::new(INTERVAL);
        throttle.poke(&names(&["a"]), start);
        assert_eq!(throttle.poke(&names(&["b"]), start + INTERVAL), wanted(&["b"]));
    }

    #[test]
    fn no_interval_and_an_endless_one_hold_nothing_back() {
        for interval in [Duration::ZERO, Duration::MAX] {
            let start = Instant::now();
            let mut throttle = Throttle::new(interval);
            assert_eq!(throttle.poke(&names(&["a"]), start), wanted(&["a"]));
            assert_eq!(throttle.poke(&names(&["b"]), start), wanted(&["b"]));
        }
    }
}
