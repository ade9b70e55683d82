//! Runs of handlers, and the listing at the end.

use std::collections::BTreeMap;

use windlass_proof::history::{Began, Claimed, Ended, Event, JobId, Plan, Seen, State};
use windlass_proof::workload::{Served, payload};

use super::super::queue::{Bug, LEASE_NS};
use super::{IDLE_MS, Run, Step};

impl Run {
    pub(super) fn context(&mut self, context: usize) {
        if !self.goes_on() {
            return;
        }
        let handled = self.mix.types.iter().filter(|of| of.served == Served::Handler);
        let types: Vec<String> = handled.map(|of| of.name.clone()).collect();
        let tenant = self.mix.tenants[self.rng.usize(..self.mix.tenants.len())].clone();
        let claimed = self.queue.claim_handled(self.now, &tenant, &types);
        let Some(job) = claimed else {
            self.plan(IDLE_MS, Step::Context(context));
            return;
        };
        let plan = self.queue.jobs[&job.job.0].plan();
        let body = payload::body(&self.queue.jobs[&job.job.0].payload);
        self.write(Event::Read { job: job.job, body });
        self.write(Event::Began(Began {
            job: job.job,
            tenant,
            type_name: job.type_name.clone(),
            attempt: job.attempt,
            daemon: "d".into(),
            context: format!("{context}-{}", self.boot),
            token: job.token,
            origin: job.origin,
        }));
        let run_ms = u64::from(plan.run_ms) + 1;
        let boot = self.boot;
        self.plan(run_ms, Step::HandlerEnds { context, boot, job, plan });
        self.plan(run_ms + 5, Step::Context(context));
    }

    pub(super) fn handler_ends(&mut self, context: usize, job: &Claimed, plan: &Plan) {
        let status = plan.status(job.attempt);
        let context = format!("{context}-{}", self.boot);
        let data = job.token.map(|token| payload::of_result(job.job, &token.to_string()));
        let (emitted, children) = (plan.emits, 0);
        self.write(Event::Ended(Ended { job: job.job, context, status, emitted, children, data }));
        self.queue.settle_handled(self.now, job, status, plan.emits);
    }

    /// The final listing and the counts.
    pub(super) fn list(&mut self) {
        self.now += LEASE_NS;
        let mut counts: BTreeMap<(String, String, State), u64> = BTreeMap::new();
        for (id, job) in std::mem::take(&mut self.queue.jobs) {
            let (tenant, type_name) = job.key.clone();
            *counts.entry((tenant.clone(), type_name.clone(), job.state)).or_default() += 1;
            let body = payload::body(&job.payload);
            self.write(Event::Read { job: JobId(id), body });
            self.write(Event::Seen(Seen {
                job: JobId(id),
                tenant,
                type_name,
                state: job.state,
                attempts: job.attempt,
                status: job.status,
                parent: job.parent,
                result: job.result,
                origin: payload::read(&job.payload).0,
            }));
        }
        for ((tenant, type_name, state), count) in counts {
            let wrong = u64::from(self.queue.bug == Some(Bug::Miscounts));
            self.write(Event::Counted { tenant, type_name, state, count: count + wrong });
        }
        for tenant in self.mix.tenants.clone() {
            self.write(Event::Listed { tenant });
        }
    }
}
