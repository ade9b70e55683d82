//! Points in time as Bedrock writes and compares them: texts in UTC, ordered byte by byte.

use crate::calendar::Civil;
use crate::time::Timestamp;

/// 0000-01-01 00:00:00.000: no text of a time is smaller.
pub const FIRST: Timestamp = Timestamp(-62_167_219_200_000);
/// The first millisecond behind 9999: no time whose text is smaller ever comes.
pub const NEVER: Timestamp = Timestamp(253_402_300_800_000);

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
    let (mut from, mut to) = (FIRST.ms(), NEVER.ms());
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
