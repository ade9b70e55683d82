//! Journals of dead daemons are taken over independently.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use windlass_core::memory::MemoryStore;
use windlass_core::{JobId, State, Sysid, TypeKey};
use windlass_engine::Options;
use windlass_test_kit::log::Logged;
use windlass_test_kit::wait::{in_time, pause};

use crate::ended;
use crate::fake::disk::{BadDisk, Failing};
use crate::fake::{Daemon, handler, jobs, key};
use crate::ingest::{large, payload_files};

/// There are others before and after it, in any order of a directory listing.
const DAMAGED: u16 = 3;

/// Changes a byte in the first batch of a journal that has more batches; the second call undoes it.
fn damage(journal: &Path) {
    let segments = std::fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().path());
    let segment = segments.into_iter().find(|path| path.extension().is_some_and(|e| e == "log"));
    let segment = segment.expect("the journal has a segment");
    let mut bytes = std::fs::read(&segment).unwrap();
    let is_payload = |window: &[u8]| window == b"200\n" || window == b"300\n";
    let at = bytes.windows(4).position(is_payload).expect("the first payload");
    bytes[at] ^= b'2' ^ b'3';
    std::fs::write(segment, bytes).unwrap();
}

/// A journal without an owner that has two jobs in two batches, not yet ingested.
async fn dead_journal(store: &Arc<MemoryStore>, number: u16) -> (TempDir, Vec<JobId>) {
    let t = key("acme", "t");
    store.set_available(true);
    let sysid = Sysid::new(number);
    let daemon = Daemon::start_on(store.clone(), |options| options.sysid = sysid).await;
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    store.set_available(false);
    let mut ids = daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap().ids;
    ids.extend(daemon.engine.add(&t, jobs(&["200"]), None).await.unwrap().ids);
    let data = daemon.abandon().await;
    store.set_available(true);
    (data, ids)
}

/// Jobs of journals that are taken over.
async fn all_finish(daemon: &Daemon, t: &TypeKey, ids: Vec<JobId>) {
    for id in ids {
        let taken_over = async {
            while daemon.engine.job(&t.tenant, id).await.is_err() {
                pause().await;
            }
        };
        in_time("the job is taken over", taken_over).await;
        assert_eq!(ended(daemon, t, id).await, State::Finished);
    }
}

#[tokio::test]
async fn a_journal_that_cannot_be_read_keeps_no_other_from_being_taken_over() {
    let store = Arc::new(MemoryStore::default());
    let t = key("acme", "t");
    let data = tempfile::tempdir().unwrap();
    let mut good = Vec::new();
    for number in 1..=6 {
        let (dead, ids) = dead_journal(&store, number).await;
        let journal = data.path().join(format!("journal/{number}"));
        std::fs::create_dir_all(journal.parent().unwrap()).unwrap();
        std::fs::rename(dead.path().join(format!("journal/{number}")), &journal).unwrap();
        match number {
            DAMAGED => damage(&journal),
            _ => good.extend(ids),
        }
    }

    let daemon = Daemon::start_in(data, store.clone(), |options| {
        options.sysid = Sysid::new(7);
        options.lease = Duration::from_millis(100);
    })
    .await;
    all_finish(&daemon, &t, good).await;

    let ready = daemon.engine.readiness().await;
    let words = "the journal of daemon 3 cannot be taken over";
    assert_eq!((ready.journal, ready.takeover), (Ok(()), Err(words.to_owned())));
    let left = daemon.engine.status().await.journals_left;
    assert_eq!((left.len(), left[0].sysid), (1, Sysid::new(DAMAGED)));
    assert!(left[0].why.contains("is damaged"), "{left:?}");
    let metrics = daemon.engine.metrics_text().await;
    assert!(metrics.lines().any(|line| line == "windlass_journals_left 1"), "{metrics}");
}

