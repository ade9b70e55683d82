//! Every system call of a backup and of a restore fails once: with an error, on a full disk, by a
//! kill. A backup is complete or not there; a restored directory is complete or marked.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_faulty_disk::{Fault, Kind, Left, Trial, every_call};

use super::backup_tool::{back_up, back_up_from, restore};
use crate::harness::{
    Config, Daemon, Finished, Home, StoreLock, ids_of, run, snapshot, text, until,
};

/// To save time.
const STEP: usize = 11;
/// Of the killed daemon.
const JOBS: usize = 7;
const MANIFEST: &str = "manifest.json";
const MARKER: &str = "restoring";

/// The home of a killed daemon: with jobs in the store, in its log, and only in the journal; and
/// the jobs that were added, with the states that they have.
fn left_by_a_kill() -> (Daemon, BTreeMap<String, String>) {
    let mut daemon = Daemon::start(Config::embedded());
    let tenant = daemon.tenant("a");
    let ended = tenant.add("t", &["1", "2", "3"]);
    tenant.drain("t", 3);
    let lock = StoreLock::take(&daemon.config);
    let mut queued = Vec::new();
    for payload in ["4", "5", "6"] {
        queued.extend(tenant.add("t", &[payload]));
    }
    let headers = [("Content-Type", "application/octet-stream")];
    let large = vec![7; 1024 * 1024 + 1];
    queued.extend(ids_of(&daemon.call("POST", "/v1/a/jobs/t", &headers, &large).expect(201)));
    daemon.kill9();
    drop(lock);
    let ended = ended.into_iter().map(|id| (id, "finished".to_owned()));
    let jobs: BTreeMap<_, _> =
        ended.chain(queued.into_iter().map(|id| (id, "queued".to_owned()))).collect();
    assert_eq!(jobs.len(), JOBS);
    (daemon, jobs)
}

/// A daemon that starts on a copy of these files finds these jobs, in these states.
fn check_jobs(data: &Path, jobs: &BTreeMap<String, String>, trial: &Trial) {
    let config = Config::embedded();
    run(Command::new("cp").arg("-r").arg(data).arg(config.home.data()), b"").ok();
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    let found =
        until("the journal is in the store", || tenant.list(""), |found| found.len() >= JOBS);
    let found = found.iter().map(|job| (text(&job["id"]), text(&job["state"])));
    assert_eq!(found.collect::<BTreeMap<_, _>>(), *jobs, "{trial}");
}

/// The files below a directory, by their relative paths, without those that a read may change.
fn files(dir: &Path) -> BTreeMap<PathBuf, String> {
    let relative = |path: PathBuf| path.strip_prefix(dir).unwrap().to_owned();
    let all = snapshot(dir).into_iter().map(|(path, sum)| (relative(path), sum));
    all.filter(|(path, _)| !path.ends_with("store.db-shm")).collect()
}

/// What a backup copies as it is: all but the store, which it writes as one file without a log, and
/// files with keys, which are not in it.
fn beside_store(files: &BTreeMap<PathBuf, String>) -> BTreeMap<&PathBuf, &String> {
    let is_copied = |path: &Path| {
        let is_store = path.to_string_lossy().starts_with("store.db");
        !is_store
            && !path.starts_with("scratch")
            && !path.ends_with("lock")
            && !path.ends_with("admin.key")
            && !path.ends_with("secrets.key")
    };
    files.iter().filter(|(path, _)| is_copied(path)).collect()
}

fn check_answer(answer: &Finished, trial: &Trial) {
    match (answer.code, trial.fault) {
        (Some(0), _) => {}
        // Killed.
        (None, Some(Fault::Kill)) => {}
        (Some(1), Some(Fault::Error(_) | Fault::Torn(_))) => {
            assert_eq!(answer.stderr.lines().count(), 1, "{trial}: one sentence: {answer:?}");
        }
        _ => panic!("{trial}: {answer:?}"),
    }
}

#[test]
fn any_call_of_a_backup_may_fail() {
    let (daemon, jobs) = left_by_a_kill();
    let whole = files(&daemon.home().data());
    // Contents of a restored directory in which a daemon has found all jobs.
    let complete = RefCell::new(BTreeSet::new());
    let operate = |dir: &Path| back_up_from(&dir.join("data"), &dir.join("backup"));
    let tally = every_call(daemon.home().dir(), STEP, operate, |dir, answer, trial| {
        check_answer(answer, trial);
        assert_eq!(files(&dir.join("data")), whole, "{trial}: the source is as it was");
        let backup = dir.join("backup");
        assert!(answer.code != Some(0) || backup.exists(), "{trial}: it is there");
        if backup.exists() {
            let restored = restore(&backup, &dir.join("new"), None);
            assert_eq!(restored.code, Some(0), "{trial}: {restored:?}");
            let found = files(&dir.join("new"));
            assert_eq!(beside_store(&found), beside_store(&whole), "{trial}");
            if !complete.borrow().contains(&found) {
                check_jobs(&dir.join("new"), &jobs, trial);
                complete.borrow_mut().insert(found);
            }
        }
        let cleans_up = matches!(trial.fault, Some(Fault::Error(_) | Fault::Torn(_)))
            && trial.left == Left::AsWritten
            && trial.kind != Some(Kind::Remove);
        let names = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name());
        let unfinished = names.filter(|name| name.to_string_lossy().contains("unfinished"));
        assert!(!cleans_up || unfinished.count() == 0, "{trial}: nothing is left behind");
    });
    tally.report("a backup");
}

#[test]
fn any_call_of_a_restore_may_fail() {
    let (daemon, _) = left_by_a_kill();
    let home = Home::new();
    let backup = home.path("backup");
    back_up_from(&daemon.home().data(), &backup).ok();
    let mut whole = files(&backup);
    whole.remove(Path::new(MANIFEST));
    let operate = |dir: &Path| restore(&dir.join("files/backup"), &dir.join("data"), None);
    let tally = every_call(home.dir(), STEP, operate, |dir, answer, trial| {
        check_answer(answer, trial);
        let data = dir.join("data");
        let found = files(&data);
        let marked = data.join(MARKER).exists();
        assert!(answer.code != Some(0) || (found == whole && !marked), "{trial}: it is complete");
        let harmless = marked || found.is_empty() || found == whole;
        assert!(harmless, "{trial}: a daemon would start on {found:?}");
    });
    tally.report("a restore");
}

#[test]
fn a_restore_and_a_daemon_exclude_each_other() {
    let (daemon, _) = left_by_a_kill();
    let home = Home::new();
    let backup = home.path("backup");
    back_up(daemon.home(), &backup).ok();
    let config = Config::embedded();
    fs::create_dir(config.home.data()).unwrap();
    let in_use = fs::File::open(config.home.data()).unwrap();
    in_use.lock_shared().unwrap();
    let refused = restore(&backup, &config.home.data(), None);
    assert_eq!(refused.code, Some(1), "as if a daemon were about to use it: {refused:?}");
    assert!(refused.stderr.contains("in use"), "{refused:?}");
    in_use.unlock().unwrap();
    in_use.lock().unwrap();
    let refused = crate::harness::refused_start(&config);
    assert!(refused.stderr.contains("restore"), "as if it were being restored: {refused:?}");
    drop(in_use);
    let running = Daemon::start(config);
    let directory = fs::File::open(running.home().data()).unwrap();
    assert!(directory.try_lock().is_err(), "a daemon keeps restores out");
}
