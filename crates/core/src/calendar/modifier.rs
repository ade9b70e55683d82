//! SQLite's date modifiers, and lists of them.

use std::sync::Arc;

use super::{Civil, DAY_S};
use crate::name::Invalid;

/// One step from a date to another. Minutes, hours and days are read as seconds, and years as
/// months: the arithmetic is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modifier {
    Seconds(i64),
    Months(i64),
    StartOf(Unit),
    /// Forward to this day of the week (0 is Sunday); a date on this day stays.
    Weekday(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Hour,
    Day,
    Month,
    Year,
}

impl Modifier {
    /// Reads one modifier in upper or lower case, with exactly one space between words. `START OF
    /// HOUR` is not SQLite's; it is valid only in repeats.
    pub fn parse(text: &str) -> Option<Modifier> {
        let text = text.to_ascii_uppercase();
        if let Some(unit) = text.strip_prefix("START OF ") {
            return Some(Modifier::StartOf(match unit {
                "HOUR" => Unit::Hour,
                "DAY" => Unit::Day,
                "MONTH" => Unit::Month,
                "YEAR" => Unit::Year,
                _ => return None,
            }));
        }
        if let Some(day) = text.strip_prefix("WEEKDAY ") {
            return match day.as_bytes() {
                [day @ b'0'..=b'6'] => Some(Modifier::Weekday(day - b'0')),
                _ => None,
            };
        }
        let (sign, rest) = match text.strip_prefix('+') {
            Some(rest) => (1, rest),
            None => (-1, text.strip_prefix('-')?),
        };
        let (digits, unit) = rest.split_once(' ')?;
        let unit = unit.strip_suffix('S').unwrap_or(unit);
        let digits_max = if unit == "SECOND" { 8 } else { 3 };
        if digits.is_empty() || digits.len() > digits_max {
            return None;
        }
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number = sign * digits.parse::<i64>().ok()?;
        Some(match unit {
            "SECOND" => Modifier::Seconds(number),
            "MINUTE" => Modifier::Seconds(number * 60),
            "HOUR" => Modifier::Seconds(number * 3600),
            "DAY" => Modifier::Seconds(number * DAY_S),
            "MONTH" => Modifier::Months(number),
            "YEAR" => Modifier::Months(number * 12),
            _ => return None,
        })
    }

    /// `None` when the result is not in the years 0000 to 9999.
    pub fn apply(self, to: Civil) -> Option<Civil> {
        match self {
            Modifier::Seconds(seconds) => to.plus(seconds),
            Modifier::Months(months) => to.plus_months(months),
            Modifier::StartOf(Unit::Hour) => {
                let to = to.plus(0)?;
                Some(Civil { second: to.second / 3600 * 3600, ..to })
            }
            Modifier::StartOf(Unit::Day) => Some(Civil { second: 0, ..to }),
            Modifier::StartOf(Unit::Month) => Some(Civil { day: 1, second: 0, ..to }),
            Modifier::StartOf(Unit::Year) => Some(Civil { month: 1, day: 1, second: 0, ..to }),
            Modifier::Weekday(day) => {
                to.plus((i64::from(day) - to.weekday()).rem_euclid(7) * DAY_S)
            }
        }
    }

    /// Whether it moves by a length (`+1 DAY`) instead of to a place in the calendar.
    pub fn is_shift(self) -> bool {
        matches!(self, Modifier::Seconds(_) | Modifier::Months(_))
    }
}

/// A comma-separated list of SQLite's modifiers, and its text. It may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modifiers {
    text: Arc<str>,
    parts: Arc<[Modifier]>,
}

