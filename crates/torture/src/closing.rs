//! The end of a run: waits until nothing is left to do, then lists everything.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use windlass_proof::history::{Event, JobId, Operation, Seen, State};
use windlass_proof::workload::payload;

use crate::client::certainly;
use crate::door::{Caller, Handlers};
use crate::fault::PROBE_TENANT;
use crate::site::Site;

/// How long the rest may take when clients and faults have stopped.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(120);
/// No Bedrock worker has a job for longer.
const TAKEN_TIME_MAX: Duration = Duration::from_secs(8);
const LOOK_PAUSE: Duration = Duration::from_millis(300);
/// Nothing is left if this many looks in a row found nothing.
const LOOKS: u32 = 3;
/// Attempts at one question, all daemons being up.
const ASK_ATTEMPTS_MAX: u32 = 100;
/// Threads that look at single jobs.
const LISTERS: usize = 4;
/// Jobs that are named if the run cannot be drained.
const SHOWN_MAX: usize = 20;

pub(crate) struct Closing<'a> {
    site: &'a Site,
    handlers: &'a Handlers,
    caller: Caller<'a>,
    tenants: Vec<String>,
    /// Jobs that Bedrock workers seem to have, with their attempt and since when.
    taken: HashMap<JobId, (u64, u64)>,
}

impl<'a> Closing<'a> {
    /// What it does is written down under this name.
    pub(crate) fn new(
        site: &'a Site,
        handlers: &'a Handlers,
        name: &str,
        tenants: &[String],
    ) -> Result<Closing<'a>> {
        let caller = Caller::new(site, handlers, name)?;
        Ok(Closing { site, handlers, caller, tenants: tenants.to_vec(), taken: HashMap::new() })
    }

    /// Waits until nothing can run any more. Returns what is left if that takes too long.
    pub(crate) fn drain(&mut self) -> Result<Vec<String>> {
        let until = self.site.now_ns() + DRAIN_TIME_MAX.as_nanos() as u64;
        let mut quiet = 0;
        while quiet < LOOKS {
            self.cancel_repeats()?;
            self.put_back()?;
            quiet = if self.left()? == 0 { quiet + 1 } else { 0 };
            if self.site.now_ns() > until {
                return self.unfinished();
            }
            self.site.pause(LOOK_PAUSE);
        }
        Ok(Vec::new())
    }

    /// Jobs that will still run, or are running. Those that wait for others are not counted: a
    /// failed child keeps its parent waiting.
    fn left(&mut self) -> Result<u64> {
        let mut left = 0;
        for tenant in self.tenants.clone() {
            for of in list(&self.ask(&format!("/v1/{tenant}/types"))?) {
                let count = |name: &str| of[name].as_u64().unwrap_or(0);
                left += count("ready") + count("deferred") + count("running");
            }
        }
        Ok(left)
    }

    /// Repeating jobs never end, also those whose add was not answered.
    fn cancel_repeats(&mut self) -> Result<()> {
        for tenant in self.tenants.clone() {
            for state in ["queued", "running", "paused"] {
                let jobs = self.jobs(&tenant, &format!("&state={state}"))?;
                for job in jobs.iter().filter(|job| !job["repeat"].is_null()) {
                    let job = id(&job["id"])?;
                    let cancel = Operation::Cancel { tenant: tenant.clone(), job };
                    certainly(self.site, &mut self.caller, &cancel)?;
                }
            }
        }
        Ok(())
    }

    /// Jobs that were handed out over Bedrock, but whose reply was lost with a daemon, run for
    /// ever.
    fn put_back(&mut self) -> Result<()> {
        let now = self.site.now_ns();
        let Some(tenant) = self.tenants.first().cloned() else { return Ok(()) };
        let mut jobs = Vec::new();
        for job in self.jobs(&tenant, "&state=running")? {
            let (id, attempt) = (id(&job["id"])?, job["attempt"].as_u64().unwrap_or(0));
            let of_bedrock = job["type"].as_str().is_some_and(|of| of.starts_with("bedrock"));
            let known = self.taken.entry(id).or_insert((attempt, now));
            if known.0 != attempt {
                *known = (attempt, now);
            }
            if of_bedrock && now - known.1 > TAKEN_TIME_MAX.as_nanos() as u64 {
                jobs.push(id);
            }
        }
        if !jobs.is_empty() {
            let requeue = Operation::RequeueJobs { tenant, jobs };
            certainly(self.site, &mut self.caller, &requeue)?;
        }
        Ok(())
    }

    fn unfinished(&mut self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for tenant in self.tenants.clone() {
            for state in ["queued", "running"] {
                let jobs = self.jobs(&tenant, &format!("&state={state}"))?;
                left.extend(jobs.iter().take(SHOWN_MAX).map(Value::to_string));
            }
        }
        left.truncate(SHOWN_MAX);
        left.push("the run could not be drained in time".into());
        Ok(left)
    }

    /// Writes down every job of every tenant, and what the status counts.
    pub(crate) fn list(&mut self) -> Result<()> {
        let probes = PROBE_TENANT.to_owned();
        for tenant in self.tenants.clone().into_iter().chain([probes]) {
            let jobs = self.jobs(&tenant, "")?;
            let part = jobs.len().div_ceil(LISTERS).max(1);
            let (site, handlers) = (self.site, self.handlers);
            std::thread::scope(|scope| {
                let parts = jobs.chunks(part).enumerate().map(|(number, jobs)| {
                    let name = format!("listing-{tenant}-{number}");
                    scope.spawn(move || look_at(site, handlers, &name, jobs))
                });
                let parts: Vec<_> = parts.collect();
                parts.into_iter().try_for_each(|part| match part.join() {
                    Ok(done) => done,
                    Err(_) => bail!("a lister panicked"),
                })
            })?;
            self.count(&tenant)?;
            self.caller.witness().record(&Event::Listed { tenant })?;
        }
        Ok(())
    }

    fn count(&mut self, tenant: &str) -> Result<()> {
        for of in list(&self.ask(&format!("/v1/{tenant}/types"))?) {
            let count = |name: &str| of[name].as_u64().context("the status has counts");
            let counts = [
                (State::Queued, count("ready")? + count("deferred")?),
                (State::Running, count("running")?),
                (State::Paused, count("paused")?),
                (State::Finished, count("finished")?),
                (State::Failed, count("failed")?),
                (State::Cancelled, count("cancelled")?),
            ];
            for (state, count) in counts {
                let type_name = of["type"].as_str().context("a type has a name")?.to_owned();
                let tenant = tenant.to_owned();
                self.caller.witness().record(&Event::Counted {
                    tenant,
                    type_name,
                    state,
                    count,
                })?;
            }
        }
        Ok(())
    }

    /// All jobs of a tenant, page by page.
    pub(crate) fn jobs(&mut self, tenant: &str, filter: &str) -> Result<Vec<Value>> {
        let mut jobs = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.ask(&format!("/v1/{tenant}/jobs?limit=1000{filter}{after}"))?;
            jobs.extend(list(&page["jobs"]));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(jobs),
            }
        }
    }

    fn ask(&mut self, path: &str) -> Result<Value> {
        ask(self.site, &mut self.caller, path)
    }
}

