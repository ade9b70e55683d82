//! Answers, and what clients and workers do then.

use windlass_proof::history::{Answer, Claimed, Event, Operation, Outcome};
use windlass_proof::workload::Act;

use super::super::queue::MS;
use super::{IDLE_MS, Request, Run, Sender, Step, unknown};

impl Run {
    pub(super) fn answered(&mut self, request: Request, answer: Answer) {
        let Request { sender, op, what, boot } = request;
        // Closing requests are not lost: a driver would repeat them.
        let lost = boot != self.boot || self.rng.u8(..50) == 0;
        let lost = lost && !matches!(sender, Sender::Closing);
        if let (
            true,
            Operation::GetJob { .. } | Operation::GetJobs { .. },
            Answer::Done(Outcome::Jobs(jobs)),
        ) = (lost, &what, &answer)
        {
            // Not delivered, so the job goes back: Bedrock's leases have no end.
            jobs.iter().for_each(|job| self.queue.undelivered(job.job));
        }
        let seen = if lost { unknown() } else { answer };
        self.write(Event::Answered { op, answer: seen.clone() });
        let pause = self.rng.u64(1..20);
        match sender {
            Sender::Closing => {}
            Sender::Client(number) => {
                self.clients[number].answered(&what, &seen);
                self.plan(pause, Step::Client(number));
            }
            Sender::Worker(number, acts, lease_ns) => match (&what, seen) {
                (
                    Operation::Claim { tenant, .. }
                    | Operation::GetJob { tenant, .. }
                    | Operation::GetJobs { tenant, .. },
                    Answer::Done(Outcome::Jobs(jobs)),
                ) => {
                    let lease_ns = match &what {
                        Operation::Claim { lease_ns, .. } => *lease_ns,
                        _ => 0,
                    };
                    let acts = self.reactions(number, tenant, &jobs, lease_ns);
                    let pause = if jobs.is_empty() { IDLE_MS } else { pause };
                    self.plan(pause, Step::Act(number, acts, lease_ns));
                }
                _ => self.plan(1, Step::Act(number, acts, lease_ns)),
            },
        }
    }

    fn reactions(
        &mut self,
        number: usize,
        tenant: &str,
        jobs: &[Claimed],
        lease_ns: u64,
    ) -> Vec<Act> {
        let mut acts = Vec::new();
        for job in jobs {
            self.clients[0].held(tenant, job.job);
            let plan = self.queue.jobs.get(&job.job.0).map(|job| job.plan()).unwrap_or_default();
            acts.extend(self.workers[number].react(tenant, job, &plan, lease_ns));
        }
        acts
    }

    pub(super) fn act(&mut self, number: usize, mut acts: Vec<Act>, lease_ns: u64) {
        if acts.is_empty() {
            let pause = self.rng.u64(1..20);
            self.plan(pause, Step::Worker(number));
            return;
        }
        match acts.remove(0) {
            Act::Work { ms } => self.plan(u64::from(ms) + 1, Step::Act(number, acts, lease_ns)),
            Act::OutliveLease => {
                self.plan(lease_ns / MS + 50, Step::Act(number, acts, lease_ns));
            }
            Act::Send(operation) => self.send(Sender::Worker(number, acts, lease_ns), operation),
        }
    }
}
