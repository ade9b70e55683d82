//! Takes backups while the run is busy.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use windlass_proof::history::{JobId, State};
use windlass_test_kit::process::run_patiently;

use super::Taken;
use crate::door::{Caller, Handlers};
use crate::site::Site;

/// Backups of a run.
const BACKUPS: u32 = 2;
/// Attempts at one, while faults keep it from succeeding: the disk may not even be there.
const ATTEMPTS_MAX: u32 = 100;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);
/// Jobs of one question. Twice as many lines must be within the window in which a history may be
/// out of order.
const PAGE: usize = 400;
const ENDED: [(&str, State); 3] =
    [("finished", State::Finished), ("failed", State::Failed), ("cancelled", State::Cancelled)];

pub(crate) struct Backups<'a> {
    site: &'a Site,
    caller: Caller<'a>,
    tenants: Vec<String>,
    binary: &'a Path,
}

impl<'a> Backups<'a> {
    pub(crate) fn new(
        site: &'a Site,
        handlers: &'a Handlers,
        tenants: &[String],
        binary: &'a Path,
    ) -> Result<Backups<'a>> {
        let caller = Caller::new(site, handlers, "backup")?;
        Ok(Backups { site, caller, tenants: tenants.to_vec(), binary })
    }

    /// Takes one backup in each part of the busy time, at a moment that the seed decides.
    pub(crate) fn run(mut self, busy: Duration) -> Result<Vec<Taken>> {
        let mut rng = fastrand::Rng::with_seed(self.site.seed ^ 0xbac2);
        let from = self.site.now_ns();
        let mut taken = Vec::new();
        for number in 0..BACKUPS {
            let part = busy / BACKUPS;
            let due = part * number + part.mul_f64(0.3 + 0.5 * rng.f64());
            let due = from + due.as_nanos() as u64;
            let left = Duration::from_nanos(due.saturating_sub(self.site.now_ns()));
            self.site.pause_while(left, || self.site.is_busy());
            if self.site.is_busy() {
                taken.extend(self.take(number)?);
            }
        }
        let count = taken.len();
        ensure!(count == BACKUPS as usize, "only {count} backups were taken; it takes longer");
        Ok(taken)
    }

    /// `None` if faults came until the run was not busy any more.
    fn take(&mut self, number: u32) -> Result<Option<Taken>> {
        for tenant in self.tenants.clone() {
            for (name, state) in ENDED {
                self.look(&tenant, name, state)?;
            }
        }
        for attempt in 0..ATTEMPTS_MAX {
            let dir = self.site.dir().join(format!("backup-{number}-{attempt}"));
            let began_ns = self.site.now_ns();
            let mut command = Command::new(self.binary);
            command.arg("backup").arg(&dir).arg("--data-dir").arg(self.site.data_dir());
            let ended = run_patiently(&mut command, b"").context("a backup did not end")?;
            if ended.code == Some(0) {
                return Ok(Some(Taken { dir, began_ns, ended_ns: self.site.now_ns() }));
            }
            ensure!(self.site.had_fault_since(began_ns), "a backup failed: {}", ended.stderr);
            self.site.pause_while(ATTEMPT_PAUSE, || self.site.is_busy());
            if !self.site.is_busy() {
                break;
            }
        }
        Ok(None)
    }

    /// Writes down which jobs have ended. What does not answer now is not looked at.
    fn look(&mut self, tenant: &str, name: &str, state: State) -> Result<()> {
        let mut after = String::new();
        loop {
            let asked_at = self.site.now_ns();
            let path = format!("/v1/{tenant}/jobs?state={name}&limit={PAGE}{after}");
            let Some(page) = self.caller.ask_json(&path) else { return Ok(()) };
            for job in page["jobs"].as_array().into_iter().flatten() {
                if let Some(id) = job["id"].as_str().and_then(|id| id.parse().ok()) {
                    self.caller.looked(asked_at, (tenant, JobId(id)), state)?;
                }
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(()),
            }
        }
    }
}
