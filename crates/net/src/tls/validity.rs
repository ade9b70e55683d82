//! From when until when a certificate is valid. No library that we use shows it, so the few fields
//! before it are skipped here: a certificate is DER, where each value has a tag and a length.

use rustls::pki_types::CertificateDer;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Lengths of more bytes than this do not occur.
const LENGTH_BYTES_MAX: usize = 4;
/// Years of two digits below this are of this century.
const CENTURY_YEARS: i64 = 50;

/// In seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: i64,
    pub(super) not_after: i64,
}

impl Validity {
    /// `None` if this is not a certificate.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Validity> {
        let (whole, _) = value(certificate, SEQUENCE)?;
        let (mut fields, _) = value(whole, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            (_, fields) = any(fields)?;
        }
        // Serial number, algorithm, issuer.
        for _ in 0..3 {
            (_, fields) = any(fields)?;
        }
        let (times, _) = value(fields, SEQUENCE)?;
        let (not_before, times) = time(times)?;
        let (not_after, _) = time(times)?;
        Some(Validity { not_before, not_after })
    }
}

/// The contents of the first value, which has this tag, and what is behind it.
fn value(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    if *bytes.first()? == tag { any(bytes) } else { None }
}

fn any(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.get(1..)?.split_first()?;
    let (length, rest) = if *first < 0x80 {
        (usize::from(*first), rest)
    } else {
        let count = usize::from(first & 0x7F);
        if count > LENGTH_BYTES_MAX {
            return None;
        }
        let (digits, rest) = rest.split_at_checked(count)?;
        (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
    };
    rest.split_at_checked(length)
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`, by its tag.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let year_digits = match *bytes.first()? {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return None,
    };
    let (text, rest) = any(bytes)?;
    let digits = text.strip_suffix(b"Z")?;
    if digits.len() != year_digits + 10 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |from: usize, count: usize| {
        let digits = &digits[from..from + count];
        digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let year = match (year_digits, number(0, year_digits)) {
        (2, year) if year < CENTURY_YEARS => 2000 + year,
        (2, year) => 1900 + year,
        (_, year) => year,
    };
    let part = |index: usize| number(year_digits + 2 * index, 2);
    let days = days_before(year, part(0))? + part(1) - 1;
    Some((((days * 24 + part(2)) * 60 + part(3)) * 60 + part(4), rest))
}

const DAYS_OF_MONTHS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from the beginning of 1970 to that of a month, which counts from 1.
fn days_before(year: i64, month: i64) -> Option<i64> {
    let months = DAYS_OF_MONTHS.get(..usize::try_from(month - 1).ok()?)?;
    if months.len() == DAYS_OF_MONTHS.len() {
        return None;
    }
    let leap_day = i64::from(month > 2 && is_leap(year));
    Some(days_before_year(year) + months.iter().sum::<i64>() + leap_day)
}

fn days_before_year(year: i64) -> i64 {
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

/// `2027-01-31 12:00:00 UTC`.
pub(super) fn text_of(time: i64) -> String {
    let (days, seconds) = (time.div_euclid(24 * 3600), time.rem_euclid(24 * 3600));
    // A few years too late at most.
    let mut year = 1970 + days.div_euclid(365);
    while days_before_year(year) > days {
        year -= 1;
    }
    let month = (1..=12).rev().find(|month| days_before(year, *month) <= Some(days)).unwrap_or(1);
    let day = days - days_before(year, month).unwrap_or_default() + 1;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(from: (i32, u8, u8), until: (i32, u8, u8)) -> CertificateDer<'static> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
        params.not_after = rcgen::date_time_ymd(until.0, until.1, until.2);
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn the_times_of_a_certificate_are_found() {
        // The second has a year that takes four digits.
        for (from, until, texts) in [
            ((2024, 2, 29), (2026, 12, 31), ["2024-02-29", "2026-12-31"]),
            ((1999, 3, 1), (2100, 3, 1), ["1999-03-01", "2100-03-01"]),
            ((1970, 1, 1), (9999, 12, 31), ["1970-01-01", "9999-12-31"]),
        ] {
            let validity = Validity::of(&made(from, until)).unwrap();
            let shown = [validity.not_before, validity.not_after].map(text_of);
            assert_eq!(shown, texts.map(|day| format!("{day} 00:00:00 UTC")));
        }
    }

    #[test]
    fn seconds_are_counted_from_1970() {
        for (time, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (1_798_761_600, "2027-01-01 00:00:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(text_of(time), text);
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_times() {
        let whole = made((2024, 1, 1), (2025, 1, 1));
        for end in 0..whole.len() {
            assert_eq!(Validity::of(&CertificateDer::from(&whole[..end])), None, "{end}");
        }
        for bytes in [&b"0\x80"[..], b"0\xFF\xFF", b"0\x84\xFF\xFF\xFF\xFF", b"0\x020\x00"] {
            assert_eq!(Validity::of(&CertificateDer::from(bytes)), None);
        }
    }
}
