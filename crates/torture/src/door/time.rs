//! Times of the wall clock, as the doors read them.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_MS: u64 = 86_400_000;
/// Longer than it takes to build a request that is not large.
const MARGIN_MS: u64 = 100;

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

/// A moment so long after now, and a little later: what is written down as sent comes after this.
pub(super) fn due_ms(delay_ns: u64) -> u64 {
    now_ms() + delay_ns / 1_000_000 + MARGIN_MS
}

/// The date and the time of day, in UTC.
pub(super) fn parts(ms: u64) -> (String, String) {
    let (year, month, day) = civil(ms / DAY_MS);
    let of_day = ms % DAY_MS;
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, ms) = (of_day / 1000 % 60, of_day % 1000);
    let date = format!("{year:04}-{month:02}-{day:02}");
    (date, format!("{hour:02}:{minute:02}:{second:02}.{ms:03}"))
}

/// Year, month and day of a number of days since 1970, by the usual arithmetic on eras of 400 years
/// that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A time as logs write it, such as `2026-11-17T16:51:45.274Z`, in milliseconds since 1970.
pub(crate) fn read(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let numbers = |text: &str, between: &[char]| -> Option<Vec<u64>> {
        text.split(between).map(|part| part.parse().ok()).collect()
    };
    let [year, month, day]: [u64; 3] = numbers(date, &['-'])?.try_into().ok()?;
    let [hour, minute, second, ms]: [u64; 4] = numbers(time, &[':', '.'])?.try_into().ok()?;
    // The day of the year's first of March, and the days from there.
    let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let days = days.checked_sub(719_468)?;
    Some(days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1000 + ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        let text = |ms| {
            let (date, time) = parts(ms);
            format!("{date} {time}")
        };
        assert_eq!(text(0), "1970-01-01 00:00:00.000");
        assert_eq!(text(951_782_400_123), "2000-02-29 00:00:00.123");
        assert_eq!(text(1_794_747_599_999), "2026-11-15 12:59:59.999");
        for ms in [0, 951_782_400_123, 1_794_747_599_999] {
            assert_eq!(read(&(text(ms).replace(' ', "T") + "Z")), Some(ms));
        }
        assert_eq!(read("process 7 printed 4 lines"), None);
    }
}
