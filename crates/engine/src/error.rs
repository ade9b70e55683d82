//! The engine's errors, and how errors of its parts become them.

use windlass_core::edit::Refusal;
use windlass_core::maxima::Above;
use windlass_core::runner::NotCompiled;
use windlass_core::{Invalid, store};

/// One variant for each kind of answer that a door gives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// More than the operator allows.
    #[error(transparent)]
    Above(#[from] Above),
    /// What does not exist: `job`, `handler`, `key` or `secret`.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    #[error("{0}")]
    Conflict(String),
    /// An add reused the key of another add that is still remembered.
    #[error("this key was used within 24 hours for another type or body")]
    KeyReused,
    /// The caller's own decision refused.
    #[error(transparent)]
    Refused(Refusal),
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Internal(String),
}

/// The journal failed at something else than accepting jobs.
pub(crate) fn journal_error(error: windlass_journal::Error) -> Error {
    Error::Unavailable(error.to_string())
}

/// The journal could not make the jobs durable. They do not run, unless a sync has failed and the
/// machine stops before the next one: then they may be on the disk all the same.
pub(crate) fn storage_error(error: windlass_journal::Error) -> Error {
    Error::Unavailable(format!("the job was not accepted: {error}"))
}

pub(crate) fn compile_error(error: NotCompiled) -> Error {
    match error {
        NotCompiled::Invalid(invalid) => invalid.into(),
        NotCompiled::Busy(reason) => Error::Unavailable(reason),
    }
}

pub(crate) fn store_error(error: store::Error) -> Error {
    match error {
        store::Error::Conflict(why) => Error::Conflict(why),
        store::Error::Refused(refusal) => Error::Refused(refusal),
        store::Error::Unavailable(_) => Error::Unavailable(error.to_string()),
        store::Error::Corrupt(_) | store::Error::Internal(_) => Error::Internal(error.to_string()),
    }
}
