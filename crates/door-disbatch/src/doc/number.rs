//! Whole numbers and limits, in any type that clients write.

use mongodb::bson::Bson;

use super::{Invalid, is_nothing};

/// The largest whole number that a double holds exactly.
const DOUBLE_WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// An integer of any numeric type, or as text, which some clients write.
pub(crate) fn whole(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range: just checked")]
        Bson::Double(number) if number.fract() == 0.0 && number.abs() <= DOUBLE_WHOLE_MAX => {
            Some(*number as i64)
        }
        Bson::Decimal128(number) => number.to_string().parse().ok(),
        Bson::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Maximum number of claimed or running tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Unlimited,
    At(u64),
}

impl Limit {
    /// Reads a field; `absent` if it is null or missing.
    pub(super) fn read(field: &str, value: Option<&Bson>, absent: Self) -> Result<Self, Invalid> {
        let Some(value) = value.filter(|value| !is_nothing(value)) else {
            return Ok(absent);
        };
        let number = whole(value).and_then(|number| u64::try_from(number).ok());
        number
            .map(Self::At)
            .ok_or_else(|| Invalid::not(field, "a non-negative whole number or null", value))
    }

    /// How many more tasks are allowed beside `used`.
    pub(crate) fn left(self, used: u64) -> u64 {
        match self {
            Self::Unlimited => u64::MAX,
            Self::At(limit) => limit.saturating_sub(used),
        }
    }

    pub(crate) fn allows_one_more(self, used: u64) -> bool {
        self.left(used) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{DateTime, doc, oid::ObjectId};

    #[test]
    fn whole_numbers_of_every_type() {
        let five = [
            Bson::Int32(5),
            Bson::Int64(5),
            Bson::Double(5.0),
            Bson::from("5"),
            Bson::from(" 5 "),
            Bson::Decimal128("5".parse().unwrap()),
        ];
        for value in five {
            assert_eq!(whole(&value), Some(5), "{value:?}");
        }
        let none = [
            Bson::Double(5.5),
            Bson::Double(f64::NAN),
            Bson::Double(1e300),
            Bson::from("five"),
            Bson::from(""),
            Bson::Null,
            Bson::Boolean(true),
            Bson::from(vec![5]),
            Bson::from(doc! {}),
            Bson::from(DateTime::MIN),
            Bson::from(ObjectId::new()),
        ];
        for value in none {
            assert_eq!(whole(&value), None, "{value:?}");
        }
    }

    #[test]
    fn a_limit_is_a_number_nothing_or_odd() {
        let read = |value: Option<Bson>| Limit::read("threads", value.as_ref(), Limit::At(0));
        assert_eq!(read(None), Ok(Limit::At(0)));
        assert_eq!(read(Some(Bson::Null)), Ok(Limit::At(0)));
        assert_eq!(read(Some(Bson::from("3"))), Ok(Limit::At(3)));
        assert_eq!(read(Some(Bson::Double(3.0))), Ok(Limit::At(3)));
        for odd in [Bson::Int32(-1), Bson::Double(0.5), Bson::Boolean(true), Bson::from("x")] {
            assert_eq!(read(Some(odd)).unwrap_err().field, "threads");
        }
    }

    #[test]
    fn a_limit_of_none_leaves_none() {
        assert!(!Limit::At(0).allows_one_more(0));
        assert!(Limit::At(2).allows_one_more(1));
        assert!(!Limit::At(2).allows_one_more(2));
        assert!(!Limit::At(2).allows_one_more(3));
        assert!(Limit::Unlimited.allows_one_more(u64::MAX - 1));
    }
}
