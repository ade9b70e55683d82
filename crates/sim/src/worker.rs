//! A pull worker: claims jobs and does with them what the workload says.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use windlass_proof::history::{Answer, Claimed, Operation, Outcome, Plan};
use windlass_proof::workload::{Act, Mix, Served, Worker as Choices};

use crate::call::{Caller, Reply};
use crate::client::{DOWN_PAUSE, News};
use crate::world::World;

/// Shortest lease that the door grants.
const LEASE_NS_MIN: u64 = 1_000_000_000;
/// Longest lease that is asked for, so that schedules are short.
const LEASE_NS_MAX: u64 = 3_000_000_000;
/// A late worker comes at most so much after the end of its lease: before or after another has its
/// job.
const LATE_MS_MAX: u64 = 2000;
/// Attempts to reach a daemon with one report.
const REPORT_ATTEMPTS_MAX: u32 = 40;

pub(crate) struct Worker {
    caller: Caller,
    choices: Choices,
    news: Vec<UnboundedSender<News>>,
    told: usize,
}

impl Worker {
    /// `None` if no type is served by pulling.
    pub(crate) fn new(
        world: &Arc<World>,
        number: u32,
        mix: &Mix,
        news: &[UnboundedSender<News>],
    ) -> Option<Worker> {
        let choices = Choices::new(world.seed, number, Served::Pull, mix)?;
        let caller = Caller { world: world.clone(), who: format!("worker-{number}") };
        Some(Worker { caller, choices, news: news.to_vec(), told: number as usize })
    }

    pub(crate) async fn run(mut self) {
        let world = self.caller.world.clone();
        while !world.is_over() {
            let mut claim = self.choices.next_claim();
            if let Operation::Claim { lease_ns, .. } = &mut claim {
                *lease_ns = (*lease_ns).clamp(LEASE_NS_MIN, LEASE_NS_MAX);
            }
            match self.caller.perform(&claim).await {
                Some(reply) => self.claimed(&claim, &reply).await,
                None => tokio::time::sleep(DOWN_PAUSE).await,
            }
        }
    }

    async fn claimed(&mut self, claim: &Operation, reply: &Reply) {
        let Operation::Claim { tenant, lease_ns, .. } = claim else { return };
        let Answer::Done(Outcome::Jobs(jobs)) = &reply.answer else {
            return tokio::time::sleep(DOWN_PAUSE).await;
        };
        for (job, plan) in jobs.iter().zip(&reply.plans) {
            self.tell(News::Held { tenant: tenant.clone(), job: job.job });
            self.work(tenant, job, plan, *lease_ns).await;
        }
    }

    async fn work(&mut self, tenant: &str, job: &Claimed, plan: &Plan, lease_ns: u64) {
        for act in self.choices.react(tenant, job, plan, lease_ns) {
            match act {
                Act::Work { ms } => tokio::time::sleep(Duration::from_millis(ms.into())).await,
                Act::OutliveLease => {
                    let late = Duration::from_millis(self.caller.world.draw(LATE_MS_MAX) + 1);
                    tokio::time::sleep(Duration::from_nanos(lease_ns) + late).await;
                }
                Act::Send(report) => self.report(&report).await,
            }
        }
    }

    async fn report(&mut self, report: &Operation) {
        for _ in 0..REPORT_ATTEMPTS_MAX {
            let Some(reply) = self.caller.perform(report).await else {
                tokio::time::sleep(DOWN_PAUSE).await;
                continue;
            };
            if let (Operation::Finish { tenant, job, status, .. }, Answer::Done(_)) =
                (report, reply.answer)
                && matches!(status / 100, 2 | 4)
            {
                self.tell(News::Ended { tenant: tenant.clone(), job: *job });
            }
            return;
        }
    }

    /// Tells one of the clients, in turn. One that has closed needs no news.
    fn tell(&mut self, news: News) {
        self.told += 1;
        let _ = self.news[self.told % self.news.len()].send(news);
    }
}
