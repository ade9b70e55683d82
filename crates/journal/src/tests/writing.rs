//! Appending: ids, group commit, errors of the disk, large payloads.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use windlass_core::store::IdempotencyKey;
use windlass_core::time::Clock;
use windlass_core::{JobId, Payload};

use super::fault::{Fault, FaultDisk, Plan};
use super::*;
use crate::AddPayload;

fn open_faulty(disk: &FaultDisk) -> Journal {
    let root = Path::new("/data");
    super::open_on(Arc::new(disk.clone()), options(root), clock(), None).unwrap()
}

fn fail_one(from: u64) -> Option<Plan> {
    Some(Plan { fault: Fault::Refuse, from, until: from + 1 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s0_10_ids_are_distinct_over_parallel_appends_restarts_and_a_clock_set_back() {
    let root = tempfile::tempdir().unwrap();
    let clock = clock();
    let mut seen = HashSet::new();
    let mut newest = None;
    for round in 0..4 {
        let clock_dyn: Arc<dyn Clock> = clock.clone();
        let journal = Journal::open(options(root.path()), clock_dyn, None, None).unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let journal = journal.clone();
                tokio::spawn(async move {
                    let mut made = Vec::new();
                    for _ in 0..100 {
                        made.extend(journal.append(entries(&["a"; 7]), None).await.unwrap());
                        made.push(journal.make_id().unwrap());
                    }
                    made
                })
            })
            .collect();
        let mut oldest = None;
        for task in tasks {
            for id in task.await.unwrap() {
                assert!(seen.insert(id), "{id} came twice, in round {round}");
                oldest = oldest.min(Some(id)).or(Some(id));
            }
        }
        assert!(oldest > newest, "ids go on growing after a restart");
        newest = seen.iter().max().copied();
        assert_eq!(journal.id_newest(), newest);
        journal.close().await;
        clock.set(NOW - Duration::from_secs(3600));
    }
    let journal = open(root.path());
    let found = ids(&drain(&journal).await);
    assert_eq!(found.len(), 4 * 8 * 100 * 7);
    assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "ids in the files only grow");
}

#[tokio::test]
async fn s0_10_ids_start_above_what_the_store_knows() {
    let root = tempfile::tempdir().unwrap();
    let later = |hours: i64| JobId::new(((NOW.ms() - 1_577_836_800_000) + hours * 3_600_000) << 22);
    for (store, ingested) in [(later(1), None), (later(1), later(2)), (None, later(3))] {
        let journal =
            Journal::open(options(root.path()), clock() as Arc<dyn Clock>, store, ingested)
                .unwrap();
        let id = journal.make_id().unwrap();
        assert!(Some(id) > store && Some(id) > ingested);
        journal.close().await;
    }
}

#[tokio::test]
async fn s0_41_the_answer_comes_only_after_the_sync() {
    let disk = FaultDisk::default();
    let journal = open_faulty(&disk);
    journal.append(entries(&["first"]), None).await.unwrap();
    let syncs = disk.syncs();
    disk.shut_gate();
    let append = tokio::spawn({
        let journal = journal.clone();
        async move { journal.append(entries(&["second"]), None).await }
    });
    while disk.syncs() == syncs {
        tokio::task::yield_now().await;
    }
    assert!(!append.is_finished(), "the sync has begun but not ended");
    assert_eq!(journal.stats().unread_records, 1, "nobody reads what is not synced");
    disk.open_gate();
    let id = append.await.unwrap().unwrap()[0];
    assert_eq!(journal.find(id).await.unwrap().unwrap().job.id, id);
}

