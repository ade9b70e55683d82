//! Handlers that run as the daemon would run them, and limits and languages, which need no more.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rustix::process::{Signal, kill_process};
use windlass_core::job::Token;
use windlass_core::runner::{Assignment, Batch, Pieces, Report, Reports, Runner, Stop};
use windlass_core::size::format_size;
use windlass_core::sync::lock;
use windlass_core::time::format_duration;
use windlass_core::{
    AttemptId, Handler, HandlerOptions, HandlerSpec, Job, JobId, Lang, Limits, NewJob, Payload,
    Timestamp, TypeKey,
};

use super::{Finding, LayerStatus, NOT_TRIED, found, missing};
use crate::context::language::find_program;
use crate::isolate::Missing;
use crate::process::stopped_before_start;
use crate::{LocalRunner, proc};

/// Time limit of each handler here.
const TRIAL_MAX: Duration = Duration::from_secs(30);
/// Limits that are low enough to be reached at once.
const TRIAL_MEMORY: u64 = 32 * 1024 * 1024;
const TRIAL_SCRATCH: u64 = 8 * 1024 * 1024;
const TRIAL_CPU: Duration = Duration::from_secs(1);
const TRIAL_FILE: u64 = 64 * 1024;
const TRIAL_PROCESSES: u32 = 3;
/// What programs print that have no room left.
const NO_SPACE: &str = "No space left on device";
/// How long a process sleeps that hides.
const HIDDEN_S: u32 = 86_000;
/// Allocates memory until it fails.
const HOG_MEMORY: &str = "exec tail /dev/zero";
/// The same in several processes, none of which has all of it. Ends by itself, long after it should
/// have been ended.
const HOG_TOGETHER: &str = "end=$(($(date +%s) + 10)); for i in 1 2 3 4 5 6 7 8; do
  (while [ $(date +%s) -lt $end ]; do tail /dev/zero 2> /dev/null; done) & done; wait";
const HOG_CPU: &str = "while :; do :; done";
const HOG_FILE: &str = "exec cat /dev/zero > file";
/// Leaves a process behind that nothing tells whose it is, and waits until it has become that, at
/// most for the time limit. `$WORD` is a number of seconds.
const HIDE: &str = r#"ready=$PWD/ready setsid=$(command -v setsid)
hidden=': > "$1"; exec sleep "$2"'
(cd /; env -i "$setsid" sh -c "$hidden" sh "$ready" "$WORD" < /dev/null > /dev/null 2>&1 &)
while [ ! -e "$ready" ]; do sleep 0.01; done; echo left"#;
/// More than `TRIAL_SCRATCH`.
const HOG_SCRATCH: &str = "head -c 9M /dev/zero > file && echo written";
const HOG_PROCESSES: &str = "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait";

/// Runs handlers as the daemon would.
pub(super) struct Trial {
    pub(super) runner: LocalRunner,
}

impl Trial {
    pub(super) async fn run(&self, script: &str, limits: Limits) -> Report {
        self.run_as(Lang::Sh, script, limits).await
    }

    pub(super) async fn run_as(&self, lang: Lang, body: &str, limits: Limits) -> Report {
        self.run_with(lang, body, HandlerOptions { limits, ..HandlerOptions::default() }).await
    }

    pub(super) async fn run_with(&self, lang: Lang, body: &str, options: HandlerOptions) -> Report {
        let (id, now) = (JobId::new(1).expect("1 is an id"), Timestamp(0));
        let key = TypeKey::new("windlass", "doctor").expect("these are names");
        let spec = HandlerSpec { options, ..HandlerSpec::new(lang, body) };
        let payload = Payload::Inline(Bytes::new());
        let new = NewJob::new(id, key.clone(), payload.clone(), now);
        let job = Job::running(new, 1, now);
        let handler = Arc::new(Handler { id, key, created_at: now, spec });
        let attempt = AttemptId { job: id, token: Token(1) };
        let (timeout, live) = (TRIAL_MAX, Arc::default());
        let jobs = vec![Assignment { id: attempt, job: Arc::new(job), payload, timeout, live }];
        let reported = Arc::new(Reported::default());
        let (secrets, pieces) = (Arc::default(), Arc::new(NoPieces));
        let batch = Batch { handler, jobs, secrets, pieces };
        self.runner.run(batch, reported.clone()).await;
        let report = lock(&reported.0).take();
        // A returned job was not started.
        report.unwrap_or_else(|| stopped_before_start(Stop::Shutdown))
    }

    /// Whether a process that hides ends with its job.
    pub(super) async fn leftovers(&self) -> Finding {
        let layer = "end of all processes";
        let word = format!("{HIDDEN_S}.{}", std::process::id());
        let env = [("WORD".to_owned(), word.clone())].into();
        let options = HandlerOptions { env, ..HandlerOptions::default() };
        let report = self.run_with(Lang::Sh, HIDE, options).await;
        if !report.log.to_string().contains("left") {
            return found(layer, false, NOT_TRIED);
        }
        let left = proc::with_argument(&word);
        for pid in &left {
            // It may be gone by now.
            let _ = kill_process(*pid, Signal::KILL);
        }
        match left.is_empty() {
            true => found(layer, true, "a process that hid has ended with its job"),
            false => missing(layer, self.why(), "a process that hid outlived its job"),
        }
    }

