//! A whole daemon, with its journal and the embedded store, on a disk that fails at every call in
//! turn. What was acknowledged is there afterwards, nothing that has ended runs again, every
//! request is answered, and the next start works.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use windlass_core::secret::MemoryKeys;
use windlass_core::{AddOptions, JobId, State, Status, Tenant, TypeKey, TypeSettings};
use windlass_engine::api::{AddJob, AddPayload, IdempotencyKey, PullClaim, PullFinish};
use windlass_engine::metrics::Metrics;
use windlass_engine::{Engine, Error, Options, Parts, RealDisk};
use windlass_faulty_disk::{Kind, Left, Trial, every_call};
use windlass_store_sqlite::SqliteStore;
use windlass_test_kit::wait::{in_time, pause};

use crate::PATIENCE;
use crate::fake::{FakeRunner, SettableClock, handler, jobs, key};

/// To save time.
const STEP: usize = 97;
/// How long a daemon may take for what it is asked to, before its clients go on without.
const SHORT: Duration = Duration::from_millis(150);
/// Longer than the machine may stand still. Nobody waits for its end: each daemon of a directory
/// runs so much later than the one before it.
const LEASE: Duration = PATIENCE;
/// Every append begins a segment.
const SEGMENT_BYTES_MAX: u64 = 200;
/// Jobs of which something can be said later.
const ADDED: usize = 7;

/// What the clients of a daemon know.
#[derive(Debug, Default)]
struct Known {
    added: BTreeSet<JobId>,
    /// Acknowledged as durable.
    ended: BTreeSet<JobId>,
    /// Seen ended; a power cut may undo it.
    ran: BTreeSet<JobId>,
    errors: Vec<Error>,
    panicked: usize,
}

impl Known {
    fn told<T>(&mut self, answer: Result<T, Error>) -> Option<T> {
        answer.map_err(|error| self.errors.push(error)).ok()
    }

    /// Nothing went wrong, and nothing was left out.
    fn is_complete(&self) -> bool {
        self.errors.is_empty() && self.added.len() == ADDED && !self.ended.is_empty()
    }
}

struct Daemon {
    engine: Engine,
    runner: Arc<FakeRunner>,
}

/// Starts daemon number `number` of a directory.
async fn start(dir: &Path, number: u32) -> Result<Daemon, Error> {
    let clock = Arc::new(SettableClock::default());
    clock.pass(LEASE * number);
    let mut options = windlass_store_sqlite::Options::new(dir.join("store.db"));
    options.clock = clock.clone();
    let store = SqliteStore::open(options).map_err(|error| match error {
        windlass_core::store::Error::Unavailable(why) => Error::Unavailable(why.to_string()),
        error => Error::Internal(error.to_string()),
    })?;
    let runner = Arc::new(FakeRunner::default());
    let parts = Parts {
        store: Arc::new(store),
        runner: runner.clone(),
        clock,
        disk: Arc::new(RealDisk),
        seal_keys: Arc::new(MemoryKeys::default()),
    };
    let mut options = Options::new(dir.join("data"));
    options.seed = 0;
    options.lease = LEASE;
    options.reap_interval = Duration::from_millis(50);
    options.purge_interval = Duration::from_millis(20);
    options.stop_grace = Duration::ZERO;
    options.journal_segment_bytes_max = SEGMENT_BYTES_MAX;
    let engine = Engine::start(parts, options, Arc::new(Metrics::default())).await?;
    Ok(Daemon { engine, runner })
}

fn tenant() -> Tenant {
    key("acme", "run").tenant
}

/// Runs this on a runtime that is cut off afterwards like a killed process.
fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.unwrap();
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(PATIENCE);
    done
}

/// The days of a daemon: jobs come, run, are pulled, finished, cancelled and purged; then it stops.
fn live(dir: &Path, number: u32) -> Known {
    on_runtime(async {
        let mut known = Known::default();
        let started = in_time("it starts or refuses", start(dir, number)).await;
        let Some(daemon) = known.told(started) else { return known };
        let engine = &daemon.engine;
        in_time("every request is answered", serve(engine, &mut known)).await;
        known.panicked = engine.status().await.services.len();
        // With a store that is gone it waits longer; then an operator kills it.
        if let Ok(stopped) = timeout(SHORT, engine.shutdown()).await {
            known.told(stopped);
        }
        known
    })
}

async fn add(engine: &Engine, known: &mut Known, name: &str, payloads: &[&str]) -> Vec<JobId> {
    let key_of_add = IdempotencyKey { key: name.into(), fingerprint: 1 };
    let idempotency = (name == "keyed").then_some(key_of_add);
    let added = engine.add(&key("acme", name), jobs(payloads), idempotency).await;
    let ids = known.told(added).map(|added| added.ids).unwrap_or_default();
    known.added.extend(&ids);
    ids
}

async fn add_large(engine: &Engine, known: &mut Known, key: &TypeKey) -> Result<(), Error> {
    let mut writer = engine.spool().await?;
    let unavailable = |error: windlass_journal::Error| Error::Unavailable(error.to_string());
    writer.write(Bytes::from_static(&[b'x'; 9000])).await.map_err(unavailable)?;
    let payload = AddPayload::Spooled(writer.finish().await.map_err(unavailable)?);
    let job = AddJob { payload, options: AddOptions::default() };
    known.added.extend(engine.add(key, vec![job], None).await?.ids);
    Ok(())
}

