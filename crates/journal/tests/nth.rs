//! Every system call of a journal fails once: with an error, on a full disk, by a kill. In addition
//! to the tests on a disk in memory, these cover recovery, going back, taking over and removing.

// Test helpers outside test functions, which clippy does not recognise.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use windlass_core::time::ManualClock;
use windlass_core::{AddOptions, JobId, Payload, Sysid, Timestamp, TypeKey};
use windlass_faulty_disk::{Fault, Trial, every_call};
use windlass_journal::{AddPayload, Entry, Error, Journal, Options, RealDisk, Ticket};

const NOW: Timestamp = Timestamp(1_800_000_000_123);
/// A segment has a few appends.
const SEGMENT_BYTES_MAX: u64 = 500;
const OURS: u16 = 7;
const DEAD: u16 = 8;
const LONG: Duration = Duration::from_secs(3600);

/// What is known of one journal.
#[derive(Clone, Default)]
struct Known {
    accepted: BTreeMap<JobId, String>,
    /// What the store has, and how far it has come in the journal.
    stored: BTreeMap<JobId, String>,
    position: Option<JobId>,
    /// The store has all of it, and the journal may be gone.
    removable: bool,
}

impl Known {
    /// As ingest does: the store gets records and position in one commit, then the journal knows.
    async fn take(&mut self, journal: &Journal, ticket: Ticket) -> Result<(), Error> {
        match read(journal, &ticket).await {
            Ok(mut records) => {
                self.stored.append(&mut records);
                self.position = Some(ticket.last());
                journal.commit(ticket)
            }
            Err(error) => {
                journal.give_back(ticket);
                Err(error)
            }
        }
    }

    /// A record is lost if it was accepted, and neither the store has it nor what is read now.
    fn check(&self, found: &BTreeMap<JobId, String>, trial: &Trial) {
        for (id, text) in &self.accepted {
            let (stored, unread) = (self.stored.get(id), found.get(id));
            assert_eq!(stored.or(unread), Some(text), "{trial}: {id}");
            assert!(stored.is_none() || unread.is_none(), "{trial}: {id} is read again");
        }
        // A refused append may be found only if its process did not live to make sure.
        let all = self.stored.keys().chain(found.keys());
        let more = all.filter(|id| !self.accepted.contains_key(id)).count();
        assert!(more == 0 || trial.fault == Some(Fault::Kill), "{trial}: {more} were not accepted");
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(NOW))
}

fn options(root: &Path, sysid: u16) -> Options {
    Options {
        disk: Arc::new(RealDisk),
        dir: root.join("journal").join(sysid.to_string()),
        spool_dir: root.join("payload"),
        sysid: Sysid::new(sysid).unwrap(),
        segment_bytes_max: SEGMENT_BYTES_MAX,
        segment_keep: Duration::ZERO,
        seed: 1,
        on_sync: None,
    }
}

