//! The next decision in the model's world.

use std::time::Duration;

use windlass_core::edit::Names;
use windlass_core::{Extra, JobId, NewJob, State, Tenant};

use super::decide::{Alteration, DecidePlan, Plan, TakePlan};
use super::op::Op;
use super::value::tenants;
use super::world::World;
use crate::fixture::{Subject, everything_of};

/// Payload sizes around those at which stores begin to keep them elsewhere.
const SIZES: [usize; 5] = [0, 10, 2048, 2049, 9000];

impl World {
    pub(super) async fn decide(&mut self, reference: &Subject) -> Op {
        let tenant = self.tenant();
        let mut plans = Vec::new();
        for _ in 0..self.random.usize(1..=4) {
            plans.push(self.plan(&tenant, reference).await);
        }
        let durability = self.durability();
        Op::Decide(DecidePlan { tenant, plans, durability })
    }

    async fn plan(&mut self, tenant: &Tenant, reference: &Subject) -> Plan {
        let jobs = reference.listed(everything_of(tenant.clone())).await;
        let mut some = |wanted: &dyn Fn(&windlass_core::Job) -> bool| {
            let ids: Vec<JobId> = jobs.iter().filter(|job| wanted(job)).map(|j| j.id).collect();
            if ids.is_empty() { self.id() } else { ids[self.random.usize(0..ids.len())] }
        };
        let any = some(&|_| true);
        let parent = some(&|job| matches!(job.state, State::Running | State::Paused));
        let out = some(&|job| job.state == State::Running || job.extra.lent);
        let child = some(&|job| job.parent.is_some());
        let queued = some(&|job| job.state == State::Queued);
        let purge_at = self.maybe(World::later);
        match self.random.u32(0..32) {
            0..10 if !is_named_by_others(tenant, parent, reference).await => {
                let new = NewJob { parent: Some(parent), ..self.new_of(tenant) };
                Plan::AddChild(new)
            }
            0..12 => Plan::AddOnly(self.new_of(tenant)),
            12..18 => Plan::Finish(out, purge_at),
            18 => Plan::Fail(out, purge_at),
            19..21 => Plan::CancelChild(child, purge_at),
            21 => Plan::Requeue(any),
            22..24 => Plan::Run(queued, self.sysid(), self.token()),
            24..28 => Plan::Alter(any, Box::new(self.alteration())),
            28 => Plan::Delete(child),
            29 => Plan::Detach(parent, self.later()),
            30 => Plan::Look(any),
            _ => Plan::Refuse,
        }
    }

    fn new_of(&mut self, tenant: &Tenant) -> NewJob {
        let mut new = self.new_job();
        new.key.tenant = tenant.clone();
        self.id_newest = self.id_newest.max(Some(new.id));
        new
    }

    fn alteration(&mut self) -> Alteration {
        let size = SIZES[self.random.usize(0..SIZES.len())];
        Alteration {
            name: self.key().name,
            priority: self.priority(),
            run_at: self.around(),
            unique: self.maybe(World::unique),
            extra: Extra { lent: self.random.u32(0..4) == 0, ..self.extra() },
            payload: self.random.bool().then_some(size),
            purge_at: self.maybe(World::later),
        }
    }

    pub(super) fn extra(&mut self) -> Extra {
        let text = |world: &mut World| world.maybe(World::text).map(Into::into);
        Extra {
            repeat: text(self),
            door_text: text(self),
            run_at_text: text(self),
            order_key: self.maybe(|world| world.random.i64(-2..3)).unwrap_or_default(),
            lent: false,
            hidden: self.random.u32(0..8) == 0,
        }
    }

    pub(super) fn take(&mut self) -> Op {
        let globs = ["*", "a", "[ab]", "?", "[^b]", "b*", "none"];
        let names = match self.random.u32(0..3) {
            0 => Names::AnyOf(self.some(3, |world| world.key().name)),
            _ => Names::Glob(globs[self.random.usize(0..globs.len())].into()),
        };
        Op::Take(TakePlan {
            tenant: self.tenant(),
            names,
            priority: self.maybe(World::priority),
            hidden: self.random.bool(),
            limit: self.random.u32(1..6),
            payload_bytes_max: if self.random.bool() { u64::MAX } else { 2048 },
            bytes_max: if self.random.bool() { u64::MAX } else { 2048 },
            owner: self.sysid(),
            token: self.token(),
            lend: self.maybe(|world| world.now + Duration::from_secs(world.random.u64(1..60))),
            keep: self.random.i64(3..40),
            now: self.now,
        })
    }
}

/// Unlike in reality, ids are reused in this world: the parent that a job names may be a job of
/// another tenant by now.
async fn is_named_by_others(tenant: &Tenant, parent: JobId, reference: &Subject) -> bool {
    for other in tenants().filter(|other| other != tenant) {
        let jobs = reference.listed(everything_of(other)).await;
        if jobs.iter().any(|job| job.parent == Some(parent)) {
            return true;
        }
    }
    false
}
