//! Errors of the database, grouped by what the caller can do.

use std::time::Duration;

use mongodb::error::{Error, ErrorKind, WriteFailure};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DbError {
    /// The server cannot be reached or does not answer. The change may or may not have been made;
    /// it can be retried later.
    #[error("the database cannot be reached: {0}")]
    Away(String),
    /// The server refused. A retry will not help.
    #[error("the database refused: {0}")]
    Refused(String),
    /// Such a document already exists.
    #[error("there is one already: {0}")]
    Duplicate(String),
}

impl DbError {
    pub(super) fn unanswered(time_max: Duration) -> Self {
        Self::Away(format!("no answer within {} seconds", time_max.as_secs()))
    }
}

/// Server error: the value already exists in a unique index.
const DUPLICATE_KEY: i32 = 11000;

/// Server errors that pass: shutting down, stepping down, too busy.
const PASSING: [i32; 15] =
    [6, 7, 50, 89, 91, 134, 189, 262, 9001, 10058, 10107, 11600, 11602, 13435, 13436];

impl From<Error> for DbError {
    fn from(error: Error) -> Self {
        // Without the labels, which are meant for drivers.
        let text = error.kind.to_string();
        match &*error.kind {
            ErrorKind::Io(_)
            | ErrorKind::ServerSelection { .. }
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::Shutdown => Self::Away(text),
            // It was done, but a failover may undo it.
            ErrorKind::Write(WriteFailure::WriteConcernError(_)) => Self::Away(text),
            ErrorKind::InsertMany(error) if error.write_errors.is_none() => Self::Away(text),
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
        ErrorKind::InsertMany(error) => {
            error.write_errors.as_ref().and_then(|errors| errors.first()).map(|error| error.code)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Document, deserialize_from_document, doc};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(error: Document) -> T {
        deserialize_from_document(error).unwrap()
    }

    fn command(code: i32) -> ErrorKind {
        ErrorKind::Command(read(doc! { "code": code, "errmsg": "x" }))
    }

    fn many(code: i32) -> ErrorKind {
        let writes = [doc! { "index": 0, "code": code, "errmsg": "x" }];
        ErrorKind::InsertMany(read(doc! { "writeErrors": writes }))
    }

    fn unsure(code: i32) -> [ErrorKind; 2] {
        let error = doc! { "code": code, "errmsg": "x" };
        let one = ErrorKind::Write(WriteFailure::WriteConcernError(read(error.clone())));
        [one, ErrorKind::InsertMany(read(doc! { "writeConcernError": error }))]
    }

    fn is_away(kind: ErrorKind) -> bool {
        matches!(DbError::from(Error::from(kind)), DbError::Away(_))
    }

    #[test]
    fn a_server_that_is_not_the_first_any_more_is_away() {
        for code in [91, 134, 189, 10058, 10107, 11600, 11602, 13435, 13436] {
            assert!(is_away(command(code)) && is_away(many(code)), "{code}");
        }
        for code in [2, 13, 10334] {
            assert!(!is_away(command(code)) && !is_away(many(code)), "{code}");
        }
    }

    /// It was done, but a failover may undo it; a retry shows which.
    #[test]
    fn what_may_not_last_is_to_be_asked_again() {
        for code in [64, 91, 100, 11602] {
            assert_eq!(unsure(code).map(is_away), [true, true], "{code}");
        }
        let both = doc! {
            "writeErrors": [{ "index": 0, "code": 2, "errmsg": "x" }],
            "writeConcernError": { "code": 64, "errmsg": "x" },
        };
        assert!(!is_away(ErrorKind::InsertMany(read(both))));
        assert!(matches!(DbError::from(Error::from(many(11000))), DbError::Duplicate(_)));
    }
}
