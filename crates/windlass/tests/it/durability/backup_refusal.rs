//! Backups and restores that cannot work are refused with one sentence, and change nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::backup_tool::{back_up, restore};
use crate::harness::{Config, Daemon, Finished, Home, refused_start, snapshot};

/// One sentence on standard error that has all of these words.
#[track_caller]
fn assert_refused(finished: &Finished, words: &[&str]) {
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "one sentence: {finished:?}");
    for word in words {
        assert!(finished.stderr.contains(word), "{word:?} is not said: {finished:?}");
    }
}

/// A stopped daemon with a few jobs, and a backup of it.
fn backed_up() -> (Daemon, PathBuf) {
    let mut daemon = Daemon::start(Config::embedded());
    daemon.tenant("a").add("t", &["1", "2", "3"]);
    let to = daemon.home().path("backup");
    back_up(daemon.home(), &to).ok();
    assert!(daemon.terminate().success());
    (daemon, to)
}

fn is_nothing_in(dir: &std::path::Path) -> bool {
    fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}

#[test]
fn a_backup_is_for_its_owner_alone_and_lists_its_files() {
    let (daemon, to) = backed_up();
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o700);
    let manifest = fs::read_to_string(to.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["format"], 1);
    let files = manifest["files"].as_array().unwrap();
    let paths: Vec<&str> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"store.db") && paths.contains(&"place"), "{paths:?}");
    let journal = paths.iter().filter(|path| path.starts_with("journal/")).count();
    assert_eq!((journal, snapshot(&to).len()), (1, files.len() + 1));
    for file in files {
        let path = to.join(file["path"].as_str().unwrap());
        assert_eq!(file["sha256"], crate::harness::sha256_of(&path));
    }
    let beside = fs::read_dir(daemon.home().files()).unwrap();
    let left = beside.flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(left, 1, "nothing unfinished is left beside the backup");
}

#[test]
fn a_target_that_is_not_empty_is_left_alone() {
    let (daemon, to) = backed_up();
    let before = snapshot(&to);
    assert_refused(&back_up(daemon.home(), &to), &[to.to_str().unwrap(), "not empty"]);
    let file = daemon.home().write("file", "x");
    assert_refused(&back_up(daemon.home(), &file), &["file", "not a directory"]);
    assert_eq!(snapshot(&to), before);
    let empty = daemon.home().path("empty");
    fs::create_dir(&empty).unwrap();
    back_up(daemon.home(), &empty).ok();
    let inside = daemon.home().data().join("backup");
    assert_refused(&back_up(daemon.home(), &inside), &["inside the data directory"]);
    assert!(!inside.exists());
    let nowhere = daemon.home().path("no/such/place");
    assert_refused(&back_up(daemon.home(), &nowhere), &["no/such"]);
}

#[test]
fn only_a_data_directory_is_backed_up() {
    let home = Home::new();
    let to = home.path("backup");
    assert_refused(&back_up(&home, &to), &[home.data().to_str().unwrap()]);
    fs::create_dir(home.data()).unwrap();
    assert_refused(&back_up(&home, &to), &["not a data directory"]);
    fs::write(home.data().join("place"), "7\n").unwrap();
    assert_refused(&back_up(&home, &to), &["store.db", "--store"]);
    fs::write(home.store(), "not a database, but long enough to be one".repeat(9)).unwrap();
    assert_refused(&back_up(&home, &to), &["store.db", "not a SQLite database"]);
    assert!(!to.exists() && fs::read_dir(home.files()).unwrap().next().is_none());
}

#[test]
fn a_store_in_doubt_is_not_backed_up() {
    let (daemon, _) = backed_up();
    fs::write(daemon.home().data().join("store.db-doubt"), "").unwrap();
    let to = daemon.home().path("second");
    assert_refused(&back_up(daemon.home(), &to), &["store.db", "sync failed"]);
    assert!(!to.exists());
}

#[test]
fn a_damaged_backup_is_refused_with_the_name_of_the_file() {
    let (_daemon, from) = backed_up();
    let whole = snapshot(&from);
    for path in whole.keys() {
        let target = Home::new();
        let name = path.strip_prefix(&from).unwrap().to_str().unwrap();
        let bytes = fs::read(path).unwrap();
        let mut damaged = bytes.clone();
        let middle = bytes.len() / 2;
        damaged[middle] ^= 1;
        // The last byte of the manifest is a newline, which means nothing.
        let shorter = &bytes[..bytes.len() - 2];
        for wrong in [&damaged[..], shorter, &[]] {
            fs::write(path, wrong).unwrap();
            assert_refused(&restore(&from, &target.data(), None), &[name]);
        }
        fs::remove_file(path).unwrap();
        assert_refused(&restore(&from, &target.data(), None), &[name]);
        fs::write(path, &bytes).unwrap();
        assert!(is_nothing_in(&target.data()), "{name}");
    }
    restore(&from, &Home::new().data(), None).ok();
}

#[test]
fn a_backup_of_a_later_version_and_something_else_are_refused() {
    let (_daemon, from) = backed_up();
    let home = Home::new();
    fs::write(from.join("manifest.json"), r#"{"format": 2, "new": []}"#).unwrap();
    assert_refused(&restore(&from, &home.data(), None), &["newer"]);
    assert_refused(&restore(&home.files(), &home.data(), None), &["not a backup"]);
    assert!(is_nothing_in(&home.data()));
}

#[test]
fn a_restore_needs_an_empty_data_directory() {
    let (daemon, from) = backed_up();
    let before = snapshot(&daemon.home().data());
    let refused = restore(&from, &daemon.home().data(), None);
    assert_refused(&refused, &["not empty", "move it away"]);
    assert_eq!(snapshot(&daemon.home().data()), before);
    let home = Home::new();
    fs::create_dir(home.data()).unwrap();
    let answer = restore(&from, &home.data(), None).json();
    assert_eq!(answer["files"], 3);
    let new = Home::new();
    restore(&from, &new.data(), None).ok();
    assert_eq!(fs::metadata(new.data()).unwrap().permissions().mode() & 0o777, 0o700);
}

/// SQLite would take a journal that another store has left for that of the restored one.
#[test]
fn a_restore_does_not_put_a_store_beside_files_of_another_one() {
    let (_daemon, from) = backed_up();
    for suffix in ["", "-wal", "-shm", "-journal", "-doubt"] {
        let home = Home::new();
        let name = format!("store.db{suffix}");
        fs::write(home.path(&name), "").unwrap();
        let refused = restore(&from, &home.data(), Some(&home.path("store.db")));
        assert_refused(&refused, &[&name, "move it away"]);
        assert!(is_nothing_in(&home.data()), "{name}");
    }
}

#[test]
fn a_daemon_does_not_start_on_an_unfinished_restore() {
    let (_daemon, from) = backed_up();
    let config = Config::embedded();
    fs::create_dir(config.home.data()).unwrap();
    fs::write(config.home.data().join("restoring"), "").unwrap();
    let refused = refused_start(&config);
    assert!(refused.stderr.contains("restore"), "{refused:?}");
    let refused = restore(&from, &config.home.data(), None);
    assert_refused(&refused, &["earlier restore", "remove"]);
}