/// A disk that fails, and rights that are missing, as damage does.
#[tokio::test]
async fn journals_that_the_system_refuses_to_read_keep_no_other_from_being_taken_over() {
    const EIO: u16 = 2;
    const EACCES: u16 = 4;
    let logged = Logged::start();
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let data = tempfile::tempdir().unwrap();
    let of = |number: u16| data.path().join(format!("journal/{number}"));
    let mut good = Vec::new();
    std::fs::create_dir(data.path().join("journal")).unwrap();
    for number in 1..=5 {
        let (dead, ids) = dead_journal(&store, number).await;
        std::fs::rename(dead.path().join(format!("journal/{number}")), of(number)).unwrap();
        if ![EIO, EACCES].contains(&number) {
            good.extend(ids);
        }
    }
    let bad = vec![(of(EIO), Failing::Reads, 5), (of(EACCES), Failing::Everything, 13)];
    let daemon = Daemon::start_on_disk(data, store.clone(), BadDisk { bad }, |options| {
        options.sysid = Sysid::new(7);
        options.lease = Duration::from_millis(100);
    })
    .await;
    all_finish(&daemon, &t, good).await;

    let left = daemon.engine.status().await.journals_left;
    let sysids: Vec<_> = left.iter().filter_map(|left| left.sysid).collect();
    assert_eq!(sysids, [EIO, EACCES].map(|number| Sysid::new(number).unwrap()));
    let metrics = daemon.engine.metrics_text().await;
    assert!(metrics.lines().any(|line| line == "windlass_journals_left 2"), "{metrics}");
    let lines = logged.lines("a dead daemon's journal cannot be taken over");
    assert_eq!(lines.len(), 2, "each of them once, however often it is tried: {lines:?}");
    let words = [(EIO, "Input/output error"), (EACCES, "Permission denied")];
    for ((number, why), line) in words.into_iter().zip(lines) {
        assert!(line.starts_with("ERROR"), "{line}");
        assert!(line.contains(&format!("journal={number} ")) && line.contains(why), "{line}");
    }
}

/// The file system does not say what it is.
#[tokio::test]
async fn a_journal_that_cannot_be_looked_at_is_not_passed_over() {
    let data = tempfile::tempdir().unwrap();
    std::fs::create_dir(data.path().join("journal")).unwrap();
    std::os::unix::fs::symlink("7", data.path().join("journal/7")).unwrap();
    let copied = windlass_engine::backup::segments(data.path());
    assert!(copied.is_err(), "{copied:?}");
    let adjust = |options: &mut Options| options.sysid = Sysid::new(3);
    let daemon = Daemon::start_in(data, Arc::default(), adjust).await;
    let words = "the journal of daemon 7 cannot be taken over";
    assert_eq!(daemon.engine.readiness().await.takeover, Err(words.to_owned()));
}

#[tokio::test]
async fn a_journal_that_was_left_is_taken_over_when_it_is_put_right() {
    let store = Arc::new(MemoryStore::default());
    let (data, ids) = dead_journal(&store, DAMAGED).await;
    let journal = data.path().join(format!("journal/{DAMAGED}"));
    damage(&journal);
    let adjust = |options: &mut Options| {
        options.sysid = Sysid::new(7);
        options.lease = Duration::from_millis(100);
    };
    let daemon = Daemon::start_in(data, store.clone(), adjust).await;
    assert!(daemon.engine.readiness().await.takeover.is_err());
    // The second change undoes the first.
    damage(&journal);
    let put_right = async {
        while daemon.engine.readiness().await.takeover.is_err() {
            pause().await;
        }
    };
    in_time("the journal is taken over", put_right).await;
    let t = key("acme", "t");
    for id in ids {
        assert_eq!(ended(&daemon, &t, id).await, State::Finished);
    }
}

#[tokio::test]
async fn a_payload_that_is_lost_does_not_keep_its_journal_from_being_taken_over() {
    let (store, t) = (Arc::new(MemoryStore::default()), key("acme", "t"));
    let daemon = Daemon::start_on(store.clone(), |options| options.sysid = Sysid::new(3)).await;
    daemon.engine.handler_set(&t, handler()).await.unwrap();
    store.set_available(false);
    let many = vec![large(&daemon, 2_000_000).await, jobs(&["200"]).remove(0)];
    let ids = daemon.engine.add(&t, many, None).await.unwrap().ids;
    let data = daemon.abandon().await;
    payload_files(data.path()).iter().for_each(|file| std::fs::remove_file(file).unwrap());

    store.set_available(true);
    let daemon = Daemon::start_in(data, store, |options| {
        options.sysid = Sysid::new(7);
        options.lease = Duration::from_millis(100);
    })
    .await;
    let taken_over = async {
        while daemon.engine.job(&t.tenant, ids[1]).await.is_err()
            || daemon.engine.readiness().await.takeover.is_err()
        {
            pause().await;
        }
    };
    in_time("the journal is taken over", taken_over).await;
    assert_eq!(ended(&daemon, &t, ids[0]).await, State::Failed);
    assert_eq!(ended(&daemon, &t, ids[1]).await, State::Finished);
}
