//! Signals by name. A master accepts only numbers, so names are looked up here.

/// Signal 1 first, as Linux numbers them.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The number of a signal, given by number or by name, with or without `SIG`, case-insensitive.
pub(crate) fn number(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse::<i64>() {
        return (number >= 0).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    (1..).zip(NAMES).find(|(_, known)| *known == name).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_numbers_and_names() {
        for (text, expected) in [
            ("SIGHUP", Some(1)),
            ("kill", Some(9)),
            ("SigTerm", Some(15)),
            ("SIGSTOP", Some(19)),
            ("SYS", Some(31)),
            ("0", Some(0)),
            ("64", Some(64)),
            ("-9", None),
            ("SIG", None),
            ("", None),
            ("SIGNONE", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }
}
