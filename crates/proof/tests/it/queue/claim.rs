//! Claims and leases.

use std::collections::HashSet;

use windlass_proof::history::{Claimed, JobId, State, Token};
use windlass_proof::workload::payload;

use super::job::Job;
use super::{ATTEMPTS_MAX, Bug, LEASE_NS, Queue, RARE};

impl Queue {
    /// Claims jobs, the most urgent and oldest first, within the limits of their types.
    pub(crate) fn claim(
        &mut self,
        now: u64,
        tenant: &str,
        types: &[String],
        limit: u32,
        lease_ns: u64,
    ) -> Vec<Claimed> {
        self.break_leases(now);
        self.expire(now);
        self.resume_parents(now);
        let wanted = |job: &Job| job.key.0 == tenant && types.contains(&job.key.1);
        let leaves = self.bug == Some(Bug::LeavesJobs);
        let cancelled = self.bug == Some(Bug::RunsCancelled);
        let due = self.jobs.iter().filter(|(id, job)| {
            let left = leaves && id.is_multiple_of(RARE);
            let again = cancelled && job.state == State::Cancelled && id.is_multiple_of(RARE);
            let queued = job.state == State::Queued && job.run_at <= now;
            (queued || again) && wanted(job) && !left
        });
        let mut due: Vec<u64> = due.map(|(id, _)| *id).collect();
        let types = self.in_turn(tenant, types);
        due.sort_by_cached_key(|id| {
            let job = &self.jobs[id];
            let place = types.iter().position(|of| *of == job.key.1);
            (place, u16::MAX - job.priority, job.run_at, *id)
        });
        if self.bug == Some(Bug::NewestFirst) {
            due.reverse();
        }
        let (mut claimed, mut full) = (Vec::new(), HashSet::new());
        for id in due {
            if claimed.len() == limit as usize {
                break;
            }
            let key = &self.jobs[&id].key;
            if full.contains(key) || !self.is_family_idle(id) {
                continue;
            }
            let key = key.clone();
            if self.has_room(now, id) {
                claimed.push(self.start(now, id, lease_ns));
            } else {
                full.insert(key);
            }
        }
        claimed
    }

    /// The types of a claim, of which each comes first in turn.
    fn in_turn(&mut self, tenant: &str, types: &[String]) -> Vec<String> {
        let mut types = types.to_vec();
        let turn = self.turns.entry((tenant.to_owned(), types.clone())).or_default();
        *turn += 1;
        let first = *turn % types.len().max(1);
        if self.bug != Some(Bug::PassesOver) {
            types.rotate_left(first);
        }
        types
    }

    /// Whether its type may start another job now; counts it if so.
    fn has_room(&mut self, now: u64, id: u64) -> bool {
        let key = self.jobs[&id].key.clone();
        let running = |job: &&Job| job.key == key && job.state == State::Running;
        let count = self.jobs.values().filter(running).count();
        let most = self.concurrency.get(&key).map_or(usize::MAX, |most| *most as usize);
        let suspended = self.suspended.contains(&key);
        if (suspended && self.bug != Some(Bug::IgnoresSuspends))
            || (count >= most && self.bug != Some(Bug::IgnoresConcurrency))
        {
            return false;
        }
        let Some(rate) = self.rates.get(&key).filter(|_| self.bug != Some(Bug::IgnoresRates))
        else {
            return true;
        };
        let rest = self.rests.get(&key).copied().unwrap_or(0);
        if rest > now {
            return false;
        }
        self.rests.insert(key, now + (1e9 / rate) as u64);
        true
    }

    fn start(&mut self, now: u64, id: u64, lease_ns: u64) -> Claimed {
        self.next_token += u64::from(self.bug != Some(Bug::ReusesTokens));
        let token = self.next_token;
        let early = self.bug == Some(Bug::BreaksLeasesEarly);
        let job = self.jobs.get_mut(&id).expect("it is due");
        job.state = State::Running;
        job.attempt += 1;
        job.token = token;
        job.handled = false;
        job.lease_until = now.saturating_add(if early { lease_ns / 4 } else { lease_ns });
        Claimed {
            job: JobId(id),
            type_name: job.key.1.clone(),
            attempt: job.attempt,
            token: Some(Token(token)),
            lease_ns: None,
            resumed: job.resumed,
            origin: payload::read(&job.payload).0,
        }
    }

    /// A handler claims a job: its daemon renews the lease.
    pub(crate) fn claim_handled(
        &mut self,
        now: u64,
        tenant: &str,
        types: &[String],
    ) -> Option<Claimed> {
        let claimed = self.claim(now, tenant, types, 1, u64::MAX / 2).pop()?;
        self.jobs.get_mut(&claimed.job.0)?.handled = true;
        Some(claimed)
    }

    /// All daemons die: handlers lose their leases after a while.
    pub(crate) fn killed(&mut self, now: u64) {
        for job in self.jobs.values_mut().filter(|job| job.handled) {
            job.lease_until = job.lease_until.min(now + LEASE_NS);
        }
    }

    fn expire(&mut self, now: u64) {
        let overdue = |job: &&mut Job| job.expires_at.is_some_and(|at| at <= now);
        for job in self.jobs.values_mut().filter(overdue) {
            if job.state == State::Queued && self.bug != Some(Bug::RunsExpired) {
                job.state = State::Failed;
            }
        }
    }

    fn break_leases(&mut self, now: u64) {
        for job in self.jobs.values_mut() {
            if job.state == State::Running && job.lease_until <= now {
                let dead = job.attempt >= ATTEMPTS_MAX;
                job.state = if dead { State::Failed } else { State::Queued };
                job.run_at = now;
            }
        }
    }
}
