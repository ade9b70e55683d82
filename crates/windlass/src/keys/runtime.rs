//! The key of a running daemon, for commands of the same user: there while the daemon runs.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use windlass_core::KeyText;

/// Removed when it is dropped, unless another daemon has written its own.
#[derive(Debug)]
pub(crate) struct RuntimeKey {
    path: PathBuf,
    text: KeyText,
}

pub(super) fn path(runtime: &Path, address: SocketAddr) -> PathBuf {
    directory(runtime).join(format!("{address}.key"))
}

pub(crate) fn directory(runtime: &Path) -> PathBuf {
    runtime.join("windlass")
}

/// Commands work without it, with a key that they are given; so a failure is only logged.
pub(crate) fn publish(
    runtime: Option<&Path>,
    address: SocketAddr,
    text: &KeyText,
) -> Option<RuntimeKey> {
    let runtime = runtime?;
    let path = path(runtime, address);
    let written = super::make_dir(&directory(runtime))
        .and_then(|()| super::replace(&path, &format!("{}\n", text.reveal())));
    match written {
        Ok(()) => Some(RuntimeKey { path, text: text.clone() }),
        Err(error) => {
            let file = path.display();
            tracing::warn!(%file, %error, "commands will not find the key by themselves");
            None
        }
    }
}

impl Drop for RuntimeKey {
    fn drop(&mut self) {
        if super::read(&self.path).is_ok_and(|text| text.as_ref() == Some(&self.text)) {
            // Nothing can be done about a file that stays; its key is not sent to others (`find`).
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn address() -> SocketAddr {
        "127.0.0.1:7600".parse().unwrap()
    }

    #[test]
    fn it_is_there_while_the_daemon_runs() {
        let dir = tempfile::tempdir().unwrap();
        let text = KeyText::random().unwrap();
        let key = publish(Some(dir.path()), address(), &text).unwrap();
        let path = dir.path().join("windlass/127.0.0.1:7600.key");
        assert_eq!(crate::keys::read(&path).unwrap(), Some(text));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        drop(key);
        assert!(!path.exists());
    }

    #[test]
    fn the_key_of_a_successor_stays() {
        let dir = tempfile::tempdir().unwrap();
        let texts = [KeyText::random().unwrap(), KeyText::random().unwrap()];
        let old = publish(Some(dir.path()), address(), &texts[0]).unwrap();
        let new = publish(Some(dir.path()), address(), &texts[1]).unwrap();
        drop(old);
        assert!(new.path.exists());
    }

    #[test]
    fn without_a_directory_there_is_none() {
        let text = KeyText::random().unwrap();
        assert!(publish(None, address(), &text).is_none());
        let missing = tempfile::tempdir().unwrap().path().join("file");
        std::fs::create_dir_all(missing.parent().unwrap()).unwrap();
        std::fs::write(&missing, "").unwrap();
        assert!(publish(Some(&missing), address(), &text).is_none());
        std::fs::remove_dir_all(missing.parent().unwrap()).unwrap();
    }
}
