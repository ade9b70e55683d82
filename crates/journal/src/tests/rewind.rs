//! Going back to a position of the store.

use super::fault::{Fault, FaultDisk, Plan};
use super::*;
use crate::chunk::{Chunk, Content};
use crate::unread::Unread;

/// So small that a few records fill a segment.
const SEGMENT: u64 = 700;

pub(super) fn small(root: &Path, keep: Duration) -> Options {
    Options { segment_bytes_max: SEGMENT, segment_keep: keep, ..options(root) }
}

fn open_small(root: &Path, keep: Duration) -> Journal {
    Journal::open(small(root, keep), clock() as Arc<dyn Clock>, None, None).unwrap()
}

pub(super) async fn appended(journal: &Journal, records: usize) -> Vec<JobId> {
    let mut made = Vec::new();
    for number in 0..records {
        made.extend(journal.append(vec![entry(number.to_string())], None).await.unwrap());
    }
    made
}

#[tokio::test]
async fn after_a_rewind_everything_behind_the_position_is_unread_again() {
    let root = tempfile::tempdir().unwrap();
    let journal = open_small(root.path(), LONG);
    let made = appended(&journal, 30).await;
    assert!(journal.stats().segments > 3);
    assert_eq!(drain(&journal).await.len(), 30);
    journal.drop_until(made[24]).await.unwrap();
    for unread in [30_usize, 20, 3] {
        let position = (30 - unread).checked_sub(1).map(|at| made[at]);
        journal.rewind(position).await.unwrap();
        assert_eq!(journal.stats().unread_records as usize, unread);
        for (at, &id) in made.iter().enumerate() {
            let found = journal.find(id).await.unwrap();
            assert_eq!(found.is_some(), at >= 30 - unread, "{at} of {unread}");
        }
        let mut newest = ids(&journal.newest(None, |_| true).await.unwrap().records);
        newest.reverse();
        assert_eq!(newest, made[30 - unread..]);
        journal.readable().await;
        assert_eq!(ids(&drain(&journal).await), made[30 - unread..]);
        assert_eq!((journal.stats().unread_records, journal.stats().unread_bytes), (0, 0));
    }
}

#[tokio::test]
async fn a_rewind_to_a_position_ahead_skips_what_the_store_has() {
    let root = tempfile::tempdir().unwrap();
    let journal = open_small(root.path(), Duration::ZERO);
    let made = appended(&journal, 10).await;
    journal.rewind(Some(made[6])).await.unwrap();
    assert_eq!(journal.find(made[6]).await, Ok(None));
    assert_eq!(ids(&drain(&journal).await), made[7..]);
}

#[tokio::test]
async fn tickets_from_before_a_rewind_are_void() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let made = journal.append(entries(&["a", "b", "c", "d"]), None).await.unwrap();
    let take = || journal.reserve(1, usize::MAX, Some(LONG)).unwrap();
    let (first, second, third) = (take(), take(), take());
    journal.commit(second).unwrap();
    journal.rewind(None).await.unwrap();
    assert_eq!(journal.stats().unread_records, 4);
    assert_eq!(journal.read(&first).await, Err(Error::Expired));
    let again = journal.reserve(1, usize::MAX, Some(LONG)).unwrap();
    assert_eq!(journal.commit(first), Err(Error::Expired));
    journal.give_back(third);
    assert_eq!(journal.stats().unread_records, 4, "they change nothing");
    assert_eq!(ids(&journal.read(&again).await.unwrap()), made[..1]);
    journal.commit(again).unwrap();
    assert_eq!(ids(&drain(&journal).await), made[1..]);
}

#[tokio::test]
async fn a_rewind_behind_a_dropped_segment_names_the_gap() {
    let root = tempfile::tempdir().unwrap();
    let journal = open_small(root.path(), Duration::ZERO);
    let made = appended(&journal, 30).await;
    drain(&journal).await;
    journal.drop_until(made[20]).await.unwrap();
    let Err(Error::Gap { after: None, until }) = journal.rewind(None).await else { panic!() };
    assert!(until <= made[20] && until >= made[10], "whole segments go");
    let position = made.iter().rfind(|id| **id < until).copied();
    let gap = Err(Error::Gap { after: position, until });
    assert_eq!(journal.rewind(position).await, gap);
    assert_eq!(journal.stats().unread_records, 0, "nothing has changed");
    journal.close().await;

    let options = small(root.path(), Duration::ZERO);
    let journal = Journal::open(options, clock(), None, Some(made[29])).unwrap();
    assert_eq!(journal.rewind(position).await, gap, "also after a restart");
    journal.rewind(Some(until)).await.unwrap();
    let behind = made.iter().copied().filter(|id| *id > until).collect::<Vec<_>>();
    assert_eq!(ids(&drain(&journal).await), behind);
}

