//! How long segments and payloads stay after the store has them.

use super::*;
use crate::segment;

const KEEP: Duration = Duration::from_secs(300);
const SEGMENT: u64 = 700;

fn open_keeping(root: &Path, clock: &Arc<ManualClock>, ingested: Option<JobId>) -> Journal {
    let options = Options { segment_bytes_max: SEGMENT, segment_keep: KEEP, ..options(root) };
    Journal::open(options, clock.clone(), None, ingested).unwrap()
}

async fn filled(journal: &Journal) -> JobId {
    let mut newest = None;
    for _ in 0..30 {
        newest = journal.append(entries(&["x"]), None).await.unwrap().pop();
    }
    drain(journal).await;
    newest.unwrap()
}

#[tokio::test]
async fn a_segment_stays_for_a_while_after_the_store_has_it() {
    let root = tempfile::tempdir().unwrap();
    let clock = clock();
    let journal = open_keeping(root.path(), &clock, None);
    let newest = filled(&journal).await;
    let all = segments(root.path());
    assert!(all.len() > 3);
    clock.advance(KEEP * 2);
    journal.drop_until(newest).await.unwrap();
    assert_eq!(segments(root.path()), all, "its time begins when it is confirmed");
    clock.advance(KEEP - Duration::from_millis(1));
    journal.drop_until(newest).await.unwrap();
    assert_eq!(segments(root.path()), all);
    assert_eq!(journal.find(newest).await, Ok(None), "kept, but the store has it");
    clock.advance(Duration::from_millis(1));
    journal.drop_until(newest).await.unwrap();
    assert_eq!(segments(root.path()), all[all.len() - 1..], "the newest stays");
    assert_eq!(journal.stats().segments, 1);
}

#[tokio::test]
async fn a_start_begins_to_count_anew() {
    let root = tempfile::tempdir().unwrap();
    let clock = clock();
    let journal = open_keeping(root.path(), &clock, None);
    let newest = filled(&journal).await;
    journal.drop_until(newest).await.unwrap();
    journal.close().await;
    clock.advance(KEEP);
    let journal = open_keeping(root.path(), &clock, Some(newest));
    let all = segments(root.path());
    journal.drop_until(newest).await.unwrap();
    assert_eq!(segments(root.path()), all);
    clock.advance(KEEP);
    journal.drop_until(newest).await.unwrap();
    assert_eq!(segments(root.path()).len(), 1);
}

#[tokio::test]
async fn a_clock_that_was_set_back_keeps_nothing_longer_than_from_now_on() {
    let root = tempfile::tempdir().unwrap();
    let clock = clock();
    let journal = open_keeping(root.path(), &clock, None);
    let newest = filled(&journal).await;
    clock.advance(LONG);
    journal.drop_until(newest).await.unwrap();
    clock.set(NOW);
    journal.drop_until(newest).await.unwrap();
    clock.advance(KEEP);
    journal.drop_until(newest).await.unwrap();
    assert_eq!(segments(root.path()).len(), 1);
}

#[tokio::test]
async fn a_segment_that_a_rewind_took_back_must_be_confirmed_again() {
    let root = tempfile::tempdir().unwrap();
    let clock = clock();
    let journal = open_keeping(root.path(), &clock, None);
    let newest = filled(&journal).await;
    let all = segments(root.path());
    journal.drop_until(newest).await.unwrap();
    clock.advance(KEEP);
    journal.rewind(None).await.unwrap();
    assert_eq!(drain(&journal).await.len(), 30);
    journal.drop_until(newest).await.unwrap();
    assert_eq!(segments(root.path()), all);
    clock.advance(KEEP);
    journal.drop_until(newest).await.unwrap();
    assert_eq!(segments(root.path()).len(), 1);
}

#[tokio::test]
async fn a_segment_that_ends_where_a_rewind_begins_stays_confirmed() {
    let root = tempfile::tempdir().unwrap();
    let clock = clock();
    let journal = open_keeping(root.path(), &clock, None);
    let newest = filled(&journal).await;
    let all = segments(root.path());
    let second = segment::first_of_name(all[1].file_name().unwrap().to_str().unwrap()).unwrap();
    journal.drop_until(newest).await.unwrap();
    clock.advance(KEEP);
    journal.rewind(None).await.unwrap();
    let before = drain(&journal).await.into_iter().map(|record| record.job.id);
    let position = before.filter(|id| *id < second).max().unwrap();
    journal.drop_until(position).await.unwrap();
    clock.advance(KEEP);
    journal.rewind(Some(position)).await.unwrap();
    journal.drop_until(position).await.unwrap();
    assert_eq!(segments(root.path()), all[1..], "the store never lost anything of the first");
}

#[tokio::test]
async fn a_large_payload_stays_with_its_segment() {
    let root = tempfile::tempdir().unwrap();
    let clock = clock();
    let journal = open_keeping(root.path(), &clock, None);
    let mut writer = journal.spool().await.unwrap();
    writer.write(Bytes::from_static(b"large")).await.unwrap();
    let mut large = entry("");
    large.payload = AddPayload::Spooled(writer.finish().await.unwrap());
    journal.append(vec![large], None).await.unwrap();
    let path = drain(&journal).await[0].spool.clone().unwrap();
    let newest = filled(&journal).await;
    journal.drop_until(newest).await.unwrap();
    journal.rewind(None).await.unwrap();
    assert_eq!(std::fs::read(drain(&journal).await[0].spool.as_ref().unwrap()).unwrap(), b"large");
    journal.drop_until(newest).await.unwrap();
    assert!(path.exists());
    clock.advance(KEEP);
    journal.drop_until(newest).await.unwrap();
    assert!(!path.exists());
}
