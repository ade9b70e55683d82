//! A daemon under test: started, made ready, signalled, ended.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
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
            // A cell keeps the disk in use that the next fault takes away.
            .env("WINDLASS_ISOLATION_LEVEL", "off")
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
        let mut program = self.program.take().context("it was started")?;
        let status = program.ended();
        self.guard = None;
        self.site.went_down(self.number);
        let what = DaemonEvent::Exited { code: status.code(), signal: status.signal() };
        self.write(witness, what)?;
        Ok(status)
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
