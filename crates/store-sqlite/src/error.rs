//! The only place that knows SQLite's error codes: it translates them into what callers can do.

use std::path::Path;

use rusqlite::ErrorCode;
use windlass_core::JobId;
use windlass_core::file_name::FileName;
use windlass_core::store::{Cause, Error};

/// An error inside this crate, before it is translated for the caller.
#[derive(Debug)]
pub(crate) enum Failure {
    Sqlite(rusqlite::Error),
    Store(Error),
    /// A new lease has a smaller token than the job has had; the tokens of a job must grow.
    LargerToken(JobId),
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::Sqlite(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

impl Failure {
    /// A row that Windlass cannot have written.
    pub(crate) fn corrupt(what: impl Into<String>) -> Failure {
        Failure::Store(Error::Corrupt(what.into().into()))
    }

    /// Whether only one row is damaged, and the rest of the file can be read.
    pub(crate) fn is_of_one_row(&self) -> bool {
        match self {
            Failure::Store(error) => matches!(error, Error::Corrupt(_)),
            Failure::Sqlite(error) => is_unreadable(error),
            Failure::LargerToken(_) => false,
        }
    }

    pub(crate) fn translate(self, path: &Path) -> Error {
        match self {
            Failure::Store(error) => error,
            Failure::Sqlite(error) => translate(error, path),
            Failure::LargerToken(id) => {
                Error::Conflict(format!("job {id} had a larger token before"))
            }
        }
    }
}

/// The error of every call after the store was closed.
pub(crate) fn closed() -> Error {
    Error::Unavailable("it was closed".into())
}

fn translate(error: rusqlite::Error, path: &Path) -> Error {
    let file = FileName(path);
    let plain = format!("{file}: {error}");
    let rusqlite::Error::SqliteFailure(code, _) = &error else {
        return match is_unreadable(&error) {
            true => Error::Corrupt(Cause::new(plain, error)),
            false => Error::Internal(Cause::new(plain, error)),
        };
    };
    let unavailable = match code.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            format!("another process holds the lock of {file}")
        }
        ErrorCode::DiskFull => format!("the disk of {file} is full"),
        ErrorCode::SystemIoFailure => format!("reading or writing {file} failed: {error}"),
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
            // The message of this error shows the whole path.
            format!("{file} cannot be opened: {code}")
        }
        ErrorCode::ReadOnly => format!("{file} cannot be written: {error}"),
        ErrorCode::OutOfMemory | ErrorCode::FileLockingProtocolFailed => plain,
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            return Error::Corrupt(Cause::new(plain, error));
        }
        _ => return Error::Internal(Cause::new(plain, error)),
    };
    Error::Unavailable(Cause::new(unavailable, error))
}

/// A value that Windlass cannot have written, or a missing row that another row refers to.
fn is_unreadable(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::QueryReturnedNoRows
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn told(code: std::ffi::c_int) -> Error {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        Failure::from(error).translate(Path::new("/var/private/jobs.db"))
    }

    #[test]
    fn what_passes_by_itself_is_unavailable_and_names_the_file() {
        let passing = [
            ffi::SQLITE_BUSY,
            ffi::SQLITE_LOCKED,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_FULL,
            ffi::SQLITE_CANTOPEN,
        ];
        for code in passing {
            let Error::Unavailable(message) = told(code) else { panic!("{:?}", told(code)) };
            assert!(message.contains("jobs.db") && !message.contains("private"), "{message}");
        }
        assert!(told(ffi::SQLITE_FULL).to_string().contains("full"));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named_without_its_directory() {
        let path = Path::new("/nowhere/private/jobs.db");
        let error = rusqlite::Connection::open(path).unwrap_err();
        let message = Failure::from(error).translate(path).to_string();
        assert!(message.contains("jobs.db") && !message.contains("private"), "{message}");
    }

    #[test]
    fn damage_is_told_from_defects() {
        assert!(matches!(told(ffi::SQLITE_CORRUPT), Error::Corrupt(_)));
        assert!(matches!(told(ffi::SQLITE_NOTADB), Error::Corrupt(_)));
        assert!(matches!(told(ffi::SQLITE_CONSTRAINT), Error::Internal(_)));
        assert!(matches!(told(ffi::SQLITE_MISUSE), Error::Internal(_)));
    }
}
