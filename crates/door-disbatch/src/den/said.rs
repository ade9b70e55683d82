//! What was told to the operator, so that each change is told once and not each second.

use std::collections::HashMap;

/// Subjects that are remembered; with more of them all is told once more.
const SUBJECTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Said(HashMap<String, String>);

impl Said {
    /// Whether this is news about the subject.
    pub(crate) fn is_news(&mut self, subject: &str, text: &str) -> bool {
        if self.0.get(subject).is_some_and(|said| said == text) {
            return false;
        }
        if self.0.len() >= SUBJECTS_MAX {
            self.0.clear();
        }
        self.0.insert(subject.to_owned(), text.to_owned());
        true
    }

    /// The subject is as it should be. Whether something else was told before.
    pub(crate) fn is_over(&mut self, subject: &str) -> bool {
        self.0.remove(subject).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once() {
        let mut said = Said::default();
        assert!(said.is_news("a", "x"));
        assert!(!said.is_news("a", "x"));
        assert!(said.is_news("b", "x"));
        assert!(said.is_news("a", "y"));
        assert!(said.is_over("a"));
        assert!(!said.is_over("a"));
        assert!(said.is_news("a", "y"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut said = Said::default();
        for subject in 0..=SUBJECTS_MAX {
            assert!(said.is_news(&subject.to_string(), "x"));
        }
        assert!(said.0.len() <= SUBJECTS_MAX);
    }
}
