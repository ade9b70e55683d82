//! A runner in a private directory, jobs for it, and a record of its reports.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tempfile::TempDir;
use tokio::sync::mpsc;
use windlass_core::job::Token;
use windlass_core::runner::{Assignment, Batch, Pieces, Report, Reports, Runner, Stop};
use windlass_core::time::SystemClock;
use windlass_core::{
    AttemptId, Handler, HandlerSpec, Job, JobId, Lang, NewJob, Payload, Timestamp, TypeKey,
};
use windlass_runner::network::NetworkOptions;
use windlass_runner::{Bounds, IsolationOptions, Level, LocalRunner, Options};
use windlass_test_kit::folder::whole_lines;
use windlass_test_kit::process::{SH_NAMESPACE, is_alive, number_here};
use windlass_test_kit::wait::{PATIENCE, eventually, in_time};

/// Increasing time limits for handlers that must reach some point before they are ended. If a busy
/// machine does not let them in time, the test tries the next one.
pub(crate) const LIMITS: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(16),
    Duration::from_secs(64),
];
pub(crate) const LOG_BYTES_MAX: usize = 64 * 1024;

pub(crate) const BOUNDS: Bounds = Bounds {
    contexts_max: 8,
    tenant_contexts_max: 8,
    contexts_reserved: 0,
    tenant_contexts_min: 1,
};

pub(crate) struct Fixture {
    pub(crate) runner: Arc<LocalRunner>,
    pub(crate) scratch: TempDir,
}

pub(crate) fn fixture() -> Fixture {
    fixture_with(BOUNDS)
}

pub(crate) fn fixture_with(contexts: Bounds) -> Fixture {
    let scratch = tempfile::tempdir().unwrap();
    let options = Options { contexts, ..options(&scratch) };
    Fixture { runner: Arc::new(LocalRunner::new(options).unwrap()), scratch }
}

/// A runner whose handlers have no cells.
pub(crate) fn bare_fixture() -> Fixture {
    let scratch = tempfile::tempdir().unwrap();
    let mut options = options(&scratch);
    options.isolation.level = Level::Off;
    Fixture { runner: Arc::new(LocalRunner::new(options).unwrap()), scratch }
}

pub(crate) fn handler(spec: HandlerSpec) -> Handler {
    let key = TypeKey::new("acme", "mail/send").unwrap();
    Handler { id: JobId::new(1).unwrap(), key, created_at: Timestamp(0), spec }
}

pub(crate) fn options(scratch: &TempDir) -> Options {
    // If the tests run as root, handlers are other users.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    Options {
        scratch_dir: scratch.path().to_owned(),
        log_bytes_max: LOG_BYTES_MAX,
        path: "/usr/local/bin:/usr/bin:/bin".into(),
        isolation: IsolationOptions {
            // Handlers of tests leave files for the test here.
            write: vec![scratch.path().to_owned()],
            cell_program: env!("CARGO_BIN_EXE_windlass-cell").into(),
            ..IsolationOptions::default()
        },
        network: network(),
        contexts: BOUNDS,
        cores: 2,
        clock: Arc::new(SystemClock),
    }
}

/// Lets handlers connect to servers of the test, and to nothing else that is not public.
pub(crate) fn network() -> NetworkOptions {
    NetworkOptions::of_machine(vec!["127.0.0.0/8".parse().unwrap()], Vec::new()).unwrap()
}

impl Fixture {
    /// Runs one job to its end and returns its report.
    pub(crate) async fn run(&self, spec: HandlerSpec, payload: &[u8]) -> Report {
        let mut run = self.begin(spec, vec![job(payload)]);
        run.ended().await.1
    }

    pub(crate) async fn sh(&self, script: &str) -> Report {
        self.run(spec(Lang::Sh, script), b"").await
    }

    pub(crate) fn begin(&self, spec: HandlerSpec, jobs: Vec<Assignment>) -> Run {
        self.begin_with(spec, jobs, Arc::new(NoPieces))
    }

    pub(crate) fn begin_with(
        &self,
        spec: HandlerSpec,
        jobs: Vec<Assignment>,
        pieces: Arc<dyn Pieces>,
    ) -> Run {
        let (handler, secrets) = (Arc::new(handler(spec)), Arc::default());
        self.begin_batch(Batch { handler, jobs, secrets, pieces })
    }

