//! SQLite's date arithmetic, in whole seconds of UTC: what its `DATETIME()` makes of a date and a
//! modifier, for the years 0000 to 9999.

use std::fmt;
use std::sync::Arc;

use crate::name::Invalid;
use crate::time::Timestamp;

const DAY_S: i64 = 86_400;
/// 0000-01-01 00:00:00 and 9999-12-31 23:59:59, in seconds of the Unix epoch.
const FIRST_S: i64 = -62_167_219_200;
const LAST_S: i64 = 253_402_300_799;

/// A date and a time of day, as its text says it: the day may lie behind the end of its month
/// (`2023-02-31`), and SQLite resolves that only when it has to. Compares as its text does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Civil {
    year: i64,
    month: u8,
    day: u8,
    /// Seconds since midnight.
    second: u32,
}

impl Civil {
    /// Reads `YYYY-MM-DD`, `HH:MM[:SS[.SSS]][zone]`, or both with spaces or `T` between them; the
    /// zone is `Z` or `±HH:MM`. A time without a date is one of 2000-01-01. Parts of a second are
    /// cut.
    pub fn parse(text: &str) -> Option<Civil> {
        let mut read = Reader(text.as_bytes());
        let date = Reader(text.as_bytes()).date();
        let (year, month, day) = date.unwrap_or((2000, 1, 1));
        if date.is_some() {
            read.skip(10);
            read.skip_while(|byte| is_space(byte) || byte == b'T');
            if read.0.is_empty() {
                return Some(Civil { year, month, day, second: 0 });
            }
        }
        let time = read.time()?;
        let civil = Civil { year, month, day, second: time.second };
        let civil = if time.next_midnight { civil.next_day()? } else { civil };
        match time.offset_s {
            0 => Some(civil),
            offset_s => Civil::from_seconds(civil.seconds() - offset_s),
        }
    }

    /// The second in which `at` lies; what is before 0000 or after 9999 becomes the nearest.
    pub fn from_timestamp(at: Timestamp) -> Civil {
        Civil::of_seconds(at.ms().div_euclid(1000).clamp(FIRST_S, LAST_S))
    }

    pub fn timestamp(self) -> Timestamp {
        Timestamp(self.seconds() * 1000)
    }

    fn from_seconds(seconds: i64) -> Option<Civil> {
        (FIRST_S..=LAST_S).contains(&seconds).then(|| Civil::of_seconds(seconds))
    }

    /// Counts from 1 March of the year 0000, so that the leap day is the last of its year.
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

    /// Seconds of the Unix epoch; a day behind the end of its month is one of the next month.
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

    /// Adds to the field, then resolves a day that the new month does not have.
    fn plus_months(self, months: i64) -> Option<Civil> {
        let count = self.year * 12 + i64::from(self.month) - 1 + months;
        let (year, month) = (count.div_euclid(12), count.rem_euclid(12) as u8 + 1);
        (0..=9999).contains(&year).then_some(())?;
        Civil { year, month, ..self }.plus(0)
    }

    /// The day after, when the hour is 24: the day counts on from the end of this month.
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

/// One step from a date to another. Whoever writes minutes, hours or days means seconds, and years
/// are months: the arithmetic is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modifier {
    Seconds(i64),
    Months(i64),
    StartOf(Unit),
    /// Forward to this day of the week, 0 is Sunday; a date on this day stays.
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
    /// Reads one modifier in any case, with exactly one space between words. `START OF HOUR` is
    /// not SQLite's; only repeats know it.
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

    /// Nothing when the result is not in the years 0000 to 9999.
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

    /// Whether it moves by a length (`+1 DAY`), and does not snap to a place in the calendar.
    pub fn is_shift(self) -> bool {
        matches!(self, Modifier::Seconds(_) | Modifier::Months(_))
    }
}

/// A list of SQLite's modifiers between commas, and the text that it was read from. No modifier at
/// all is a list, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modifiers {
    text: Arc<str>,
    parts: Arc<[Modifier]>,
}

