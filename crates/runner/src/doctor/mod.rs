//! Which layers of isolation are in force on this machine. Nothing is assumed: real handlers run,
//! and their output shows what they can see and do.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
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

use crate::context::language::find_program;
use crate::isolate::{Landlock, Layers, landlock_version};
use crate::process::stopped_before_start;
use crate::{Error, LocalRunner, Options, proc};

/// One layer and its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub layer: &'static str,
    pub status: LayerStatus,
    /// What was observed; if the layer is not in force, why, and how to get it.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerStatus {
    InForce,
    NotInForce,
    /// Disabled by the configuration, or not installed.
    Absent,
}

/// Time limit of each handler here.
const TRIAL_MAX: Duration = Duration::from_secs(30);
/// Limits that are low enough to be reached at once.
const TRIAL_MEMORY: u64 = 32 * 1024 * 1024;
const TRIAL_SCRATCH: u64 = 8 * 1024 * 1024;
const TRIAL_CPU: Duration = Duration::from_secs(1);
const TRIAL_FILE: u64 = 64 * 1024;
const TRIAL_PROCESSES: u32 = 3;
/// How long a process sleeps that hides.
const HIDDEN_S: u32 = 86_000;
/// Variables that a shell sets by itself.
const OF_SHELL: [&str; 4] = ["PWD", "OLDPWD", "SHLVL", "_"];
const OF_HANDLER: [&str; 6] = ["PATH", "HOME", "TMPDIR", "LANG", "OUTSIDE", "PORT"];
/// The programs of the languages, and the arguments that print their version.
const LANGUAGES: [(&str, &str); 4] =
    [("sh", ""), ("node", "--version"), ("python3", "--version"), ("php", "--version")];

/// Prints what it sees, one fact per line.
const LOOK: &str = r#"
read -r stat < /proc/$$/stat; echo "stat $$ ${stat##*) }"
env | while IFS== read -r name rest; do echo "env $name"; done
echo "descriptors $(ls /proc/self/fd | tr '\n' ' ')"
while read -r line; do echo "status $line"; done < /proc/self/status
while read -r line; do echo "limit $line"; done < /proc/self/limits
echo "dir $(stat -c %a ..) $(ls -A | wc -l)"
echo x > own && echo "own written"
(echo x > "$OUTSIDE/written") && echo "outside written"
read -r secret < "$OUTSIDE/secret" && echo "outside $secret"
for kind in pid mnt net ipc uts cgroup; do echo "namespace $(readlink /proc/self/ns/$kind)"; done
echo "user $(id -u)"
echo "users $(readlink /proc/self/ns/user)"
unshare -U true && echo "unshared"
connect() {
  bash -c ": < /dev/tcp/127.0.0.1/$PORT" || python3 -c "import socket
socket.create_connection(('127.0.0.1', $PORT))"
}
command -v bash python3 > /dev/null && echo "connect tried"
connect && echo "connect made"
echo "all tried"
exit 0
"#;
/// The line that it prints last.
const LAST: &str = "all tried";
const NOT_TRIED: &str = "not tried: no handler ran to its end";
/// Allocates memory until it fails.
const HOG_MEMORY: &str = "exec tail /dev/zero";
/// The same in several processes, none of which has all of it.
const HOG_TOGETHER: &str = "for i in 1 2 3 4 5 6 7 8; do
  (while :; do tail /dev/zero 2> /dev/null; done) & done; wait";
const HOG_CPU: &str = "while :; do :; done";
const HOG_FILE: &str = "exec cat /dev/zero > file";
/// Leaves a process behind that nothing tells whose it is. `$WORD` is a number of seconds.
const HIDE: &str = "(cd /; env -i $(command -v setsid) sleep $WORD < /dev/null > /dev/null 2>&1 &)
sleep 0.1; echo left";
const HOG_PROCESSES: &str = "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait";

/// Runs handlers in the empty directory named by the options, and checks what they could do.
pub async fn examine(options: Options) -> Result<Vec<Finding>, Error> {
    let (scratch, path) = (options.scratch_dir.clone(), options.path.clone());
    let isolation = options.isolation.clone();
    let trial = Trial { runner: LocalRunner::new(options)? };
    let outside = scratch.join("outside");
    let hidden =
        fs::create_dir(&outside).and_then(|()| fs::write(outside.join("secret"), "read\n"));
    hidden.map_err(|source| Error::Scratch { path: outside.clone(), source })?;
    let listening = TcpListener::bind("127.0.0.1:0").map_err(Error::System)?;
    let port = listening.local_addr().map_err(Error::System)?.port();
    let env = [("OUTSIDE", outside.display().to_string()), ("PORT", port.to_string())];
    let env = env.map(|(name, value)| (name.to_owned(), value)).into();
    let options = HandlerOptions { env, ..HandlerOptions::default() };
    let seen = Facts(trial.run_with(Lang::Sh, LOOK, options).await.log.to_string());
    let layers = trial.runner.layers();
    let mut findings = vec![
        seen.namespaces(layers),
        seen.user(),
        seen.network(layers),
        seen.system_calls(layers),
        seen.session(),
        seen.environment(),
        seen.directory(),
        seen.descriptors(),
        seen.signals(),
        seen.privileges(),
        landlock(isolation.landlock, &seen, &outside),
    ];
    findings.push(trial.leftovers().await);
    findings.extend(trial.limits(&isolation.limits).await);
    findings.push(seen.core_files());
    for (program, argument) in LANGUAGES {
        findings.push(trial.language(program, argument, &path).await);
    }
    Ok(findings)
}

