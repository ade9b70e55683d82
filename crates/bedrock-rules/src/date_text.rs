//! Times as Bedrock writes and compares them: text in UTC, compared byte by byte.

use windlass_core::calendar::{Civil, FIRST_S};
use windlass_core::{Extra, Timestamp};

/// 0000-01-01 00:00:00.000: the smallest text of a time.
pub const FIRST: Timestamp = Timestamp(FIRST_S * 1000);
/// Due time of texts that are greater than those of all times.
const NEVER: Timestamp = Timestamp::NEVER;

/// `YYYY-MM-DD HH:MM:SS`; times out of this range become the nearest within it.
pub fn seconds_text(at: Timestamp) -> String {
    Civil::from_timestamp(at).to_string()
}

/// `YYYY-MM-DD HH:MM:SS.mmm`.
pub fn millis_text(at: Timestamp) -> String {
    let at = at.clamp(FIRST, Timestamp(NEVER.ms() - 1));
    format!("{}.{:03}", seconds_text(at), at.ms().rem_euclid(1000))
}

/// When a job with this `nextRun` is due: the earliest time whose text is not smaller than `text`,
/// which need not be a valid time. At least `FIRST`; texts greater than all times are due `NEVER`.
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

/// Records this text as the `nextRun` of a job that is due at `run_at`.
pub fn set_next_run(extra: &mut Extra, text: &str, run_at: Timestamp) {
    extra.run_at_text = Some(text.into());
    extra.order_key = order_key(text, run_at);
}

/// Characters of a text that count, from where it differs from the texts of the times around it.
const KEY_CHARS: usize = 9;
/// Bits of one of them.
const KEY_CHAR_BITS: u32 = 6;

/// Orders jobs that are due in the same millisecond by their texts: how far a text is before that
/// of its time, which a job without a text has, as a number of 60 bits that is at most 0. The texts
/// of all jobs due at `run_at` are between those of that time and of the millisecond before, so the
/// longer the prefix that a text shares with one of them, the closer it is to that one.
pub fn order_key(text: &str, run_at: Timestamp) -> i64 {
    let (last, own) = (millis_text(Timestamp(run_at.ms().saturating_sub(1))), millis_text(run_at));
    if text >= own.as_str() {
        return 0;
    }
    let (to_last, to_own) = (shared(text, &last), shared(text, &own));
    let (shared, group) = if to_last > to_own && text > last.as_str() {
        (to_last, last.len() - to_last)
    } else {
        (to_own, last.len() + 1 + to_own)
    };
    let rest = text.bytes().skip(shared).map(key_char).chain(std::iter::repeat(0));
    let number = rest.take(KEY_CHARS).fold(group as i64, |n, char| n << KEY_CHAR_BITS | char);
    number - (1 << ((KEY_CHARS as u32 + 1) * KEY_CHAR_BITS))
}

/// Maps a byte to what matters for the order of time texts: control characters count as a space,
/// and all lower-case letters are equal. 0 is the end of a text.
fn key_char(byte: u8) -> i64 {
    let (first, most) = (b' ' - 1, (1 << KEY_CHAR_BITS) - 1);
    i64::from(byte.saturating_sub(first).clamp(1, most))
}

/// The length of the common prefix of two texts.
fn shared(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
}

/// The second whose text is a prefix of `text`, if there is one; it bounds the search.
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
            // T sorts after the space, so the whole day is smaller.
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
    fn jobs_of_one_millisecond_are_in_the_order_of_their_texts() {
        for texts in [
            ["", " ", "+1", "-", "0", "0000", "0000-01-01 00:00", "0000-01-01 00:00:00.000"]
                .as_slice(),
            &["1", "10", "1000", "1000-01-01 "],
            &[
                "2023-12-31 23:59:59.9990",
                "2023-12-31 23:59:59.9991",
                "2023-12-31 23:59:59Z",
                "2023-12-31 23:59:60",
                "2023-12-31 24:00",
                "2023-12-31T",
                "2023-12-31T00:00",
                "2023-12-31T12:34:55",
                "2023-12-31T12:34:56",
                "2023-12-31Z",
                "2023-12-32",
                "2023-13",
                "2024",
                "2024-01-01",
                "2024-01-01 00:00",
                "2024-01-01 00:00:00",
                "2024-01-01 00:00:00.00",
                "2024-01-01 00:00:00.000",
            ],
            &["2020-02-29 12:34:56.0785", "2020-02-29 12:34:56.079"],
        ] {
            let due: Vec<Timestamp> = texts.iter().map(|text| due_at(text)).collect();
            assert!(due.iter().all(|at| *at == due[0]), "{texts:?}");
            let keys: Vec<i64> = texts.iter().map(|text| order_key(text, due[0])).collect();
            assert!(keys.is_sorted_by(|a, b| a < b), "{texts:?} {keys:?}");
            assert!(keys.iter().all(|key| (-(1 << 60)..=0).contains(key)), "{keys:?}");
        }
    }

    #[test]
    fn a_job_without_a_text_has_that_of_its_time() {
        for at in [FIRST, Timestamp(-1), Timestamp(0), Timestamp(1_582_979_696_078)] {
            assert_eq!(order_key(&millis_text(at), at), 0);
            assert!(order_key(&seconds_text(at), at) < 0);
        }
    }

    #[test]
    fn every_text_has_a_number_at_every_time() {
        let times = [i64::MIN, FIRST.ms(), 0, NEVER.ms(), i64::MAX].map(Timestamp);
        for text in ["", "0", "1970", "é", "tomorrow", "9999-12-31T", "\u{0}", "\u{10ffff}"] {
            assert!(times.iter().all(|at| order_key(text, *at) <= 0), "{text}");
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
