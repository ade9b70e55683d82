//! Where the jobs are: in a file of the embedded store, or in a database server.

use std::fmt;
use std::path::{Path, PathBuf};

/// A URL may contain a password, so it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum StorePlace {
    File(PathBuf),
    Postgres(String),
}

const POSTGRES: [&str; 2] = ["postgres://", "postgresql://"];
const PLANNED: [&str; 4] = ["mariadb", "mongodb", "mongodb+srv", "mysql"];

impl StorePlace {
    /// The error is the value as it may be shown: of another URL, only its scheme.
    pub(super) fn read(text: &str) -> Result<StorePlace, String> {
        if POSTGRES.iter().any(|scheme| text.starts_with(scheme)) {
            return Ok(StorePlace::Postgres(text.to_owned()));
        }
        let Some(path) = text.strip_prefix("sqlite:") else {
            return Err(match text.split_once(':') {
                Some((scheme, _)) if PLANNED.contains(&scheme) => {
                    format!("'{scheme}:…', which is not available yet")
                }
                Some((scheme, _)) => super::kind::shown(&format!("{scheme}:…")),
                None => "a value without a scheme".into(),
            });
        };
        let path = path.strip_prefix("//").unwrap_or(path);
        match path.is_empty() {
            true => Err("'sqlite:' without a path".into()),
            false => Ok(StorePlace::File(path.into())),
        }
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            StorePlace::File(path) => Some(path),
            StorePlace::Postgres(_) => None,
        }
    }
}

impl fmt::Debug for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorePlace::File(path) => write!(f, "{path:?}"),
            StorePlace::Postgres(_) => f.write_str("postgres://…"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_a_file_or_a_server() {
        for (text, path) in [
            ("sqlite:/var/x.db", "/var/x.db"),
            ("sqlite:///var/x.db", "/var/x.db"),
            ("sqlite:x.db", "x.db"),
        ] {
            assert_eq!(StorePlace::read(text), Ok(StorePlace::File(path.into())));
        }
        for url in ["postgres://user:secret@host/db", "postgresql:///db"] {
            let place = StorePlace::read(url).unwrap();
            assert_eq!(place, StorePlace::Postgres(url.into()));
            assert!(place.file().is_none() && !format!("{place:?}").contains("secret"));
        }
    }

    #[test]
    fn a_store_that_does_not_exist_is_refused_without_its_password() {
        let refused = StorePlace::read("mysql://user:secret@host/db").unwrap_err();
        assert!(refused.contains("mysql") && !refused.contains("secret"), "{refused}");
        assert!(!StorePlace::read("user-secret").unwrap_err().contains("secret"));
        assert!(StorePlace::read("sqlite:").is_err());
    }
}
