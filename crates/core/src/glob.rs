//! Patterns for type names, as in SQLite's GLOB: `*` matches any text, `?` one character, `[a-z]`
//! one character of a set, `[^a-z]` one that is not in the set. `/` is not special, and case
//! matters.

/// Whether `pattern` matches all of `text`. Linear in practice, at most the product of the lengths.
pub fn matches(pattern: &str, text: &str) -> bool {
    Pattern::new(pattern).matches(text)
}

/// Whether `pattern` has no special characters, and so matches only itself.
pub fn is_literal(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '['])
}

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Any,
    One,
    Char(char),
    Set {
        out: bool,
        ranges: Vec<(char, char)>,
    },
    /// A set without an end: matches nothing.
    Nothing,
}

impl Pattern {
    pub fn new(pattern: &str) -> Pattern {
        let mut rest = pattern.chars();
        let mut steps = Vec::new();
        while let Some(c) = rest.next() {
            steps.push(match c {
                '*' => Step::Any,
                '?' => Step::One,
                '[' => match read_set(rest.as_str()) {
                    Some((set, behind)) => {
                        rest = behind.chars();
                        set
                    }
                    None => {
                        rest = "".chars();
                        Step::Nothing
                    }
                },
                c => Step::Char(c),
            });
        }
        Pattern(steps)
    }

    /// A pattern of SQL's LIKE: `%` matches any text, `_` one character, and a character after
    /// `escape` itself. In lower case: LIKE ignores the case of ASCII letters, so the text that it
    /// is compared with has to be in lower case too.
    pub fn of_like(pattern: &str, escape: Option<char>) -> Pattern {
        let mut rest = pattern.chars();
        let mut steps = Vec::new();
        while let Some(c) = rest.next() {
            steps.push(match c {
                c if Some(c) == escape => match rest.next() {
                    Some(c) => Step::Char(c.to_ascii_lowercase()),
                    None => Step::Nothing,
                },
                '%' => Step::Any,
                '_' => Step::One,
                c => Step::Char(c.to_ascii_lowercase()),
            });
        }
        Pattern(steps)
    }

    pub fn matches(&self, text: &str) -> bool {
        self.matches_within(text.chars(), u64::MAX).expect("nothing takes that many comparisons")
    }

    /// Like `matches`; `None` if it takes more comparisons than this.
    pub fn matches_within(
        &self,
        mut text: impl Iterator<Item = char> + Clone,
        comparisons_max: u64,
    ) -> Option<bool> {
        let Pattern(steps) = self;
        let (mut at, mut left) = (0, comparisons_max);
        // The position of the latest star, and of the text after what it matches so far.
        let mut star = None;
        loop {
            if steps.get(at) == Some(&Step::Any) {
                star = Some((at, text.clone()));
                at += 1;
                continue;
            }
            let Some(c) = text.next() else { break };
            left = left.checked_sub(steps.get(at).map_or(1, Step::comparisons))?;
            if steps.get(at).is_some_and(|step| step.fits(c)) {
                at += 1;
                continue;
            }
            // Let the latest star match one more character, and try again.
            let Some((stands, taken)) = &mut star else { return Some(false) };
            taken.next();
            (at, text) = (*stands + 1, taken.clone());
        }
        Some(steps[at..].iter().all(|step| *step == Step::Any))
    }

    /// The prefix of every matching text.
    pub fn prefix(&self) -> String {
        let literal = |step: &Step| if let Step::Char(c) = step { Some(*c) } else { None };
        self.0.iter().map_while(literal).collect()
    }

    /// Whether it matches only its prefix.
    pub fn is_literal(&self) -> bool {
        self.0.iter().all(|step| matches!(step, Step::Char(_)))
    }
}

impl Step {
    /// How many comparisons `fits` may take.
    fn comparisons(&self) -> u64 {
        match self {
            Step::Set { ranges, .. } => 1 + ranges.len() as u64,
            _ => 1,
        }
    }

    fn fits(&self, c: char) -> bool {
        match self {
            Step::One => true,
            Step::Char(own) => *own == c,
            Step::Set { out, ranges } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *out
            }
            Step::Any | Step::Nothing => false,
        }
    }
}

/// Reads a set after its `[`; returns the rest after its `]`. A `]` in the first place belongs to
/// the set, and so does a `-` without characters on both sides.
fn read_set(text: &str) -> Option<(Step, &str)> {
    let (out, text) = match text.strip_prefix('^') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut ranges = Vec::new();
    let mut rest = text.chars();
    if let Some(text) = text.strip_prefix(']') {
        ranges.push((']', ']'));
        rest = text.chars();
    }
    let mut from = None;
    loop {
        match rest.next()? {
            ']' => return Some((Step::Set { out, ranges }, rest.as_str())),
            '-' if from.is_some() && !rest.as_str().starts_with(']') => {
                ranges.extend(from.take().zip(Some(rest.next()?)));
            }
            c => {
                ranges.push((c, c));
                from = Some(c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text) in
            [("*", ""), ("*", "abc"), ("a*c", "abbc"), ("a?c", "aäc"), ("*b*", "abc"), ("a**", "a")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a", ""), ("?", ""), ("a*c", "abd"), ("a", "A")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_of_like_have_other_signs_and_ignore_case() {
        let like = |pattern, escape, text: &str| {
            Pattern::of_like(pattern, escape).matches(&text.to_ascii_lowercase())
        };
        for (pattern, text) in [("M%l", "mail"), ("m__L", "MAIL"), ("%", ""), ("[a*?", "[A*?")] {
            assert!(like(pattern, None, text), "{pattern} {text}");
        }
        for (pattern, text) in [("m_l", "mail"), ("ä", "Ä"), ("", "a")] {
            assert!(!like(pattern, None, text), "{pattern} {text}");
        }
        assert!(like("5!%", Some('!'), "5%") && !like("5!%", Some('!'), "5!"));
        assert!(like("%%", Some('%'), "%") && !like("a!", Some('!'), "a"));
    }

    #[test]
    fn a_match_that_takes_too_many_comparisons_is_given_up() {
        let (pattern, text) = (Pattern::new("*a?a?b"), "a".repeat(1000));
        assert_eq!(pattern.matches_within(text.chars(), 1000), None);
        assert_eq!(pattern.matches_within(text.chars(), 100_000), Some(false));
        let set = Pattern::new(&format!("[{}]", "a".repeat(1000)));
        assert_eq!(set.matches_within("b".chars(), 1000), None);
    }

    #[test]
    fn sets_have_ranges_and_opposites() {
        let fits = [("[a-c]x", "bx"), ("[^a-c]", "d"), ("[]]", "]"), ("[^]]", "a"), ("[a-]", "-")];
        for (pattern, text) in fits.into_iter().chain([("*[0-9]", "a/7"), ("[ä-ü]", "ö")]) {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        let misfits = [("[a-c]", "B"), ("[^a-c]", "b"), ("[a-c]", ""), ("[a", "a"), ("a[", "a[")];
        for (pattern, text) in misfits.into_iter().chain([("[]", "["), ("[c-a]", "b")]) {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_knows_how_its_texts_begin() {
        for (pattern, prefix, literal) in
            [("abc", "abc", true), ("a/b*", "a/b", false), ("[a]b", "", false), ("", "", true)]
        {
            let read = Pattern::new(pattern);
            assert_eq!((read.prefix().as_str(), read.is_literal()), (prefix, literal), "{pattern}");
        }
    }
}
