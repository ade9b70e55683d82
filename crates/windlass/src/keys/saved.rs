//! The keys that a user has saved, by the URL of the daemon, in `keys.toml`:
//! `"http://127.0.0.1:7600" = "wl_…"`, or with files for TLS a table: `key`, `ca`, `cert`,
//! `cert_key`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use serde::{Deserialize, Serialize};

use super::{Login, Places};

type Saved = BTreeMap<String, Entry>;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Entry {
    Key(String),
    Table(Table),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    key: Option<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    cert_key: Option<PathBuf>,
}

impl From<Entry> for Login {
    fn from(entry: Entry) -> Login {
        match entry {
            Entry::Key(key) => Login::with_key(key),
            Entry::Table(Table { key, ca, cert, cert_key }) => {
                Login { key, ca, cert, cert_key, pinned: None }
            }
        }
    }
}

impl From<Login> for Entry {
    fn from(login: Login) -> Entry {
        match login {
            Login { key: Some(key), ca: None, cert: None, .. } => Entry::Key(key),
            Login { key, ca, cert, cert_key, .. } => {
                Entry::Table(Table { key, ca, cert, cert_key })
            }
        }
    }
}

pub(crate) fn path(places: &Places) -> Option<PathBuf> {
    Some(places.config.as_ref()?.join("windlass/keys.toml"))
}

/// What is saved for a URL, which has no slash at its end.
pub(super) fn find(places: &Places, url: &str) -> anyhow::Result<Login> {
    let Some(path) = path(places) else { return Ok(Login::default()) };
    Ok(load(&path)?.remove(url).map(Login::from).unwrap_or_default())
}

/// Saves this in place of what was saved for this URL; returns where.
pub(crate) fn save(places: &Places, url: &str, login: &Login) -> anyhow::Result<PathBuf> {
    let path =
        path(places).context("cannot save the key: neither XDG_CONFIG_HOME nor HOME is set")?;
    let mut saved = load(&path)?;
    saved.insert(url.to_owned(), login.clone().with_absolute_paths()?.into());
    // As a value first: tables have to come last.
    let text = toml::Value::try_from(&saved).and_then(|saved| toml::to_string(&saved));
    let text = text.context("cannot write the keys as TOML")?;
    let parent = path.parent().unwrap_or(Path::new("."));
    super::make_dir(parent)
        .and_then(|()| super::replace(&path, text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn load(path: &Path) -> anyhow::Result<Saved> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Saved::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    // The parser's own message would show the line, and with it a key.
    toml::from_str(&text).map_err(|_| {
        anyhow!("{} is not a list of lines such as \"http://HOST:PORT\" = \"KEY\"", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_found_by_the_url_for_which_it_was_saved() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { config: Some(dir.path().join("config")), ..Places::default() };
        let find = |url| find(&places, url).unwrap();
        assert_eq!(find("http://a:1"), Login::default());
        for (url, key) in [("http://a:1", "wl_1"), ("http://b:1", "wl_2"), ("http://a:1", "wl_3")] {
            save(&places, url, &Login::with_key(key.into())).unwrap();
        }
        assert_eq!(find("http://a:1").key.as_deref(), Some("wl_3"));
        assert_eq!(find("http://b:1").key.as_deref(), Some("wl_2"));
        assert_eq!(find("http://b:2").key, None);
        let mode = path(&places).unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn files_for_tls_are_saved_with_their_key() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { config: Some(dir.path().into()), ..Places::default() };
        let login = Login {
            ca: Some("/ca.pem".into()),
            cert: Some("/c.pem".into()),
            cert_key: Some("/c.key".into()),
            ..Login::with_key("wl_1".into())
        };
        // Tables stay behind the plain keys.
        for (url, login) in [
            ("https://a:1", &login),
            ("https://b:1", &Login::with_key("wl_2".into())),
            ("https://c:1", &Login { ca: Some("ca.pem".into()), ..Login::default() }),
        ] {
            save(&places, url, login).unwrap();
        }
        assert_eq!(find(&places, "https://a:1").unwrap(), login);
        assert_eq!(find(&places, "https://b:1").unwrap().key.as_deref(), Some("wl_2"));
        let ca = find(&places, "https://c:1").unwrap().ca.unwrap();
        assert!(ca.is_absolute() && ca.ends_with("ca.pem"));
    }

    #[test]
    fn a_file_that_is_not_understood_is_named_without_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { config: Some(dir.path().into()), ..Places::default() };
        fs::create_dir(dir.path().join("windlass")).unwrap();
        for text in ["wl_secret", "[\"http://a\"]\nkee = \"wl_secret\"", "\"a\" = wl_secret"] {
            fs::write(path(&places).unwrap(), text).unwrap();
            let error = format!("{:#}", find(&places, "http://a:1").unwrap_err());
            assert!(error.contains("keys.toml") && !error.contains("wl_secret"), "{error}");
            assert!(save(&places, "http://a:1", &Login::default()).is_err(), "nothing is lost");
        }
        assert!(save(&Places::default(), "http://a:1", &Login::default()).is_err());
    }
}