#[tokio::test]
async fn s0_41_all_that_waits_shares_one_sync() {
    let disk = FaultDisk::default();
    let counted = Arc::new(AtomicU64::new(0));
    let on_sync = counted.clone();
    let mut options = options(Path::new("/data"));
    options.on_sync = Some(Arc::new(move |_| {
        on_sync.fetch_add(1, Ordering::SeqCst);
    }));
    let journal = super::open_on(Arc::new(disk.clone()), options, clock(), None).unwrap();
    journal.append(entries(&["opens the segment"]), None).await.unwrap();
    let begun = disk.syncs();
    disk.shut_gate();
    let spawn = |payload: &'static str| {
        let journal = journal.clone();
        tokio::spawn(async move { journal.append(entries(&[payload]), None).await.unwrap() })
    };
    let first = spawn("first");
    while disk.syncs() == begun {
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (0..100).map(|_| spawn("other")).collect();
    for _ in 0..others.len() {
        tokio::task::yield_now().await;
    }
    disk.open_gate();
    first.await.unwrap();
    for other in others {
        other.await.unwrap();
    }
    journal.wsync().await.unwrap();
    assert_eq!(counted.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn s0_41_a_failing_write_or_sync_accepts_nothing_and_later_adds_work() {
    const WRITE: u64 = 1;
    const SYNC: u64 = 2;
    for operation in [WRITE, SYNC] {
        let disk = FaultDisk::default();
        let journal = open_faulty(&disk);
        let mut accepted = journal.append(entries(&["kept"]), None).await.unwrap();
        disk.fail(fail_one(operation));
        let refused = journal.append(entries(&["refused"]), None).await;
        assert!(matches!(refused, Err(Error::Storage(_))), "{refused:?}");
        assert!(journal.stats().refusal.is_some());
        accepted.extend(journal.append(entries(&["later"]), None).await.unwrap());
        assert_eq!(journal.stats().refusal, None);
        journal.close().await;
        let images = [disk.restarted(), disk.after_power_cut(&mut fastrand::Rng::with_seed(1))];
        for disk in images {
            let journal = open_faulty(&disk);
            let records = drain(&journal).await;
            assert_eq!(ids(&records), accepted);
            assert_eq!(texts(&records), ["kept", "later"]);
        }
    }
}

#[tokio::test]
async fn s0_41_a_full_disk_refuses_until_there_is_room_again() {
    let disk = FaultDisk::default();
    let journal = open_faulty(&disk);
    let before = journal.append(entries(&["before"]), None).await.unwrap();
    disk.fail(Some(Plan { fault: Fault::Halfway, from: 1, until: u64::MAX }));
    for _ in 0..5 {
        let refused = journal.append(entries(&["refused"]), None).await;
        assert!(matches!(refused, Err(Error::Storage(_))));
    }
    disk.fail(None);
    let after = journal.append(entries(&["after"]), None).await.unwrap();
    assert_eq!(ids(&drain(&journal).await), [before.clone(), after.clone()].concat());
    journal.close().await;
    let journal = open_faulty(&disk.restarted());
    assert_eq!(ids(&drain(&journal).await), [before, after].concat());
}

#[tokio::test]
async fn s0_41_wsync_waits_for_writes_in_progress() {
    let disk = FaultDisk::default();
    let journal = open_faulty(&disk);
    let begun = disk.syncs();
    disk.shut_gate();
    let spawn = |payload: &'static str| {
        let journal = journal.clone();
        tokio::spawn(async move { journal.append(entries(&[payload]), None).await.unwrap() })
    };
    let append = spawn("in progress");
    while disk.syncs() == begun {
        tokio::task::yield_now().await;
    }
    let wsync = tokio::spawn({
        let journal = journal.clone();
        async move { journal.wsync().await }
    });
    tokio::task::yield_now().await;
    assert!(!wsync.is_finished());
    disk.open_gate();
    wsync.await.unwrap().unwrap();
    assert_eq!(journal.stats().unread_records, 1);
    append.await.unwrap();
}

#[tokio::test]
async fn s0_41_wsync_finds_out_that_the_disk_works_again() {
    let disk = FaultDisk::default();
    let journal = open_faulty(&disk);
    let mut accepted = journal.append(entries(&["before"]), None).await.unwrap();
    disk.fail(Some(Plan { fault: Fault::Refuse, from: 1, until: u64::MAX }));
    assert!(journal.append(entries(&["refused"]), None).await.is_err());
    assert!(matches!(journal.wsync().await, Err(Error::Storage(_))));
    assert!(journal.stats().refusal.is_some());
    disk.fail(None);
    journal.wsync().await.unwrap();
    assert_eq!(journal.stats().refusal, None);
    accepted.extend(journal.append(entries(&["after"]), None).await.unwrap());
    journal.close().await;
    let journal = open_faulty(&disk.restarted());
    assert_eq!(ids(&drain(&journal).await), accepted);
}

#[tokio::test]
async fn a_closed_journal_takes_nothing_and_can_be_opened_again() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    assert!(matches!(open_after(root.path(), None), Err(Error::Locked(_))));
    let waiting = journal.clone();
    let append = tokio::spawn(async move { waiting.append(entries(&["a"]), None).await });
    tokio::task::yield_now().await;
    journal.close().await;
    assert_eq!(append.await.unwrap().unwrap().len(), 1, "close writes what waits");
    assert_eq!(journal.append(entries(&["b"]), None).await, Err(Error::Closed));
    assert_eq!(journal.wsync().await, Err(Error::Closed));
    assert_eq!(texts(&drain(&open(root.path())).await), ["a"]);
}