    /// Whether what a handler writes is bounded.
    async fn scratch(&self, configured: String) -> Finding {
        let (layer, scratch, file_size) = ("scratch space", TRIAL_SCRATCH, 2 * TRIAL_SCRATCH);
        let (scratch, file_size) = (Some(scratch), Some(file_size));
        let limits = Limits { scratch, file_size, ..Limits::default() };
        let log = self.run(HOG_SCRATCH, limits).await.log.to_string();
        if log.contains("written") {
            return missing(layer, self.why(), "a handler wrote more than options.scratch");
        }
        if log.contains(NO_SPACE) {
            let own = "a file system of its own, which could not be filled further";
            return found(layer, true, format!("default {configured}, {own}"));
        }
        found(layer, false, format!("{NOT_TRIED}: {}", in_one_line(&log)))
    }

    /// Why there are no namespaces, if there are none.
    fn why(&self) -> Option<&Missing> {
        self.runner.layers().lacks("namespaces")
    }

    /// Tries each limit with a value that is reached at once.
    pub(super) async fn limits(&self, configured: &Limits) -> Vec<Finding> {
        let none = Limits::default;
        let size = |bytes: Option<u64>| bytes.map_or("no limit".to_owned(), format_size);
        let time = |time: Option<Duration>| time.map_or("no limit".to_owned(), format_duration);
        let memory = Limits { memory: Some(TRIAL_MEMORY), ..none() };
        let together = Limits { scratch: Some(TRIAL_SCRATCH), ..memory.clone() };
        let cpu = Limits { cpu: Some(TRIAL_CPU), ..none() };
        let file_size = Limits { file_size: Some(TRIAL_FILE), ..none() };
        let processes = Limits { processes: Some(TRIAL_PROCESSES), ..none() };
        let number = configured.processes.unwrap_or_default();
        let binds = "counted while a handler runs; the kernel limits its threads";
        vec![
            self.limit("memory", HOG_MEMORY, memory, "memory", size(configured.memory)).await,
            self.limit(
                "memory of all processes",
                HOG_TOGETHER,
                together,
                "all its processes together",
                format!("{}, {}", size(configured.memory), self.memory_is_bounded_by()),
            )
            .await,
            self.scratch(size(configured.scratch)).await,
            self.limit("processor time", HOG_CPU, cpu, "options.cpu", time(configured.cpu)).await,
            self.limit("file size", HOG_FILE, file_size, "file_size", size(configured.file_size))
                .await,
            self.limit(
                "processes",
                HOG_PROCESSES,
                processes,
                "processes at once",
                format!("{number}, {binds}"),
            )
            .await,
        ]
    }

    fn memory_is_bounded_by(&self) -> String {
        let missing = self.runner.layers().missing.iter().find(|missing| missing.is_groups());
        match missing {
            None => "by control groups, which count scratch space, too".into(),
            Some(missing) => {
                format!("added up while a handler runs: no {missing}")
            }
        }
    }

    /// In force if a handler that exceeds the limit is ended for this reason.
    async fn limit(
        &self,
        layer: &'static str,
        hog: &str,
        limits: Limits,
        word: &str,
        configured: String,
    ) -> Finding {
        let report = self.run(hog, limits).await;
        let log = report.log.to_string();
        let ended = !report.status.code().ends_job() && report.stopped.is_none();
        if ended && log.contains(word) {
            return found(layer, true, format!("default {configured}"));
        }
        let log = in_one_line(&log);
        found(layer, false, format!("a handler exceeded its limit and was not stopped: {log}"))
    }

    pub(super) async fn language(
        &self,
        program: &'static str,
        argument: &str,
        path: &str,
    ) -> Finding {
        let Some(file) = find_program(program, path) else {
            let detail = format!("not installed: it was not found in {path}");
            return Finding { layer: program, status: LayerStatus::Absent, detail };
        };
        let place = file.display().to_string();
        if argument.is_empty() {
            let report = self.run("exit 0", Limits::default()).await;
            return found(program, report.status.code().ends_job(), place);
        }
        let line = format!("{program} {argument}");
        let report = self.run_as(Lang::Exec, &line, Limits::default()).await;
        let log = report.log.to_string();
        if report.status.code().ends_job() {
            let version = log.lines().next().unwrap_or_default();
            return found(program, true, format!("{version}, {place}"));
        }
        let log = in_one_line(&log);
        found(program, false, format!("{place} does not start as a handler: {log}"))
    }
}

fn in_one_line(log: &str) -> String {
    log.trim().replace('\n', "; ")
}

#[derive(Default)]
struct Reported(Mutex<Option<Report>>);

#[async_trait]
impl Reports for Reported {
    async fn started(&self, _: AttemptId) {}

    async fn progress(&self, _: AttemptId, _: f64, _: String) {}

    async fn ended(&self, _: AttemptId, report: Report) {
        *lock(&self.0) = Some(report);
    }

    async fn returned(&self, _: AttemptId) {}
}

struct NoPieces;

#[async_trait]
impl Pieces for NoPieces {
    async fn piece(&self, _: JobId, _: u32) -> Result<Option<Bytes>, String> {
        Err("no payload here has pieces".into())
    }
}
