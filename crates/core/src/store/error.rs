//! Errors of a store, one variant for each reaction of the caller.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::edit::Refusal;
use crate::id::JobId;
use crate::sync::panic_text;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Refuse the request.
    #[error("{0}")]
    Conflict(String),
    /// Pass it on to the door that decided.
    #[error(transparent)]
    Refused(Refusal),
    /// Try again later.
    #[error("the store is not available: {0}")]
    Unavailable(#[source] Cause),
    /// Stop; an operator has to look at it.
    #[error("the store is damaged: {0}")]
    Corrupt(#[source] Cause),
    /// A defect of ours or of the store's driver.
    #[error("the store failed: {0}")]
    Internal(#[source] Cause),
}

impl Error {
    /// The store has not got the whole payload of a job that is to enter.
    pub fn pieces_missing(id: JobId) -> Error {
        Error::Unavailable(format!("pieces of the payload of job {id} are missing").into())
    }

    /// Runs foreign or complex code for one caller. A panic in it affects only that caller: it
    /// becomes an `Internal` that says what panicked.
    pub fn caught<T>(what: &str, work: impl FnOnce() -> T) -> Result<T, Error> {
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
            Error::Internal(format!("{what} panicked: {}", panic_text(&*panic)).into())
        })
    }
}

/// A description of what happened, with the driver's error as source if there is one.
#[derive(Debug, Clone)]
pub struct Cause {
    text: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Cause {
    pub fn new(text: impl Into<String>, source: impl StdError + Send + Sync + 'static) -> Cause {
        Cause { text: text.into(), source: Some(Arc::new(source)) }
    }
}

impl<T: Into<String>> From<T> for Cause {
    fn from(text: T) -> Cause {
        Cause { text: text.into(), source: None }
    }
}

impl Deref for Cause {
    type Target = str;
    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Causes are compared by their text.
impl PartialEq for Cause {
    fn eq(&self, other: &Cause) -> bool {
        self.text == other.text
    }
}

impl Eq for Cause {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_internal_error_that_says_what_and_why() {
        let text_of = |why: fn()| Error::caught("the decision", why).unwrap_err().to_string();
        assert_eq!(text_of(|| panic!("no {}", 7)), "the store failed: the decision panicked: no 7");
        assert!(text_of(|| panic!("plain")).ends_with("the decision panicked: plain"));
        assert_eq!(Error::caught("nothing", || 5), Ok(5));
    }

    #[test]
    fn the_drivers_own_error_is_found_behind_the_words() {
        let driver = std::io::Error::other("fsync: input/output error");
        let error = Error::Unavailable(Cause::new("the commit failed", driver));
        assert_eq!(error.to_string(), "the store is not available: the commit failed");
        let cause = error.source().and_then(StdError::source).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("fsync: input/output error"));
        let without_its_driver = Error::Unavailable("the commit failed".into());
        assert_eq!(error, without_its_driver, "causes are compared by their text");
        assert_ne!(error, Error::Unavailable("the disk is full".into()));
    }
}
