//! What can go wrong with the database, by what a caller can do about it.

use std::time::Duration;

use mongodb::error::{Error, ErrorKind, WriteFailure};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DbError {
    /// The server cannot be reached or does not answer. The change may or may not have been made;
    /// asking again later is right.
    #[error("the database cannot be reached: {0}")]
    Away(String),
    /// The server answered, and will not do it: asking again is no use.
    #[error("the database refused: {0}")]
    Refused(String),
    /// There is such a document already.
    #[error("there is one already: {0}")]
    Duplicate(String),
}

impl DbError {
    pub(super) fn unanswered(time_max: Duration) -> Self {
        Self::Away(format!("no answer within {} seconds", time_max.as_secs()))
    }
}

/// The server's number for a value that a unique index has already.
const DUPLICATE_KEY: i32 = 11000;

/// Servers that stop, step down or are too busy: another answer may come later.
const PASSING: [i32; 12] = [6, 7, 50, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13436];

impl From<Error> for DbError {
    fn from(error: Error) -> Self {
        // Without the labels, which only drivers read.
        let text = error.kind.to_string();
        match &*error.kind {
            ErrorKind::Io(_)
            | ErrorKind::ServerSelection { .. }
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::Shutdown => Self::Away(text),
            _ => match code(&error) {
                Some(DUPLICATE_KEY) => Self::Duplicate(text),
                Some(code) if PASSING.contains(&code) => Self::Away(text),
                _ => Self::Refused(text),
            },
        }
    }
}

fn code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => Some(error.code),
        ErrorKind::InsertMany(error) => {
            error.write_errors.as_ref().and_then(|errors| errors.first()).map(|error| error.code)
        }
        _ => None,
    }
}
