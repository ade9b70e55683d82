//! Power cuts after a kill: everything that a start relies on must be on the disk.

use super::fault::{Fault, FaultDisk, Plan};
use super::*;
use crate::disk::{self, Disk};

fn open_on(disk: &FaultDisk) -> Result<Journal, Error> {
    super::open_on(Arc::new(disk.clone()), options(Path::new("/data")), clock(), None)
}

/// A disk with a synced record "first" and a complete frame "second" that its process did not live
/// to sync.
async fn with_unsynced_frame() -> FaultDisk {
    const SYNC: u64 = 2;
    let disk = FaultDisk::default();
    let journal = open_on(&disk).unwrap();
    journal.append(entries(&["first"]), None).await.unwrap();
    disk.fail(Some(Plan { fault: Fault::PowerCut, from: SYNC, until: u64::MAX }));
    assert!(journal.append(entries(&["second"]), None).await.is_err());
    disk.restarted()
}

#[tokio::test]
async fn s0_24_a_frame_that_a_start_accepted_survives_a_later_power_cut() {
    let disk = with_unsynced_frame().await;
    let journal = open_on(&disk).unwrap();
    journal.append(entries(&["third"]), None).await.unwrap();
    journal.close().await;
    let journal = open_on(&disk.after_worst_power_cut()).unwrap();
    assert_eq!(texts(&drain(&journal).await), ["first", "second", "third"]);
}

#[tokio::test]
async fn s0_24_what_a_start_hands_out_survives_a_power_cut_before_anything_is_appended() {
    let disk = with_unsynced_frame().await;
    let handed_out = ids(&drain(&open_on(&disk).unwrap()).await);
    let left = drain(&open_on(&disk.after_worst_power_cut()).unwrap()).await;
    assert_eq!(ids(&left), handed_out);
}

#[test]
fn s0_24_a_directory_is_durable_when_it_has_been_created() {
    let disk = FaultDisk::default();
    let dir = Path::new("/data/journal/7");
    disk::create_dir(&disk, dir).unwrap();
    assert!(disk.after_worst_power_cut().is_dir(dir));
}

#[test]
fn s0_24_a_directory_that_a_killed_process_created_is_made_durable() {
    let dir = Path::new("/data/journal/7");
    let operations = {
        let disk = FaultDisk::default();
        disk::create_dir(&disk, dir).unwrap();
        disk.operations()
    };
    for from in 1..=operations {
        let killed = FaultDisk::failing(Plan { fault: Fault::PowerCut, from, until: u64::MAX });
        assert!(disk::create_dir(&killed, dir).is_err());
        let disk = killed.restarted();
        disk::create_dir(&disk, dir).unwrap();
        assert!(disk.after_worst_power_cut().is_dir(dir), "killed at operation {from}");
    }
}

#[test]
fn a_parent_that_may_not_be_read_need_not_be_synced() {
    let disk = FaultDisk::default();
    let dir = Path::new("/data/journal");
    disk::create_dir(&disk, dir).unwrap();
    disk.fail(Some(Plan { fault: Fault::Forbid, from: 1, until: u64::MAX }));
    disk::create_dir(&disk, dir).unwrap();
    assert!(disk::create_dir(&disk, &dir.join("7")).is_err(), "a new one must be durable");
}

#[test]
fn only_what_was_there_before_need_not_be_synced_and_only_if_it_is_forbidden() {
    let dir = Path::new("/data/journal");
    let created = |fault, operation| {
        let disk = FaultDisk::default();
        disk::create_dir(&disk, dir).unwrap();
        disk.fail(Some(Plan { fault, from: operation, until: operation + 1 }));
        disk::create_dir(&disk, &dir.join("7")).is_ok()
    };
    // The parent is synced, the directory is created, and that is synced.
    assert_eq!([1, 2, 3].map(|n| created(Fault::Forbid, n)), [true, false, false]);
    assert_eq!([1, 2, 3].map(|n| created(Fault::Refuse, n)), [false; 3]);
}

#[test]
fn a_directory_that_exists_is_no_error_and_one_that_cannot_be_created_is() {
    let root = tempfile::tempdir().unwrap();
    let disk = crate::disk::RealDisk;
    assert!(disk.make_dir(root.path()).is_ok());
    assert!(disk.make_dir(&root.path().join("missing/dir")).is_err());
}

#[test]
fn a_relative_directory_is_created() {
    assert!(disk::create_dir(&crate::disk::RealDisk, Path::new(".")).is_ok());
    assert!(disk::create_dir(&crate::disk::RealDisk, Path::new("src")).is_ok());
}

#[tokio::test]
async fn s0_24_the_directories_of_a_journal_that_accepts_are_durable() {
    let disk = FaultDisk::default();
    for dir in ["/data", "/data/journal", "/data/journal/7", "/data/payload"] {
        // As left by a process that is killed before it syncs anything.
        disk.make_dir(Path::new(dir)).unwrap();
    }
    disk::create_dir(&disk, Path::new("/data")).unwrap();
    let journal = open_on(&disk).unwrap();
    let mut writer = journal.spool().await.unwrap();
    writer.write(Bytes::from_static(b"large")).await.unwrap();
    let mut large = entry("");
    large.payload = AddPayload::Spooled(writer.finish().await.unwrap());
    journal.append(vec![large], None).await.unwrap();
    let cut = disk.after_worst_power_cut();
    let records = drain(&open_on(&cut).unwrap()).await;
    assert_eq!(records.len(), 1);
    assert_eq!(cut.content(records[0].spool.as_ref().unwrap()).unwrap(), b"large");
}
