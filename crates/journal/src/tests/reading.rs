//! Reserving, reading, committing, and dropping what the store has.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::time::Clock;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

fn open_with_clock(root: &Path) -> (Journal, Arc<ManualClock>) {
    let clock = clock();
    let clock_dyn: Arc<dyn Clock> = clock.clone();
    (Journal::open(options(root), clock_dyn, None, None).unwrap(), clock)
}

#[tokio::test]
async fn s0_42_uncommitted_records_come_back_after_the_timeout() {
    let root = tempfile::tempdir().unwrap();
    let (journal, clock) = open_with_clock(root.path());
    journal.append(entries(&["a", "b", "c"]), None).await.unwrap();
    let late = journal.reserve(2, usize::MAX, Some(TIMEOUT)).unwrap();
    assert_eq!(texts(&journal.read(&late).await.unwrap()), ["a", "b"]);
    let next = journal.reserve(10, usize::MAX, Some(TIMEOUT * 2)).unwrap();
    assert_eq!(texts(&journal.read(&next).await.unwrap()), ["c"]);
    assert!(journal.reserve(10, usize::MAX, Some(TIMEOUT)).is_none());

    clock.advance(TIMEOUT);
    journal.readable().await;
    let again = journal.reserve(10, usize::MAX, Some(TIMEOUT)).unwrap();
    assert_eq!(texts(&journal.read(&again).await.unwrap()), ["a", "b"]);
    assert_eq!(journal.read(&late).await, Err(Error::Expired));
    assert_eq!(journal.commit(late), Err(Error::Expired));
    assert_eq!(journal.stats().unread_records, 3, "a late commit changes nothing");
    journal.commit(again).unwrap();
    journal.commit(next).unwrap();
    assert_eq!(journal.stats().unread_records, 0);
    assert_eq!(journal.stats().unread_bytes, 0);
}

#[tokio::test]
async fn s0_42_what_comes_back_comes_first_and_in_order() {
    let root = tempfile::tempdir().unwrap();
    let (journal, clock) = open_with_clock(root.path());
    journal.append(entries(&["a", "b", "c", "d"]), None).await.unwrap();
    let tickets: Vec<_> =
        (0..3).map(|_| journal.reserve(1, usize::MAX, Some(TIMEOUT)).unwrap()).collect();
    let [first, second, third] = tickets.try_into().unwrap();
    assert_eq!((second.records(), second.first()), (1, second.last()));
    journal.give_back(third);
    journal.give_back(first);
    clock.advance(TIMEOUT);
    assert_eq!(texts(&drain(&journal).await), ["a", "b", "c", "d"]);
    assert_eq!(journal.commit(second), Err(Error::Expired));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s0_43_parallel_reservations_never_overlap() {
    const RECORDS: usize = 100_000;
    const BATCH: usize = 500;
    let root = tempfile::tempdir().unwrap();
    let (journal, _clock) = open_with_clock(root.path());
    let writer = journal.clone();
    let written = tokio::spawn(async move {
        for _ in 0..RECORDS / BATCH {
            writer.append(vec![entry(vec![b'x'; 40]); BATCH], None).await.unwrap();
        }
    });
    let (sender, mut receiver) = tokio::sync::mpsc::channel(64);
    for seed in 0..4 {
        let (journal, sender) = (journal.clone(), sender.clone());
        tokio::spawn(async move {
            let mut luck = fastrand::Rng::with_seed(seed);
            loop {
                journal.readable().await;
                let records_max = luck.usize(1..2000);
                let Some(ticket) = journal.reserve(records_max, 1024 * 1024, Some(LONG)) else {
                    continue;
                };
                if luck.u8(..) < 32 {
                    journal.give_back(ticket);
                    continue;
                }
                let records = journal.read(&ticket).await.unwrap();
                assert!(!records.is_empty() && records.len() <= records_max);
                assert_eq!(records.len() as u64, ticket.records());
                journal.commit(ticket).unwrap();
                if sender.send(ids(&records)).await.is_err() {
                    return;
                }
            }
        });
    }
    let mut seen = HashSet::new();
    while seen.len() < RECORDS {
        for id in receiver.recv().await.unwrap() {
            assert!(seen.insert(id), "{id} was read twice");
        }
    }
    written.await.unwrap();
    assert_eq!(journal.stats().unread_records, 0);
    assert!(journal.reserve(1, usize::MAX, Some(LONG)).is_none());
}

#[tokio::test]
async fn reservations_keep_their_bounds_with_and_without_memory() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let sizes = [10, 5000, 1, 70_000, 300, 300, 300];
    for _ in 0..20 {
        let batch = sizes.iter().map(|&size| entry(vec![b'p'; size])).collect();
        journal.append(batch, None).await.unwrap();
    }
    for reopened in [false, true] {
        let journal = if reopened { open(root.path()) } else { journal.clone() };
        let mut read = Vec::new();
        while let Some(ticket) = journal.reserve(5, 6000, Some(LONG)) {
            let records = journal.read(&ticket).await.unwrap();
            let bytes: usize = records.iter().map(|record| payload(record).len()).sum();
            assert!(records.len() == 1 || (records.len() <= 5 && bytes <= 6000));
            read.extend(records.iter().map(|record| payload(record).len()));
            journal.commit(ticket).unwrap();
        }
        assert_eq!(read, sizes.repeat(20));
        journal.close().await;
    }
}

