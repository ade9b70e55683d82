//! A client: sends what the workload draws, learns from the answers, and puts everything back.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;
use windlass_proof::history::{Answer, JobId};
use windlass_proof::workload::{Mix, Workload};

use crate::door::{Caller, Handlers};
use crate::site::Site;

/// Longest pause between two requests.
const PAUSE_MS_MAX: u64 = 80;
/// Pause before another attempt at a daemon that is down.
const DOWN_PAUSE: Duration = Duration::from_millis(50);
/// After so many requests, it looks which jobs have ended.
const LOOK_EVERY: u64 = 20;
/// Attempts at one closing request, all daemons being up or about to be.
const CLOSING_ATTEMPTS_MAX: u32 = 600;

/// What workers tell clients about a job.
pub(crate) enum News {
    Held { tenant: String, job: JobId },
    Ended { tenant: String, job: JobId },
}

pub(crate) struct Client<'a> {
    site: &'a Site,
    caller: Caller<'a>,
    workload: Workload,
    tenants: Vec<String>,
    news: Receiver<News>,
    rng: fastrand::Rng,
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        site: &'a Site,
        handlers: &'a Handlers,
        number: u32,
        mix: &Mix,
        news: Receiver<News>,
    ) -> Result<Client<'a>> {
        Ok(Client {
            site,
            caller: Caller::new(site, handlers, &format!("client-{number}"))?,
            workload: Workload::new(site.seed, number, mix.clone()),
            tenants: mix.tenants.clone(),
            news,
            rng: fastrand::Rng::with_seed(site.seed ^ u64::from(number)),
        })
    }

    /// Works until the run drains, then closes.
    pub(crate) fn run(mut self) -> Result<()> {
        let mut count = 0;
        let mut waiting = None;
        while self.site.is_busy() {
            self.learn();
            let operation = waiting.take().unwrap_or_else(|| self.workload.next_operation());
            let Some(reply) = self.caller.perform(&operation)? else {
                waiting = Some(operation);
                self.site.pause(DOWN_PAUSE);
                continue;
            };
            self.workload.answered(&operation, &reply.answer);
            count += 1;
            if count % LOOK_EVERY == 0 {
                self.look();
            }
            let pause = Duration::from_millis(self.rng.u64(..=PAUSE_MS_MAX));
            self.site.pause_while(pause, || self.site.is_busy());
        }
        self.close()
    }

    fn learn(&mut self) {
        for news in self.news.try_iter() {
            match news {
                News::Held { tenant, job } => self.workload.held(&tenant, job),
                News::Ended { tenant, job } => self.workload.ended(&tenant, job),
            }
        }
    }

    /// Learns which jobs have ended by a handler.
    fn look(&mut self) {
        let tenant = self.tenants[self.rng.usize(..self.tenants.len())].clone();
        let state = if self.rng.bool() { "finished" } else { "failed" };
        let path = format!("/v1/{tenant}/jobs?state={state}&limit=100");
        let Some(list) = self.caller.ask_json(&path) else { return };
        for job in list["jobs"].as_array().into_iter().flatten() {
            if let Some(id) = job["id"].as_str().and_then(|id| id.parse().ok()) {
                self.workload.ended(&tenant, JobId(id));
            }
        }
    }

    fn close(&mut self) -> Result<()> {
        for operation in self.workload.closing() {
            certainly(self.site, &mut self.caller, &operation)?;
        }
        Ok(())
    }
}

/// Sends a request until it is certain whether it was done.
pub(crate) fn certainly(
    site: &Site,
    caller: &mut Caller<'_>,
    operation: &windlass_proof::history::Operation,
) -> Result<Value> {
    for _ in 0..CLOSING_ATTEMPTS_MAX {
        match caller.perform(operation)? {
            Some(reply) if !matches!(reply.answer, Answer::Unknown { .. }) => {
                return Ok(reply.body);
            }
            _ => site.pause(DOWN_PAUSE),
        }
    }
    bail!("no daemon answers {operation:?}")
}
