//! A daemon without a door, on its own runtime that can be cut off like a killed process, and a
//! runner that follows the payload: `200` ends with that status, `200 emit u` also emits a job of
//! type `u`, `200 emit u {"unique":"k"}` one with these options, `200 data [1]` has that result,
//! `200 result 0` the first of the results that were set, `hang` runs until it is stopped or
//! released, `deaf` is the same but continues when its lease is lost, `hang emit u` emits a job of
//! type `u` when it is released, `panic` is a bug in the runner itself. The progress of jobs is set
//! in advance.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};

use windlass_core::handler::{HandlerSpec, Lang};
use windlass_core::log::{Log, Stream};
use windlass_core::memory::MemoryStore;
use windlass_core::runner::{Assignment, Batch, Emitted, Report, Reports, Stop};
use windlass_core::secret::MemoryKeys;
use windlass_core::store::SysidReserve;
use windlass_core::store::prelude::*;
use windlass_core::time::SystemClock;
use windlass_core::{
    AddOptions, AttemptId, Clock, Handler, HandlerId, Invalid, JobId, Json, Payload, Runner,
    Status, Sysid, Timestamp, TypeKey, TypeName,
};
use windlass_engine::api::{AddJob, AddPayload};
use windlass_engine::metrics::Metrics;
use windlass_engine::{Engine, Options, Parts, RealDisk};
use windlass_journal::Disk;
use windlass_test_kit::wait::in_time;

use disk::BadDisk;

pub mod disk;

pub fn key(tenant: &str, name: &str) -> TypeKey {
    TypeKey::new(tenant, name).unwrap()
}

pub fn jobs(payloads: &[&str]) -> Vec<AddJob> {
    let job = |payload: &&str| AddJob {
        payload: AddPayload::Inline(Bytes::copy_from_slice(payload.as_bytes())),
        options: AddOptions::default(),
    };
    payloads.iter().map(job).collect()
}

pub fn handler() -> HandlerSpec {
    HandlerSpec::new(Lang::Sh, "as the payload says")
}

/// Takes a sysid away from its owner, like a daemon that finds it expired. `clock` is the store's.
pub async fn steal_sysid(store: &MemoryStore, clock: &SettableClock, sysid: Sysid) {
    let (wanted, lease) = (Some(sysid), Duration::from_secs(3600));
    // Its owner may beat in between.
    for _ in 0..STEAL_TRIES {
        clock.pass(lease);
        if store.sysid_reserve(SysidReserve { wanted, lease }).await.is_ok() {
            return;
        }
    }
    panic!("its owner is always faster");
}

const STEAL_TRIES: usize = 100;

/// The machine's clock, which can be set and moved forward.
#[derive(Default)]
pub struct SettableClock {
    set_by_ms: AtomicI64,
    passed_ms: AtomicI64,
}

impl SettableClock {
    /// Sets the wall clock, forward or back; no time passes.
    pub fn set_by(&self, ms: i64) {
        self.set_by_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Lets time pass at once.
    pub fn pass(&self, time: Duration) {
        self.passed_ms.fetch_add(time.as_millis() as i64, Ordering::SeqCst);
    }
}

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        let passed = self.passed_ms.load(Ordering::SeqCst);
        SystemClock.now().shifted(passed + self.set_by_ms.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Duration {
        let passed = self.passed_ms.load(Ordering::SeqCst);
        SystemClock.steady() + Duration::from_millis(passed as u64)
    }

    fn machine_run(&self) -> i64 {
        SystemClock.machine_run()
    }
}

pub struct Daemon {
    pub engine: Engine,
    pub runner: Arc<FakeRunner>,
    /// The keys of secrets.
    pub keys: MemoryKeys,
    runtime: Option<Runtime>,
    data: Option<TempDir>,
}

impl Daemon {
    pub async fn start(adjust: impl FnOnce(&mut Options)) -> Daemon {
        Daemon::start_on(Arc::new(MemoryStore::default()), adjust).await
    }