#[tokio::test]
async fn readable_waits_for_an_append_or_for_something_given_back() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _clock) = open_with_clock(root.path());
    let spawn_wait = || {
        let journal = journal.clone();
        tokio::spawn(async move { journal.readable().await })
    };
    let waiter = spawn_wait();
    tokio::task::yield_now().await;
    assert!(!waiter.is_finished());
    journal.append(entries(&["a"]), None).await.unwrap();
    waiter.await.unwrap();
    let ticket = journal.reserve(1, usize::MAX, Some(LONG)).unwrap();
    let waiter = spawn_wait();
    tokio::task::yield_now().await;
    assert!(!waiter.is_finished());
    journal.give_back(ticket);
    waiter.await.unwrap();
}

#[tokio::test]
async fn s0_24_disk_use_falls_back_when_the_store_has_the_records() {
    const SEGMENT: u64 = 20_000;
    let root = tempfile::tempdir().unwrap();
    let mut small = options(root.path());
    small.segment_bytes_max = SEGMENT;
    let journal = Journal::open(small.clone(), clock() as Arc<dyn Clock>, None, None).unwrap();
    for _ in 0..200 {
        journal.append(vec![entry(vec![b'x'; 1000]); 2], None).await.unwrap();
    }
    let disk_bytes =
        || -> u64 { segments(root.path()).iter().map(|path| path.metadata().unwrap().len()).sum() };
    assert!(segments(root.path()).len() >= 20);
    assert!(segments(root.path()).iter().all(|path| path.metadata().unwrap().len() <= SEGMENT));
    assert_eq!(journal.stats().segments, segments(root.path()).len());
    assert_eq!(journal.stats().disk_bytes, disk_bytes());

    let half = journal.reserve(200, usize::MAX, Some(LONG)).unwrap();
    let position = half.last();
    assert_eq!(journal.read(&half).await.unwrap().len() as u64, half.records());
    let read = half.records();
    journal.commit(half).unwrap();
    journal.drop_until(position).await.unwrap();
    assert!(disk_bytes() < (400 - read) * 1100 + 2 * SEGMENT);
    journal.close().await;

    let journal = Journal::open(small, clock() as Arc<dyn Clock>, None, Some(position)).unwrap();
    let rest = drain(&journal).await;
    assert_eq!(rest.len() as u64, 400 - read);
    assert!(rest[0].job.id > position);
    journal.append(entries(&["newest"]), None).await.unwrap();
    let newest = drain(&journal).await[0].job.id;
    journal.drop_until(newest).await.unwrap();
    assert!(disk_bytes() <= SEGMENT);
    assert_eq!(segments(root.path()).len(), 1);
}

#[tokio::test]
async fn s0_24_a_frame_larger_than_a_segment_has_one_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let mut small = options(root.path());
    small.segment_bytes_max = 2000;
    let journal = Journal::open(small, clock() as Arc<dyn Clock>, None, None).unwrap();
    for size in [10, 50_000, 10] {
        journal.append(vec![entry(vec![b'x'; size])], None).await.unwrap();
    }
    journal.close().await;
    assert_eq!(segments(root.path()).len(), 3);
    let sizes: Vec<_> =
        drain(&open(root.path())).await.iter().map(|record| payload(record).len()).collect();
    assert_eq!(sizes, [10, 50_000, 10]);
}