impl Modifiers {
    /// `field` is the name of the caller's field, for the error.
    pub fn parse(field: &str, text: &str) -> Result<Modifiers, Invalid> {
        let part = |part| match Modifier::parse(part) {
            None | Some(Modifier::StartOf(Unit::Hour)) => {
                Err(Invalid::new(field, format!("'{part}' is not {MODIFIER_FORMS}")))
            }
            Some(modifier) => Ok(modifier),
        };
        let parts = items(text).map(part).collect::<Result<_, _>>()?;
        Ok(Modifiers { text: text.into(), parts })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn parts(&self) -> &[Modifier] {
        &self.parts
    }

    pub fn len(&self) -> usize {
        self.parts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Applies the modifiers from left to right.
    pub fn apply(&self, to: Civil) -> Option<Civil> {
        apply_all(&self.parts, to)
    }
}

/// What a modifier looks like, for error messages.
pub(crate) const MODIFIER_FORMS: &str =
    "a modifier such as +1 HOUR, -2 DAYS, START OF MONTH or WEEKDAY 1";

pub(crate) fn apply_all(modifiers: &[Modifier], to: Civil) -> Option<Civil> {
    modifiers.iter().try_fold(to, |to, modifier| modifier.apply(to))
}

/// The items of a comma-separated list, without leading spaces but with trailing ones; empty items
/// are skipped.
pub(crate) fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(|item| item.trim_start_matches(' ')).filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn civil(text: &str) -> Civil {
        Civil::parse(text).unwrap()
    }

    fn check(from: &str, modifiers: &str, to: &str) {
        let modifiers: Vec<Modifier> =
            items(modifiers).map(|item| Modifier::parse(item).unwrap()).collect();
        let result = apply_all(&modifiers, civil(from)).map_or("NULL".into(), |to| to.to_string());
        assert_eq!(result, to, "{from} {modifiers:?}");
    }

    #[test]
    fn months_and_years_are_added_to_their_field_and_then_normalised() {
        check("2024-01-31 10:00:00", "+1 MONTH", "2024-03-02 10:00:00");
        check("2023-01-31 10:00:00", "+1 MONTH", "2023-03-03 10:00:00");
        check("2023-01-28", "+1 MONTH", "2023-02-28 00:00:00");
        check("2023-10-31", "+1 MONTH", "2023-12-01 00:00:00");
        check("2023-12-31", "+1 MONTH", "2024-01-31 00:00:00");
        check("2023-03-31", "-1 MONTH", "2023-03-03 00:00:00");
        check("2024-03-31", "-1 MONTH", "2024-03-02 00:00:00");
        check("2024-01-15", "-1 MONTH", "2023-12-15 00:00:00");
        check("2024-01-15", "-13 MONTHS", "2022-12-15 00:00:00");
        check("2024-02-29", "+1 YEAR", "2025-03-01 00:00:00");
        check("2024-02-29", "+4 YEARS", "2028-02-29 00:00:00");
        check("2024-02-29", "-124 YEARS", "1900-03-01 00:00:00");
        // The overflow of one step is resolved in the next.
        check("2023-01-31", "+1 MONTH, +1 MONTH", "2023-04-03 00:00:00");
        check("2023-01-31", "+2 MONTHS", "2023-03-31 00:00:00");
    }

    #[test]
    fn lengths_are_seconds() {
        check("2024-02-28 23:59:59", "+1 SECOND", "2024-02-29 00:00:00");
        check("2024-03-01", "-1 SECOND", "2024-02-29 23:59:59");
        check("2024-02-28", "+2 DAYS", "2024-03-01 00:00:00");
        check("2024-01-01", "+99999999 SECONDS", "2027-03-03 09:46:39");
        check("2024-01-01", "-90 MINUTES", "2023-12-31 22:30:00");
        check("2024-01-01 12:00:00.999", "+1 HOUR", "2024-01-01 13:00:00");
    }

    #[test]
    fn snapping() {
        check("2024-05-17 12:34:56", "START OF HOUR", "2024-05-17 12:00:00");
        check("2024-05-17 12:34:56", "START OF DAY", "2024-05-17 00:00:00");
        check("2024-05-17 12:34:56", "START OF MONTH", "2024-05-01 00:00:00");
        check("2024-05-17 12:34:56", "START OF YEAR", "2024-01-01 00:00:00");
        check("2024-05-17", "START OF MONTH, +1 MONTH, -1 DAY", "2024-05-31 00:00:00");
    }

    #[test]
    fn a_weekday_moves_forward_or_not_at_all() {
        // 2024-05-17 was a Friday.
        check("2024-05-17 12:34:56", "WEEKDAY 5", "2024-05-17 12:34:56");
        check("2024-05-17 12:34:56", "WEEKDAY 6", "2024-05-18 12:34:56");
        check("2024-05-17 12:34:56", "WEEKDAY 0", "2024-05-19 12:34:56");
        check("2024-05-17 12:34:56", "WEEKDAY 4", "2024-05-23 12:34:56");
        check("2024-05-17", "+1 DAY, WEEKDAY 5", "2024-05-24 00:00:00");
        check("1969-12-28", "WEEKDAY 0", "1969-12-28 00:00:00");
        check("9999-12-31", "WEEKDAY 6", "NULL");
    }

    #[test]
    fn a_day_behind_its_month_is_resolved_only_when_needed() {
        check("2023-02-31", "START OF DAY", "2023-02-31 00:00:00");
        check("2023-02-31", "START OF MONTH", "2023-02-01 00:00:00");
        check("2023-02-31", "+0 DAYS", "2023-03-03 00:00:00");
        check("2023-02-31", "+1 MONTH", "2023-03-31 00:00:00");
        check("2023-02-31", "WEEKDAY 5", "2023-03-03 00:00:00");
    }

    #[test]
    fn no_result_outside_the_years_that_can_be_written() {
        check("9999-12-31 23:59:59", "+1 SECOND", "NULL");
        check("9999-12-01", "+1 MONTH", "NULL");
        check("9999-12-01", "+999 YEARS", "NULL");
        check("0000-01-01", "-1 SECOND", "NULL");
        check("0000-01-31", "-1 MONTH", "NULL");
        check("0000-01-31", "-999 YEARS", "NULL");
        check("9999-12-31", "+1 DAY, -1 DAY", "NULL");
    }

    #[test]
    fn lists_keep_their_text() {
        for (text, len) in [
            ("", 0),
            (",, ,", 0),
            ("+5 minutes", 1),
            ("+1 DAY,start of Day,  weekday 1", 3),
            ("-00000001 SECOND", 1),
            ("+999 YEARS", 1),
            ("+1 SECONDS,", 1),
        ] {
            let list = Modifiers::parse("after", text).unwrap();
            assert_eq!((list.as_str(), list.len()), (text, len));
            assert_eq!(list.is_empty(), len == 0);
        }
        let list = Modifiers::parse("after", "+1 month, start of month").unwrap();
        assert_eq!(list.apply(civil("2023-01-31")), Some(civil("2023-03-01")));
        assert_eq!(list.parts(), [Modifier::Months(1), Modifier::StartOf(Unit::Month)]);
        assert_eq!(
            Modifiers::parse("after", "").unwrap().apply(civil("2023-01-31")).unwrap().day,
            31
        );
    }

    #[test]
    fn other_lists_are_refused() {
        for text in [
            " +1 DAY ",
            "+1 DAY ,",
            "1 DAY",
            "+1  DAY",
            "+1DAY",
            "+ 1 DAY",
            "+1000 DAYS",
            "+1.5 DAY",
            "+123456789 SECONDS",
            "+ DAY",
            "+1 WEEK",
            "+1 DAYSS",
            "+1 S",
            "+1 ",
            "+1",
            "++1 DAY",
            "START OF HOUR",
            "START OF WEEK",
            "START  OF DAY",
            "START OF ",
            "WEEKDAY 7",
            "WEEKDAY",
            "WEEKDAY -1",
            "WEEKDAY 01",
            "WEEKDAY  1",
            "NOW",
            "LOCALTIME",
            "+1 DAY, x",
            "+٣ DAY",
            "\t+1 DAY",
            "+1 DAY; +1 DAY",
        ] {
            let invalid = Modifiers::parse("after", text).unwrap_err();
            assert_eq!(invalid.field, "after", "{text}");
        }
    }
}
