//! What a refused write leaves: which segment goes on, and which payloads stay.

use super::fault::{Fault, FaultDisk, Plan};
use super::*;

const WRITE: u64 = 1;
const SYNC: u64 = 2;

fn open_on(disk: &FaultDisk) -> Journal {
    let options = options(Path::new("/data"));
    super::open_on(Arc::new(disk.clone()), options, clock(), None).unwrap()
}

/// This operation of the next append fails, and as many behind it.
fn fail(disk: &FaultDisk, from: u64, operations: u64) {
    disk.fail(Some(Plan { fault: Fault::Refuse, from, until: from + operations }));
}

#[tokio::test]
async fn a_segment_goes_on_after_a_failed_write_unless_it_cannot_be_cut() {
    for (operations, segments) in [(1, 1), (2, 2)] {
        let disk = FaultDisk::default();
        let journal = open_on(&disk);
        journal.append(entries(&["before"]), None).await.unwrap();
        fail(&disk, WRITE, operations);
        assert!(journal.append(entries(&["refused"]), None).await.is_err());
        journal.append(entries(&["after"]), None).await.unwrap();
        assert_eq!(journal.stats().segments, segments, "{operations} operations fail");
        assert_eq!(texts(&drain(&journal).await), ["before", "after"]);
    }
}

/// A payload, and an append of it that is refused at this operation.
fn refused_payload(disk: &FaultDisk, operation: u64) -> (tokio::runtime::Runtime, Journal, Spool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let journal = open_on(disk);
    let spool = runtime.block_on(async {
        journal.append(entries(&["before"]), None).await.unwrap();
        let spool = journal.spool().await.unwrap().finish().await.unwrap();
        let mut large = entry("");
        large.payload = AddPayload::Spooled(spool.clone());
        fail(disk, operation, 1);
        assert!(journal.append(vec![large], None).await.is_err());
        spool
    });
    (runtime, journal, spool)
}

// Outside a runtime, a payload is removed by the thread that drops it last.

#[test]
fn a_payload_goes_at_once_if_its_frame_cannot_be_on_the_disk() {
    let disk = FaultDisk::default();
    let (_runtime, _journal, spool) = refused_payload(&disk, WRITE);
    let path = spool.path().to_owned();
    assert!(disk.content(&path).is_some(), "it is in use");
    drop(spool);
    assert!(disk.content(&path).is_none());
}

#[test]
fn a_payload_stays_until_a_later_segment_rules_out_that_a_start_finds_its_frame() {
    let disk = FaultDisk::default();
    let (runtime, journal, spool) = refused_payload(&disk, SYNC);
    let path = spool.path().to_owned();
    drop(spool);
    assert!(disk.content(&path).is_some(), "a start may find the frame");
    runtime.block_on(journal.append(entries(&["after"]), None)).unwrap();
    assert!(disk.content(&path).is_none());
}
