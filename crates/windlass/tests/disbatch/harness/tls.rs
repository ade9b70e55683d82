//! Self-signed certificates for the loopback address.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

pub(crate) struct Certificate {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// A new one in this folder.
    pub(crate) fn new(folder: &Path) -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let one = Self { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        fs::write(&one.cert, made.cert.pem()).unwrap();
        fs::write(&one.key, made.signing_key.serialize_pem()).unwrap();
        fs::set_permissions(&one.key, fs::Permissions::from_mode(0o600)).unwrap();
        one
    }

    /// The value of `tls` in a config.
    pub(crate) fn config(&self) -> Value {
        json!({"cert": self.cert, "key": self.key})
    }
}
