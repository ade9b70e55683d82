//! Integers as C parses them: the leading number of a text, or 0 if there is none.

/// Leading spaces, a sign and digits; the rest is ignored, and out-of-range values saturate.
pub(crate) fn leading_integer(text: &str) -> i64 {
    let text = text.trim_ascii_start();
    let negative = text.starts_with('-');
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = digits.bytes().take_while(u8::is_ascii_digit);
    let size = digits.fold(0_i64, |number, digit| {
        number.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
    });
    if negative { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_at_the_beginning_counts() {
        let cases = [
            ("12", 12),
            (" 12", 12),
            ("-3x", -3),
            ("+4 5", 4),
            ("", 0),
            ("x1", 0),
            ("--1", 0),
            ("007", 7),
            ("99999999999999999999", i64::MAX),
            ("-99999999999999999999", -i64::MAX),
        ];
        for (text, number) in cases {
            assert_eq!(leading_integer(text), number, "of {text:?}");
        }
    }
}