    pub async fn start_on(store: Arc<MemoryStore>, adjust: impl FnOnce(&mut Options)) -> Daemon {
        Daemon::start_in(tempfile::tempdir().unwrap(), store, adjust).await
    }

    pub async fn start_in(
        data: TempDir,
        store: Arc<MemoryStore>,
        adjust: impl FnOnce(&mut Options),
    ) -> Daemon {
        Daemon::start_with(data, store, Arc::new(SystemClock), adjust).await
    }

    /// On a machine with this clock, which the store uses too.
    pub async fn start_by(clock: Arc<SettableClock>, adjust: impl FnOnce(&mut Options)) -> Daemon {
        let store = Arc::new(MemoryStore::new(clock.clone()));
        Daemon::start_with(tempfile::tempdir().unwrap(), store, clock, adjust).await
    }

    pub async fn start_with(
        data: TempDir,
        store: Arc<MemoryStore>,
        clock: Arc<dyn Clock>,
        adjust: impl FnOnce(&mut Options),
    ) -> Daemon {
        Daemon::start_parts(data, store, clock, Arc::new(RealDisk), adjust).await
    }

    pub async fn start_on_disk(
        data: TempDir,
        store: Arc<MemoryStore>,
        disk: BadDisk,
        adjust: impl FnOnce(&mut Options),
    ) -> Daemon {
        Daemon::start_parts(data, store, Arc::new(SystemClock), Arc::new(disk), adjust).await
    }