    /// Begins one job of a handler of any tenant.
    pub(crate) fn begin_of(&self, handler: Handler) -> Run {
        let mut assignment = job(b"");
        let (id, payload) = (assignment.job.id, assignment.payload.clone());
        let new = NewJob::new(id, handler.key.clone(), payload, Timestamp(0));
        assignment.job = Arc::new(Job::running(new, 3, Timestamp(0)));
        let (handler, jobs) = (Arc::new(handler), vec![assignment]);
        let (secrets, pieces) = (Arc::default(), Arc::new(NoPieces));
        self.begin_batch(Batch { handler, jobs, secrets, pieces })
    }

    fn begin_batch(&self, batch: Batch) -> Run {
        let jobs = &batch.jobs;
        let ids = jobs.iter().map(|assignment| assignment.job.id).collect();
        let attempts = jobs.iter().map(|assignment| assignment.id).collect();
        let (sender, events) = mpsc::unbounded_channel();
        let runner = Arc::clone(&self.runner);
        let task = tokio::spawn(async move {
            runner.run(batch, Arc::new(Recorder(sender))).await;
        });
        Run { ids, attempts, events, task }
    }

    /// Nothing is left of attempts: there are the runner's own files, and cells that wait.
    pub(crate) fn scratch_is_empty(&self) -> bool {
        let left = std::fs::read_dir(self.scratch.path()).unwrap();
        let is_ours = |name: std::ffi::OsString| {
            name == ".lock" || name == ".groups" || name.to_string_lossy().starts_with("job-cell-")
        };
        left.map(|entry| entry.unwrap().file_name()).all(is_ours)
    }
}

/// A running batch.
pub(crate) struct Run {
    pub(crate) ids: Vec<JobId>,
    pub(crate) attempts: Vec<AttemptId>,
    events: mpsc::UnboundedReceiver<Event>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Started(JobId),
    Progress(JobId, f64, String),
    Ended(JobId, Report),
    Returned(JobId),
}

impl Run {
    pub(crate) async fn next(&mut self) -> Option<Event> {
        in_time("a report comes", self.events.recv()).await
    }

    pub(crate) async fn started(&mut self) -> JobId {
        match self.next().await {
            Some(Event::Started(id)) => id,
            other => panic!("started was expected, not {other:?}"),
        }
    }

    /// The next job that ends.
    pub(crate) async fn ended(&mut self) -> (JobId, Report) {
        loop {
            match self.next().await {
                Some(Event::Started(_)) => {}
                Some(Event::Ended(id, report)) => return (id, report),
                other => panic!("ended was expected, not {other:?}"),
            }
        }
    }

