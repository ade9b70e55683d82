//! A worker: what it claims, and what it does with a job. Most workers do what the plan says; some
//! are slow, forgetful, or insist.

use fastrand::Rng;

use crate::history::{Add, Claimed, Form, JobId, Operation, Plan, Token};

use super::mix::{Mix, Served};
use super::{MARKS_PER_CLIENT, generator, payload};

const MS_NS: u64 = 1_000_000;
/// Leases that are asked for.
const LEASES_MS: [u64; 3] = [500, 2000, 10_000];
/// Most jobs in one claim.
const CLAIM_JOBS_MAX: u32 = 8;
/// Most jobs in one `GetJobs`.
const GET_JOBS_MAX: u32 = 4;
/// Marks of workers are above those of clients.
const WORKER_MARKS: u64 = 1 << 20;

/// One step of a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// Work for this long.
    Work {
        ms: u32,
    },
    /// Wait until the lease has certainly run out.
    OutliveLease,
    Send(Operation),
}

/// A worker of one door.
pub struct Worker {
    rng: Rng,
    served: Served,
    tenants: Vec<String>,
    types: Vec<String>,
    tag: u64,
    mark: u64,
}

impl Worker {
    /// Worker number `number` of the run with this seed; `None` if the mix has no types for this
    /// door.
    pub fn new(seed: u64, number: u32, served: Served, mix: &Mix) -> Option<Worker> {
        let own = mix.types.iter().filter(|of| of.served == served);
        let types: Vec<String> = own.map(|of| of.name.clone()).collect();
        let is_worker = served != Served::Handler && !types.is_empty();
        let seen = if served == Served::Bedrock { mix.bedrock_tenants } else { usize::MAX };
        let tenants: Vec<String> = mix.tenants.iter().take(seen).cloned().collect();
        (is_worker && !tenants.is_empty()).then(|| Worker {
            rng: generator(seed, "worker", u64::from(number)),
            served,
            tenants,
            types,
            tag: u64::from(number) * MARKS_PER_CLIENT,
            mark: (WORKER_MARKS + u64::from(number)) * MARKS_PER_CLIENT,
        })
    }

    /// Asks for jobs of one tenant, of one type or of all that it knows.
    pub fn next_claim(&mut self) -> Operation {
        let tenant = self.tenants[self.rng.usize(..self.tenants.len())].clone();
        let types = match self.rng.bool() {
            true => self.types.clone(),
            false => vec![self.types[self.rng.usize(..self.types.len())].clone()],
        };
        if self.served == Served::Bedrock {
            return match self.rng.bool() {
                true => Operation::GetJob { tenant, types },
                false => {
                    let limit = self.rng.u32(1..=GET_JOBS_MAX);
                    Operation::GetJobs { tenant, types, limit }
                }
            };
        }
        let limit = self.rng.u32(1..=CLAIM_JOBS_MAX);
        let lease_ns = LEASES_MS[self.rng.usize(..LEASES_MS.len())] * MS_NS;
        Operation::Claim { tenant, types, limit, lease_ns }
    }

    /// What to do with a job. `plan` is that of its payload, `lease_ns` what the claim asked for.
    pub fn react(&mut self, tenant: &str, job: &Claimed, plan: &Plan, lease_ns: u64) -> Vec<Act> {
        let mut acts: Vec<Act> = self.children(tenant, job, plan).map(Act::Send).collect();
        match job.token {
            Some(token) => acts.extend(self.pulled(tenant, (job, token), plan, lease_ns)),
            None => acts.extend(self.got(tenant, job, plan)),
        }
        acts
    }

    /// Adds below the job, unless it has had its children.
    fn children(
        &mut self,
        tenant: &str,
        job: &Claimed,
        plan: &Plan,
    ) -> impl Iterator<Item = Operation> + use<> {
        let count = if job.resumed || job.attempt > 1 { 0 } else { plan.children };
        let (tenant, type_name) = (tenant.to_owned(), job.type_name.clone());
        let form = Form { payload_bytes: 1, parent: Some(job.job), ..Form::default() };
        let bedrock = job.token.is_none();
        let first = self.mark + 1;
        self.mark += u64::from(count);
        (first..first + u64::from(count)).map(move |mark| {
            let (tenant, type_name, form) = (tenant.clone(), type_name.clone(), form.clone());
            let (count, idempotency_key) = (1, None);
            Operation::Add(Box::new(Add {
                tenant,
                type_name,
                count,
                mark,
                idempotency_key,
                bedrock,
                form,
            }))
        })
    }