#[tokio::test]
async fn close_returns_when_the_writer_has_ended() {
    let disk = FaultDisk::default();
    let journal = open_faulty(&disk);
    let begun = disk.syncs();
    disk.shut_gate();
    let spawned = journal.clone();
    let append = tokio::spawn(async move { spawned.append(entries(&["a"]), None).await });
    while disk.syncs() == begun {
        tokio::task::yield_now().await;
    }
    let close = tokio::spawn(async move { journal.close().await });
    tokio::task::yield_now().await;
    assert!(!close.is_finished(), "the writer still writes");
    disk.open_gate();
    close.await.unwrap();
    assert!(append.await.unwrap().is_ok());
}

#[tokio::test]
async fn an_append_that_is_too_large_is_refused_and_writes_nothing() {
    const MIB: usize = 1024 * 1024;
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    // All of them share one payload in memory.
    let refused = journal.append(vec![entry(vec![b'x'; MIB]); 1024], None).await;
    assert!(matches!(refused, Err(Error::TooLarge { bytes, .. }) if bytes > 1024 * MIB));
    assert_eq!(segments(root.path()).len(), 0);
}

#[tokio::test]
async fn an_append_of_nothing_writes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let key = IdempotencyKey { key: "k".into(), fingerprint: 1 };
    assert_eq!(journal.append(Vec::new(), Some(key)).await, Ok(Vec::new()));
    assert_eq!(segments(root.path()).len(), 0);
}

#[tokio::test]
async fn a_large_payload_is_a_file_of_its_own_until_the_store_has_it() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let mut writer = journal.spool().await.unwrap();
    for piece in [&b"large\0"[..], &[b'x'; 100_000][..], &b"\n"[..]] {
        writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    let spool = writer.finish().await.unwrap();
    assert_eq!(spool.bytes(), 100_007);
    let mut large = entry("");
    large.payload = AddPayload::Spooled(spool);
    let id = journal.append(vec![large, entry("small")], None).await.unwrap()[1];
    journal.close().await;

    let journal = open(root.path());
    let records = drain(&journal).await;
    assert_eq!(records[0].job.payload, Payload::Pieces { bytes: 100_007 });
    let path = records[0].spool.clone().unwrap();
    let content = std::fs::read(&path).unwrap();
    assert!(
        content.len() == 100_007 && content.starts_with(b"large\0") && content.ends_with(b"\n")
    );
    assert_eq!(payload(&records[1]), b"small");
    assert_eq!(records[1].spool, None);
    journal.drop_until(id).await.unwrap();
    assert!(!path.exists());
}

#[tokio::test]
async fn a_large_payload_that_no_job_came_to_name_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let spool_dir = options(root.path()).spool_dir;
    let files = || std::fs::read_dir(&spool_dir).unwrap().count();
    let journal = open(root.path());
    let mut unfinished = journal.spool().await.unwrap();
    unfinished.write(Bytes::from_static(b"unfinished")).await.unwrap();
    let unnamed = journal.spool().await.unwrap().finish().await.unwrap();
    journal.close().await;
    std::mem::forget((unfinished, unnamed));
    std::fs::write(spool_dir.join("8-1.payload"), "another daemon's").unwrap();
    assert_eq!(files(), 3);
    let journal = open(root.path());
    assert_eq!(files(), 1, "what a killed process left goes, others' stays");
    journal.close().await;
}

#[test]
fn a_large_payload_that_is_dropped_unfinished_leaves_no_file() {
    let root = tempfile::tempdir().unwrap();
    let spool_dir = options(root.path()).spool_dir;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let journal = open(root.path());
    let writer = runtime.block_on(journal.spool()).unwrap();
    assert_eq!(std::fs::read_dir(&spool_dir).unwrap().count(), 1);
    drop(writer);
    assert_eq!(std::fs::read_dir(&spool_dir).unwrap().count(), 0);
}
