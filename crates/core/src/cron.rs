//! Cron patterns in a time zone. The zones are part of the program, so that a machine without its
//! own is no different.

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::date;
use jiff::tz::TimeZone;

use crate::time::Timestamp;

/// A pattern, and the zone whose clocks it means.
pub(crate) struct Cron {
    pattern: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    /// Reads five or six fields (with six, the first one is seconds) and perhaps a zone.
    pub(crate) fn parse(text: &str) -> Result<Cron, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (fields, zone) = match words.split_last() {
            Some((last, fields)) if is_zone(last) => (fields, *last),
            _ => (&words[..], "UTC"),
        };
        if !(5..=6).contains(&fields.len()) {
            return Err(format!(
                "a cron pattern has 5 fields, or 6 with seconds first, and this one has {}; \
                 write it as in 'cron: 30 9 * * 1-5 Europe/Berlin'",
                fields.len()
            ));
        }
        let zone = TimeZone::get(zone)
            .map_err(|_| format!("'{zone}' is not a time zone; write one such as Europe/Berlin"))?;
        let pattern = CronParser::builder()
            .seconds(Seconds::Optional)
            .year(Year::Disallowed)
            .build()
            .parse(&fields.join(" "))
            .map_err(|error| format!("'{text}' is not a cron pattern: {error}"))?;
        Ok(Cron { pattern, zone })
    }

    /// Refuses a pattern that no date fits, such as 30 February. The calendar repeats itself
    /// after 400 years, and these are the last ones that the search looks at.
    pub(crate) fn ever(self) -> Result<Cron, String> {
        let start = date(croner::YEAR_UPPER_LIMIT as i16 - 400, 1, 1).at(0, 0, 0, 0);
        match self.pattern.find_next_occurrence(&start, true) {
            Ok(_) => Ok(self),
            Err(_) => Err("no date fits this cron pattern".into()),
        }
    }

    /// The first time after `now`, if there is one.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let start = jiff::Timestamp::from_second(now.ms().div_euclid(1000)).ok()?;
        let start = start.to_zoned(self.zone.clone());
        let next = self.pattern.find_next_occurrence(&start, false).ok()?;
        Some(Timestamp(next.timestamp().as_millisecond()))
    }
}

/// A field may have letters as well: days of the week, and L for the last day.
fn is_zone(word: &str) -> bool {
    const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    let is_day =
        word.get(..3).is_some_and(|word| DAYS.iter().any(|d| d.eq_ignore_ascii_case(word)));
    word.starts_with(|first: char| first.is_alphabetic()) && !is_day && word.len() > 1
}