fn ask(site: &Site, caller: &mut Caller<'_>, path: &str) -> Result<Value> {
    for _ in 0..ASK_ATTEMPTS_MAX {
        if let Some(answer) = caller.ask_json(path) {
            return Ok(answer);
        }
        site.pause(LOOK_PAUSE / 3);
    }
    bail!("no answer to GET {path}")
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn id(value: &Value) -> Result<JobId> {
    let digits = value.as_str().context("an id is a string")?;
    Ok(JobId(digits.parse().context("an id is a string of digits")?))
}

/// Writes down these jobs, with their results and the origin that their payloads name.
fn look_at(site: &Site, handlers: &Handlers, name: &str, jobs: &[Value]) -> Result<()> {
    let mut caller = Caller::new(site, handlers, name)?;
    for listed in jobs {
        let (job, tenant) = (id(&listed["id"])?, text(&listed["tenant"])?);
        let path = format!("/v1/{tenant}/jobs/{job}");
        let whole = ask(site, &mut caller, &path)?;
        let payload = (0..ASK_ATTEMPTS_MAX).find_map(|_| caller.ask(&format!("{path}/payload")));
        let payload = payload.with_context(|| format!("no answer to GET {path}/payload"))?;
        let status = listed["exitcode"].as_u64();
        let seen = Seen {
            job,
            tenant,
            type_name: text(&listed["type"])?,
            state: state(&text(&listed["state"])?)?,
            attempts: u32::try_from(listed["attempt"].as_u64().unwrap_or(0))?,
            status: status.map(u16::try_from).transpose()?,
            parent: Some(&listed["parent"]).filter(|id| !id.is_null()).map(id).transpose()?,
            result: whole["result"].as_str().map(str::to_owned),
            origin: payload::read(&payload.body).0,
        };
        let body = payload::body(&payload.body);
        caller.witness().record(&Event::Seen(seen))?;
        caller.witness().record(&Event::Read { job, body })?;
    }
    Ok(())
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("{value} is not a string"))?.to_owned())
}

fn state(name: &str) -> Result<State> {
    Ok(match name {
        "queued" => State::Queued,
        "running" => State::Running,
        "paused" => State::Paused,
        "finished" => State::Finished,
        "failed" => State::Failed,
        "cancelled" => State::Cancelled,
        other => bail!("'{other}' is not a state"),
    })
}
