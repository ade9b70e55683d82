//! How slow the peer of a connection may be.

use std::time::Duration;

/// Peers slower than this on average are disconnected.
const RATE_MIN_BYTES_PER_S: u64 = 1024;

/// Measures a transfer in one direction. Only time spent waiting for the peer counts.
#[derive(Debug)]
pub(crate) struct Pace {
    silence_max: Duration,
    bytes: u64,
    waited: Duration,
}

impl Pace {
    /// `silence_max` is the longest time without a byte.
    pub(crate) fn new(silence_max: Duration) -> Pace {
        Pace { silence_max, bytes: 0, waited: Duration::ZERO }
    }

    /// How long the next byte may take.
    pub(crate) fn patience(&self) -> Duration {
        let earned = Duration::from_secs(self.bytes / RATE_MIN_BYTES_PER_S);
        let left = self.silence_max.saturating_add(earned).saturating_sub(self.waited);
        left.min(self.silence_max)
    }

    pub(crate) fn moved(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    pub(crate) fn waited(&mut self, time: Duration) {
        self.waited = self.waited.saturating_add(time);
    }

    /// Starts a new measurement.
    pub(crate) fn begin(&mut self) {
        *self = Pace::new(self.silence_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bytes_earn_time_but_never_a_longer_silence() {
        let mut pace = Pace::new(3 * SECOND);
        assert_eq!(pace.patience(), 3 * SECOND);
        pace.moved(100 * RATE_MIN_BYTES_PER_S as usize);
        assert_eq!(pace.patience(), 3 * SECOND);
        pace.waited(102 * SECOND);
        assert_eq!(pace.patience(), SECOND);
        pace.moved(RATE_MIN_BYTES_PER_S as usize - 1);
        pace.waited(SECOND);
        assert_eq!(pace.patience(), Duration::ZERO);
        pace.begin();
        assert_eq!(pace.patience(), 3 * SECOND);
    }
}