impl Modifiers {
    pub fn parse(text: &str) -> Result<Modifiers, Invalid> {
        let part = |part| match Modifier::parse(part) {
            None | Some(Modifier::StartOf(Unit::Hour)) => {
                Err(Invalid::new("retryAfter", format!("'{part}' is not {MODIFIER_FORMS}")))
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

    /// One after the other, from left to right.
    pub fn apply(&self, to: Civil) -> Option<Civil> {
        apply_all(&self.parts, to)
    }
}

/// What a modifier looks like, for whoever wrote another one.
pub(crate) const MODIFIER_FORMS: &str =
    "a modifier such as +1 HOUR, -2 DAYS, START OF MONTH or WEEKDAY 1";

pub(crate) fn apply_all(modifiers: &[Modifier], to: Civil) -> Option<Civil> {
    modifiers.iter().try_fold(to, |to, modifier| modifier.apply(to))
}

/// The items of a comma list: without the spaces before them, but with those behind them, and
/// never empty.
pub(crate) fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(|item| item.trim_start_matches(' ')).filter(|item| !item.is_empty())
}

struct Time {
    second: u32,
    /// The hour was 24, and `second` is 0.
    next_midnight: bool,
    offset_s: i64,
}

/// What is still to be read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn date(&mut self) -> Option<(i64, u8, u8)> {
        let year = self.number(4, 0, 9999)?;
        let month = self.byte(b'-').then(|| self.number(2, 1, 12))??;
        let day = self.byte(b'-').then(|| self.number(2, 1, 31))??;
        Some((i64::from(year), month as u8, day as u8))
    }

    fn time(&mut self) -> Option<Time> {
        let hour = self.number(2, 0, 24)?;
        let minute = self.byte(b':').then(|| self.number(2, 0, 59))??;
        let mut second = 0;
        let mut fraction = false;
        if self.byte(b':') {
            second = self.number(2, 0, 59)?;
            if let [b'.', b'0'..=b'9', ..] = self.0 {
                self.skip(1);
                let digits = self.skip_while(|byte| byte.is_ascii_digit());
                fraction = digits.iter().any(|digit| *digit != b'0');
            }
        }
        let next_midnight = hour == 24;
        if next_midnight && (minute != 0 || second != 0 || fraction) {
            return None;
        }
        let offset_s = self.offset()?;
        Some(Time { second: hour % 24 * 3600 + minute * 60 + second, next_midnight, offset_s })
    }

    /// The offset from UTC and the end of the text.
    fn offset(&mut self) -> Option<i64> {
        self.skip_while(is_space);
        let sign = match self.0.first() {
            None => return Some(0),
            Some(b'Z' | b'z') => 0,
            Some(b'+') => 1,
            Some(b'-') => -1,
            Some(_) => return None,
        };
        self.skip(1);
        let mut minutes = 0;
        if sign != 0 {
            let hours = self.number(2, 0, 14)?;
            minutes = hours * 60 + self.byte(b':').then(|| self.number(2, 0, 59))??;
        }
        self.skip_while(is_space);
        self.0.is_empty().then_some(sign * i64::from(minutes) * 60)
    }

    fn number(&mut self, digits: usize, min: u32, max: u32) -> Option<u32> {
        let text = self.0.get(..digits).filter(|text| text.iter().all(u8::is_ascii_digit))?;
        let number = text.iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        self.skip(digits);
        (min..=max).contains(&number).then_some(number)
    }

    fn byte(&mut self, wanted: u8) -> bool {
        let found = self.0.first() == Some(&wanted);
        self.skip(usize::from(found));
        found
    }

    fn skip(&mut self, bytes: usize) {
        self.0 = &self.0[bytes..];
    }

    fn skip_while(&mut self, skipped: impl Fn(u8) -> bool) -> &'a [u8] {
        let bytes = self.0.iter().take_while(|byte| skipped(**byte)).count();
        let (taken, rest) = self.0.split_at(bytes);
        self.0 = rest;
        taken
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