    fn pulled(
        &mut self,
        tenant: &str,
        (job, token): (&Claimed, Token),
        plan: &Plan,
        lease_ns: u64,
    ) -> Vec<Act> {
        let work = Act::Work { ms: plan.run_ms };
        let status = plan.status(job.attempt);
        let (tenant, id) = (tenant.to_owned(), job.job);
        let renew = Operation::Renew { tenant: tenant.clone(), job: id, token, lease_ns };
        let percent = self.rng.u8(..=100);
        let progress = Operation::Progress { tenant: tenant.clone(), job: id, token, percent };
        let finish = self.finish(&tenant, id, token, status);
        match self.rng.u8(..32) {
            // Forgets it.
            0 => vec![work],
            // Comes late: refused if another worker has it by now.
            1 => vec![work, Act::OutliveLease, Act::Send(progress), Act::Send(finish)],
            2 => vec![work, Act::Send(Operation::Release { tenant, job: id, token })],
            // Insists: the second finish is refused.
            3 => {
                let again = self.finish(&tenant, id, token, status);
                vec![work, Act::Send(finish), Act::Send(again)]
            }
            // A token that nobody has.
            4 => {
                let wrong = self.finish(&tenant, id, Token(token.0 ^ 1 << 62), status);
                vec![Act::Send(wrong), work, Act::Send(finish)]
            }
            5..9 => vec![Act::Send(renew), work, Act::Send(finish)],
            _ if plan.progress => vec![work, Act::Send(progress), Act::Send(finish)],
            _ => vec![work, Act::Send(finish)],
        }
    }

    /// A Bedrock worker. It has no token, so it reports once, and always, unless the job has a
    /// `retryAfter`.
    fn got(&mut self, tenant: &str, job: &Claimed, plan: &Plan) -> Vec<Act> {
        let work = Act::Work { ms: plan.run_ms };
        let report = Act::Send(self.bedrock_report(tenant, job, plan));
        match self.rng.u8(..8) {
            0 if job.lease_ns.is_some() => vec![work],
            1 if job.lease_ns.is_some() => vec![work, Act::OutliveLease, report],
            _ if plan.progress => {
                let (tenant, data) = (tenant.to_owned(), self.data(job, plan, job.attempt - 1));
                let update = Operation::UpdateJob { tenant, job: job.job, data };
                vec![Act::Send(update), work, report]
            }
            _ => vec![work, report],
        }
    }

    fn finish(&mut self, tenant: &str, job: JobId, token: Token, status: u16) -> Operation {
        let data = Some(self.result(job));
        Operation::Finish { tenant: tenant.to_owned(), job, token, status, data }
    }

    fn bedrock_report(&mut self, claimed: &str, job: &Claimed, plan: &Plan) -> Operation {
        let (tenant, id) = (claimed.to_owned(), job.job);
        match plan.status(job.attempt) / 100 {
            2 => Operation::FinishJob { tenant, job: id, data: Some(self.result(id)) },
            4 => Operation::FailJob { tenant, job: id },
            _ => {
                let data = Some(self.data(job, plan, job.attempt));
                Operation::RetryJob { tenant, job: id, data }
            }
        }
    }

    /// New data of a job, which replaces its payload.
    fn data(&mut self, job: &Claimed, plan: &Plan, tries: u32) -> String {
        self.tag += 1;
        payload::of_report(job.origin, plan, tries, &self.tag.to_string())
    }

    /// Result data that no other finish has.
    fn result(&mut self, job: JobId) -> String {
        self.tag += 1;
        payload::of_result(job, &self.tag.to_string())
    }
}