    /// Its threads log as this one does.
    async fn start_parts(
        data: TempDir,
        store: Arc<MemoryStore>,
        clock: Arc<dyn Clock>,
        disk: Arc<dyn Disk>,
        adjust: impl FnOnce(&mut Options),
    ) -> Daemon {
        let runner = Arc::new(FakeRunner::default());
        let keys = MemoryKeys::default();
        let seal_keys = Arc::new(keys.clone());
        let parts = Parts { store, runner: runner.clone(), clock, disk, seal_keys };
        let mut options = Options::new(data.path().to_owned());
        options.lease = Duration::from_millis(500);
        options.seed = 0;
        adjust(&mut options);
        let logs = tracing::dispatcher::get_default(Clone::clone);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&logs)))
            .build()
            .unwrap();
        let starting = Engine::start(parts, options, Arc::new(Metrics::default()));
        let engine = runtime.spawn(starting).await.unwrap().unwrap();
        Daemon { engine, runner, keys, runtime: Some(runtime), data: Some(data) }
    }

    /// Cuts the daemon off in the middle of its work; its data stays. Returns when its locks are
    /// free, as after the kill of a process.
    pub async fn abandon(mut self) -> TempDir {
        self.runtime.take().unwrap().shutdown_background();
        let data = self.data.take().unwrap();
        drop(self);
        let journals = data.path().join("journal");
        let waiting = tokio::task::spawn_blocking(move || {
            for journal in std::fs::read_dir(journals).unwrap() {
                let lock = journal.unwrap().path().join("lock");
                std::fs::File::open(lock).unwrap().lock().unwrap();
            }
        });
        waiting.await.unwrap();
        data
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An attempt that hangs.
struct Hangs {
    notify: Arc<Notify>,
    why: Option<Stop>,
    /// It continues when its lease is lost.
    deaf: bool,
}

#[derive(Default)]
pub struct FakeRunner {
    hanging: Mutex<HashMap<AttemptId, Hangs>>,
    started: watch::Sender<Vec<JobId>>,
    /// Attempts whose report was accepted.
    ended: watch::Sender<Vec<AttemptId>>,
    stopped: Mutex<Vec<(AttemptId, Stop)>>,
    progress: Mutex<Vec<(f64, String)>>,
    results: Mutex<Vec<String>>,
    /// Calls of the runner that panic, and how many more times.
    panics: Mutex<HashMap<&'static str, usize>>,
}

impl FakeRunner {
    pub async fn started(&self, id: JobId) {
        self.started_times(id, 1).await;
    }

    /// Returns when the job has been started this often.
    pub async fn started_times(&self, id: JobId, times: usize) {
        let often = |ids: &Vec<JobId>| ids.iter().filter(|started| **started == id).count();
        let mut started = self.started.subscribe();
        let enough = started.wait_for(|ids| often(ids) >= times);
        in_time("the job is started", enough).await.unwrap();
    }

    /// Every job that was started, as often as it was.
    pub fn all_started(&self) -> Vec<JobId> {
        self.started.borrow().clone()
    }

    /// How many attempts hang.
    pub fn all_hanging(&self) -> usize {
        self.hanging.lock().unwrap().len()
    }

    pub fn stopped(&self) -> Vec<(JobId, Stop)> {
        self.attempts_stopped().into_iter().map(|(attempt, why)| (attempt.job, why)).collect()
    }

    pub fn attempts_stopped(&self) -> Vec<(AttemptId, Stop)> {
        self.stopped.lock().unwrap().clone()
    }

    /// The attempts of a job that hang, the oldest first.
    pub fn attempts(&self, id: JobId) -> Vec<AttemptId> {
        let hanging = self.hanging.lock().unwrap();
        let mut attempts: Vec<_> = hanging.keys().copied().filter(|a| a.job == id).collect();
        attempts.sort();
        attempts
    }

    /// Lets a hanging attempt end well; returns when its report has been accepted.
    pub async fn finish_attempt(&self, attempt: AttemptId) {
        self.hanging.lock().unwrap().get(&attempt).expect("it hangs").notify.notify_one();
        let mut ended = self.ended.subscribe();
        let reported = ended.wait_for(|ended| ended.contains(&attempt));
        in_time("the attempt ends", reported).await.unwrap();
    }

    /// Large results, for which payloads have no room.
    pub fn set_results(&self, results: Vec<String>) {
        *self.results.lock().unwrap() = results;
    }

    /// The next `times` calls of `check`, `batch_max` or `warm` panic, in the middle of the calling
    /// service.
    pub fn set_panics(&self, call: &'static str, times: usize) {
        self.panics.lock().unwrap().insert(call, times);
    }

    pub fn panics_left(&self, call: &'static str) -> usize {
        self.panics.lock().unwrap()[call]
    }

    fn panic_if_set(&self, call: &'static str) {
        let mut panics = self.panics.lock().unwrap();
        if let Some(left) = panics.get_mut(call).filter(|left| **left > 0) {
            *left -= 1;
            drop(panics);
            panic!("{call} as it was told");
        }
    }

    /// Lets a hanging job end well.
    pub fn finish(&self, id: JobId) {
        let hanging = self.hanging.lock().unwrap();
        let attempt = hanging.iter().find(|(attempt, _)| attempt.job == id);
        attempt.expect("it hangs").1.notify.notify_one();
    }

    async fn say_progress(&self, attempt: AttemptId, reports: &dyn Reports) {
        let progress = self.progress.lock().unwrap().clone();
        for (percent, message) in progress {
            reports.progress(attempt, percent, message).await;
        }
    }

    /// The progress that jobs report when they have started.
    pub fn set_progress(&self, progress: &[(f64, &str)]) {
        let owned = progress.iter().map(|(percent, message)| (*percent, (*message).to_owned()));
        *self.progress.lock().unwrap() = owned.collect();
    }

    fn done(&self, payload: &str) -> Report {
        let mut words = payload.splitn(3, ' ');
        let status = words.next().unwrap().parse().ok().and_then(Status::new).unwrap();
        let (word, rest) = (words.next(), words.next().unwrap_or_default());
        let (name, options) = rest.split_once(' ').unwrap_or((rest, "null"));
        let emitted = (word == Some("emit")).then(|| Emitted {
            name: TypeName::new(name).unwrap(),
            payload: Bytes::from_static(b"200"),
            options: AddOptions::parse(&options.parse().unwrap(), SystemClock.now()).unwrap(),
        });
        let data = match word {
            Some("data") => Some(rest.to_owned()),
            Some("result") => {
                Some(self.results.lock().unwrap()[rest.parse::<usize>().unwrap()].clone())
            }
            _ => None,
        };
        let data = data.map(|text| Json::parse(text).unwrap());
        Report { data, ..report(status, None, emitted.into_iter().collect()) }
    }

    async fn run_all(&self, batch: Batch, reports: Arc<dyn Reports>) {
        for Assignment { id, job, payload, .. } in batch.jobs {
            let Payload::Inline(payload) = payload else { panic!("no large payloads here") };
            let payload = String::from_utf8(payload.to_vec()).unwrap();
            if payload.starts_with("hang") || payload.starts_with("deaf") {
                let report = self.hang(id, &payload, reports.as_ref()).await;
                reports.ended(id, report).await;
                self.ended.send_modify(|ended| ended.push(id));
                continue;
            }
            if payload == "panic at once" {
                panic!("as the payload says");
            }
            reports.started(id).await;
            self.started.send_modify(|ids| ids.push(job.id));
            if payload == "panic" {
                panic!("as the payload says");
            }
            self.say_progress(id, reports.as_ref()).await;
            let report = self.done(&payload);
            reports.ended(id, report).await;
        }
    }

    async fn hang(&self, attempt: AttemptId, payload: &str, reports: &dyn Reports) -> Report {
        let (id, notify) = (attempt.job, Arc::new(Notify::new()));
        let hanging =
            Hangs { notify: notify.clone(), why: None, deaf: payload.starts_with("deaf") };
        self.hanging.lock().unwrap().insert(attempt, hanging);
        reports.started(attempt).await;
        self.started.send_modify(|ids| ids.push(id));
        self.say_progress(attempt, reports).await;
        notify.notified().await;
        let why = self.hanging.lock().unwrap().remove(&attempt).unwrap().why;
        match (why, payload.split_once(' ')) {
            (Some(_), _) => report(Status::ERROR, why, Vec::new()),
            (None, None) => report(Status::OK, None, Vec::new()),
            (None, Some((_, rest))) => self.done(&format!("200 {rest}")),
        }
    }
}

/// A run that may panic when it is dropped at its end, which the batch does not catch.
struct Run<'a> {
    running: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
    runner: &'a FakeRunner,
}

