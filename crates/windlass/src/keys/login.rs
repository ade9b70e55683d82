//! What a command shows a daemon, and how it knows the daemon.

use std::io;
use std::path::{Path, PathBuf};

/// Each part may be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) key: Option<String>,
    /// The authorities in this file are trusted instead of those of the platform.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate of the client.
    pub(crate) cert: Option<PathBuf>,
    /// The key of that certificate, unless it is in the same file.
    pub(crate) cert_key: Option<PathBuf>,
    /// The certificate of a daemon of the same user on this machine, in DER. Only this one is
    /// accepted, whatever names it is for.
    pub(crate) pinned: Option<Vec<u8>>,
}

impl Login {
    pub(crate) fn with_key(key: String) -> Login {
        Login { key: Some(key), ..Login::default() }
    }

    /// What is missing here comes from the other.
    pub(crate) fn or(self, other: Login) -> Login {
        let (cert, cert_key) = match self.cert {
            Some(cert) => (Some(cert), self.cert_key),
            None => (other.cert, other.cert_key),
        };
        Login {
            key: self.key.or(other.key),
            ca: self.ca.or(other.ca),
            cert,
            cert_key,
            pinned: self.pinned.or(other.pinned),
        }
    }

    /// The same files, from any working directory.
    pub(crate) fn with_absolute_paths(self) -> io::Result<Login> {
        let absolute =
            |file: Option<PathBuf>| file.as_deref().map(|file: &Path| std::path::absolute(file));
        Ok(Login {
            ca: absolute(self.ca).transpose()?,
            cert: absolute(self.cert).transpose()?,
            cert_key: absolute(self.cert_key).transpose()?,
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_and_its_key_stay_together() {
        let given = Login { cert: Some("a".into()), ..Login::default() };
        let saved = Login {
            key: Some("wl_1".into()),
            cert: Some("b".into()),
            cert_key: Some("c".into()),
            ..Login::default()
        };
        let both = given.or(saved.clone());
        assert_eq!((both.cert, both.cert_key), (Some("a".into()), None));
        assert_eq!(both.key.as_deref(), Some("wl_1"));
        assert_eq!(Login::default().or(saved.clone()), saved);
    }
}