fn open(root: &Path, sysid: u16, position: Option<JobId>) -> Result<Journal, Error> {
    Journal::open(options(root, sysid), clock(), None, position)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

fn entry(payload: AddPayload) -> Entry {
    let key = TypeKey::new("acme", "mail").unwrap();
    Entry { key, payload, options: AddOptions::default() }
}

async fn append(journal: &Journal, known: &mut Known, text: &str) {
    let entry = entry(AddPayload::Inline(Bytes::copy_from_slice(text.as_bytes())));
    if let Ok(ids) = journal.append(vec![entry], None).await {
        known.accepted.insert(ids[0], text.to_owned());
    }
}

async fn append_large(journal: &Journal, known: &mut Known, text: &str) -> Result<(), Error> {
    let mut writer = journal.spool().await?;
    writer.write(Bytes::copy_from_slice(text.as_bytes())).await?;
    let entry = entry(AddPayload::Spooled(writer.finish().await?));
    let ids = journal.append(vec![entry], None).await?;
    known.accepted.insert(ids[0], text.to_owned());
    Ok(())
}

/// The records of a ticket: id and payload.
async fn read(journal: &Journal, ticket: &Ticket) -> Result<BTreeMap<JobId, String>, Error> {
    let mut found = BTreeMap::new();
    for record in journal.read(ticket).await? {
        let bytes = match (&record.spool, &record.job.payload) {
            (Some(path), _) => {
                let read = std::fs::read(path);
                read.map_err(|error| Error::Storage(error.to_string()))?.into()
            }
            (None, Payload::Inline(bytes)) => bytes.clone(),
            (None, Payload::Pieces { .. }) => panic!("a payload without a file"),
        };
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(found.insert(record.job.id, text), None, "it is read once");
    }
    Ok(found)
}

/// Moves everything that is unread into this, which the store has with its position.
async fn drain(journal: &Journal, store: &mut Known) -> Result<(), Error> {
    while let Some(ticket) = journal.reserve(3, usize::MAX, Some(LONG)) {
        store.take(journal, ticket).await?;
    }
    Ok(())
}

/// Two journals as killed daemons left them: several segments, a large payload, a torn end.
fn template() -> (TempDir, [Known; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let known = [OURS, DEAD].map(|sysid| {
        let mut known = Known::default();
        block_on(async {
            let journal = open(dir.path(), sysid, None).unwrap();
            for number in 0..8 {
                append(&journal, &mut known, &format!("{sysid}.{number}")).await;
            }
            append_large(&journal, &mut known, &format!("{sysid}.large")).await.unwrap();
            journal.close().await;
        });
        tear(&options(dir.path(), sysid).dir);
        let first = known.accepted.iter().take(3);
        known.stored = first.map(|(id, text)| (*id, text.clone())).collect();
        known.position = known.stored.keys().next_back().copied();
        known
    });
    (dir, known)
}

fn tear(dir: &Path) {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let newest = files.filter(|path| path.extension().is_some()).max().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes.extend_from_slice(b"#:Frame torn");
    std::fs::write(newest, bytes).unwrap();
}

/// A daemon that recovers its journal, appends, ingests some, goes back, drops, and takes over the
/// journal of a dead one. Goes on after errors, as ingest does.
async fn work(root: &Path, [mut ours, mut dead]: [Known; 2]) -> [Known; 2] {
    if let Ok(journal) = open(root, OURS, ours.position) {
        for number in 0..4 {
            append(&journal, &mut ours, &format!("new {number}")).await;
        }
        let _ = append_large(&journal, &mut ours, "new large").await;
        let _ = journal.wsync().await;
        let (mut forgetful, mut gone_back) = (ours.clone(), true);
        if let Some(ticket) = journal.reserve(6, usize::MAX, Some(LONG))
            && forgetful.take(&journal, ticket).await.is_ok()
        {
            // The store forgets it, and refuses what comes behind it.
            gone_back = journal.rewind(ours.position).await.is_ok();
        }
        if gone_back
            && let Some(ticket) = journal.reserve(6, usize::MAX, Some(LONG))
            && ours.take(&journal, ticket).await.is_ok()
        {
            let _ = journal.drop_until(ours.position.unwrap()).await;
        }
        append(&journal, &mut ours, "last").await;
        journal.close().await;
    }
    if let Ok(Some(journal)) = Journal::adopt(options(root, DEAD), clock(), dead.position)
        && drain(&journal, &mut dead).await.is_ok()
    {
        dead.removable = true;
        let _ = journal.remove().await;
    }
    [ours, dead]
}

async fn check(root: &Path, [ours, dead]: &[Known; 2], trial: &Trial) {
    let journal = open(root, OURS, ours.position).unwrap_or_else(|e| panic!("{trial}: {e}"));
    let mut found = Known::default();
    drain(&journal, &mut found).await.unwrap_or_else(|e| panic!("{trial}: {e}"));
    ours.check(&found.stored, trial);
    let newest = journal.id_newest();
    let mut again = Known::default();
    append(&journal, &mut again, "works again").await;
    assert!(again.accepted.keys().next().copied() > newest, "{trial}: it works again");
    journal.close().await;

    let adopted = Journal::adopt(options(root, DEAD), clock(), dead.position);
    let adopted = adopted.unwrap_or_else(|e| panic!("{trial}: {e}"));
    let mut found = Known::default();
    if let Some(journal) = &adopted {
        drain(journal, &mut found).await.unwrap_or_else(|e| panic!("{trial}: {e}"));
    }
    dead.check(&found.stored, trial);
    assert!(adopted.is_some() || dead.removable, "{trial}: the journal is gone");
    if let Some(journal) = adopted {
        journal.remove().await.unwrap_or_else(|e| panic!("{trial}: {e}"));
        assert!(!options(root, DEAD).dir.exists(), "{trial}");
    }
}

#[test]
fn any_call_of_a_journal_that_recovers_goes_back_and_takes_over_may_fail() {
    let (dir, known) = template();
    let operate = |root: &Path| block_on(work(root, known.clone()));
    let tally = every_call(dir.path(), 1, operate, |root, known, trial| {
        block_on(check(root, known, trial));
    });
    tally.report("a journal");
}
