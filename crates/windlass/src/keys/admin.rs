//! The first key: every daemon makes sure that there is an admin key, in its data directory.
//!
//! The file is written before the key is stored, so a crash in between leaves a file whose key is
//! not stored yet, and the next start stores it. Without the file (a restored backup has none) a
//! new key is made; keys that were made before stay in force until they are revoked. The audit has
//! an entry before a key is stored.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};

use windlass_core::KeyText;
use windlass_core::audit::{Subject, action};
use windlass_core::key::{NewKey, Owner, Role, Standing};
use windlass_engine::Engine;

/// In the data directory.
pub(crate) const FILE: &str = "admin.key";
/// Daemons that start at once on one data directory: all but one find the file of the first.
const TRIES_MAX: usize = 10;

pub(crate) fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

/// The key in the data directory, stored and in force unless it was revoked.
pub(crate) async fn ensure(engine: &Engine, data_dir: &Path) -> anyhow::Result<KeyText> {
    let path = path(data_dir);
    let text = read_or_make(&path)?;
    let owner = Owner { role: Role::Admin, tenant: None, name: FILE.to_owned() };
    let new = NewKey { id: text.id(), digest: text.digest(), owner, lifetime: None };
    let stored = async {
        if engine.key_find(text.id()).await?.is_none() {
            let subject = Subject { id: Some(text.id().to_string()), ..Subject::default() };
            engine.audit_note(super::act(action::ADMIN_KEY, subject)).await?;
        }
        engine.key_create(new).await
    };
    let key = stored.await.map_err(|error| {
        anyhow!("the admin key in {} cannot be stored: {error}", path.display())
    })?;
    if key.standing(engine.now()) != Standing::InForce {
        tracing::warn!(
            file = %path.display(),
            key = %key.id,
            "the admin key in this file is no longer in force; remove the file, and the next start \
             makes a new one"
        );
    }
    Ok(text)
}

fn read_or_make(path: &Path) -> anyhow::Result<KeyText> {
    for _ in 0..TRIES_MAX {
        let found = super::read(path).with_context(
            || "cannot use the admin key; if you remove the file, the next start makes a new one",
        )?;
        if let Some(text) = found {
            return Ok(text);
        }
        let text = KeyText::random().context("the operating system gives no random numbers")?;
        let made = super::create(path, &format!("{}\n", text.reveal()));
        if made.with_context(|| format!("cannot write {}", path.display()))? {
            let file = path.display();
            tracing::info!(%file, key = %text.id(), "made an admin key; it is in this file");
            return Ok(text);
        }
    }
    bail!("{} appears and disappears", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        let text = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), text);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn daemons_that_start_at_once_have_one_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        let keys: Vec<KeyText> = std::thread::scope(|scope| {
            let starts: Vec<_> =
                (0..8).map(|_| scope.spawn(|| read_or_make(&path).unwrap())).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn a_file_without_a_key_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path());
        std::fs::write(&path, "not a key").unwrap();
        let error = format!("{:#}", read_or_make(&path).unwrap_err());
        assert!(error.contains("admin.key holds no key") && error.contains("remove"), "{error}");
    }
}