impl Future for Run<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.running.as_mut().poll(cx)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.runner.panic_if_set("end of run");
        }
    }
}

fn report(status: Status, stopped: Option<Stop>, emitted: Vec<Emitted>) -> Report {
    let mut log = Log::new();
    log.push(Stream::Out, &format!("said {}", status.get()));
    Report { status, stopped, data: None, log, emitted, run_time: Duration::ZERO }
}

#[async_trait]
impl Runner for FakeRunner {
    fn check(&self, _: &HandlerSpec) -> Result<(), Invalid> {
        self.panic_if_set("check");
        Ok(())
    }

    fn batch_max(&self, _: &Handler) -> u32 {
        self.panic_if_set("batch_max");
        5
    }

    fn run<'a, 'b>(
        &'a self,
        batch: Batch,
        reports: Arc<dyn Reports>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'b>>
    where
        'a: 'b,
    {
        Box::pin(Run { running: Box::pin(self.run_all(batch, reports)), runner: self })
    }

    fn stop(&self, attempt: AttemptId, why: Stop) {
        let mut hanging = self.hanging.lock().unwrap();
        let hears = |hangs: &&mut Hangs| !hangs.deaf || why != Stop::LeaseLost;
        if let Some(hangs) = hanging.get_mut(&attempt).filter(hears) {
            self.stopped.lock().unwrap().push((attempt, why));
            hangs.why = Some(why);
            hangs.notify.notify_one();
        }
    }

    fn warm(&self) -> Vec<HandlerId> {
        self.panic_if_set("warm");
        Vec::new()
    }

    async fn close(&self) {}
}
