//! Cron patterns in a time zone. The zone database is part of the program, so it does not depend on
//! the machine's.

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::date;
use jiff::tz::TimeZone;

use crate::time::Timestamp;

/// A pattern and its time zone.
pub(crate) struct Cron {
    pattern: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    /// Reads five or six fields (with six, the first one is seconds) and an optional zone.
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
        // The crate accepts an empty item, and would search very long for a second that never
        // comes.
        if fields.iter().any(|field| field.split(',').any(str::is_empty)) {
            return Err(format!("'{text}' is not a cron pattern: a list has an empty item"));
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

    /// Refuses a pattern that no date matches, such as 30 February. The calendar repeats after 400
    /// years, so the search covers the last 400.
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

/// A field may contain letters: days of the week, and L for the last day.
fn is_zone(word: &str) -> bool {
    const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    let is_day =
        word.get(..3).is_some_and(|word| DAYS.iter().any(|d| d.eq_ignore_ascii_case(word)));
    word.starts_with(|first: char| first.is_alphabetic()) && !is_day && word.len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{format_time, parse_time};

    /// The next times after `now`, in order.
    fn next(pattern: &str, now: &str, count: usize) -> Vec<String> {
        let cron = Cron::parse(pattern).and_then(Cron::ever).unwrap();
        let mut at = parse_time(now).unwrap();
        let mut step = || {
            at = cron.next(at).unwrap();
            format_time(at).replace(".000Z", "Z")
        };
        (0..count).map(|_| step()).collect()
    }

    #[test]
    fn the_next_time_is_after_now() {
        for (pattern, now, expected) in [
            ("*/15 * * * *", "2024-05-17T12:00:00Z", "2024-05-17T12:15:00Z"),
            ("*/15 * * * *", "2024-05-17T12:14:59.999Z", "2024-05-17T12:15:00Z"),
            ("*/15 * * * *", "2024-05-17T12:15:00.001Z", "2024-05-17T12:30:00Z"),
            ("* * * * * *", "2024-05-17T12:15:00.001Z", "2024-05-17T12:15:01Z"),
            ("30 0 9 * * *", "2024-05-17T12:00:00Z", "2024-05-18T09:00:30Z"),
            ("0 9 * * mon-fri", "2024-05-17T12:00:00Z", "2024-05-20T09:00:00Z"),
            ("0 0 9 * * SUN", "2024-05-17T12:00:00Z", "2024-05-19T09:00:00Z"),
            ("0 0 29 2 *", "2024-05-17T12:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 L * *", "2024-02-10T12:00:00Z", "2024-02-29T00:00:00Z"),
            ("0 9 * * 1 Europe/Berlin", "2024-05-17T12:00:00Z", "2024-05-20T07:00:00Z"),
            ("0 9 * * 1 utc", "2024-05-17T12:00:00Z", "2024-05-20T09:00:00Z"),
            ("0 9 * * * Asia/Kolkata", "2024-05-17T12:00:00Z", "2024-05-18T03:30:00Z"),
        ] {
            assert_eq!(next(pattern, now, 1), [expected], "{pattern} {now}");
        }
    }

    #[test]
    fn an_hour_that_clocks_leave_out_is_not_a_day_without_a_run() {
        // Berlin, 31 March 2024: 02:00 is 03:00.
        let days = ["2024-03-30T01:30:00Z", "2024-03-31T01:00:00Z", "2024-04-01T00:30:00Z"];
        assert_eq!(next("30 2 * * * Europe/Berlin", "2024-03-29T12:00:00Z", 3), days);
        let hours = ["2024-03-31T00:30:00Z", "2024-03-31T01:30:00Z", "2024-03-31T02:30:00Z"];
        assert_eq!(next("30 * * * * Europe/Berlin", "2024-03-31T00:00:00Z", 3), hours);
    }

    #[test]
    fn an_hour_that_clocks_repeat_runs_a_daily_job_once_and_an_hourly_one_twice() {
        // Berlin, 27 October 2024: 03:00 is 02:00 once more.
        let days = ["2024-10-26T00:30:00Z", "2024-10-27T00:30:00Z", "2024-10-28T01:30:00Z"];
        assert_eq!(next("30 2 * * * Europe/Berlin", "2024-10-25T12:00:00Z", 3), days);
        let hours = ["2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z", "2024-10-27T02:30:00Z"];
        assert_eq!(next("30 * * * * Europe/Berlin", "2024-10-27T00:00:00Z", 3), hours);
    }

    #[test]
    fn around_a_change_of_clocks_every_next_time_is_in_the_future() {
        let patterns = ["*/7 * * * *", "30 2 * * *", "0 */2 * * *", "15 1-3 * * *", "0 0 * * 0"];
        let changes = [
            ("Europe/Berlin", "2024-10-26T23:00:00Z"),
            ("Europe/Berlin", "2024-03-30T23:00:00Z"),
            ("America/New_York", "2024-11-03T04:00:00Z"),
            ("Australia/Lord_Howe", "2024-04-06T13:00:00Z"),
        ];
        for (zone, start) in changes {
            for pattern in patterns {
                let cron = Cron::parse(&format!("{pattern} {zone}")).unwrap();
                for step in 0..300 {
                    let now = Timestamp(parse_time(start).unwrap().ms() + step * 61_007);
                    let next = cron.next(now).unwrap();
                    assert!(next > now, "{pattern} {zone} {}", format_time(now));
                }
            }
        }
    }

    #[test]
    fn other_patterns_are_refused() {
        for (pattern, reason) in [
            ("", "has 5 fields"),
            ("* * * *", "has 5 fields"),
            ("* * * * UTC", "has 5 fields"),
            ("* * * * * * *", "has 5 fields"),
            ("@daily", "has 5 fields"),
            ("60 * * * *", "not a cron pattern"),
            ("* 24 * * *", "not a cron pattern"),
            ("* * 0 * *", "not a cron pattern"),
            ("x * * * *", "not a cron pattern"),
            ("* * * * 9", "not a cron pattern"),
            ("0 0 9 * * 1,", "a list has an empty item"),
            (", * * * * *", "a list has an empty item"),
            ("1,,2 * * * *", "a list has an empty item"),
            ("*/0 * * * *", "not a cron pattern"),
            ("5-1 * * * *", "not a cron pattern"),
            ("* * * * * Europe/Bärlin", "'Europe/Bärlin' is not a time zone"),
            ("* * * * * * Mars", "'Mars' is not a time zone"),
            ("* * * * * ../../etc/passwd", "not a cron pattern"),
            ("* * * * é", "has 5 fields"),
            ("0 0 30 2 *", "no date fits"),
            ("0 0 31 2,4,6,9,11 *", "no date fits"),
        ] {
            let refused = Cron::parse(pattern).and_then(Cron::ever).err().unwrap_or_default();
            assert!(refused.contains(reason), "{pattern}: {refused}");
        }
    }

    #[test]
    fn a_single_letter_is_a_field_and_no_time_zone() {
        let refused = Cron::parse("* * * * * L").err().unwrap_or_default();
        assert!(!refused.contains("time zone"), "{refused}");
    }

    #[test]
    fn no_time_beyond_the_search() {
        let cron = Cron::parse("0 0 1 1 *").unwrap();
        assert_eq!(cron.next(Timestamp(i64::MAX)), None);
        assert_eq!(cron.next(parse_time("9999-01-01T00:00:00Z").unwrap()), None);
    }

    #[test]
    fn no_pattern_makes_it_panic_or_search_for_long() {
        let pieces: Vec<&str> = "* */ / - , # L W ? + @ 0 1 5 7 12 31 59 60 99999999999 MON fri \
            JAN dec LW 1W #5 5#3 L-3 é ſ UTC Europe/ \0 1-5 5-1 */0 */7 */61 15"
            .split(' ')
            .collect();
        let mut random = fastrand::Rng::with_seed(8);
        let start = parse_time("2024-05-17T12:00:00Z").unwrap();
        let mut accepted = 0;
        for _ in 0..20_000 {
            let word = |random: &mut fastrand::Rng| {
                let count = match random.u8(..8) {
                    0..=4 => return "*".into(),
                    5 => 3,
                    _ => 1,
                };
                (0..count).map(|_| pieces[random.usize(..pieces.len())]).collect::<String>()
            };
            let words: Vec<_> = (0..random.usize(4..8)).map(|_| word(&mut random)).collect();
            if let Ok(cron) = Cron::parse(&words.join(" ")).and_then(Cron::ever) {
                accepted += 1;
                let next = cron.next(start);
                assert!(next.is_some_and(|next| next > start), "{words:?}");
            }
        }
        assert!(accepted > 1000, "{accepted}");
    }
}
