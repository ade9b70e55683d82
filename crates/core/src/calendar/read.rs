//! Reads dates as SQLite does.

use super::Civil;

impl Civil {
    /// Reads `YYYY-MM-DD`, `HH:MM[:SS[.SSS]][zone]`, or both with spaces or `T` between them; the
    /// zone is `Z` or `±HH:MM`. A time without a date is on 2000-01-01. Fractions of a second are
    /// dropped.
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
}

struct Time {
    second: u32,
    /// The hour was 24, and `second` is 0.
    next_midnight: bool,
    offset_s: i64,
}

/// The rest of the text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_dates() {
        for (text, read) in [
            ("2024-01-31", "2024-01-31 00:00:00"),
            ("2024-01-31 12:34", "2024-01-31 12:34:00"),
            ("2024-01-31 12:34:56", "2024-01-31 12:34:56"),
            ("2024-01-31 12:34:56.789", "2024-01-31 12:34:56"),
            ("2024-01-31 12:34:56.9999999", "2024-01-31 12:34:56"),
            ("2024-01-31T12:34:56Z", "2024-01-31 12:34:56"),
            ("2024-01-31  T 12:34:56  z ", "2024-01-31 12:34:56"),
            ("2024-01-3112:34", "2024-01-31 12:34:00"),
            ("2024-01-31T", "2024-01-31 00:00:00"),
            ("2024-01-31 23:30:00-01:30", "2024-02-01 01:00:00"),
            ("2024-01-01 00:30:00 +02:00", "2023-12-31 22:30:00"),
            ("2024-02-29 24:00", "2024-03-01 00:00:00"),
            ("2023-12-31 24:00:00.000", "2024-01-01 00:00:00"),
            ("2023-02-30 24:00", "2023-03-03 00:00:00"),
            ("0000-01-01", "0000-01-01 00:00:00"),
            ("9999-12-31 23:59:59.999", "9999-12-31 23:59:59"),
            ("12:34:56", "2000-01-01 12:34:56"),
            ("24:00", "2000-01-02 00:00:00"),
        ] {
            assert_eq!(Civil::parse(text).unwrap().to_string(), read, "{text}");
        }
    }

    #[test]
    fn texts_that_are_none() {
        for text in [
            "",
            " ",
            "tomorrow",
            "2024",
            "2024-1-31",
            "2024-13-01",
            "2024-00-01",
            "2024-01-32",
            "2024-01-00",
            " 2024-01-31",
            "2024-01-31 x",
            "2024-01-31Z",
            "2024-01-31 12",
            "2024-01-31 25:00",
            "2024-01-31 24:01",
            "2024-01-31 24:00:00.1",
            "2024-01-31 12:60",
            "2024-01-31 12:00:60",
            "2024-01-31 12:00:00.",
            "2024-01-31 12:00:00 x",
            "2024-01-31 12:00+15:00",
            "2024-01-31 12:00+1:00",
            "2024-01-31 12:00Z+01:00",
            "-001-01-01",
            "10000-01-01",
            "9999-12-31 24:00",
            "0000-01-01 00:00+01:00",
            "9999-12-31 23:00-02:00",
            "2024–01–31",
            "٢٠٢٤-01-31",
        ] {
            assert_eq!(Civil::parse(text), None, "{text}");
        }
    }
}
