//! Ranges of numbers that clients may set. A number is checked where it enters, with an error that
//! names the field and the range, and clamped where it is read from a store: a value that an older
//! version accepted must do no harm.

use std::time::Duration;

use crate::name::Invalid;
use crate::size::format_size;
use crate::time::format_duration;

/// Both ends are included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range<T> {
    pub min: T,
    pub max: T,
}

/// A kind of number, and how it is written. Sizes in bytes are `u64`.
pub trait Measure: PartialOrd + Copy {
    /// As in "weight is … from 1 to 1000".
    const WHAT: &'static str;
    /// The largest possible number: a range up to it has no upper bound in messages.
    const LARGEST: Option<Self>;
    fn text(self) -> String;
}

impl<T: Measure> Range<T> {
    pub const fn new(min: T, max: T) -> Range<T> {
        Range { min, max }
    }

    pub fn contains(&self, number: T) -> bool {
        (self.min..=self.max).contains(&number)
    }

    pub fn check(&self, field: impl Into<String>, number: T) -> Result<(), Invalid> {
        if self.contains(number) {
            return Ok(());
        }
        let field = field.into();
        let reason = format!("'{field}' is {self}, not {}", number.text());
        Err(Invalid::new(field, reason))
    }

    pub fn check_if_set(&self, field: impl Into<String>, number: Option<T>) -> Result<(), Invalid> {
        number.map_or(Ok(()), |number| self.check(field, number))
    }

    /// The nearest number within the range; the smallest for NaN.
    pub fn clamp(&self, number: T) -> T {
        if number > self.max {
            self.max
        } else if number >= self.min {
            number
        } else {
            self.min
        }
    }
}

impl<T: Measure> std::fmt::Display for Range<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, min) = (T::WHAT, self.min.text());
        if Some(self.max) == T::LARGEST {
            return write!(f, "{what} of at least {min}");
        }
        write!(f, "{what} from {min} to {}", self.max.text())
    }
}

impl Measure for u32 {
    const WHAT: &'static str = "a whole number";
    const LARGEST: Option<u32> = None;
    fn text(self) -> String {
        self.to_string()
    }
}

impl Measure for f64 {
    const WHAT: &'static str = "a number";
    const LARGEST: Option<f64> = None;
    fn text(self) -> String {
        let readable = self == 0.0 || (1e-9..1e15).contains(&self.abs());
        if readable { self.to_string() } else { format!("{self:e}") }
    }
}

impl Measure for Duration {
    const WHAT: &'static str = "a duration";
    const LARGEST: Option<Duration> = None;
    fn text(self) -> String {
        format_duration(self)
    }
}

impl Measure for u64 {
    const WHAT: &'static str = "a size";
    const LARGEST: Option<u64> = Some(u64::MAX);
    fn text(self) -> String {
        format_size(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_field_the_range_and_the_number() {
        let refused = |range: Range<u32>, number| range.check("weight", number).unwrap_err();
        let expected = "'weight' is a whole number from 1 to 1000, not 0";
        assert_eq!(refused(Range::new(1, 1000), 0), Invalid::new("weight", expected));
        let given = |number| Range::new(1u32, 1000).check_if_set("weight", number);
        assert_eq!((given(None), given(Some(1))), (Ok(()), Ok(())));
        assert_eq!(given(Some(0)), Err(Invalid::new("weight", expected)));
        let seconds = |from, to| Range::new(Duration::from_secs(from), Duration::from_secs(to));
        let refused = seconds(1, 60).check("timeout", Duration::ZERO).unwrap_err();
        assert_eq!(refused.reason, "'timeout' is a duration from 1s to 1m, not 0ms");
        let refused = Range::new(0.000_001, 2.0).check("rate", 1e-20).unwrap_err();
        assert_eq!(refused.reason, "'rate' is a number from 0.000001 to 2, not 1e-20");
        let refused = Range::new(1 << 20, u64::MAX).check("memory", 7).unwrap_err();
        assert_eq!(refused.reason, "'memory' is a size of at least 1MB, not 7B");
    }

    #[test]
    fn numbers_outside_are_moved_to_the_nearest_end() {
        let range = Range::new(0.5, 2.0);
        let cases = [
            (1e-20, 0.5),
            (0.5, 0.5),
            (1.0, 1.0),
            (2.0, 2.0),
            (1e300, 2.0),
            (f64::INFINITY, 2.0),
            (f64::NEG_INFINITY, 0.5),
            (f64::NAN, 0.5),
        ];
        for (number, clamped) in cases {
            assert_eq!(range.clamp(number), clamped, "{number}");
            assert!(range.contains(range.clamp(number)));
        }
    }
}