async fn serve(engine: &Engine, known: &mut Known) {
    known.told(engine.handler_set(&key("acme", "run"), handler()).await);
    known.told(engine.handler_set(&key("acme", "brief"), handler()).await);
    let retention = Some(Duration::from_millis(1));
    let brief = TypeSettings { retention, ..TypeSettings::default() };
    known.told(engine.type_settings_put(&key("acme", "brief"), brief).await);
    let run = add(engine, known, "run", &["200", "200"]).await;
    let pulled = add(engine, known, "pull", &["1", "2", "3"]).await;
    add(engine, known, "keyed", &["4"]).await;
    let large = add_large(engine, known, &key("acme", "large")).await;
    known.told(large);
    // Purged soon after its end, so nothing can be said of it later.
    let brief = add(engine, known, "brief", &["200"]).await;
    known.added.retain(|id| !brief.contains(id));

    let wish = PullClaim {
        tenant: tenant(),
        types: vec!["pull".into()],
        limit: 1,
        lease: PATIENCE,
        wait: SHORT,
    };
    for _ in 0..2 {
        let claimed = engine.claim(wish.clone()).await;
        for claimed in known.told(claimed).unwrap_or_default() {
            let Some(lease) = windlass_core::store::LeaseRef::of(&claimed.job) else { continue };
            let finish = PullFinish { lease, status: Status::OK, data: None };
            if known.told(engine.finish(finish).await).is_some() {
                known.ended.insert(claimed.job.id);
            }
        }
    }
    if let Some(id) = pulled.iter().find(|id| !known.ended.contains(id))
        && known.told(engine.job_cancel(&tenant(), *id).await).is_some()
    {
        known.ended.insert(*id);
    }
    for id in run {
        let view = engine.job_wait(&tenant(), id, SHORT).await;
        if known.told(view).is_some_and(|view| view.job.state == State::Finished) {
            known.ran.insert(id);
        }
    }
}

/// `before` is what clients knew of an earlier daemon, whose disk was synced since.
fn check(dir: &Path, known: &Known, before: &Known, trial: &Trial) {
    assert_eq!(known.panicked, 0, "{trial}");
    assert!(trial.fault.is_some() || known.is_complete(), "{trial}: {known:?}");
    for error in &known.errors {
        let clear = match error {
            Error::Unavailable(_) => true,
            // SQLite reports a failed read as damage.
            Error::Internal(_) => trial.kind == Some(Kind::Read),
            _ => false,
        };
        assert!(clear && trial.fault.is_some(), "{trial}: {error:?}");
    }
    on_runtime(async {
        let daemon = start(dir, 2).await.unwrap_or_else(|error| panic!("{trial}: {error}"));
        let mut ended = &known.ended | &before.ended;
        ended.extend(&before.ran);
        if trial.left == Left::AsWritten {
            ended.extend(&known.ran);
        }
        check_jobs(&daemon, &(&known.added | &before.added), &ended, trial).await;
        let stopped = in_time("it stops", daemon.engine.shutdown()).await;
        stopped.unwrap_or_else(|error| panic!("{trial}: {error}"));
    });
}

async fn check_jobs(
    daemon: &Daemon,
    added: &BTreeSet<JobId>,
    ended: &BTreeSet<JobId>,
    trial: &Trial,
) {
    let engine = &daemon.engine;
    for id in added {
        let view = engine.job(&tenant(), *id).await;
        let state = view.unwrap_or_else(|error| panic!("{trial}: {id}: {error}")).job.state;
        let is_ended = matches!(state, State::Finished | State::Cancelled);
        assert!(is_ended || !ended.contains(id), "{trial}: {id} ended and is {state:?}");
    }
    in_time("the handler is set", engine.handler_set(&key("acme", "run"), handler()))
        .await
        .unwrap();
    let last = engine.add(&key("acme", "run"), jobs(&["200"]), None).await.unwrap().ids[0];
    let view = engine.job_wait(&tenant(), last, PATIENCE).await.unwrap();
    assert_eq!(view.job.state, State::Finished, "{trial}: it works again");
    let all_ran =
        async {
            while engine.types(&tenant()).await.unwrap().iter().any(|row| {
                row.key.name.as_str() == "run" && row.ready + row.deferred + row.running > 0
            }) {
                pause().await;
            }
        };
    in_time("everything runs to its end", all_ran).await;
    let again: Vec<JobId> =
        daemon.runner.all_started().into_iter().filter(|id| ended.contains(id)).collect();
    assert!(again.is_empty(), "{trial}: {again:?} ended and ran again");
}

#[test]
fn any_call_of_a_daemon_may_fail() {
    let template = tempfile::tempdir().unwrap();
    let first = live(template.path(), 0);
    assert!(first.is_complete() && first.panicked == 0, "{first:?}");
    let check = |dir: &Path, known: &Known, trial: &Trial| {
        check(dir, known, &first, trial);
    };
    let operate = |dir: &Path| live(dir, 1);
    every_call(template.path(), STEP, operate, check).report_varying("a daemon");
}
