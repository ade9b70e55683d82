//! A client: sends what the workload draws, learns from the answers, and puts everything back.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use serde_json::Value;
use windlass_proof::history::{Answer, JobId, Operation, State};
use windlass_proof::workload::{Mix, Workload};

use crate::door::{Caller, Handlers, Reply};
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
    /// Sends adds with a key at the same moment to another daemon.
    twin: Caller<'a>,
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
            twin: Caller::new(site, handlers, &format!("twin-{number}"))?,
            workload: Workload::new(site.seed, number, mix.clone()),
            tenants: mix.tenants.clone(),
            news,
            rng: fastrand::Rng::with_seed(site.seed ^ u64::from(number)),
        })
    }

    /// Works until the run drains, then closes.
    pub(crate) fn run(mut self) -> Result<()> {
        let mut count = 0;
        let (mut waiting, mut calm) = (None, false);
        while self.site.is_busy() {
            self.learn();
            if self.site.is_calm() != calm {
                calm = !calm;
                waiting = None;
                self.turn(calm)?;
            }
            let operation = waiting.take().unwrap_or_else(|| self.workload.next_operation());
            let replies = match self.is_for_twins(&operation) {
                true => self.perform_twice(&operation)?,
                false => self.caller.perform(&operation)?.into_iter().collect(),
            };
            if replies.is_empty() {
                waiting = Some(operation);
                self.site.pause(DOWN_PAUSE);
                continue;
            }
            for reply in replies {
                self.workload.answered(&operation, &reply.answer);
            }
            count += 1;
            if count % LOOK_EVERY == 0 {
                self.look()?;
            }
            let pause = Duration::from_millis(self.rng.u64(..=PAUSE_MS_MAX));
            self.site.pause_while(pause, || self.site.is_busy());
        }
        self.close()
    }

    /// It gets calm, or goes on.
    fn turn(&mut self, calm: bool) -> Result<()> {
        if !calm {
            self.workload.go_on();
            return Ok(());
        }
        for operation in self.workload.settle_down() {
            certainly(self.site, &mut self.caller, &operation)?;
        }
        Ok(())
    }

    fn is_for_twins(&mut self, operation: &Operation) -> bool {
        let keyed = matches!(operation, Operation::Add(add) if add.idempotency_key.is_some());
        keyed && self.site.daemon_count() > 1 && self.rng.bool()
    }

    /// Sends a request to two daemons at the same moment.
    fn perform_twice(&mut self, operation: &Operation) -> Result<Vec<Reply>> {
        let one = self.rng.usize(..self.site.daemon_count());
        let other = (one + 1) % self.site.daemon_count();
        let (caller, twin) = (&mut self.caller, &mut self.twin);
        let (first, second) = thread::scope(|scope| {
            let second = scope.spawn(|| twin.perform_at(other, operation));
            (caller.perform_at(one, operation), second.join())
        });
        let second = second.map_err(|_| anyhow!("a twin panicked"))?;
        Ok(first?.into_iter().chain(second?).collect())
    }

    fn learn(&mut self) {
        for news in self.news.try_iter() {
            match news {
                News::Held { tenant, job } => self.workload.held(&tenant, job),
                News::Ended { tenant, job } => drop(self.workload.ended(&tenant, job)),
            }
        }
    }

    /// Learns which jobs have ended by a handler, and writes it down.
    fn look(&mut self) -> Result<()> {
        let tenant = self.tenants[self.rng.usize(..self.tenants.len())].clone();
        let (name, state) = match self.rng.bool() {
            true => ("finished", State::Finished),
            false => ("failed", State::Failed),
        };
        let path = format!("/v1/{tenant}/jobs?state={name}&limit=100");
        let asked_at = self.site.now_ns();
        let Some(list) = self.caller.ask_json(&path) else { return Ok(()) };
        for job in list["jobs"].as_array().into_iter().flatten() {
            let Some(id) = job["id"].as_str().and_then(|id| id.parse().ok()).map(JobId) else {
                continue;
            };
            if self.workload.ended(&tenant, id) {
                self.caller.looked(asked_at, (&tenant, id), state)?;
            }
        }
        Ok(())
    }

    /// Nothing is left to close if the run failed.
    fn close(&mut self) -> Result<()> {
        if self.site.is_over() {
            return Ok(());
        }
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
    operation: &Operation,
) -> Result<Value> {
    for _ in 0..CLOSING_ATTEMPTS_MAX {
        match caller.perform(operation)? {
            Some(reply) if !matches!(reply.answer, Answer::Unknown { .. }) => {
                return Ok(reply.body);
            }
            _ if site.is_over() => break,
            _ => site.pause(DOWN_PAUSE),
        }
    }
    bail!("no daemon answers {operation:?}")
}
