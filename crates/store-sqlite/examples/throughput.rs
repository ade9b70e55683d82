//! Prints how many jobs per second the embedded store inserts, claims and settles, in batches of
//! 100, with few and with many other jobs waiting.
//!
//! `cargo run --release -p windlass-store-sqlite --example throughput -- [directory] [waiting…]`

#![allow(clippy::print_stdout, reason = "a probe prints")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use windlass_core::id::IdGenerator;
use windlass_core::job::Ended;
use windlass_core::retry::Verdict;
use windlass_core::state::Ending;
use windlass_core::store::{
    Claim, Claimed, Durability, Hold, Insert, Insertion, LeaseRef, Pick, Settlement, SysidGrant,
    SysidReserve,
};
use windlass_core::time::{Clock, SystemClock};
use windlass_core::{Log, NewJob, Payload, Status, Store, Sysid, TypeKey};
use windlass_store_sqlite::{Options, SqliteStore};

const TYPES: usize = 100;
const BATCH: usize = 100;
const PAYLOAD_BYTES: usize = 200;
const LOAD_BATCH: usize = 5000;
const CALLERS: usize = 4;
const CYCLES: usize = 100_000;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let mut waiting: Vec<usize> = arguments.filter_map(|number| number.parse().ok()).collect();
    if waiting.is_empty() {
        waiting = vec![1000, 1_000_000];
    }
    for waiting in waiting {
        for durability in [Durability::Relaxed, Durability::Synced] {
            let directory = tempfile::TempDir::new_in(&directory).expect("a directory to write to");
            measure(directory.path().join("jobs.db"), waiting, durability).await;
        }
    }
}

async fn measure(path: PathBuf, waiting: usize, durability: Durability) {
    let (commits, commit_us) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (count, sum) = (commits.clone(), commit_us.clone());
    let mut options = Options::new(path);
    options.on_commit = Some(Arc::new(move |took: Duration, _| {
        count.fetch_add(1, Ordering::Relaxed);
        sum.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }));
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options).expect("a new store"));
    let reserve = SysidReserve { wanted: None, lease: Duration::from_secs(3600) };
    let grant = store.sysid_reserve(reserve).await.expect("a sysid");
    let keys: Vec<TypeKey> = (0..TYPES)
        .map(|number| TypeKey::new("acme", &format!("type-{number}")).expect("a good name"))
        .collect();

    let mut ids = generator(1);
    let began = Instant::now();
    let mut loaded = 0;
    while loaded < waiting {
        let jobs = (0..LOAD_BATCH.min(waiting - loaded))
            .map(|number| job(&mut ids, &keys[(loaded + number) % TYPES]));
        loaded += insert(&*store, jobs.collect(), Durability::Relaxed).await;
    }
    let load = rate(waiting, began);

    commits.store(0, Ordering::Relaxed);
    commit_us.store(0, Ordering::Relaxed);
    let began = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, keys) = (store.clone(), keys.clone());
            tokio::spawn(async move { cycles(&*store, caller, grant, &keys, durability).await })
        })
        .collect();
    let mut settled = 0;
    for caller in callers {
        settled += caller.await.expect("a caller that ends");
    }
    println!(
        "{waiting:>9} waiting, settled {durability:?}: {} cycles/s, {} commits of {} µs, \
         load {load} jobs/s",
        rate(settled, began),
        commits.load(Ordering::Relaxed),
        commit_us.load(Ordering::Relaxed) / commits.load(Ordering::Relaxed).max(1),
    );
    store.close().await;
}

/// Inserts, claims and settles batches until this caller's share is done.
async fn cycles(
    store: &dyn Store,
    caller: usize,
    grant: SysidGrant,
    keys: &[TypeKey],
    durability: Durability,
) -> usize {
    let mut ids = generator(2 + caller as u16);
    let mut settled = 0;
    for round in 0..CYCLES / CALLERS / BATCH {
        let key = &keys[(round * CALLERS + caller) % TYPES];
        let jobs = (0..BATCH).map(|_| job(&mut ids, key)).collect();
        insert(store, jobs, Durability::Relaxed).await;
        let pick = Pick { key: key.clone(), limit: BATCH as u32, floor: None };
        let token = grant.boot.token((round * CALLERS + caller) as i64);
        let (owner, hold) = (grant.sysid, Hold::Beat(grant.boot));
        let claim = Claim { picks: vec![pick], owner, token, hold, payload_bytes_max: u64::MAX };
        let claimed = store.job_claim(claim).await.expect("a claim").jobs;
        let settlements = claimed.iter().map(done).collect();
        let answer = store.job_settle(settlements, durability).await.expect("settled");
        settled += answer.settled.len();
    }
    settled
}

async fn insert(store: &dyn Store, jobs: Vec<NewJob>, durability: Durability) -> usize {
    let insert = Insert { jobs, keys: Vec::new(), mark: None, durability };
    let inserted = store.job_insert(insert).await.and_then(Insertion::done);
    inserted.expect("inserted").len()
}

fn job(ids: &mut IdGenerator, key: &TypeKey) -> NewJob {
    let now = SystemClock.now();
    let payload = Payload::Inline(Bytes::from_static(&[b'x'; PAYLOAD_BYTES]));
    NewJob::new(ids.next(now).expect("an id"), key.clone(), payload, now)
}

fn done(claimed: &Claimed) -> Settlement {
    let lease = claimed.job.lease.expect("a claimed job has a lease");
    Settlement {
        lease: LeaseRef {
            tenant: claimed.job.key.tenant.clone(),
            id: claimed.job.id,
            token: lease.token,
        },
        verdict: Verdict::End(Ending::Finished),
        ended: Some(Ended::from(Status::OK)),
        data: None,
        progress: None,
        log: Log::new(),
        adds: Vec::new(),
        follow: None,
        keep: Duration::from_secs(3600),
        only_if_expired: false,
    }
}

fn generator(number: u16) -> IdGenerator {
    IdGenerator::new(sysid(number), None)
}

fn sysid(number: u16) -> Sysid {
    Sysid::new(number).expect("a small number")
}

fn rate(jobs: usize, began: Instant) -> u64 {
    (jobs as f64 / began.elapsed().as_secs_f64()) as u64
}
