//! `FILE-plugin` and `FILE-task_runner`: the configuration for less privileged programs. Each has
//! only the password of its own user, and only the owner can read it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{Config, User};

const MODE: u32 = 0o600;
/// Logins of the command interface do not concern plugins.
const KEPT_BACK: [&str; 3] = ["users", "tokens", "tls"];

/// The file for plugins.
pub(crate) fn plugin_file(config: &Config) -> PathBuf {
    beside(&config.path, User::Plugin)
}

fn beside(path: &Path, user: User) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-");
    name.push(user.name());
    PathBuf::from(name)
}

/// Writes both files if their content has changed. The error is a complete sentence.
pub(crate) fn write_files(config: &Config) -> Result<(), String> {
    for user in [User::Plugin, User::TaskRunner] {
        let path = beside(&config.path, user);
        replace(&path, text_for(config, user).as_bytes())
            .map_err(|error| format!("cannot write the file {}: {error}", path.display()))?;
    }
    Ok(())
}

fn text_for(config: &Config, user: User) -> String {
    let mut map = config.source.0.clone();
    KEPT_BACK.iter().for_each(|key| drop(map.remove(*key)));
    if let Some(Value::Object(all)) = map.get_mut("auth") {
        *all = match config.connection.password(user) {
            Some(password) => {
                [(user.name().to_owned(), password.reveal().into())].into_iter().collect()
            }
            None => Map::new(),
        };
    }
    if config.connection.password(user).is_some() {
        map.insert("mongohost".into(), config.connection.without_login().into());
    }
    format!("{:#}\n", Value::Object(map))
}

/// Readers see either the old file or the complete new one.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    if is_already(path, text) {
        return Ok(());
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", fastrand::u64(..)));
    let temporary = PathBuf::from(name);
    let written = write_new(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // It may not exist.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn is_already(path: &Path, text: &[u8]) -> bool {
    let mode =
        fs::symlink_metadata(path).map(|found| (found.is_file(), found.permissions().mode()));
    matches!(mode, Ok((true, mode)) if mode & 0o7777 == MODE)
        && fs::read(path).is_ok_and(|found| found == text)
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}
