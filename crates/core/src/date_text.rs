//! Points in time as Bedrock writes and compares them: texts in UTC, ordered byte by byte.

use crate::calendar::{Civil, FIRST_S, LAST_S};
use crate::time::Timestamp;

/// 0000-01-01 00:00:00.000: no text of a time is smaller.
pub const FIRST: Timestamp = Timestamp(FIRST_S * 1000);
/// The first millisecond behind 9999: no time whose text is smaller ever comes.
pub const NEVER: Timestamp = Timestamp((LAST_S + 1) * 1000);

/// `YYYY-MM-DD HH:MM:SS`; times that have no such text become the nearest that has one.
pub fn seconds_text(at: Timestamp) -> String {
    Civil::from_timestamp(at).to_string()
}

/// `YYYY-MM-DD HH:MM:SS.mmm`.
pub fn millis_text(at: Timestamp) -> String {
    let at = at.clamp(FIRST, Timestamp(NEVER.ms() - 1));
    format!("{}.{:03}", seconds_text(at), at.ms().rem_euclid(1000))
}

/// When a job with this `nextRun` is due: the earliest time whose text is not smaller than `text`,
/// whatever that says. Nothing is before `FIRST`; what is behind all times is due `NEVER`.
pub fn due_at(text: &str) -> Timestamp {
    let (mut from, mut to) = match second_of(text) {
        Some(second) => (second.ms(), second.ms() + 1000),
        None => (FIRST.ms(), NEVER.ms()),
    };
    while from < to {
        let middle = from + (to - from) / 2;
        if millis_text(Timestamp(middle)).as_str() < text {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    Timestamp(from)
}

/// The second with whose text `text` begins, if there is one: the search begins and ends there.
fn second_of(text: &str) -> Option<Timestamp> {
    let second = text.get(.."YYYY-MM-DD HH:MM:SS".len())?;
    let at = Civil::parse(second)?.timestamp();
    (seconds_text(at) == second).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_texts() {
        let at = Timestamp(1_582_979_696_078);
        assert_eq!(seconds_text(at), "2020-02-29 12:34:56");
        assert_eq!(millis_text(at), "2020-02-29 12:34:56.078");
        assert_eq!(millis_text(Timestamp(-1)), "1969-12-31 23:59:59.999");
        assert_eq!(millis_text(FIRST), "0000-01-01 00:00:00.000");
        assert_eq!(millis_text(Timestamp(NEVER.ms() - 1)), "9999-12-31 23:59:59.999");
    }

    #[test]
    fn times_without_a_text_become_the_nearest_with_one() {
        for late in [NEVER, Timestamp(i64::MAX)] {
            assert_eq!(seconds_text(late), "9999-12-31 23:59:59");
            assert_eq!(millis_text(late), "9999-12-31 23:59:59.999");
        }
        assert_eq!(millis_text(Timestamp(i64::MIN)), "0000-01-01 00:00:00.000");
    }

    fn due_text(text: &str) -> String {
        let due = due_at(text);
        let is_due = |at| millis_text(at).as_str() >= text;
        assert!(due == NEVER || is_due(due), "{text}");
        assert!(due == FIRST || !is_due(Timestamp(due.ms() - 1)), "{text}");
        millis_text(due)
    }

    #[test]
    fn a_job_is_due_when_the_text_of_now_is_not_smaller() {
        for (text, due) in [
            ("2020-02-29 12:34:56.078", "2020-02-29 12:34:56.078"),
            ("2020-02-29 12:34:56", "2020-02-29 12:34:56.000"),
            ("2020-02-29 12:34", "2020-02-29 12:34:00.000"),
            ("2020-02-29", "2020-02-29 00:00:00.000"),
            ("2020", "2020-01-01 00:00:00.000"),
            ("2020-02-29 12:34:56.0785", "2020-02-29 12:34:56.079"),
            ("2020-02-29 12:34:56 x", "2020-02-29 12:34:56.000"),
            ("2020-02-29 12:34:56x", "2020-02-29 12:34:57.000"),
            ("2020-02-31 12:34:56", "2020-03-01 00:00:00.000"),
            ("2020-02-28 24:00:00", "2020-02-29 00:00:00.000"),
            ("2020-02-2912:34:5678", "2020-03-01 00:00:00.000"),
            // T is behind the space, so that the whole day is smaller.
            ("2020-02-29T12:34:56", "2020-03-01 00:00:00.000"),
            ("2020-02-31", "2020-03-01 00:00:00.000"),
            ("2020-13-01", "2021-01-01 00:00:00.000"),
            ("3", "3000-01-01 00:00:00.000"),
            ("12:00", "1300-01-01 00:00:00.000"),
        ] {
            assert_eq!(due_text(text), due, "{text}");
        }
    }

    #[test]
    fn texts_around_all_times() {
        for first in ["", " ", "+1", "0", "0000-01-01", "0000-01-01 00:00:00.000"] {
            assert_eq!(due_at(first), FIRST, "{first}");
        }
        for never in ["tomorrow", "9999-12-31 23:59:59.9991", "99999", ":", "é", "\u{10ffff}"] {
            assert_eq!(due_at(never), NEVER, "{never}");
        }
    }
}
