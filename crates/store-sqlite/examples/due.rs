//! Prints how long claims wait while very many jobs of other types come due at once.
//!
//! `cargo run --release -p windlass-store-sqlite --example due -- [directory] [jobs]`

#![allow(clippy::print_stdout, reason = "a probe prints")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use windlass_core::job::Token;
use windlass_core::store::{ChangedLook, Claim, Durability, Hold, Insert, Pick};
use windlass_core::time::ManualClock;
use windlass_core::{JobId, NewJob, Payload, Store, Sysid, Timestamp, TypeKey};
use windlass_store_sqlite::{Options, SqliteStore};

const TYPES: i64 = 100;
const LOAD_BATCH: i64 = 5000;
const BEFORE: Timestamp = Timestamp(1_800_000_000_000);
const DUE: Timestamp = Timestamp(1_800_000_001_000);
/// Jobs of another type that are claimed one by one at the same time.
const OTHERS: i64 = 5_000;

/// The next token; none is used twice.
static TOKEN: AtomicI64 = AtomicI64::new(1);

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let jobs: i64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let directory = tempfile::TempDir::new_in(&directory).expect("a directory to write to");
    let clock = Arc::new(ManualClock::at(BEFORE));
    let path = directory.path().join("jobs.db");
    let options = Options { clock: clock.clone(), ..Options::new(path) };
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options).expect("a new store"));
    for first in (0..jobs).step_by(LOAD_BATCH as usize) {
        let batch = first..(first + LOAD_BATCH).min(jobs);
        let glut = |number| job(number + 1, &format!("glut-{}", number % TYPES), DUE);
        add(&*store, batch.map(glut).collect()).await;
    }
    add(&*store, (0..OTHERS).map(|n| job(jobs + 1 + n, "other", BEFORE)).collect()).await;

    clock.advance_to(DUE);
    let began = Instant::now();
    let all_ready = Arc::new(AtomicBool::new(false));
    let look = {
        let (store, all_ready) = (store.clone(), all_ready.clone());
        tokio::spawn(async move {
            loop {
                let look = ChangedLook { since: None, handled: false, each: 1, limit: 1 };
                let waiting = store.type_changed(look).await.expect("a look");
                if waiting.next_due_at.is_none() {
                    all_ready.store(true, Ordering::Relaxed);
                    return began.elapsed();
                }
            }
        })
    };
    let mut waits = Vec::new();
    while !all_ready.load(Ordering::Relaxed) && (waits.len() as i64) < OTHERS {
        let asked = Instant::now();
        let claim = Claim {
            picks: vec![Pick { key: key("other"), limit: 1, floor: None }],
            owner: Sysid::new(1).expect("a good number"),
            token: Token(TOKEN.fetch_add(1, Ordering::Relaxed)),
            hold: Hold::For(Duration::from_secs(10)),
            payload_bytes_max: u64::MAX,
        };
        assert_eq!(store.job_claim(claim).await.expect("a claim").jobs.len(), 1);
        waits.push(asked.elapsed());
    }
    let claims = waits.len();
    waits.sort();
    let longest = waits.last().copied().unwrap_or_default();
    let median = waits.get(claims / 2).copied().unwrap_or_default();
    let took = look.await.expect("the look ends");
    println!("{jobs} jobs came due; all were ready after {took:.2?}");
    println!("{claims} claims meanwhile; longest wait {longest:.2?}, median {median:.2?}");
    store.close().await;
}

async fn add(store: &dyn Store, jobs: Vec<NewJob>) {
    let insert = Insert { jobs, keys: Vec::new(), mark: None, durability: Durability::Relaxed };
    store.job_insert(insert).await.expect("an insert");
}

fn key(name: &str) -> TypeKey {
    TypeKey::new("acme", name).expect("a good name")
}

fn job(number: i64, name: &str, run_at: Timestamp) -> NewJob {
    let id = JobId::new(number).expect("a positive number");
    let payload = Payload::Inline(Bytes::from_static(b"payload"));
    NewJob { run_at, ..NewJob::new(id, key(name), payload, BEFORE) }
}
