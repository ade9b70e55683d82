//! Names: of this host, and those that people mistype.

/// Names that differ in more letters are not meant by each other.
const MISTYPED_LETTERS_MAX: usize = 2;

/// What the kernel calls this host.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The known name that was meant, if one is near enough. Very short names are near to everything.
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