fn found(layer: &'static str, in_force: bool, detail: impl Into<String>) -> Finding {
    let status = if in_force { LayerStatus::InForce } else { LayerStatus::NotInForce };
    Finding { layer, status, detail: detail.into() }
}

/// A layer that is not in force: why, and what would help, if the runner knows.
fn missing(layer: &'static str, layers: &Layers, observed: &str) -> Finding {
    let known = layers.missing.iter().find(|missing| missing.layer == layer);
    let known = known.map(|missing| format!(": {}; {}", missing.reason, missing.help));
    found(layer, false, format!("{observed}{}", known.unwrap_or_default()))
}

fn landlock(wanted: Landlock, seen: &Facts, outside: &Path) -> Finding {
    let layer = "files (Landlock)";
    if wanted == Landlock::Off {
        let detail =
            "handlers can access all files of the daemon's user; isolation.landlock is off";
        return Finding { layer, status: LayerStatus::Absent, detail: detail.into() };
    }
    let version = match landlock_version() {
        Ok(version) => version,
        Err(reason) => {
            let detail = format!(
                "this kernel has none ({reason}); it needs Linux 5.13 or later with landlock in \
                 its list of security modules (lsm=landlock,… on its command line)"
            );
            return found(layer, false, detail);
        }
    };
    if !seen.has_run() {
        return found(layer, false, NOT_TRIED);
    }
    let wrote = outside.join("written").exists();
    let read = seen.values("outside").any(|value| value == "read");
    let detail = match (wrote, read) {
        (false, false) => {
            format!("version {version}: other files cannot be read or written")
        }
        (true, _) => "a handler wrote a file that is not its own".to_owned(),
        (false, true) => "a handler read a file that is not its own".to_owned(),
    };
    found(layer, !wrote && !read, detail)
}

/// What a handler printed, one fact per line.
struct Facts(String);

