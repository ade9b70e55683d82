//! SQLite's date arithmetic, in whole seconds of UTC: the results of its `DATETIME()` for a date
//! and a modifier, for the years 0000 to 9999.

mod modifier;
mod read;

use std::fmt;

pub(crate) use modifier::{MODIFIER_FORMS, apply_all, items};
pub use modifier::{Modifier, Modifiers, Unit};

use crate::time::Timestamp;

const DAY_S: i64 = 86_400;
/// 0000-01-01 00:00:00 and 9999-12-31 23:59:59, in seconds since the Unix epoch.
pub const FIRST_S: i64 = -62_167_219_200;
pub(crate) const LAST_S: i64 = 253_402_300_799;

/// A date and a time of day as written: the day may be after the end of its month (`2023-02-31`),
/// and SQLite resolves that only when it has to. Compares like its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Civil {
    year: i64,
    month: u8,
    day: u8,
    /// Seconds since midnight.
    second: u32,
}

impl Civil {
    /// The second that contains `at`, clamped to the years 0000 to 9999.
    pub fn from_timestamp(at: Timestamp) -> Civil {
        Civil::of_seconds(at.ms().div_euclid(1000).clamp(FIRST_S, LAST_S))
    }

    pub fn timestamp(self) -> Timestamp {
        Timestamp(self.seconds() * 1000)
    }

    fn from_seconds(seconds: i64) -> Option<Civil> {
        (FIRST_S..=LAST_S).contains(&seconds).then(|| Civil::of_seconds(seconds))
    }

    /// Counts from 1 March of the year 0000, so that the leap day is the last day of a year.
    fn of_seconds(seconds: i64) -> Civil {
        let days = seconds.div_euclid(DAY_S) + DAYS_TO_EPOCH;
        let century4 = days.div_euclid(DAYS_OF_400_YEARS);
        let day = days.rem_euclid(DAYS_OF_400_YEARS);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        Civil {
            year: century4 * 400 + year + next,
            month: month as u8,
            day: day as u8,
            second: seconds.rem_euclid(DAY_S) as u32,
        }
    }

    /// Seconds since the Unix epoch; a day after the end of its month is in the next month.
    pub(crate) fn seconds(self) -> i64 {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = if month > 2 { self.year } else { self.year - 1 };
        let month = (month + 9) % 12;
        let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let days = 365 * year + leaps + (153 * month + 2) / 5 + day - 1 - DAYS_TO_EPOCH;
        days * DAY_S + i64::from(self.second)
    }

    pub(crate) fn plus(self, seconds: i64) -> Option<Civil> {
        Civil::from_seconds(self.seconds() + seconds)
    }

    /// Adds to the month, then resolves a day that the new month does not have.
    fn plus_months(self, months: i64) -> Option<Civil> {
        let count = self.year * 12 + i64::from(self.month) - 1 + months;
        let (year, month) = (count.div_euclid(12), count.rem_euclid(12) as u8 + 1);
        (0..=9999).contains(&year).then_some(())?;
        Civil { year, month, ..self }.plus(0)
    }

    /// The next day, for an hour of 24; a day after the end of the month moves to the next month.
    fn next_day(self) -> Option<Civil> {
        let days = days_of_month(self.year, self.month);
        let (month, day) = match self.day + 1 {
            day if day > days => (self.month + 1, day - days),
            day => (self.month, day),
        };
        let (year, month) = if month > 12 { (self.year + 1, 1) } else { (self.year, month) };
        (year <= 9999).then_some(Civil { year, month, day, ..self })
    }

    /// 0 is Sunday. The epoch began on a Thursday.
    fn weekday(self) -> i64 {
        (self.seconds().div_euclid(DAY_S) + 4).rem_euclid(7)
    }
}

impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hour, minute, second) = (self.second / 3600, self.second / 60 % 60, self.second % 60);
        write!(f, "{:04}-{:02}-{:02} ", self.year, self.month, self.day)?;
        write!(f, "{hour:02}:{minute:02}:{second:02}")
    }
}

const DAYS_OF_400_YEARS: i64 = 146_097;
/// From 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: i64 = 719_468;

fn days_of_month(year: i64, month: u8) -> u8 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn civil(text: &str) -> Civil {
        Civil::parse(text).unwrap()
    }

    #[test]
    fn a_timestamp_is_cut_to_its_second() {
        assert_eq!(civil("2020-02-29 12:34:56").timestamp(), Timestamp(1_582_979_696_000));
        let read = |ms| Civil::from_timestamp(Timestamp(ms)).to_string();
        assert_eq!(read(1_582_979_696_999), "2020-02-29 12:34:56");
        assert_eq!(read(0), "1970-01-01 00:00:00");
        assert_eq!(read(-1), "1969-12-31 23:59:59");
        assert_eq!(read(i64::MAX), "9999-12-31 23:59:59");
        assert_eq!(read(i64::MIN), "0000-01-01 00:00:00");
        assert_eq!(civil("0000-01-01").seconds(), FIRST_S);
        assert_eq!(civil("9999-12-31 23:59:59").seconds(), LAST_S);
        // A day that its month does not have is in the next month.
        assert_eq!(civil("2023-02-31").timestamp(), civil("2023-03-03").timestamp());
    }

    #[test]
    fn never_is_the_second_after_the_last_one() {
        let last = civil("9999-12-31 23:59:59").timestamp();
        assert_eq!(Timestamp::NEVER, last + Duration::from_secs(1));
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut day = civil("0000-01-01");
        while let Some(next) = day.next_day() {
            assert_eq!(next.seconds(), day.seconds() + DAY_S, "{next}");
            assert_eq!(Civil::from_seconds(next.seconds()), Some(next));
            day = next;
        }
        assert_eq!(day, civil("9999-12-31"));
    }
}
