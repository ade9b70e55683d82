//! A worker: what it claims, and what it does with a job. Most workers do what the plan says; some
//! are slow, forgetful, or insist.

use fastrand::Rng;

use crate::history::{Claimed, JobId, Operation, Plan, Token};

use super::mix::{Mix, Served};
use super::{MARKS_PER_CLIENT, generator, payload};

const MS_NS: u64 = 1_000_000;
/// Leases that are asked for.
const LEASES_MS: [u64; 3] = [500, 2000, 10_000];
/// Most jobs in one claim.
const CLAIM_JOBS_MAX: u32 = 8;

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
}

impl Worker {
    /// Worker number `number` of the run with this seed; `None` if the mix has no types for this
    /// door.
    pub fn new(seed: u64, number: u32, served: Served, mix: &Mix) -> Option<Worker> {
        let own = mix.types.iter().filter(|of| of.served == served);
        let types: Vec<String> = own.map(|of| of.name.clone()).collect();
        let is_worker = served != Served::Handler && !types.is_empty();
        is_worker.then(|| Worker {
            rng: generator(seed, "worker", u64::from(number)),
            served,
            tenants: mix.tenants.clone(),
            types,
            tag: u64::from(number) * MARKS_PER_CLIENT,
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
            return Operation::GetJob { tenant, types };
        }
        let limit = self.rng.u32(1..=CLAIM_JOBS_MAX);
        let lease_ns = LEASES_MS[self.rng.usize(..LEASES_MS.len())] * MS_NS;
        Operation::Claim { tenant, types, limit, lease_ns }
    }

    /// What to do with a job. `plan` is that of its payload, `lease_ns` what the claim asked for.
    pub fn react(&mut self, tenant: &str, job: &Claimed, plan: &Plan, lease_ns: u64) -> Vec<Act> {
        let work = Act::Work { ms: plan.run_ms };
        let status = plan.status(job.attempt);
        let Some(token) = job.token else {
            return vec![work, Act::Send(self.bedrock_report(tenant, job.job, status))];
        };
        let (tenant, id) = (tenant.to_owned(), job.job);
        let renew = Operation::Renew { tenant: tenant.clone(), job: id, token, lease_ns };
        let finish = self.finish(&tenant, id, token, status);
        match self.rng.u8(..32) {
            // Forgets it.
            0 => vec![work],
            // Comes late: refused if another worker has it by now.
            1 => vec![work, Act::OutliveLease, Act::Send(finish)],
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
            _ => vec![work, Act::Send(finish)],
        }
    }

    fn finish(&mut self, tenant: &str, job: JobId, token: Token, status: u16) -> Operation {
        let data = Some(self.result(job));
        Operation::Finish { tenant: tenant.to_owned(), job, token, status, data }
    }

    /// Bedrock has no tokens, so a worker reports once, and always.
    fn bedrock_report(&mut self, tenant: &str, job: JobId, status: u16) -> Operation {
        let tenant = tenant.to_owned();
        match status / 100 {
            2 => Operation::FinishJob { tenant, job, data: Some(self.result(job)) },
            4 => Operation::FailJob { tenant, job },
            _ => Operation::RetryJob { tenant, job },
        }
    }

    /// Result data that no other finish has.
    fn result(&mut self, job: JobId) -> String {
        self.tag += 1;
        payload::of_result(job, &self.tag.to_string())
    }
}
