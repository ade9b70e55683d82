//! Changes of types and handlers by a client, and changes of jobs over Bedrock.

use crate::history::Operation;

use super::client::Workload;
use super::mix::{Feature, Served};

/// Most jobs that one request puts back.
const REQUEUES_MAX: usize = 3;
/// Limits that are set.
const CONCURRENCY_MAX: u32 = 8;
/// Some that a type reaches easily, some that it does not.
const RATES: [f64; 6] = [1.0, 2.0, 2.5, 10.0, 50.0, 200.0];

impl Workload {
    /// Cancels, deletes or requeues jobs, if Bedrock's door shows this client's jobs.
    pub(super) fn change_over_bedrock(&mut self, place: (usize, usize)) -> Operation {
        let tenants = self.mix.bedrock_tenants.min(self.mix.tenants.len());
        let of = self.rng.usize(..tenants.max(1));
        let open = self.jobs.open.any_of(of, &mut self.rng);
        let ended = self.jobs.ended.any_of(of, &mut self.rng);
        let Some(job) = open.or(ended).filter(|_| tenants > 0) else {
            return self.add(Feature::Plain, place);
        };
        let tenant = self.mix.tenants[of].clone();
        match self.rng.u8(..8) {
            0..4 => Operation::CancelJob { tenant, job },
            4..6 => Operation::DeleteJob { tenant, job: ended.unwrap_or(job) },
            _ => {
                let more = self.jobs.ended.any_of(of, &mut self.rng);
                let jobs = [Some(job), ended, more].into_iter().flatten();
                Operation::RequeueJobs { tenant, jobs: jobs.take(REQUEUES_MAX).collect() }
            }
        }
    }

    pub(super) fn suspend_or_resume(&mut self, place: (usize, usize)) -> Operation {
        let known = self.suspended.first().copied().filter(|_| self.rng.bool());
        let (tenant, type_name) = self.names(known.unwrap_or(place));
        match known {
            // It stays in the set: the answer may be lost. Resuming twice does no harm.
            Some(_) => Operation::Resume { tenant, type_name },
            None => {
                self.suspended.insert(place);
                Operation::Suspend { tenant, type_name }
            }
        }
    }

    /// A type with a handler: this one, or the next one of the mix.
    pub(super) fn handled(&self, place: (usize, usize)) -> Option<(usize, usize)> {
        let handled = |of: &usize| self.mix.types[*of].served == Served::Handler;
        let types = (place.1..self.mix.types.len()).chain(0..place.1);
        types.into_iter().find(handled).map(|of| (place.0, of))
    }

    pub(super) fn change_handler(&mut self, place: (usize, usize)) -> Operation {
        let Some(place) = self.handled(place) else {
            return self.add(Feature::Plain, place);
        };
        self.changed.insert(place);
        if self.rng.u8(..8) == 0 {
            let (tenant, type_name) = self.names(place);
            return Operation::RemoveHandler { tenant, type_name };
        }
        self.set_handler(place)
    }

    pub(super) fn set_handler(&mut self, place: (usize, usize)) -> Operation {
        self.version += 1;
        let (tenant, type_name) = self.names(place);
        Operation::SetHandler { tenant, type_name, version: self.version }
    }

    pub(super) fn limit(&mut self, feature: Feature, place: (usize, usize)) -> Operation {
        self.limited.insert(place);
        let (tenant, type_name) = self.names(place);
        let lifted = self.rng.u8(..4) == 0;
        let (mut concurrency, mut rate) = (None, None);
        match feature {
            _ if lifted => {}
            Feature::Concurrency => concurrency = Some(self.rng.u32(1..=CONCURRENCY_MAX)),
            _ => rate = Some(RATES[self.rng.usize(..RATES.len())]),
        }
        Operation::SetLimits { tenant, type_name, concurrency, rate }
    }
}
