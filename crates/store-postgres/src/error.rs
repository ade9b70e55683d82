//! The only place that knows PostgreSQL's error codes: it translates them into what callers can do.

use std::error::Error as StdError;

use tokio_postgres::error::{DbError, SqlState};
use windlass_core::JobId;
use windlass_core::store::{Cause, Error};

/// An error inside this crate, before it is translated for the caller.
#[derive(Debug)]
pub(crate) enum Failure {
    Postgres(tokio_postgres::Error),
    Store(Error),
    /// A new lease has a smaller token than the job has had; the tokens of a job must grow.
    LargerToken(JobId),
    /// Another transaction moved a job that this one had read; the whole transaction runs again.
    Moved,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        Failure::Postgres(error)
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

    pub(crate) fn conflict(what: impl Into<String>) -> Failure {
        Failure::Store(Error::Conflict(what.into()))
    }

    pub(crate) fn unavailable(what: impl Into<String>) -> Failure {
        Failure::Store(Error::Unavailable(what.into().into()))
    }

    /// Whether only one row is damaged, and the others can be read.
    pub(crate) fn is_of_one_row(&self) -> bool {
        match self {
            Failure::Store(error) => matches!(error, Error::Corrupt(_)),
            Failure::Postgres(error) => is_unreadable(error),
            Failure::LargerToken(_) | Failure::Moved => false,
        }
    }

    /// Whether the transaction only lost against another one: it changed nothing, and runs again.
    pub(crate) fn is_passing_clash(&self) -> bool {
        match self {
            Failure::Postgres(error) => error.code().is_some_and(|code| CLASHES.contains(&code)),
            Failure::Moved => true,
            Failure::Store(_) | Failure::LargerToken(_) => false,
        }
    }

    /// `server` names the server and the database, without a password.
    pub(crate) fn translate(self, server: &str) -> Error {
        match self {
            Failure::Store(error) => error,
            Failure::Postgres(error) => translate(error, server),
            Failure::LargerToken(id) => {
                Error::Conflict(format!("job {id} had a larger token before"))
            }
            Failure::Moved => {
                Error::Unavailable(format!("{server}: the jobs are changed by others").into())
            }
        }
    }
}

/// A lock that is held for too long is none of them: the call has waited for it long enough.
const CLASHES: [&SqlState; 2] =
    [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];

/// The error of every call after the store was closed.
pub(crate) fn closed() -> Error {
    Error::Unavailable("it was closed".into())
}

fn translate(error: tokio_postgres::Error, server: &str) -> Error {
    let Some(refusal) = error.as_db_error() else {
        let text = format!("{server}: {}", with_sources(&error));
        return if is_unreadable(&error) {
            Error::Corrupt(Cause::new(text, error))
        } else if begins(&error, &DEFECTS) {
            Error::Internal(Cause::new(text, error))
        } else {
            // A connection that ended, did not come about or makes no sense.
            Error::Unavailable(Cause::new(text, error))
        };
    };
    let text = match sentence(refusal) {
        Some(sentence) => format!("{server}: {sentence} ({})", refusal.message()),
        None => format!("{server}: {} (SQLSTATE {})", refusal.message(), refusal.code().code()),
    };
    let damaged = [&SqlState::DATA_CORRUPTED, &SqlState::INDEX_CORRUPTED];
    if damaged.contains(&refusal.code()) {
        Error::Corrupt(Cause::new(text, error))
    } else if passes(refusal.code()) {
        Error::Unavailable(Cause::new(text, error))
    } else {
        Error::Internal(Cause::new(text, error))
    }
}

/// Classes of errors that pass, some of them once an operator has acted: connections,
/// authorization, transactions that lost against others, resources, operator intervention, system
/// errors.
const PASSING: [&str; 6] = ["08", "28", "40", "53", "57", "58"];

/// Single codes of other classes.
const PASSING_ALONE: [&SqlState; 4] = [
    &SqlState::READ_ONLY_SQL_TRANSACTION,
    &SqlState::LOCK_NOT_AVAILABLE,
    &SqlState::INVALID_CATALOG_NAME,
    &SqlState::INSUFFICIENT_PRIVILEGE,
];

fn passes(code: &SqlState) -> bool {
    PASSING.iter().any(|class| code.code().starts_with(class)) || PASSING_ALONE.contains(&code)
}

