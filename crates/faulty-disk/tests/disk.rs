//! The disk itself: calls fail and are lost as the plan says, and only those.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tempfile::{TempDir, tempdir};
use windlass_faulty_disk::{Fault, FaultyDisk, Kind, Plan, Tally, every_call};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn faulty() -> (TempDir, FaultyDisk) {
    let dir = tempdir().unwrap();
    let disk = FaultyDisk::new(dir.path()).unwrap();
    (dir, disk)
}

fn error<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// What a power cut leaves of a file; `None` if it is gone.
fn after_cut(disk: &FaultyDisk, name: &str) -> Option<Vec<u8>> {
    let to = tempdir().unwrap();
    disk.power_cut(to.path(), None).unwrap();
    fs::read(to.path().join(name)).ok()
}

#[test]
fn only_calls_that_match_below_the_root_fail_and_also_in_threads() {
    let (dir, disk) = faulty();
    let other = tempdir().unwrap();
    disk.set(Plan::nth(2, Fault::Error(EIO), |call| call.kind == Kind::Sync));
    let (path, elsewhere) = (dir.path().join("a"), other.path().join("b"));
    disk.run(|| {
        let (file, free) = (File::create(path).unwrap(), File::create(elsewhere).unwrap());
        file.sync_all().unwrap();
        free.sync_all().unwrap();
        let in_thread = thread::spawn(move || (file.sync_data(), file));
        let (failed, file) = in_thread.join().unwrap();
        assert_eq!(error(failed), Some(EIO));
        file.sync_data().unwrap();
    });
    assert_eq!(
        (disk.hit().map(|(kind, _)| kind), disk.calls()[&Kind::Sync]),
        (Some(Kind::Sync), 3)
    );
}

#[test]
fn every_kind_of_call_can_fail() {
    let (dir, disk) = faulty();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("old"), "old").unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(at("old"));
    let tries: [(Kind, &(dyn Fn() -> io::Result<()> + Sync)); 9] = [
        (Kind::Open, &|| File::open(at("old")).map(drop)),
        (Kind::Read, &|| fs::read(at("old")).map(drop)),
        (Kind::Write, &|| open()?.write_all(b"x")),
        (Kind::Sync, &|| File::open(dir.path())?.sync_all()),
        (Kind::Truncate, &|| open()?.set_len(1)),
        (Kind::Rename, &|| fs::rename(at("old"), at("new"))),
        (Kind::Link, &|| fs::hard_link(at("old"), at("new"))),
        (Kind::Remove, &|| fs::remove_file(at("old"))),
        (Kind::MakeDir, &|| fs::create_dir(at("dir"))),
    ];
    for (kind, call) in tries {
        disk.set(Plan::nth(1, Fault::Error(EIO), move |call| call.kind == kind));
        assert_eq!(error(disk.run(call)), Some(EIO), "{kind:?}");
    }
    assert_eq!(fs::read(at("old")).unwrap(), b"old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_torn_write_leaves_its_first_half() {
    let (dir, disk) = faulty();
    let path = dir.path().join("a");
    fs::write(&path, "....").unwrap();
    let torn = Plan::nth(1, Fault::Torn(ENOSPC), |call| call.kind == Kind::Write);
    disk.set(torn.clone());
    disk.run(|| {
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(error(file.write_all(b"abcd")), Some(ENOSPC));
    });
    disk.set(torn);
    disk.run(|| {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        assert_eq!(error(file.write_all_at(b"xyz!", 1)), Some(ENOSPC));
    });
    assert_eq!(fs::read(&path).unwrap(), b".xy.ab");
}

#[test]
fn a_power_cut_takes_what_was_not_synced() {
    let (dir, disk) = faulty();
    let path = dir.path().join("a");
    let mut file = disk.run(|| {
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one").unwrap();
        file.sync_all().unwrap();
        file
    });
    assert_eq!(after_cut(&disk, "a"), None, "its name is not durable");
    disk.run(|| {
        File::open(dir.path()).unwrap().sync_all().unwrap();
        file.write_all(b"two").unwrap();
    });
    assert_eq!(after_cut(&disk, "a").unwrap(), b"one");
    assert_eq!(fs::read(&path).unwrap(), b"onetwo");
    disk.run(|| fs::rename(&path, dir.path().join("b"))).unwrap();
    assert_eq!((after_cut(&disk, "a"), after_cut(&disk, "b")), (Some(b"one".into()), None));
    disk.run(|| File::open(dir.path()).unwrap().sync_all()).unwrap();
    assert_eq!((after_cut(&disk, "a"), after_cut(&disk, "b")), (None, Some(b"one".into())));
}

#[test]
fn a_renamed_directory_keeps_what_is_durable_in_it() {
    let (dir, disk) = faulty();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let sync = |path: &Path| File::open(path).unwrap().sync_all().unwrap();
    disk.run(|| {
        fs::create_dir(&old).unwrap();
        fs::write(old.join("a"), "one").unwrap();
        fs::write(old.join("b"), "one").unwrap();
        sync(&old.join("a"));
        sync(&old);
        fs::rename(&old, &new).unwrap();
    });
    assert_eq!(after_cut(&disk, "old/a"), None);
    disk.run(|| sync(dir.path()));
    let found = ["old/a", "new/a", "new/b"].map(|name| after_cut(&disk, name));
    assert_eq!(found, [None, Some(b"one".into()), Some(b"".into())]);
}

