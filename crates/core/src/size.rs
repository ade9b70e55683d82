//! Sizes as people write them, such as `512MB`.

/// Units, largest first; each is 1024 of the next.
const UNITS: [(&str, u64); 5] =
    [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10), ("B", 1)];

/// Reads `100B`, `64KB`, `512MB`, `2GB`, `1TB`; a number without a unit is not accepted. A KB has
/// 1024 bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let refuse = || {
        format!("'{text}' is not a size; write a whole number and a unit, such as 64KB, 512MB, 2GB")
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| refuse())?;
    let unit = UNITS.iter().find(|(unit, _)| *unit == &text[digits..]).ok_or_else(refuse)?;
    number.checked_mul(unit.1).ok_or_else(|| format!("'{text}' is more than any machine has"))
}

/// Writes a size so that `parse_size` reads it back: the largest unit that divides it.
pub fn format_size(bytes: u64) -> String {
    let divides = |unit: &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(unit.1);
    let (unit, unit_bytes) = UNITS.iter().find(divides).copied().unwrap_or(("B", 1));
    format!("{}{unit}", bytes / unit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_back() {
        for (text, bytes) in [
            ("0B", 0),
            ("1B", 1),
            ("3KB", 3 << 10),
            ("512MB", 512 << 20),
            ("5GB", 5 << 30),
            ("2TB", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes));
            assert_eq!(format_size(bytes), text);
        }
        assert_eq!(format_size(1536), "1536B");
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "5", "MB", "1.5GB", "-1MB", "5mb", "5 MB", "5M", "99999999999TB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