/// What an operator needs to know, for the codes that occur in practice.
fn sentence(refusal: &DbError) -> Option<&'static str> {
    const SENTENCES: [(&SqlState, &str); 15] = [
        (&SqlState::INVALID_PASSWORD, "the password is wrong"),
        (&SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "the server does not admit this user"),
        (&SqlState::INVALID_CATALOG_NAME, "there is no such database; create it first"),
        (&SqlState::INSUFFICIENT_PRIVILEGE, "the user lacks a right"),
        (&SqlState::READ_ONLY_SQL_TRANSACTION, "the server is read-only"),
        (&SqlState::TOO_MANY_CONNECTIONS, "the server has no connection to spare"),
        (&SqlState::DISK_FULL, "the disk of the server is full"),
        (&SqlState::OUT_OF_MEMORY, "the server is out of memory"),
        (&SqlState::ADMIN_SHUTDOWN, "the server is being stopped"),
        (&SqlState::CRASH_SHUTDOWN, "a process of the server crashed"),
        (&SqlState::CANNOT_CONNECT_NOW, "the server is starting or stopping"),
        (&SqlState::QUERY_CANCELED, "the server took too long"),
        (&SqlState::LOCK_NOT_AVAILABLE, "another transaction holds a lock for too long"),
        (&SqlState::T_R_DEADLOCK_DETECTED, "transactions kept waiting for each other"),
        (&SqlState::T_R_SERIALIZATION_FAILURE, "other transactions kept changing the same rows"),
    ];
    let known = SENTENCES.iter().find(|(code, _)| *code == refusal.code());
    known.map(|(_, sentence)| *sentence)
}

/// The driver's own text says little; the reason is in its sources.
pub(crate) fn with_sources(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// A value that Windlass cannot have written, or a missing row that another row refers to.
fn is_unreadable(error: &tokio_postgres::Error) -> bool {
    begins(error, &UNREADABLE)
}

/// The driver tells its kinds of errors apart only by their texts.
fn begins(error: &tokio_postgres::Error, texts: &[&str]) -> bool {
    let text = error.to_string();
    texts.iter().any(|start| text.starts_with(start))
}

const UNREADABLE: [&str; 2] =
    ["error deserializing column", "query returned an unexpected number of rows"];
/// Statements and parameters that do not fit each other.
const DEFECTS: [&str; 5] = [
    "error serializing parameter",
    "error encoding message",
    "invalid column",
    "expected ",
    "query returned an unexpected number of columns",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn code(code: &str) -> SqlState {
        SqlState::from_code(code)
    }

    #[test]
    fn what_passes_by_itself_is_told_from_defects() {
        let passing = [
            "08006", "25006", "28P01", "3D000", "40001", "40P01", "42501", "53100", "53300",
            "55P03", "57014", "57P01", "57P02", "57P03", "58030",
        ];
        for passing in passing {
            assert!(passes(&code(passing)), "{passing}");
        }
        for defect in ["22P02", "23505", "42601", "42P01", "XX000"] {
            assert!(!passes(&code(defect)), "{defect}");
        }
    }

    #[test]
    fn a_transaction_that_lost_against_another_one_runs_again() {
        for clash in ["40001", "40P01"] {
            assert!(CLASHES.contains(&&code(clash)), "{clash}");
        }
        assert!(!CLASHES.contains(&&code("55P03")), "it has waited already");
        assert!(Failure::Moved.is_passing_clash());
        assert!(!Failure::conflict("no").is_passing_clash());
        let told = Failure::Moved.translate("the server");
        assert!(matches!(told, Error::Unavailable(_)), "after the last time: {told:?}");
    }

    #[test]
    fn only_damage_of_one_row_is_passed_over() {
        assert!(Failure::corrupt("a row").is_of_one_row());
        assert!(!Failure::unavailable("away").is_of_one_row());
        assert!(!Failure::Moved.is_of_one_row());
    }

    #[test]
    fn the_reason_behind_an_error_of_the_driver_is_told() {
        let error = "postgres://h?colour=red".parse::<tokio_postgres::Config>().unwrap_err();
        assert_eq!(with_sources(&error), "invalid connection string: unknown option `colour`");
    }
}
