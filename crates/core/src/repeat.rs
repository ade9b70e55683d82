//! How a job repeats, and when it runs next: Bedrock's grammar (`SCHEDULED, +1 HOUR`) or a cron
//! pattern with a time zone.

use std::fmt;
use std::sync::Arc;

use crate::calendar::{Civil, MODIFIER_FORMS, Modifier, apply_all, items};
use crate::cron::Cron;
use crate::name::Invalid;
use crate::time::Timestamp;

/// Longest text of a repeat, in bytes.
pub const REPEAT_BYTES_MAX: usize = 1024;

/// Missed slots are made up for unless the interval is shorter than this.
const CATCH_UP_S: i64 = 4 * 3600;

/// How a job repeats, in the form that is stored. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Repeat(Arc<str>);

/// The times from which a repeat can count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bases {
    /// When the job was due; `None` when its text was not a date.
    pub scheduled: Option<Civil>,
    /// When it last started.
    pub started: Option<Timestamp>,
    pub now: Timestamp,
}

impl Repeat {
    /// Bedrock's grammar, or `cron: <5 or 6 fields> [zone]`.
    pub fn parse(text: &str) -> Result<Repeat, Invalid> {
        match after_cron(text) {
            None => Repeat::parse_bedrock(text),
            Some(pattern) => {
                let pattern = pattern.trim();
                let stored = format!("{CRON} {pattern}");
                // The stored form is read again, and may be longer than the text.
                bounded(&stored)?;
                Cron::parse(pattern).and_then(Cron::ever).map_err(invalid)?;
                Ok(Repeat(stored.into()))
            }
        }
    }

