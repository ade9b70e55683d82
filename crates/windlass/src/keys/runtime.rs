//! The key of a running daemon, and its certificate if it speaks TLS, for commands of the same
//! user: there while the daemon runs.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use windlass_core::KeyText;

/// Removed when it is dropped, unless another daemon has written its own.
pub(crate) struct RuntimeFile {
    path: PathBuf,
    contents: Vec<u8>,
}

pub(super) fn key_path(runtime: &Path, address: SocketAddr) -> PathBuf {
    directory(runtime).join(format!("{address}.key"))
}

/// The certificate, in DER.
pub(super) fn certificate_path(runtime: &Path, address: SocketAddr) -> PathBuf {
    directory(runtime).join(format!("{address}.der"))
}

pub(crate) fn directory(runtime: &Path) -> PathBuf {
    runtime.join("windlass")
}

/// The addresses under which a daemon may have left files that answers at this one: the same, or
/// all addresses of the machine.
pub(super) fn addresses(address: SocketAddr) -> [SocketAddr; 3] {
    let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    [address.ip(), all[0], all[1]].map(|ip| SocketAddr::new(ip, address.port()))
}

/// Removes what a killed daemon has left. Nothing else listens at an address that is bound here.
pub(crate) fn clear(runtime: Option<&Path>, bound: SocketAddr) {
    let Some(runtime) = runtime else { return };
    let mut stale = addresses(bound).to_vec();
    if bound.ip().is_unspecified() {
        let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        stale.extend(loopback.map(|ip| SocketAddr::new(ip, bound.port())));
    }
    for address in stale {
        for path in [key_path(runtime, address), certificate_path(runtime, address)] {
            // Most are not there.
            let _ = fs::remove_file(path);
        }
    }
}

pub(crate) fn publish_key(
    runtime: Option<&Path>,
    address: SocketAddr,
    text: &KeyText,
) -> Option<RuntimeFile> {
    let path = key_path(runtime?, address);
    publish(runtime?, path, format!("{}\n", text.reveal()).into())
}

pub(crate) fn publish_certificate(
    runtime: Option<&Path>,
    address: SocketAddr,
    certificate: Vec<u8>,
) -> Option<RuntimeFile> {
    let path = certificate_path(runtime?, address);
    publish(runtime?, path, certificate)
}

/// Commands work without it, with what they are given; so a failure is only logged.
fn publish(runtime: &Path, path: PathBuf, contents: Vec<u8>) -> Option<RuntimeFile> {
    let written =
        super::make_dir(&directory(runtime)).and_then(|()| super::replace(&path, &contents));
    match written {
        Ok(()) => Some(RuntimeFile { path, contents }),
        Err(error) => {
            let file = path.display();
            tracing::warn!(%file, %error, "commands will not find this file by themselves");
            None
        }
    }
}

impl RuntimeFile {
    pub(crate) fn has(&self, contents: &[u8]) -> bool {
        self.contents == contents
    }
}

impl Drop for RuntimeFile {
    fn drop(&mut self) {
        if fs::read(&self.path).is_ok_and(|contents| contents == self.contents) {
            // Nothing can be done about a file that stays; it is not used for others (`find`).
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
        let key = publish_key(Some(dir.path()), address(), &text).unwrap();
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
        let old = publish_key(Some(dir.path()), address(), &texts[0]).unwrap();
        let new = publish_key(Some(dir.path()), address(), &texts[1]).unwrap();
        drop(old);
        assert!(new.path.exists());
    }

    #[test]
    fn a_certificate_is_there_as_long() {
        let dir = tempfile::tempdir().unwrap();
        let published = publish_certificate(Some(dir.path()), address(), b"one".to_vec()).unwrap();
        let path = dir.path().join("windlass/127.0.0.1:7600.der");
        assert_eq!(fs::read(&path).unwrap(), b"one");
        let renewed = publish_certificate(Some(dir.path()), address(), b"two".to_vec()).unwrap();
        drop(published);
        assert_eq!(fs::read(&path).unwrap(), b"two");
        drop(renewed);
        assert!(!path.exists());
    }

    #[test]
    fn files_of_a_killed_daemon_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |address: &str| {
            let path = certificate_path(dir.path(), address.parse().unwrap());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "stale").unwrap();
            path
        };
        let paths = ["127.0.0.1:7600", "[::1]:7600", "0.0.0.0:7600", "127.0.0.1:7601"].map(at);
        clear(Some(dir.path()), address());
        assert_eq!(paths.each_ref().map(|path| path.exists()), [false, true, false, true]);
        clear(Some(dir.path()), "0.0.0.0:7600".parse().unwrap());
        assert!(!paths[1].exists() && paths[3].exists());
    }

    #[test]
    fn without_a_directory_there_is_none() {
        let text = KeyText::random().unwrap();
        assert!(publish_key(None, address(), &text).is_none());
        let missing = tempfile::tempdir().unwrap().path().join("file");
        std::fs::create_dir_all(missing.parent().unwrap()).unwrap();
        std::fs::write(&missing, "").unwrap();
        assert!(publish_key(Some(&missing), address(), &text).is_none());
        std::fs::remove_dir_all(missing.parent().unwrap()).unwrap();
    }
}
