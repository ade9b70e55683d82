//! Logs each change of a subject once, and not at every pass.

use std::collections::HashMap;

/// Maximum number of subjects; beyond it, everything is logged once more.
const SUBJECTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct LogOnce(HashMap<String, String>);

impl LogOnce {
    /// Whether this text is new for the subject.
    pub(crate) fn is_news(&mut self, subject: &str, text: &str) -> bool {
        if self.0.get(subject).is_some_and(|logged| logged == text) {
            return false;
        }
        if self.0.len() >= SUBJECTS_MAX {
            self.0.clear();
        }
        self.0.insert(subject.to_owned(), text.to_owned());
        true
    }

    /// The subject is fine again. Returns whether a problem had been logged.
    pub(crate) fn is_over(&mut self, subject: &str) -> bool {
        self.0.remove(subject).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once() {
        let mut logged = LogOnce::default();
        assert!(logged.is_news("a", "x"));
        assert!(!logged.is_news("a", "x"));
        assert!(logged.is_news("b", "x"));
        assert!(logged.is_news("a", "y"));
        assert!(logged.is_over("a"));
        assert!(!logged.is_over("a"));
        assert!(logged.is_news("a", "y"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut logged = LogOnce::default();
        for subject in 0..=SUBJECTS_MAX {
            assert!(logged.is_news(&subject.to_string(), "x"));
        }
        assert!(logged.0.len() <= SUBJECTS_MAX);
    }
}