#[tokio::test]
async fn a_gap_is_known_when_everything_was_dropped_before_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let journal = open_small(root.path(), Duration::ZERO);
    let made = appended(&journal, 30).await;
    journal.close().await;
    let newest = made.last().copied();
    for _ in 0..2 {
        let journal = open_after(root.path(), newest).unwrap();
        journal.drop_until(made[29]).await.unwrap();
        journal.close().await;
    }
    let journal = open_after(root.path(), newest).unwrap();
    let rewound = journal.rewind(None).await;
    assert!(matches!(rewound, Err(Error::Gap { after: None, .. })), "{rewound:?}");
}

#[tokio::test]
async fn a_dropped_payload_is_a_gap_although_its_segment_is_there() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let mut large = entry("");
    large.payload = AddPayload::Spooled(journal.spool().await.unwrap().finish().await.unwrap());
    let made = journal.append(vec![entry("a"), large, entry("c")], None).await.unwrap();
    drain(&journal).await;
    journal.drop_until(made[2]).await.unwrap();
    let gap = Err(Error::Gap { after: Some(made[0]), until: made[1] });
    assert_eq!(journal.rewind(Some(made[0])).await, gap);
    journal.close().await;
    let journal = open_after(root.path(), Some(made[2])).unwrap();
    assert_eq!(journal.rewind(Some(made[0])).await, gap, "also after a restart");
    journal.rewind(Some(made[1])).await.unwrap();
    assert_eq!(texts(&drain(&journal).await), ["c"]);
}

#[tokio::test]
async fn damage_and_a_refusing_disk_fail_a_rewind_and_reading_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let made = journal.append(entries(&["a"]), None).await.unwrap();
    drain(&journal).await;
    let later = journal.append(entries(&["b"]), None).await.unwrap();
    let file = segments(root.path()).remove(0);
    let content = std::fs::read(&file).unwrap();
    let mut damaged = content.clone();
    damaged[content.len() - 20] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    assert!(matches!(journal.rewind(None).await, Err(Error::Corrupt { .. })));
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(journal.rewind(None).await, Err(Error::Storage(_))));
    assert_eq!(ids(&drain(&journal).await), later, "what was unread stays so");
    std::fs::write(&file, content).unwrap();
    journal.rewind(None).await.unwrap();
    assert_eq!(ids(&drain(&journal).await), [made, later].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rewind_beside_appends_loses_and_doubles_nothing() {
    let root = tempfile::tempdir().unwrap();
    let journal = open_small(root.path(), LONG);
    let writer = tokio::spawn({
        let journal = journal.clone();
        async move { appended(&journal, 500).await }
    });
    let mut luck = fastrand::Rng::with_seed(1);
    let mut position = None;
    while !writer.is_finished() {
        if let Some(ticket) = journal.reserve(luck.usize(1..20), usize::MAX, Some(LONG)) {
            position = Some(ticket.last());
            journal.commit(ticket).unwrap();
        }
        if luck.u8(..) < 64 {
            journal.rewind(position.filter(|_| luck.bool())).await.unwrap();
        }
        tokio::task::yield_now().await;
    }
    let made = writer.await.unwrap();
    let (first, second) = tokio::join!(journal.rewind(None), journal.rewind(None));
    first.and(second).unwrap();
    assert_eq!(ids(&drain(&journal).await), made);
}

#[test]
fn records_that_come_during_a_rewind_stay_unread_once() {
    let id = |number| JobId::new(number).unwrap();
    let chunk = |number: i64| Chunk {
        segment: id(1),
        offset: number as u64 * 10,
        bytes: 10,
        records: 1,
        spooled_bytes: 0,
        first: id(number),
        last: id(number),
        state: Default::default(),
        content: Content::of_file(&[0; 10]),
    };
    let mut unread = Unread::default();
    unread.push(chunk(2), &[0; 10]);
    unread.pause();
    unread.push(chunk(3), &[0; 10]);
    assert!(!unread.is_waiting(), "nothing is handed out meanwhile");
    let mut found = Unread::default();
    found.push(chunk(1), &[0; 10]);
    found.push(chunk(2), &[0; 10]);
    unread.replace_until(Some(id(2)), found);
    unread.resume();
    assert_eq!((unread.records(), unread.bytes()), (3, 30));
    let chunks = unread.newest(None, 10);
    assert_eq!(chunks.iter().map(|chunk| chunk.records).sum::<u32>(), 3);
}

#[tokio::test]
async fn a_rewind_reads_nothing_of_a_refused_frame() {
    let disk = FaultDisk::default();
    let options = options(Path::new("/data"));
    let journal = super::open_on(Arc::new(disk.clone()), options, clock(), None).unwrap();
    let made = appended(&journal, 3).await;
    drain(&journal).await;
    disk.fail(Some(Plan { fault: Fault::PowerCut, from: 1, until: u64::MAX }));
    assert!(journal.append(entries(&["refused"]), None).await.is_err());
    journal.rewind(None).await.unwrap();
    assert_eq!(ids(&drain(&journal).await), made);
}
