//! What very many waiting types cost: `cargo run --release --example many_types -- [types]
//! [tenants]`. One job each waits in a SQLite store; the daemon starts on it, a new type of another
//! tenant gets its first job, and workers claim by name and by pattern. First for ten types, then
//! for as many as were asked for, without handlers and with them.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example prints and may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::watch;

use windlass_core::handler::{HandlerOptions, HandlerSpec, Lang};
use windlass_core::runner::{Batch, Report, Reports, Stop};
use windlass_core::store::prelude::*;
use windlass_core::store::{Durability, Insert};
use windlass_core::time::SystemClock;
use windlass_core::{
    AddOptions, AttemptId, Clock, Handler, HandlerId, Invalid, JobId, Log, NewJob, Payload, Runner,
    Status, Tenant, TypeKey,
};
use windlass_engine::api::{AddJob, AddPayload, PullClaim};
use windlass_engine::metrics::Metrics;
use windlass_engine::{Engine, Options, Parts};
use windlass_store_sqlite::SqliteStore;

/// Every job ends at once. Counts those of the glut and the others.
struct Counting {
    started: watch::Sender<u64>,
    glut: Arc<AtomicU64>,
}

#[async_trait]
impl Runner for Counting {
    fn check(&self, _: &HandlerSpec) -> Result<(), Invalid> {
        Ok(())
    }

    fn batch_max(&self, _: &Handler) -> u32 {
        1
    }

    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>) {
        for assignment in batch.jobs {
            let (id, job) = (assignment.id, assignment.job);
            reports.started(id).await;
            if job.key.tenant.as_str().starts_with("glut") {
                self.glut.fetch_add(1, Ordering::Relaxed);
            } else {
                self.started.send_modify(|started| *started += 1);
            }
            let status = Status::OK;
            let (data, log, emitted) = (None, Log::new(), Vec::new());
            let run_time = Duration::ZERO;
            let report = Report { status, stopped: None, data, log, emitted, run_time };
            reports.ended(id, report).await;
        }
    }

    fn stop(&self, _: AttemptId, _: Stop) {}

    fn warm(&self) -> Vec<HandlerId> {
        Vec::new()
    }

    async fn close(&self) {}
}

fn spec() -> HandlerSpec {
    HandlerSpec {
        lang: Lang::Sh,
        body: "true".into(),
        before: None,
        before_each: None,
        after_each: None,
        eid: None,
        options: HandlerOptions::default(),
    }
}

async fn fill(store: &SqliteStore, types: i64, tenants: i64, handled: bool) {
    let now = SystemClock.now();
    let numbers: Vec<i64> = (1..=types).collect();
    for numbers in numbers.chunks(10_000) {
        let new = |number: &i64| {
            let tenant = format!("glut{}", number % tenants);
            let key = TypeKey::new(&tenant, &format!("type/{number}")).unwrap();
            NewJob::new(JobId::new(*number).unwrap(), key, Payload::Inline("x".into()), now)
        };
        let jobs: Vec<NewJob> = numbers.iter().map(new).collect();
        if handled {
            let puts = jobs.iter().map(|job| {
                let version = JobId::new(types + job.id.get()).unwrap();
                store.handler_put(version, &job.key, spec())
            });
            futures_util::future::try_join_all(puts).await.unwrap();
        }
        let durability = Durability::Relaxed;
        store.job_insert(Insert { jobs, keys: Vec::new(), mark: None, durability }).await.unwrap();
    }
}

fn memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn shown(mut times: Vec<Duration>) -> String {
    times.sort();
    format!("median {:.2?}, worst {:.2?}", times[times.len() / 2], times[times.len() - 1])
}

async fn measure(types: i64, tenants: i64, handled: bool) {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("jobs.db");
    let store = SqliteStore::open(windlass_store_sqlite::Options::new(path)).unwrap();
    fill(&store, types, tenants, handled).await;
    println!("{types} types of {tenants} tenants, handlers: {handled}");
    let before = memory_mb();
    let started = watch::Sender::new(0);
    let glut = Arc::new(AtomicU64::new(0));
    let runner = Arc::new(Counting { started: started.clone(), glut: glut.clone() });
    let parts = Parts { store: Arc::new(store), runner, clock: Arc::new(SystemClock) };
    let options = Options::new(data.path().join("data"));
    let began = Instant::now();
    let engine = Engine::start(parts, options, Arc::new(Metrics::default())).await.unwrap();
    println!("  start of the daemon: {:.2?}", began.elapsed());

    let mut starts = Vec::new();
    for number in 0..20 {
        let key = TypeKey::new("other", &format!("new/{number}")).unwrap();
        engine.handler_set(&key, spec()).await.unwrap();
        let mut seen = started.subscribe();
        let payload = AddPayload::Inline("x".into());
        let began = Instant::now();
        let jobs = vec![AddJob { payload, options: AddOptions::default() }];
        engine.add(&key, jobs, None).await.unwrap();
        seen.wait_for(|started| *started > number).await.unwrap();
        starts.push(began.elapsed());
    }
    println!("  add of a new type's first job to its start: {}", shown(starts));
    let (ran, seconds) = (glut.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
    println!("  jobs of the glut meanwhile: {ran}, {:.0} a second", ran as f64 / seconds);

    for (what, pattern) in [("name", "type/1000*"), ("prefix", "type/20*"), ("suffix", "*7")] {
        let mut times = Vec::new();
        for number in 0..20 {
            let tenant = Tenant::new(&format!("glut{}", number % tenants)).unwrap();
            let types = match what {
                "name" => vec![format!("type/{}", number + tenants)],
                _ => vec![pattern.to_owned()],
            };
            let (limit, lease, wait) = (1, Duration::from_secs(60), Duration::ZERO);
            let began = Instant::now();
            engine.claim(PullClaim { tenant, types, limit, lease, wait }).await.unwrap();
            times.push(began.elapsed());
        }
        println!("  claim by {what}: {}", shown(times));
    }
    println!("  memory: {} MB more than before the start", memory_mb().saturating_sub(before));
    println!("  ({} MB in all)", memory_mb());
    std::mem::forget(engine);
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |or| arguments.next().map_or(or, |text| text.parse::<i64>().unwrap());
    let (types, tenants) = (number(1_000_000), number(10_000));
    measure(10, 1, false).await;
    measure(types, tenants, false).await;
    measure(types, tenants, true).await;
    std::process::exit(0);
}
