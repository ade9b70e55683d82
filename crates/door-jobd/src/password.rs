//! Passwords of daemons, including values that no client can match.

use windlass_program::Secret;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Password {
    Text(Secret),
    /// Set to something that is not text, such as `password = true`.
    NoText,
}

impl Password {
    pub(crate) fn new(text: impl Into<String>) -> Password {
        Password::Text(Secret::new(text))
    }

    pub(crate) fn reveal(&self) -> Option<&str> {
        match self {
            Password::Text(secret) => Some(secret.reveal()),
            Password::NoText => None,
        }
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        match self {
            Password::Text(secret) => secret.matches(text),
            Password::NoText => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_match_themselves_only_and_stay_hidden() {
        let password = Password::new("pass");
        assert!(password.matches("pass"));
        for other in ["", "pas", "passw", "Pass", "true"] {
            assert!(!password.matches(other), "{other}");
            assert!(!Password::NoText.matches(other), "{other}");
        }
        assert_eq!(format!("{password:?}"), "Text(Secret(hidden))");
        assert_eq!((password.reveal(), Password::NoText.reveal()), (Some("pass"), None));
    }
}
