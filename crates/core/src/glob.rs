//! Patterns with which a worker names types: `*` stands for any text, `?` for one character.

/// Whether `pattern` matches the whole of `text`. Linear in practice, bounded by their product.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                last_star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match last_star {
                // Let the newest star take one character more, and try again behind it.
                Some((star, taken)) => {
                    p = star + 1;
                    t = taken + 1;
                    last_star = Some((star, taken + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
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
}
