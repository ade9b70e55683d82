//! Tests of the whole journal, on real files unless a disk must fail.

mod adopt;
mod clock;
mod fault;
mod fault_loop;
mod floor;
mod format;
mod keep;
mod kill;
mod model;
mod panic;
mod power;
mod race;
mod reading;
mod recovery;
mod refusal;
mod rewind;
mod search;
mod unread;
mod writing;

use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use windlass_core::time::{Clock, ManualClock};
use windlass_core::{AddOptions, JobId, Payload, Sysid, Timestamp, TypeKey};

use crate::disk::{Disk, RealDisk};
use crate::{AddPayload, Entry, Error, Journal, Options, Record, Spool};

const NOW: Timestamp = Timestamp(1_800_000_000_123);
const SEGMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longer than any test takes by its own clock.
const LONG: Duration = Duration::from_secs(3600);
/// Held for writing while a process starts: until it executes its program, it has a copy of every
/// lock, and no test could open a journal that it has just closed.
static STARTING: RwLock<()> = RwLock::new(());

fn start(command: &mut Command) -> Child {
    let _this_starts = STARTING.write().unwrap();
    command.spawn().unwrap()
}

fn sysid() -> Sysid {
    Sysid::new(7).unwrap()
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(NOW))
}

fn options(root: &Path) -> Options {
    Options {
        disk: Arc::new(RealDisk),
        dir: root.join("journal/7"),
        spool_dir: root.join("payload"),
        sysid: sysid(),
        segment_bytes_max: SEGMENT_BYTES_MAX,
        segment_keep: Duration::ZERO,
        seed: 1,
        on_sync: None,
    }
}

fn open(root: &Path) -> Journal {
    open_after(root, None).unwrap()
}

fn open_after(root: &Path, ingested: Option<JobId>) -> Result<Journal, Error> {
    let _none_starts = STARTING.read().unwrap();
    Journal::open(options(root), clock() as Arc<dyn Clock>, None, ingested)
}

/// On this disk instead of the real one.
fn open_on(
    disk: Arc<dyn Disk>,
    options: Options,
    clock: Arc<dyn Clock>,
    ingested: Option<JobId>,
) -> Result<Journal, Error> {
    Journal::open(Options { disk, ..options }, clock, None, ingested)
}

fn entry(payload: impl Into<Bytes>) -> Entry {
    Entry {
        key: TypeKey::new("acme", "mail").unwrap(),
        payload: AddPayload::Inline(payload.into()),
        options: AddOptions::default(),
    }
}

fn entries(payloads: &[&'static str]) -> Vec<Entry> {
    payloads.iter().map(|payload| entry(*payload)).collect()
}

fn payload(record: &Record) -> &[u8] {
    match &record.job.payload {
        Payload::Inline(bytes) => bytes,
        Payload::Pieces { .. } => panic!("a spooled payload"),
    }
}

/// Reads and commits everything that is unread.
async fn drain(journal: &Journal) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some(ticket) = journal.reserve(1000, 1024 * 1024, Some(LONG)) {
        records.extend(journal.read(&ticket).await.unwrap());
        journal.commit(ticket).unwrap();
    }
    records
}

fn ids(records: &[Record]) -> Vec<JobId> {
    records.iter().map(|record| record.job.id).collect()
}

fn texts(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| str::from_utf8(payload(record)).unwrap()).collect()
}

/// The segments of a journal, oldest first.
fn segments(root: &Path) -> Vec<std::path::PathBuf> {
    let dir = std::fs::read_dir(options(root).dir).unwrap();
    let paths = dir.map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect();
    logs.sort();
    logs
}