    /// Everything reported until the batch is over.
    pub(crate) async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        self.task.await.expect("a run never panics");
        events
    }

    /// Ends the run as if its caller disappeared.
    pub(crate) async fn abandon(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

struct Recorder(mpsc::UnboundedSender<Event>);

#[async_trait]
impl Reports for Recorder {
    async fn started(&self, attempt: AttemptId) {
        let _ = self.0.send(Event::Started(attempt.job));
    }

    async fn progress(&self, attempt: AttemptId, percent: f64, message: String) {
        let _ = self.0.send(Event::Progress(attempt.job, percent, message));
    }

    async fn ended(&self, attempt: AttemptId, report: Report) {
        let _ = self.0.send(Event::Ended(attempt.job, report));
    }

    async fn returned(&self, attempt: AttemptId) {
        let _ = self.0.send(Event::Returned(attempt.job));
    }
}

struct NoPieces;

#[async_trait]
impl Pieces for NoPieces {
    async fn piece(&self, _: JobId, _: u32) -> Result<Option<Bytes>, String> {
        Err("this payload has no pieces".into())
    }
}

/// Pieces generated on demand: byte `n` of the payload is `n` mod 251.
pub(crate) struct MadePieces {
    pub(crate) bytes: u64,
    pub(crate) piece_bytes: u64,
    /// Reading fails from this piece on.
    pub(crate) broken_from: u32,
}

impl MadePieces {
    pub(crate) fn byte(position: u64) -> u8 {
        (position % 251) as u8
    }
}

#[async_trait]
impl Pieces for MadePieces {
    async fn piece(&self, _: JobId, index: u32) -> Result<Option<Bytes>, String> {
        if index >= self.broken_from {
            return Err("the store is gone".into());
        }
        let start = u64::from(index) * self.piece_bytes;
        let end = (start + self.piece_bytes).min(self.bytes);
        Ok((start < end).then(|| (start..end).map(MadePieces::byte).collect()))
    }
}

pub(crate) fn spec(lang: Lang, body: &str) -> HandlerSpec {
    HandlerSpec::new(lang, body)
}

pub(crate) fn with_env(mut spec: HandlerSpec, name: &str, value: &str) -> HandlerSpec {
    spec.options.env = BTreeMap::from([(name.to_owned(), value.to_owned())]);
    spec
}

/// A job in its third attempt, with an id that no other test has.
pub(crate) fn job(payload: &[u8]) -> Assignment {
    static NEXT: AtomicI64 = AtomicI64::new(1000);
    let id = JobId::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap();
    let key = TypeKey::new("acme", "mail/send").unwrap();
    let payload = Payload::Inline(Bytes::copy_from_slice(payload));
    let now = Timestamp(0);
    let new = NewJob::new(id, key, payload.clone(), now);
    let job = Job::running(new, 3, now);
    let id = AttemptId { job: job.id, token: Token(3) };
    Assignment { id, job: Arc::new(job), payload, timeout: PATIENCE, live: Arc::default() }
}

/// A newer claim of the same job.
pub(crate) fn next_claim(assignment: &Assignment) -> Assignment {
    let AttemptId { job, token } = assignment.id;
    Assignment {
        id: AttemptId { job, token: Token(token.0 + 1) },
        job: assignment.job.clone(),
        payload: assignment.payload.clone(),
        timeout: assignment.timeout,
        live: Arc::default(),
    }
}

pub(crate) fn limited(mut assignment: Assignment, timeout: Duration) -> Assignment {
    assignment.timeout = timeout;
    assignment
}

pub(crate) fn in_pieces(bytes: u64) -> Assignment {
    let mut assignment = job(b"");
    assignment.payload = Payload::Pieces { bytes };
    assignment
}

/// The only report of a job, stopped or not.
pub(crate) fn check_ended(report: &Report, status: u16, stopped: Option<Stop>) {
    assert_eq!((report.status.get(), report.stopped), (status, stopped), "{}", report.log);
}

pub(crate) const SH_NS: &str = SH_NAMESPACE;
/// What `SH_NS` sets, as an expression. A handler names a process by `$NS/$$`: the number alone is
/// that of its own pid namespace.
pub(crate) const PYTHON_NS: &str = "(__import__('os').readlink('/proc/self/ns/pid') + '@' + \
    open('/proc/1/stat').read().rsplit(')', 1)[1].split()[19])";
pub(crate) const NODE_NS: &str = "(require('fs').readlinkSync('/proc/self/ns/pid') + '@' + \
    require('fs').readFileSync('/proc/1/stat', 'utf8').split(')').pop().trim().split(' ')[19])";
pub(crate) const PHP_NS: &str = "(readlink('/proc/self/ns/pid') . '@' . \
    explode(' ', trim(substr(strrchr(file_get_contents('/proc/1/stat'), ')'), 1)))[19])";

/// Whether the process exists, alive or not yet reaped.
pub(crate) fn exists(process: &str) -> bool {
    number_here(process).is_some()
}

/// Waits until the process no longer runs; its parent may still have to reap it.
pub(crate) async fn until_gone(process: &str) {
    let process = process.trim();
    eventually(&format!("{process} ends"), || (!is_alive(process)).then_some(())).await;
}

/// Waits for the lines that a handler writes into a file.
pub(crate) async fn lines_of(path: &Path, count: usize) -> Vec<String> {
    let what = format!("{count} lines in {}", path.display());
    eventually(&what, || Some(whole_lines(path)).filter(|lines| lines.len() >= count)).await
}