    /// `HOURLY`, `DAILY`, `WEEKLY`, or a base and at least one modifier, in upper or lower case.
    pub fn parse_bedrock(text: &str) -> Result<Repeat, Invalid> {
        bounded(text)?;
        let text = text.to_ascii_uppercase();
        Rule::parse(&text).map_err(invalid)?;
        Ok(Repeat(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the next time counts from when the job was due.
    pub fn is_scheduled(&self) -> bool {
        Rule::parse(&self.0).is_ok_and(|rule| rule.base == Base::Scheduled)
    }

    /// When the job first runs, if that is not at once.
    pub fn first(&self, now: Timestamp) -> Option<Timestamp> {
        after_cron(&self.0).and_then(|pattern| Cron::parse(pattern).ok()?.next(now))
    }

    /// When the job runs again. `None` when its base is missing, or the time is out of range.
    pub fn next(&self, bases: &Bases) -> Option<Timestamp> {
        match after_cron(&self.0) {
            None => Some(Rule::parse(&self.0).ok()?.next(bases)?.timestamp()),
            Some(pattern) => Cron::parse(pattern).ok()?.next(bases.now),
        }
    }
}

impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

const CRON: &str = "cron:";

/// The pattern, if the text is a cron repeat.
fn after_cron(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let prefix = text.get(..CRON.len())?;
    prefix.eq_ignore_ascii_case(CRON).then(|| &text[CRON.len()..])
}

fn bounded(text: &str) -> Result<(), Invalid> {
    if text.len() > REPEAT_BYTES_MAX {
        return Err(invalid(format!("a repeat has at most {REPEAT_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn invalid(reason: String) -> Invalid {
    Invalid::new("repeat", reason)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Scheduled,
    Started,
    Finished,
}

/// A parsed Bedrock repeat. Its text is in upper case.
struct Rule {
    base: Base,
    modifiers: Vec<Modifier>,
}

impl Rule {
    fn parse(text: &str) -> Result<Rule, String> {
        let text = match text {
            "HOURLY" => "FINISHED, +1 HOUR",
            "DAILY" => "FINISHED, +1 DAY",
            "WEEKLY" => "FINISHED, +7 DAYS",
            text => text,
        };
        let mut items = items(text);
        let base = match items.next() {
            Some("SCHEDULED") => Base::Scheduled,
            Some("STARTED") => Base::Started,
            Some("FINISHED") => Base::Finished,
            _ => {
                let reason = "a repeat is 'cron: */5 * * * *' (any cron pattern), HOURLY, DAILY, \
                              WEEKLY, or begins with SCHEDULED, STARTED or FINISHED and a comma";
                return Err(reason.into());
            }
        };
        let modifier =
            |item| Modifier::parse(item).ok_or_else(|| format!("'{item}' is not {MODIFIER_FORMS}"));
        let modifiers = items.map(modifier).collect::<Result<Vec<_>, _>>()?;
        if modifiers.is_empty() {
            return Err(format!("behind '{text}' there must be {MODIFIER_FORMS}"));
        }
        Ok(Rule { base, modifiers })
    }

    fn next(&self, bases: &Bases) -> Option<Civil> {
        let now = Civil::from_timestamp(bases.now);
        match self.base {
            Base::Finished => apply_all(&self.modifiers, now),
            Base::Started => apply_all(&self.modifiers, Civil::from_timestamp(bases.started?)),
            Base::Scheduled => self.next_scheduled(bases.scheduled?, now),
        }
    }

    /// Missed slots are made up for one by one, unless the job runs so often that it could never
    /// catch up: then it continues with the first slot in the future.
    fn next_scheduled(&self, last: Civil, now: Civil) -> Option<Civil> {
        let next = apply_all(&self.modifiers, last)?;
        let interval_s = next.seconds() - last.seconds();
        let often = (1..CATCH_UP_S).contains(&interval_s);
        if next > now || !often || !self.modifiers.iter().all(|modifier| modifier.is_shift()) {
            return Some(next);
        }
        let slots = (now.seconds() - last.seconds()).div_euclid(interval_s) + 1;
        last.plus(slots * interval_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Civil::parse(text).unwrap().timestamp()
    }

    /// The next time of a job that was due at `scheduled`, when it is `now`.
    fn next(repeat: &str, scheduled: &str, now: &str) -> String {
        let bases = Bases { scheduled: Civil::parse(scheduled), started: None, now: at(now) };
        let next = Repeat::parse(repeat).unwrap().next(&bases);
        next.map_or("none".into(), |next| Civil::from_timestamp(next).to_string())
    }

    #[test]
    fn the_three_bases() {
        // The example of the manual: to start at 1:00 pm, started at 1:15, took 30 minutes.
        let bases = Bases {
            scheduled: Civil::parse("2024-05-17 13:00:00.123"),
            started: Some(at("2024-05-17 13:15:00")),
            now: at("2024-05-17 13:45:00"),
        };
        for (repeat, next) in [
            ("SCHEDULED, +1 HOUR", "2024-05-17 14:00:00"),
            ("STARTED, +1 HOUR", "2024-05-17 14:15:00"),
            ("FINISHED, +1 HOUR", "2024-05-17 14:45:00"),
            ("finished,+1 day,start of day,+4 hours", "2024-05-18 04:00:00"),
            ("FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS", "2024-05-20 06:00:00"),
            ("FINISHED, +1 HOUR, START OF HOUR", "2024-05-17 14:00:00"),
            ("HOURLY", "2024-05-17 14:45:00"),
            ("daily", "2024-05-18 13:45:00"),
            ("Weekly", "2024-05-24 13:45:00"),
        ] {
            let repeat = Repeat::parse(repeat).unwrap();
            assert_eq!(repeat.next(&bases), Some(at(next)), "{repeat}");
        }
    }

    #[test]
    fn a_missing_base_or_an_impossible_time_is_no_time() {
        let bases = Bases { scheduled: None, started: None, now: at("9999-12-31 23:00:00") };
        for repeat in ["SCHEDULED, +1 DAY", "STARTED, +1 DAY", "FINISHED, +1 DAY", "DAILY"] {
            assert_eq!(Repeat::parse(repeat).unwrap().next(&bases), None, "{repeat}");
        }
    }

    #[test]
    fn missed_slots_of_frequent_jobs_are_skipped_in_step() {
        let day = |time: &str| format!("2024-05-17 {time}");
        for (repeat, scheduled, now, expected) in [
            // Not missed: the next slot is in the future.
            ("SCHEDULED, +1 HOUR", "13:00:00", "13:59:59", "14:00:00"),
            ("SCHEDULED, +1 HOUR", "13:00:00", "13:00:00", "14:00:00"),
            ("SCHEDULED, +1 HOUR", "13:00:00", "12:00:00", "14:00:00"),
            // A slot that is exactly now is missed.
            ("SCHEDULED, +1 HOUR", "13:00:00", "14:00:00", "15:00:00"),
            ("SCHEDULED, +1 HOUR", "13:00:00", "14:00:01", "15:00:00"),
            ("SCHEDULED, +1 HOUR", "13:00:07", "17:00:06", "17:00:07"),
            ("SCHEDULED, +1 HOUR", "13:00:07", "17:00:07", "18:00:07"),
            ("SCHEDULED, +1 HOUR, -15 MINUTES", "13:00:00", "15:00:00", "15:15:00"),
            ("SCHEDULED, -15 MINUTES, +1 HOUR", "13:00:00", "13:45:00", "14:30:00"),
            ("SCHEDULED, +1 SECOND", "13:00:00", "17:08:09", "17:08:10"),
            // One second less than four hours is still often, four hours are not.
            ("SCHEDULED, +14399 SECONDS", "01:00:00", "20:00:00", "20:59:55"),
            ("SCHEDULED, +4 HOURS", "01:00:00", "20:00:00", "05:00:00"),
            ("SCHEDULED, +5 HOURS", "01:00:00", "20:00:00", "06:00:00"),
            // A place in the calendar is not moved.
            ("SCHEDULED, +1 HOUR, START OF HOUR", "13:10:00", "17:00:00", "14:00:00"),
            ("SCHEDULED, START OF DAY, +14 HOURS", "13:00:00", "17:00:00", "14:00:00"),
            ("SCHEDULED, WEEKDAY 5, +1 HOUR", "13:00:00", "17:00:00", "14:00:00"),
            // Backward or no movement: no future slot exists.
            ("SCHEDULED, -1 HOUR", "13:00:00", "17:00:00", "12:00:00"),
            ("SCHEDULED, +0 SECONDS", "13:00:00", "17:00:00", "13:00:00"),
        ] {
            let next = next(repeat, &day(scheduled), &day(now));
            assert_eq!(next, day(expected), "{repeat} {scheduled} {now}");
        }
    }

    #[test]
    fn parts_of_a_second_do_not_count() {
        let bases = |now| Bases {
            scheduled: Civil::parse("2024-05-17 13:00:00.999"),
            started: None,
            now: Timestamp(at("2024-05-17 14:00:00").ms() + now),
        };
        let next = |now| Repeat::parse("SCHEDULED, +1 HOUR").unwrap().next(&bases(now));
        assert_eq!(next(-1), Some(at("2024-05-17 14:00:00")));
        assert_eq!(next(0), Some(at("2024-05-17 15:00:00")));
        assert_eq!(next(999), Some(at("2024-05-17 15:00:00")));
    }

    #[test]
    fn months_count_from_where_they_were_to_begin() {
        let now = "2024-06-01 00:00:00";
        assert_eq!(next("SCHEDULED, +1 MONTH", "2024-01-31", now), "2024-03-02 00:00:00");
        assert_eq!(next("SCHEDULED, +1 MONTH", "2023-01-31", now), "2023-03-03 00:00:00");
        assert_eq!(next("SCHEDULED, +1 DAY", "tomorrow", now), "none");
    }

    /// A cron repeat of this length, which its stored form exceeds by a space.
    fn without_space(bytes: usize) -> String {
        let rest = " * * * *";
        let minutes = bytes - CRON.len() - rest.len();
        format!("{CRON}{:0>minutes$}{rest}", 0)
    }

    fn with_space(bytes: usize) -> String {
        without_space(bytes).replacen(CRON, "cron: ", 1)
    }

    #[test]
    fn the_stored_form() {
        for (text, stored) in [
            ("hourly", "HOURLY"),
            ("Finished, +1 minute", "FINISHED, +1 MINUTE"),
            ("scheduled,+1 day,,  start of hour", "SCHEDULED,+1 DAY,,  START OF HOUR"),
            ("cron: 0 9 * * mon-fri Europe/Berlin", "cron: 0 9 * * mon-fri Europe/Berlin"),
            ("  CRON:*/5 * * * *  ", "cron: */5 * * * *"),
            (&without_space(REPEAT_BYTES_MAX - 1), &with_space(REPEAT_BYTES_MAX - 1)),
        ] {
            let repeat = Repeat::parse(text).unwrap();
            assert_eq!((repeat.as_str(), repeat.to_string().as_str()), (stored, stored));
            assert_eq!(Repeat::parse(stored), Ok(repeat));
        }
    }

    #[test]
    fn bedrock_has_no_cron() {
        assert!(Repeat::parse_bedrock("cron: 0 9 * * *").is_err());
        assert_eq!(Repeat::parse_bedrock("daily"), Repeat::parse("DAILY"));
    }

    #[test]
    fn whether_a_repeat_counts_from_the_schedule() {
        let is_scheduled = |text| Repeat::parse(text).unwrap().is_scheduled();
        assert!(is_scheduled("scheduled, +1 DAY"));
        assert!(!is_scheduled("FINISHED, +1 DAY") && !is_scheduled("DAILY"));
        assert!(!is_scheduled("cron: 0 9 * * *"));
    }

    #[test]
    fn other_repeats_are_refused() {
        let long = format!("FINISHED{}", ", +1 DAY".repeat(REPEAT_BYTES_MAX / 8));
        for (text, reason) in [
            ("", "HOURLY"),
            ("YEARLY", "HOURLY"),
            ("HOURLY, +1 DAY", "HOURLY"),
            ("HOURLY ", "HOURLY"),
            ("+1 DAY", "HOURLY"),
            ("FINISHED +1 DAY", "HOURLY"),
            ("FINISHED ,+1 DAY", "HOURLY"),
            ("NOW, +1 DAY", "HOURLY"),
            ("FINISHED", "there must be a modifier"),
            ("FINISHED, ", "there must be a modifier"),
            ("FINISHED, + 1 HOUR", "'+ 1 HOUR' is not"),
            ("FINISHED, +1 FORTNIGHT", "'+1 FORTNIGHT' is not"),
            ("FINISHED, +1 DAY ", "'+1 DAY ' is not"),
            ("FINISHED, +1 DAY, WEEKDAY 7", "'WEEKDAY 7' is not"),
            ("crön: x", "HOURLY"),
            (&long, "at most 1024 bytes"),
            (&without_space(REPEAT_BYTES_MAX), "at most 1024 bytes"),
        ] {
            let invalid = Repeat::parse(text).unwrap_err();
            assert_eq!(invalid.field, "repeat", "{text}");
            assert!(invalid.reason.contains(reason), "{text}: {}", invalid.reason);
        }
    }
}
