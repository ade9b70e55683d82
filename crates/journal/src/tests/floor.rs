//! What the store has is not read again, whatever happens to its tickets and files.

use windlass_core::store::IdempotencyKey;

use super::fault::{Fault, FaultDisk, Plan};
use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

fn open_on(disk: &FaultDisk, clock: &Arc<ManualClock>) -> Journal {
    let options = options(Path::new("/data"));
    super::open_on(Arc::new(disk.clone()), options, clock.clone(), None).unwrap()
}

async fn spooled(journal: &Journal, bytes: usize) -> Entry {
    let mut writer = journal.spool().await.unwrap();
    writer.write(Bytes::from(vec![b's'; bytes])).await.unwrap();
    let mut large = entry("");
    large.payload = AddPayload::Spooled(writer.finish().await.unwrap());
    large
}

#[tokio::test]
async fn what_the_store_has_does_not_wait_again_when_its_ticket_expires() {
    let (disk, clock) = (FaultDisk::default(), clock());
    let journal = open_on(&disk, &clock);
    let made = journal.append(entries(&["a", "b", "c"]), None).await.unwrap();
    let slow = journal.reserve(3, usize::MAX, Some(TIMEOUT)).unwrap();
    journal.drop_until(made[2]).await.unwrap();
    clock.advance(TIMEOUT);
    journal.append(entries(&["d"]), None).await.unwrap();
    let next = journal.reserve(3, usize::MAX, Some(TIMEOUT)).unwrap();
    assert_eq!(texts(&journal.read(&next).await.unwrap()), ["d"]);
    assert_eq!(journal.commit(slow), Err(Error::Expired));
    journal.commit(next).unwrap();
    assert_eq!((journal.stats().unread_records, journal.stats().unread_bytes), (0, 0));
}

#[tokio::test]
async fn what_the_store_has_does_not_wait_again_when_it_is_given_back() {
    let (disk, clock) = (FaultDisk::default(), clock());
    let journal = open_on(&disk, &clock);
    let made = journal.append(entries(&["a", "b", "c", "d"]), None).await.unwrap();
    let held = journal.reserve(3, usize::MAX, Some(TIMEOUT)).unwrap();
    journal.drop_until(made[1]).await.unwrap();
    assert_eq!(texts(&journal.read(&held).await.unwrap()), ["c"], "the rest of it");
    journal.give_back(held);
    assert_eq!(journal.stats().unread_records, 2);
    let next = journal.reserve(1, usize::MAX, Some(TIMEOUT)).unwrap();
    assert_eq!(texts(&journal.read(&next).await.unwrap()), ["c"]);
    journal.give_back(next);
    assert_eq!(texts(&drain(&journal).await), ["c", "d"]);
}

/// The disk refuses the first removal: the file stays, and is removed the next time.
#[tokio::test]
async fn a_file_that_cannot_be_removed_stops_no_reading_and_goes_later() {
    let (disk, clock) = (FaultDisk::default(), clock());
    let journal = open_on(&disk, &clock);
    let large = spooled(&journal, 100).await;
    let made = journal.append(vec![large], None).await.unwrap();
    let held = journal.reserve(9, usize::MAX, Some(TIMEOUT)).unwrap();
    let path = journal.read(&held).await.unwrap()[0].spool.clone().unwrap();
    disk.fail(Some(Plan { fault: Fault::Refuse, from: 1, until: 2 }));
    assert!(matches!(journal.drop_until(made[0]).await, Err(Error::Storage(_))));
    disk.fail(None);
    journal.give_back(held);
    journal.append(entries(&["behind"]), None).await.unwrap();
    assert_eq!(texts(&drain(&journal).await), ["behind"]);
    assert!(disk.content(&path).is_some());
    journal.drop_until(made[0]).await.unwrap();
    assert!(disk.content(&path).is_none(), "it was not forgotten");
}

#[tokio::test]
async fn a_removed_payload_is_gone_for_good() {
    let (disk, clock) = (FaultDisk::default(), clock());
    let journal = open_on(&disk, &clock);
    let large = spooled(&journal, 100).await;
    let made = journal.append(vec![large], None).await.unwrap();
    let path = drain(&journal).await[0].spool.clone().unwrap();
    journal.drop_until(made[0]).await.unwrap();
    assert!(disk.after_worst_power_cut().content(&path).is_none(), "its directory was synced");
}

#[tokio::test]
async fn large_payloads_count_in_the_size_of_a_reservation() {
    let root = tempfile::tempdir().unwrap();
    let journal = open(root.path());
    let mut batch = Vec::new();
    for bytes in [3000, 3000, 9000, 10, 10] {
        batch.push(spooled(&journal, bytes).await);
        batch.push(entry("x"));
    }
    let key = IdempotencyKey { key: "k".into(), fingerprint: 1 };
    journal.append(batch, Some(key)).await.unwrap();
    for reopened in [false, true] {
        let journal = if reopened { open(root.path()) } else { journal.clone() };
        let mut taken = Vec::new();
        while let Some(ticket) = journal.reserve(1000, 8000, Some(TIMEOUT)) {
            let records = journal.read(&ticket).await.unwrap();
            taken.push(records.iter().map(|record| record.job.payload.len()).collect::<Vec<_>>());
            journal.commit(ticket).unwrap();
        }
        let expected = [vec![3000, 1, 3000, 1], vec![9000], vec![1, 10, 1, 10, 1]];
        assert_eq!(taken, expected, "reopened: {reopened}");
        journal.close().await;
    }
}
