//! Where a value came from, and the error for a wrong value.

use std::fmt;
use std::path::PathBuf;

use super::key::Key;

/// Where a value came from, as the user knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Flag(String),
    Environment(String),
    /// With the line, from 1.
    File(PathBuf, usize),
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag(name) | Source::Environment(name) => f.write_str(name),
            Source::File(path, line) => write!(f, "{}, line {line}", path.display()),
            Source::Default => f.write_str("the default"),
        }
    }
}

/// One sentence: what is wrong and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error {
    sentence: String,
    /// The value came from the command line, so this is wrong usage (exit code 2).
    pub(crate) by_flag: bool,
}

impl Error {
    pub(super) fn value(key: &Key, source: &Source, given: &str) -> Error {
        let accepted = key.kind.accepted();
        Error::rule(source, &format!("{} takes {accepted}, not {given}", key.name))
    }

    pub(super) fn rule(source: &Source, rule: &str) -> Error {
        let by_flag = matches!(source, Source::Flag(_));
        Error { sentence: format!("{source}: {rule}"), by_flag }
    }

    pub(super) fn file(sentence: String) -> Error {
        Error { sentence, by_flag: false }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Error {}
