//! A daemon under test: started, made ready, signalled, ended.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use rustix::process::Signal;
use serde_json::Value;
use windlass_proof::history::{DaemonEvent, Event};
use windlass_test_kit::http::Response;
use windlass_test_kit::process::Program;

use crate::door::connect;
use crate::guard::Guard;
use crate::site::{Site, Witness};

/// The lease of a daemon. Short, so that takeovers are quick; long enough for a busy machine.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// The tenant whose jobs clients and workers of Bedrock see: the first one of every mix.
const BEDROCK_TENANT: &str = "tenant-0";
/// A daemon is ready after this, or something is wrong.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// A daemon ends in this time after a signal, or it hangs.
const END_TIME_MAX: Duration = Duration::from_secs(120);
/// A killed one is gone in this time, unless it waits in the kernel.
const KILL_TIME_MAX: Duration = Duration::from_secs(30);
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Settings beside the addresses and paths. The idle limit of connections is longer than the
/// pauses of workers, so that only faults break connections.
const SETTINGS: [(&str, &str); 13] = [
    ("WINDLASS_LEASE_DURATION", "3s"),
    ("WINDLASS_LEASE_REAP_INTERVAL", "200ms"),
    ("WINDLASS_POLL_MIN", "20ms"),
    ("WINDLASS_POLL_MAX", "200ms"),
    ("WINDLASS_RETRY_DELAY", "200ms"),
    ("WINDLASS_RETRY_FACTOR", "1"),
    ("WINDLASS_RETRY_ATTEMPTS", "1000"),
    ("WINDLASS_STOP_GRACE", "2s"),
    // Longer than all steps of the clock.
    ("WINDLASS_JOB_RETENTION", "3650d"),
    ("WINDLASS_HTTP_HEADER_TIMEOUT", "5m"),
    ("WINDLASS_JOURNAL_SEGMENT_BYTES_MAX", "1048576"),
    ("WINDLASS_LOG_LEVEL", "warn"),
    ("WINDLASS_LOG_FORMAT", "human"),
];

pub(crate) struct Daemon<'a> {
    site: &'a Site,
    number: usize,
    binary: PathBuf,
    program: Option<Program>,
    guard: Option<Guard>,
}