#[tokio::test]
async fn s0_25_ingested_records_are_not_handed_out_again() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let mut made = journal.append(entries(&["a", "b", "c"]), None).await.unwrap();
    made.extend(journal.append(entries(&["d", "e"]), None).await.unwrap());
    journal.close().await;
    for (at, &ingested) in made.iter().enumerate() {
        let journal = open_after(root.path(), Some(ingested)).unwrap();
        assert_eq!(journal.stats().unread_records as usize, made.len() - at - 1);
        assert_eq!(journal.find(ingested).await, Ok(None));
        assert_eq!(ids(&drain(&journal).await), made[at + 1..]);
        journal.close().await;
    }
}

#[tokio::test]
async fn s0_25_records_that_the_store_has_are_not_read_again_after_a_late_commit() {
    let root = tempfile::tempdir().unwrap();
    let (journal, clock) = open_with_clock(root.path());
    let made = journal.append(entries(&["a", "b", "c"]), None).await.unwrap();
    let late = journal.reserve(3, usize::MAX, Some(TIMEOUT)).unwrap();
    clock.advance(TIMEOUT);
    assert_eq!(journal.commit(late), Err(Error::Expired));
    journal.drop_until(made[1]).await.unwrap();
    assert_eq!(texts(&drain(&journal).await), ["c"]);
    assert_eq!(journal.stats().unread_records, 0);
}

#[tokio::test]
async fn find_returns_what_the_store_may_not_have_yet() {
    let root = tempfile::tempdir().unwrap();
    let mut small = options(root.path());
    small.segment_bytes_max = 3000;
    let journal = Journal::open(small, clock() as Arc<dyn Clock>, None, None).unwrap();
    let mut made = Vec::new();
    for text in ["a", "b", "c", "d"] {
        let batch = vec![entry(text), entry(vec![b'x'; 2000])];
        made.push((journal.append(batch, None).await.unwrap()[0], text));
    }
    let unknown = journal.make_id().unwrap();
    let reserved = journal.reserve(1, usize::MAX, Some(LONG)).unwrap();
    let check = async |journal: &Journal| {
        for (id, text) in &made {
            let record = journal.find(*id).await.unwrap().unwrap();
            assert_eq!((record.job.id, payload(&record)), (*id, text.as_bytes()));
        }
        assert_eq!(journal.find(unknown).await, Ok(None));
    };
    check(&journal).await;
    journal.give_back(reserved);
    drain(&journal).await;
    check(&journal).await;
    journal.drop_until(made[1].0).await.unwrap();
    assert_eq!(journal.find(made[1].0).await, Ok(None));
    assert!(journal.find(made[2].0).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_larger_than_the_memory_is_read_from_the_files() {
    const BATCHES: usize = 60;
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let mut made = Vec::new();
    for _ in 0..BATCHES {
        made.extend(journal.append(vec![entry(vec![b'x'; 1000]); 1000], None).await.unwrap());
        made.extend(journal.append(entries(&["small"]), None).await.unwrap());
    }
    assert_eq!(ids(&drain(&journal).await), made);
}

#[tokio::test]
async fn the_newest_unread_records_are_seen_without_reading_them() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let made = journal.append(entries(&["a", "b", "c", "d"]), None).await.unwrap();
    let held = journal.reserve(1, usize::MAX, Some(Duration::from_secs(60))).unwrap();
    let newest = journal.newest(None, |_| true).await.unwrap();
    assert_eq!(texts(&newest.records), ["d", "c", "b", "a"]);
    assert_eq!(newest.rest_below, None);
    let b = made[1];
    let before = journal.newest(Some(made[3]), move |job| job.id != b).await.unwrap();
    assert_eq!(texts(&before.records), ["c", "a"]);
    journal.commit(held).unwrap();
    assert_eq!(texts(&journal.newest(Some(made[1]), |_| true).await.unwrap().records), [""; 0]);
    assert_eq!(drain(&journal).await.len(), 3);
}

#[tokio::test]
async fn a_look_at_the_newest_records_is_bounded_and_says_where_it_stopped() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let big = "x".repeat(60_000);
    let made = journal.append(vec![entry(big); 100], None).await.unwrap();
    let mut seen = Vec::new();
    let mut before = None;
    for _ in 0..100 {
        let newest = journal.newest(before, |_| true).await.unwrap();
        assert!(newest.records.len() < 100, "all at once");
        seen.extend(newest.records.iter().map(|record| record.job.id));
        before = newest.rest_below;
        if before.is_none() {
            break;
        }
    }
    seen.reverse();
    assert_eq!(seen, made);
}