#[test]
fn what_a_failed_sync_gave_up_is_durable_only_if_it_is_written_again() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, vec![b'.'; 8192]).unwrap();
    let disk = FaultyDisk::new(dir.path()).unwrap();
    disk.set(Plan::nth(1, Fault::Error(EIO), |call| call.kind == Kind::Sync));
    let first = |bytes: Vec<u8>| [bytes[0], bytes[4096]];
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    disk.run(|| {
        file.write_all_at(b"x", 0).unwrap();
        file.write_all_at(b"y", 4096).unwrap();
        assert_eq!(error(file.sync_all()), Some(EIO));
        file.sync_all().unwrap();
    });
    assert_eq!(first(after_cut(&disk, "a").unwrap()), *b"..");
    disk.run(|| {
        file.write_all_at(b"y", 4096).unwrap();
        file.sync_all().unwrap();
    });
    assert_eq!(first(after_cut(&disk, "a").unwrap()), *b".y");
}

/// Runs a shell under the disk.
fn shell(disk: &FaultyDisk, script: &str, dir: &Path) -> std::process::Output {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(dir).stdin(Stdio::null());
    disk.run(|| command.output()).unwrap()
}

#[test]
fn the_calls_of_a_child_process_fail_and_a_kill_ends_it() {
    let (dir, disk) = faulty();
    disk.set(Plan::nth(2, Fault::Error(ENOSPC), |call| call.kind == Kind::Write));
    let script = "echo 1 > a; echo 2 > b; echo 3 > c; echo done";
    let output = shell(&disk, script, dir.path());
    assert_eq!(output.stdout, b"done\n");
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap_or_default();
    assert_eq!(["a", "b", "c"].map(read), ["1\n", "", "3\n"]);
    disk.set(Plan::nth(2, Fault::Kill, |call| call.kind == Kind::Write));
    let output = shell(&disk, "echo 4 > a; echo 5 > b; echo 6 > c; echo done", dir.path());
    assert_eq!(output.status.signal(), Some(9));
    assert_eq!(["a", "b", "c"].map(read), ["4\n", "", "3\n"]);
}

#[test]
fn the_loop_disturbs_each_call_and_finds_a_missing_sync() {
    let template = tempdir().unwrap();
    fs::write(template.path().join("a"), "old").unwrap();
    let write = |dir: &Path, synced: bool| -> io::Result<()> {
        let new = dir.join("new");
        let mut file = File::create(&new)?;
        file.write_all(b"new")?;
        if synced {
            file.sync_all()?;
        }
        fs::rename(new, dir.join("a"))?;
        File::open(dir)?.sync_all()
    };
    for synced in [true, false] {
        let wrong = AtomicU64::new(0);
        let operate = |dir: &Path| write(dir, synced).is_ok();
        let tally = every_call(template.path(), 1, operate, |dir, done: &bool, _| {
            let found = fs::read(dir.join("a")).unwrap_or_default();
            let right = if *done { found == b"new" } else { found == b"old" || found == b"new" };
            wrong.fetch_add(u64::from(!right), Ordering::Relaxed);
        });
        assert_eq!(wrong.into_inner() == 0, synced);
        let calls: u64 = tally.calls.values().sum();
        assert_eq!((calls, tally.calls[&Kind::Open]), (5 + u64::from(synced), 2));
        // Each call fails and is a kill; opens, the write and the rename find a full disk too.
        assert_eq!(
            tally.tried.iter().map(|tried| tried.runs).collect::<Vec<_>>(),
            [calls, 4, calls]
        );
        tally.report("a replaced file");
    }
}

/// Writes three times in the first run and in those with these numbers, and once in all others.
fn tally_of_runs(long: impl Fn(u64) -> bool + Sync) -> Tally {
    let template = tempdir().unwrap();
    let runs = AtomicU64::new(0);
    let operate = |dir: &Path| {
        let number = runs.fetch_add(1, Ordering::Relaxed);
        let mut file =
            File::create(dir.join("a")).unwrap_or_else(|_| tempfile::tempfile().unwrap());
        for _ in 0..if number == 0 || long(number) { 3 } else { 1 } {
            let _ = file.write_all(b"x");
        }
    };
    every_call(template.path(), 1, operate, |_, (), _| {})
}

#[test]
fn a_run_that_is_too_short_is_repeated() {
    let tally = tally_of_runs(|number| number % 2 == 0);
    assert!(tally.tried.iter().all(|tried| (tried.calls, tried.runs) == (4, 4)), "{tally:?}");
    tally.report("every other run is short");
}

#[test]
#[should_panic(expected = "Torn(28) came at 2 calls instead of 4")]
fn calls_that_only_one_fault_leaves_out_are_noticed() {
    // Only the runs with errors are long, and all runs together are more than the calls.
    let tally = tally_of_runs(|number| number < 6);
    tally.report("runs that become short");
}