impl<'a> Daemon<'a> {
    pub(crate) fn new(site: &'a Site, number: usize, binary: &Path) -> Daemon<'a> {
        Daemon { site, number, binary: binary.to_owned(), program: None, guard: None }
    }

    pub(crate) fn name(&self) -> &str {
        self.site.daemon_name(self.number)
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.program.as_ref().map(|program| program.pid())
    }

    pub(crate) fn start(&mut self, witness: &mut Witness<'_>) -> Result<()> {
        // Handlers get the daemon's PATH, and learn from its last part which daemon runs them.
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(&self.binary);
        command
            .arg("serve")
            .args(["--listen", &self.site.address(self.number).to_string()])
            .args(["--bedrock", &self.site.bedrock(self.number).to_string()])
            .arg("--data-dir")
            .arg(self.site.data_dir_of(self.number))
            .current_dir(self.site.console_dir())
            .env("PATH", format!("{path}:/nonexistent/{}", self.name()))
            .env("WINDLASS_BEDROCK_TENANT", BEDROCK_TENANT)
            .env("WINDLASS_ISOLATION_WRITE", self.site.handler_dir())
            .envs(SETTINGS)
            .envs(self.site.has_bare_handlers().then_some(("WINDLASS_ISOLATION_LEVEL", "off")))
            .envs(self.site.clock_environment())
            .envs(self.site.store().map(|url| ("WINDLASS_STORE", url)));
        let consoles = self.site.console_dir().join(self.name());
        std::fs::create_dir_all(&consoles)?;
        let program = Program::spawn(&mut command, &consoles);
        self.guard = Some(Guard::of_process(program.pid())?);
        self.program = Some(program);
        self.write(witness, DaemonEvent::Started)
    }

    /// Waits until it accepts adds.
    pub(crate) fn until_ready(&mut self, witness: &mut Witness<'_>) -> Result<()> {
        let from = self.site.now_ns();
        while !self.is_ready() {
            let name = self.name().to_owned();
            let program = self.program.as_mut().context("it was started")?;
            if !program.alive() {
                bail!("{name} ended instead of getting ready: {}", program.console());
            }
            if self.site.now_ns() - from > READY_TIME_MAX.as_nanos() as u64 {
                bail!("{name} did not get ready in time: {}", program.console());
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        self.site.learn_key(self.number)?;
        self.write(witness, DaemonEvent::Ready)
    }

    fn is_ready(&self) -> bool {
        self.readiness().is_some_and(|answer| answer.status == 200)
    }

    /// What it says of its parts, each `ok` or a reason.
    pub(crate) fn state(&self) -> Option<Value> {
        serde_json::from_slice(&self.readiness()?.body).ok()
    }

    fn readiness(&self) -> Option<Response> {
        let mut open = connect(self.site, self.number)?;
        open.call("GET", "/readyz", &[], &[]).ok()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(program) = &self.program {
            program.signal(signal);
        }
    }

    /// Sends a signal that ends it, and waits until it is gone.
    pub(crate) fn end(&mut self, signal: Signal, witness: &mut Witness<'_>) -> Result<ExitStatus> {
        self.signal(signal);
        self.until_ended(witness)
    }

    /// Waits until it is gone after a signal.
    pub(crate) fn until_ended(&mut self, witness: &mut Witness<'_>) -> Result<ExitStatus> {
        self.until_ended_within(END_TIME_MAX, witness)
    }

    /// One that takes longer is killed, and what it waited for is in the error.
    fn until_ended_within(
        &mut self,
        time: Duration,
        witness: &mut Witness<'_>,
    ) -> Result<ExitStatus> {
        let mut program = self.program.take().context("it was started")?;
        let in_time = self.ends_within(&mut program, time)?;
        let hangs = in_time.is_none().then(|| self.hangs(&program, time));
        let status = match in_time {
            Some(status) => Some(status),
            None => {
                program.signal(Signal::KILL);
                self.ends_within(&mut program, KILL_TIME_MAX)?
            }
        };
        self.guard = None;
        self.site.went_down(self.number);
        match status {
            Some(status) => {
                let what = DaemonEvent::Exited { code: status.code(), signal: status.signal() };
                self.write(witness, what)?;
            }
            // Its end would wait for it.
            None => std::mem::forget(program),
        }
        match (hangs, status) {
            (Some(error), _) => Err(error),
            (None, Some(status)) => Ok(status),
            (None, None) => bail!("{} has neither ended nor hangs", self.name()),
        }
    }

    fn ends_within(&self, program: &mut Program, time: Duration) -> Result<Option<ExitStatus>> {
        let until = self.site.now_ns() + time.as_nanos() as u64;
        loop {
            let status = program.try_wait().context("a daemon cannot be waited for")?;
            if status.is_some() || self.site.now_ns() > until {
                return Ok(status);
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    fn hangs(&self, program: &Program, time: Duration) -> Error {
        let (name, seconds) = (self.name(), time.as_secs());
        let (threads, console) = (threads(program.pid()), program.console());
        anyhow!("{name} did not end within {seconds} s and was killed; {threads}; {console}")
    }

    /// What its process has printed so far.
    pub(crate) fn console(&self) -> String {
        self.program.as_ref().map(Program::console).unwrap_or_default()
    }

    /// Whether it has ended without having been told to, with what it printed.
    pub(crate) fn crashed(&mut self) -> Option<String> {
        let program = self.program.as_mut()?;
        (!program.alive()).then(|| program.console())
    }

    fn write(&self, witness: &mut Witness<'_>, what: DaemonEvent) -> Result<()> {
        witness.record(&Event::Daemon { daemon: self.name().to_owned(), what })
    }
}

/// The threads of a process: name, state, and where in the kernel each waits.
fn threads(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let described = tasks.map(|task| {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (stat, place) = (read("stat"), read("wchan"));
        let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
        format!("{} {} {place}", read("comm").trim(), state.unwrap_or("?"))
    });
    format!("its threads: {}", described.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_daemon_that_hangs_is_an_error_and_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let site = Site::new(1, dir.path(), 1, &[]).unwrap();
        let program = dir.path().join("hangs");
        fs::write(&program, "#!/bin/sh\ntrap '' TERM\nexec sleep 1000\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut witness = site.witness("faults").unwrap();
        let mut daemon = Daemon::new(&site, 0, &program);
        daemon.start(&mut witness).unwrap();
        let pid = daemon.pid().unwrap();
        windlass_test_kit::wait::until("it ignores the signal", || {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
        });
        daemon.signal(Signal::TERM);
        let error = daemon.until_ended_within(Duration::ZERO, &mut witness).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("daemon-0 did not end within 0 s and was killed"), "{text}");
        assert!(text.contains("its threads: sleep "), "{text}");
        assert!(!Path::new(&format!("/proc/{pid}")).exists() && daemon.pid().is_none());
    }
}