impl Facts {
    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix(' '))
    }

    /// Whether it ran to its end: what an attack did not print was tried and failed.
    fn has_run(&self) -> bool {
        self.0.lines().any(|line| line == LAST)
    }

    /// A field of `/proc/self/status`.
    fn status(&self, name: &str) -> &str {
        let mut lines = self.values("status").filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| *found == name).map_or("unknown", |(_, value)| value.trim())
    }

    fn namespaces(&self, layers: &Layers) -> Finding {
        let layer = "namespaces";
        let shared = |link: &&str| {
            let kind = link.split(':').next().unwrap_or_default();
            let ours = fs::read_link(format!("/proc/self/ns/{kind}"));
            ours.is_ok_and(|ours| ours.to_str() == Some(link))
        };
        let links: Vec<&str> = self.values("namespace").collect();
        match links.iter().find(|link| shared(link)) {
            _ if links.is_empty() => missing(layer, layers, "they could not be read"),
            Some(link) => missing(layer, layers, &format!("a handler shares the daemon's {link}")),
            None => found(layer, true, "own processes, files, network, message queues and names"),
        }
    }

    fn user(&self) -> Finding {
        let user = self.values("user").next().unwrap_or("unknown");
        let ours = rustix::process::geteuid().as_raw().to_string();
        let own_users = fs::read_link("/proc/self/ns/user")
            .is_ok_and(|ours| self.values("users").any(|users| ours.to_str() != Some(users)));
        if user == "unknown" {
            return found("user", false, NOT_TRIED);
        }
        let detail = match (user == ours, own_users) {
            (_, true) => "of a user namespace of its own",
            (false, false) => "not the daemon's",
            (true, false) => "the daemon's own",
        };
        found("user", user != ours || own_users, format!("{detail} ({user})"))
    }

    fn network(&self, layers: &Layers) -> Finding {
        let layer = "network policy";
        if self.values("connect").any(|value| value == "made") {
            return missing(layer, layers, "a handler connected to a port of this machine");
        }
        match self.values("connect").any(|value| value == "tried") {
            true => found(layer, true, "a port of this machine could not be connected to"),
            false => missing(layer, layers, "not tried: neither bash nor python3 is installed"),
        }
    }

    fn system_calls(&self, layers: &Layers) -> Finding {
        let layer = "system call filter";
        match self.0.lines().any(|line| line == "unshared") {
            true => missing(layer, layers, "a handler made a user namespace"),
            false if !self.has_run() => missing(layer, layers, NOT_TRIED),
            // Where nobody can make one, that tells nothing about the filter.
            false if !layers.filter => missing(layer, layers, "no filter could be set"),
            false => found(layer, true, "a handler could not make a namespace"),
        }
    }

    fn session(&self) -> Finding {
        // Its number, then state, parent, group, session.
        let fields: Vec<&str> =
            self.values("stat").next().unwrap_or_default().split_whitespace().collect();
        let own = fields.len() > 4 && fields[3] == fields[0] && fields[4] == fields[0];
        found(
            "session",
            own,
            if own { "its own, with its own process group" } else { "not its own" },
        )
    }

    fn environment(&self) -> Finding {
        let strange = |name: &&str| {
            !name.starts_with("WINDLASS_") && !OF_SHELL.contains(name) && !OF_HANDLER.contains(name)
        };
        let names: Vec<&str> = self.values("env").collect();
        match names.iter().find(|name| strange(name)) {
            _ if names.is_empty() => found("environment", false, "it could not be read"),
            None => found("environment", true, "nothing from the daemon"),
            Some(name) => found("environment", false, format!("{name} comes from the daemon")),
        }
    }

    fn directory(&self) -> Finding {
        let private = self.values("dir").any(|value| value == "700 0");
        let written = self.values("own").count() == 1;
        let detail = match (private, written) {
            (true, true) => "empty, its own and writable",
            (false, _) => "it is not empty, or others may read it",
            (true, false) => "it cannot be written to",
        };
        found("private directory", private && written, detail)
    }

    fn descriptors(&self) -> Finding {
        // The fourth is the descriptor used to list them.
        let open = self.values("descriptors").next().unwrap_or_default().trim();
        let closed = open == "0 1 2 3";
        let detail = if closed { "the three standard streams" } else { open };
        found("descriptors", closed, detail)
    }

    fn signals(&self) -> Finding {
        let sets = [self.status("SigIgn"), self.status("SigBlk")];
        let clear = sets.iter().all(|set| is_zero(set));
        let detail =
            if clear { "none is ignored or blocked" } else { "some are ignored or blocked" };
        found("signals", clear, detail)
    }

    fn privileges(&self) -> Finding {
        let gained = self.status("NoNewPrivs") != "1";
        let left = !is_zero(self.status("CapEff")) || !is_zero(self.status("CapPrm"));
        let detail = match (left, gained) {
            (false, false) => "no capabilities, and no way to gain any (no_new_privs)",
            (true, _) => "handlers keep capabilities of the daemon",
            (false, true) => "programs can grant new ones: no_new_privs is not set",
        };
        found("privileges", !left && !gained, detail)
    }

    fn core_files(&self) -> Finding {
        let none = self.values("limit").any(|line| {
            let rest = line.strip_prefix("Max core file size");
            rest.is_some_and(|rest| rest.split_whitespace().next() == Some("0"))
        });
        found("core files", none, if none { "none are written" } else { "they may be written" })
    }
}

/// Whether a set in hexadecimal is empty; an unknown one is not.
fn is_zero(set: &str) -> bool {
    !set.is_empty() && set.bytes().all(|digit| digit == b'0')
}

/// Runs handlers as the daemon would.
struct Trial {
    runner: LocalRunner,
}

impl Trial {
    async fn run(&self, script: &str, limits: Limits) -> Report {
        self.run_as(Lang::Sh, script, limits).await
    }

    async fn run_as(&self, lang: Lang, body: &str, limits: Limits) -> Report {
        self.run_with(lang, body, HandlerOptions { limits, ..HandlerOptions::default() }).await
    }

    async fn run_with(&self, lang: Lang, body: &str, options: HandlerOptions) -> Report {
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
    async fn leftovers(&self) -> Finding {
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
            false => missing(layer, self.runner.layers(), "a process that hid outlived its job"),
        }
    }

    /// Tries each limit with a value that is reached at once.
    async fn limits(&self, configured: &Limits) -> Vec<Finding> {
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
        let log = log.trim().replace('\n', "; ");
        found(layer, false, format!("a handler exceeded its limit and was not stopped: {log}"))
    }

    async fn language(&self, program: &'static str, argument: &str, path: &str) -> Finding {
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
        let log = log.trim().replace('\n', "; ");
        found(program, false, format!("{place} does not start as a handler: {log}"))
    }
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
