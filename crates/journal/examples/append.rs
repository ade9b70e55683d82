//! Measures appends next to a loop that only writes the same bytes and syncs them, in the same run
//! and on the same disk, then reads them back. Usage: `cargo run --release -p windlass-journal
//! --example append [dir]`.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use windlass_core::time::SystemClock;
use windlass_core::{AddOptions, Sysid, TypeKey};
use windlass_journal::{AddPayload, Entry, Journal, Options, RealDisk};

const LINES: usize = 1000;
const LINE_BYTES: usize = 200;
const TASKS: usize = 8;
const APPENDS_PER_TASK: usize = 250;
const LONE_APPENDS: usize = 500;
const ROUNDS: usize = 3;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let base = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let root = base.join(format!("windlass-append-{}", std::process::id()));
    std::fs::create_dir(&root)?;
    let measured = measure(&root).await;
    std::fs::remove_dir_all(&root)?;
    measured
}

async fn measure(root: &Path) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        let dir = root.join(round.to_string());
        std::fs::create_dir(&dir)?;
        let group_bytes = journal_lines(&dir).await?;
        raw_lines(&dir, group_bytes)?;
        read_back(&dir).await?;
        lone(&dir).await?;
    }
    Ok(())
}

fn open(dir: &Path, syncs: Arc<std::sync::atomic::AtomicU64>) -> Result<Journal, Failure> {
    let options = Options {
        disk: Arc::new(RealDisk),
        dir: dir.join("journal"),
        spool_dir: dir.join("payload"),
        sysid: Sysid::new(1).ok_or("1 is a sysid")?,
        segment_bytes_max: 64 * 1024 * 1024,
        segment_keep: Duration::ZERO,
        seed: fastrand::u64(..),
        on_sync: Some(Arc::new(move |_| {
            syncs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        })),
    };
    Ok(Journal::open(options, Arc::new(SystemClock), None, None)?)
}

fn entries(payload: &Bytes, count: usize) -> Result<Vec<Entry>, Failure> {
    let entry = Entry {
        key: TypeKey::new("acme", "mail").map_err(|invalid| invalid.to_string())?,
        payload: AddPayload::Inline(payload.clone()),
        options: AddOptions::default(),
    };
    Ok(vec![entry; count])
}

/// Lines per second through the journal, with a reader that follows; and the mean size of a group.
async fn journal_lines(dir: &Path) -> Result<u64, Failure> {
    let syncs = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let journal = open(&dir.join("lines"), syncs.clone())?;
    // Like a request's body: one buffer, each payload a slice of it.
    let body = Bytes::from(vec![b'x'; LINES * LINE_BYTES]);
    let began = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (journal, body) = (journal.clone(), body.clone());
            tokio::spawn(async move {
                for _ in 0..APPENDS_PER_TASK {
                    let mut batch = entries(&body, LINES)?;
                    for (n, entry) in batch.iter_mut().enumerate() {
                        let start = n * LINE_BYTES;
                        entry.payload = AddPayload::Inline(body.slice(start..start + LINE_BYTES));
                    }
                    journal.append(batch, None).await?;
                }
                Ok::<(), Failure>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let took = began.elapsed();
    journal.close().await;
    let bytes = journal.stats().disk_bytes;
    let groups = syncs.load(std::sync::atomic::Ordering::Relaxed).max(1);
    report("journal", took, bytes, groups);
    Ok(bytes / groups)
}

/// How fast a start checks the files, and how fast they are read.
async fn read_back(dir: &Path) -> Result<(), Failure> {
    let began = Instant::now();
    let journal = open(&dir.join("lines"), Arc::default())?;
    let opened = began.elapsed();
    let mut lines = 0;
    while let Some(ticket) = journal.reserve(10_000, 4 * 1024 * 1024, Some(Duration::from_secs(60)))
    {
        lines += journal.read(&ticket).await?.len();
        journal.commit(ticket)?;
    }
    let took = began.elapsed() - opened;
    let rate = lines as f64 / took.as_secs_f64();
    println!("opened {lines} lines in {opened:.2?}, read {rate:.0} lines/s");
    journal.close().await;
    Ok(())
}

/// The same number of bytes, in groups of the same size, with nothing but write and fdatasync.
fn raw_lines(dir: &Path, group_bytes: u64) -> Result<(), Failure> {
    let buffer = vec![b'x'; group_bytes as usize];
    let total = (TASKS * APPENDS_PER_TASK * LINES * (LINE_BYTES + 31)) as u64;
    let began = Instant::now();
    let mut file = File::create(dir.join("raw.0"))?;
    let (mut written, mut offset, mut groups) = (0, 0, 0);
    while written < total {
        if offset >= 64 * 1024 * 1024 {
            file = File::create(dir.join(format!("raw.{written}")))?;
            offset = 0;
        }
        file.write_all_at(&buffer, offset)?;
        file.sync_data()?;
        offset += group_bytes;
        written += group_bytes;
        groups += 1;
    }
    report("raw", began.elapsed(), written, groups);
    Ok(())
}

fn report(name: &str, took: Duration, bytes: u64, groups: u64) {
    let lines = (TASKS * APPENDS_PER_TASK * LINES) as f64 / took.as_secs_f64();
    let rate = bytes as f64 / took.as_secs_f64() / 1e6;
    println!("{name}: {lines:.0} lines/s, {rate:.0} MB/s, {groups} groups in {took:.2?}");
}

/// One line at a time: alternates between an append and a bare write with fdatasync.
async fn lone(dir: &Path) -> Result<(), Failure> {
    let journal = open(&dir.join("lone"), Arc::default())?;
    let file = File::create(dir.join("lone.raw"))?;
    let payload = Bytes::from(vec![b'x'; LINE_BYTES]);
    let line = vec![b'x'; LINE_BYTES + 130];
    let (mut appends, mut raws) = (Vec::new(), Vec::new());
    for n in 0..LONE_APPENDS {
        let batch = entries(&payload, 1)?;
        let began = Instant::now();
        journal.append(batch, None).await?;
        appends.push(began.elapsed());
        let began = Instant::now();
        file.write_all_at(&line, (n * line.len()) as u64)?;
        file.sync_data()?;
        raws.push(began.elapsed());
    }
    journal.close().await;
    for (name, mut times) in [("lone append", appends), ("lone fdatasync", raws)] {
        times.sort();
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("{name}: p50 {p50:.0?}, p99 {p99:.0?}");
    }
    Ok(())
}
