//! A worker that pulls over HTTP, or gets jobs over Bedrock: does with them what the workload says.

use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use windlass_proof::history::{Answer, Body, Claimed, Event, Operation, Outcome, Plan};
use windlass_proof::workload::{Act, Mix, Served, Worker as Choices, payload};

use crate::client::News;
use crate::door::{Caller, Handlers, Reply};
use crate::site::Site;

/// Shortest lease that the door grants.
const LEASE_NS_MIN: u64 = 1_000_000_000;
/// How much later a lease has certainly run out.
const LEASE_OVER: Duration = Duration::from_millis(50);
/// A job of Bedrock with `retryAfter` is certainly handed out again so much later.
const LENT_MORE_NS: u64 = 1_000_000_000;
const DOWN_PAUSE: Duration = Duration::from_millis(50);
/// Attempts to reach a daemon with one report.
const REPORT_ATTEMPTS_MAX: u32 = 40;

pub(crate) struct Worker<'a> {
    site: &'a Site,
    caller: Caller<'a>,
    choices: Choices,
    news: Vec<Sender<News>>,
    told: usize,
}

impl<'a> Worker<'a> {
    /// `None` if no type is served in this way.
    pub(crate) fn new(
        site: &'a Site,
        handlers: &'a Handlers,
        (number, served): (u32, Served),
        mix: &Mix,
        news: &[Sender<News>],
    ) -> Result<Option<Worker<'a>>> {
        let Some(choices) = Choices::new(site.seed, number, served, mix) else {
            return Ok(None);
        };
        let caller = Caller::new(site, handlers, &format!("worker-{number}"))?;
        Ok(Some(Worker { site, caller, choices, news: news.to_vec(), told: number as usize }))
    }

    pub(crate) fn run(mut self) -> Result<()> {
        while !self.site.is_over() {
            let mut claim = self.choices.next_claim();
            if let Operation::Claim { lease_ns, .. } = &mut claim {
                *lease_ns = (*lease_ns).max(LEASE_NS_MIN);
            }
            match self.caller.perform(&claim)? {
                Some(reply) => self.claimed(&claim, &reply)?,
                None => self.site.pause(DOWN_PAUSE),
            }
        }
        Ok(())
    }

    fn claimed(&mut self, claim: &Operation, reply: &Reply) -> Result<()> {
        let (tenant, lease_ns) = match claim {
            Operation::Claim { tenant, lease_ns, .. } => (tenant, *lease_ns),
            Operation::GetJob { tenant, .. } | Operation::GetJobs { tenant, .. } => (tenant, 0),
            _ => return Ok(()),
        };
        let Answer::Done(Outcome::Jobs(jobs)) = &reply.answer else {
            self.site.pause(DOWN_PAUSE);
            return Ok(());
        };
        let bodies = reply.body["jobs"].as_array().into_iter().flatten();
        for (job, body) in jobs.iter().zip(bodies) {
            self.tell(News::Held { tenant: tenant.clone(), job: job.job });
            let plan = self.plan(job, body)?;
            let lent_ns = job.lease_ns.map(|lease| lease + LENT_MORE_NS);
            self.work(tenant, job, &plan, lent_ns.unwrap_or(lease_ns))?;
        }
        Ok(())
    }

    /// The plan in a payload, which is fetched if it is large. Writes down what the payload is.
    fn plan(&mut self, job: &Claimed, answer: &Value) -> Result<Plan> {
        let url = answer["payload_url"].as_str();
        let (bytes, body) = match (answer["payload"].as_str(), url) {
            (Some(text), _) => (text.as_bytes().to_vec(), body_of(job, text)),
            (None, Some(url)) => {
                let Some(response) = self.caller.ask(url) else { return Ok(Plan::default()) };
                let body = payload::body(&response.body);
                (response.body, body)
            }
            // Bytes that are not text.
            (None, None) => (Vec::new(), Body::Other),
        };
        self.caller.witness().record(&Event::Read { job: job.job, body })?;
        Ok(payload::read(&bytes).1)
    }

    fn work(&mut self, tenant: &str, job: &Claimed, plan: &Plan, lease_ns: u64) -> Result<()> {
        for act in self.choices.react(tenant, job, plan, lease_ns) {
            match act {
                Act::Work { ms } => self.site.pause(Duration::from_millis(ms.into())),
                Act::OutliveLease => {
                    self.site.pause(Duration::from_nanos(lease_ns) + LEASE_OVER);
                }
                Act::Send(report) => self.report(&report)?,
            }
        }
        Ok(())
    }

    fn report(&mut self, report: &Operation) -> Result<()> {
        for attempt in 0..REPORT_ATTEMPTS_MAX {
            if attempt > 0 && self.site.is_over() {
                return Ok(());
            }
            let Some(reply) = self.caller.perform(report)? else {
                self.site.pause(DOWN_PAUSE);
                continue;
            };
            match (report, reply.answer) {
                (Operation::Finish { tenant, job, status, .. }, Answer::Done(_)) => {
                    self.site.tally.finishes.fetch_add(1, Ordering::Relaxed);
                    if matches!(status / 100, 2 | 4) {
                        self.tell(News::Ended { tenant: tenant.clone(), job: *job });
                    }
                }
                (Operation::FinishJob { tenant, job, .. }, Answer::Done(_)) => {
                    self.site.tally.finishes.fetch_add(1, Ordering::Relaxed);
                    self.tell(News::Ended { tenant: tenant.clone(), job: *job });
                }
                // Bedrock's leases do not end by themselves, so it asks until it knows.
                (
                    Operation::FinishJob { .. }
                    | Operation::RetryJob { .. }
                    | Operation::FailJob { .. },
                    Answer::Unknown { .. },
                ) => continue,
                // Bedrock does not let it finish: one of its children has failed, or its parent is
                // not paused. Its lease never expires, so the worker fails it instead.
                (
                    Operation::FinishJob { tenant, job, .. }
                    | Operation::RetryJob { tenant, job, .. },
                    Answer::Refused { status: 405 },
                ) => {
                    let (tenant, job) = (tenant.clone(), *job);
                    return self.report(&Operation::FailJob { tenant, job });
                }
                _ => {}
            }
            return Ok(());
        }
        Ok(())
    }

    /// Tells the clients, in turn: each job is news for one of them.
    fn tell(&mut self, news: News) {
        self.told += 1;
        if let News::Ended { tenant, job } = &news {
            for client in &self.news {
                // A client that has closed needs no news.
                let _ = client.send(News::Ended { tenant: tenant.clone(), job: *job });
            }
            return;
        }
        let _ = self.news[self.told % self.news.len()].send(news);
    }
}

/// What the payload in an answer is. Bedrock shows an empty one as an empty object or string.
fn body_of(job: &Claimed, text: &str) -> Body {
    match (job.token, text) {
        (None, "{}" | "\"\"" | "null") => Body::Empty,
        _ => payload::body(text.as_bytes()),
    }
}
