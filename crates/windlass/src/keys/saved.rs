//! The keys that a user has saved, by the URL of the daemon, in `keys.toml`:
//! `"http://127.0.0.1:7600" = "wl_…"`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use super::Places;

type Saved = BTreeMap<String, String>;

pub(crate) fn path(places: &Places) -> Option<PathBuf> {
    Some(places.config.as_ref()?.join("windlass/keys.toml"))
}

/// The key that is saved for a URL, which has no slash at its end.
pub(super) fn find(places: &Places, url: &str) -> anyhow::Result<Option<String>> {
    let Some(path) = path(places) else { return Ok(None) };
    Ok(load(&path)?.remove(url))
}

/// Saves a key in place of the one that was saved for this URL; returns where.
pub(crate) fn save(places: &Places, url: &str, key: &str) -> anyhow::Result<PathBuf> {
    let path =
        path(places).context("cannot save the key: neither XDG_CONFIG_HOME nor HOME is set")?;
    let mut saved = load(&path)?;
    saved.insert(url.to_owned(), key.to_owned());
    let text = toml::to_string(&saved).context("cannot write the keys as TOML")?;
    let parent = path.parent().unwrap_or(Path::new("."));
    super::make_dir(parent)
        .and_then(|()| super::replace(&path, &text))
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
        assert_eq!(find(&places, "http://a:1").unwrap(), None);
        for (url, key) in [("http://a:1", "wl_1"), ("http://b:1", "wl_2"), ("http://a:1", "wl_3")] {
            save(&places, url, key).unwrap();
        }
        assert_eq!(find(&places, "http://a:1").unwrap().as_deref(), Some("wl_3"));
        assert_eq!(find(&places, "http://b:1").unwrap().as_deref(), Some("wl_2"));
        assert_eq!(find(&places, "http://b:2").unwrap(), None);
        let mode = path(&places).unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_not_understood_is_named_without_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { config: Some(dir.path().into()), ..Places::default() };
        fs::create_dir(dir.path().join("windlass")).unwrap();
        for text in ["wl_secret", "[\"http://a\"]\nkey = \"wl_secret\"", "\"a\" = wl_secret"] {
            fs::write(path(&places).unwrap(), text).unwrap();
            let error = format!("{:#}", find(&places, "http://a:1").unwrap_err());
            assert!(error.contains("keys.toml") && !error.contains("wl_secret"), "{error}");
            assert!(save(&places, "http://a:1", "wl_1").is_err(), "nothing is lost");
        }
        assert!(save(&Places::default(), "http://a:1", "wl_1").is_err());
    }
}
