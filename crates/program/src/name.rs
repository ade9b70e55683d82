//! The name of this host, and suggestions for mistyped names.

/// Maximum edit distance of a suggestion.
const MISTYPED_LETTERS_MAX: usize = 2;

/// The kernel's name of this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The nearest known name, if it is near enough. Very short names would match everything.
pub fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let distances = known.iter().map(|name| (strsim::damerau_levenshtein(given, name), *name));
    let (distance, name) = distances.min()?;
    let is_short = given.chars().count() <= MISTYPED_LETTERS_MAX;
    (distance <= MISTYPED_LETTERS_MAX && !is_short).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_name_means_the_nearest_known_one() {
        let known = ["heartbeat", "listen", "tls"];
        assert_eq!(nearest("hartbeat", &known), Some("heartbeat"));
        assert_eq!(nearest("lsiten", &known), Some("listen"));
        assert_eq!(nearest("something", &known), None);
        assert_eq!(nearest("ts", &known), None, "too short");
        assert_eq!(nearest("listen", &[]), None);
    }

    #[test]
    fn a_host_has_a_name() {
        assert!(!host_name().is_empty());
    }
}
