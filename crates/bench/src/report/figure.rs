//! Numbers: samples, their statistics, and the rows that show them.

use std::time::Duration;

use serde::Serialize;

/// A row of the table of promises, and its result.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) number: u8,
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[derive(Serialize)]
pub(crate) struct Outcome {
    pub(crate) promise: &'static str,
    /// One phrase for the table of promises.
    pub(crate) reached: String,
    pub(crate) kept: bool,
    pub(crate) figures: Vec<Figure>,
}

#[derive(Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Figure {
        Figure { name: name.into(), value, unit }
    }

    pub(crate) fn micros(name: impl Into<String>, duration: Duration) -> Figure {
        Figure::new(name, micros(duration), "µs")
    }

    /// A whole number for a name.
    pub(crate) fn count(number: u64) -> String {
        thousands(&number.to_string())
    }

    /// The value with its significant digits.
    pub(crate) fn text(&self) -> String {
        let digits = match self.value.abs() {
            small if small < 10.0 => 2,
            middling if middling < 1000.0 => 1,
            _ => 0,
        };
        let plain = format!("{:.digits$}", self.value);
        let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
        format!("{}{rest}", thousands(whole))
    }
}

pub(crate) fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Groups digits by commas: 1234567 becomes 1,234,567.
fn thousands(whole: &str) -> String {
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The durations of many operations of the same kind.
#[derive(Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(crate) fn extend(&mut self, others: Samples) {
        self.0.extend(others.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The time within which `share` of the operations ended.
    pub(crate) fn percentile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    pub(crate) fn p50(&self) -> Duration {
        self.percentile(0.5)
    }

    /// The median and the 99th percentile, named.
    pub(crate) fn figures(&self, name: &str) -> [Figure; 2] {
        [
            Figure::micros(format!("{name}, p50"), self.p50()),
            Figure::micros(format!("{name}, p99"), self.percentile(0.99)),
        ]
    }
}

/// The middle one; of an even number, the higher of the middle two.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_samples_lies_within_its_rank() {
        let mut samples = Samples::default();
        for ms in (1..=100).rev() {
            samples.push(Duration::from_millis(ms));
        }
        assert_eq!(samples.p50(), Duration::from_millis(50));
        assert_eq!(samples.percentile(0.99), Duration::from_millis(99));
        assert_eq!(samples.percentile(1.0), Duration::from_millis(100));
        assert_eq!(Samples::default().p50(), Duration::ZERO);
    }

    #[test]
    fn the_median_does_not_follow_one_bad_round() {
        assert_eq!(median(&[3.0, 100.0, 2.0]), 3.0);
        assert_eq!(median(&[7.0]), 7.0);
    }

    #[test]
    fn values_are_shown_with_the_digits_that_mean_something() {
        let text = |value| Figure::new("x", value, "").text();
        assert_eq!(text(1_234_567.8), "1,234,568");
        assert_eq!(text(1000.0), "1,000");
        assert_eq!(text(123.45), "123.5");
        assert_eq!(text(0.123), "0.12");
        assert_eq!(text(-12_345.0), "-12,345");
    }
}
