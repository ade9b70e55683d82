//! What planted bugs make of calls of the store.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::handler::TypeSettings;
use windlass_core::job::NewJob;
use windlass_core::memory::MemoryStore;
use windlass_core::retry::Verdict;
use windlass_core::store::{
    Add, Durability, Error, Insert, Insertion, Inserts, Reads, SettleAnswer, Settlement, Settles,
};

use crate::control::Control;
use crate::store::SimStore;

impl SimStore {
    pub(crate) async fn insert(&self, mut insert: Insert) -> Result<Insertion, Error> {
        match self.world.control {
            Some(Control::MarkFirst) => return self.insert_mark_first(insert).await,
            Some(Control::NoUnique) => forget_unique(&mut insert.jobs),
            _ => {}
        }
        self.call(self.inner.job_insert(insert)).await
    }

    async fn insert_mark_first(&self, insert: Insert) -> Result<Insertion, Error> {
        let Insert { jobs, keys, mark, durability } = insert;
        let (none, no_keys) = (Vec::new(), Vec::new());
        let first = Insert { jobs: none, keys: no_keys, mark, durability };
        match self.call(self.inner.job_insert(first)).await? {
            Insertion::Done(_) => {}
            behind => return Ok(behind),
        }
        let rest = Insert { jobs, keys, mark: None, durability };
        self.call(self.inner.job_insert(rest)).await
    }

    pub(crate) fn planted_add(&self, mut add: Add) -> Add {
        if self.world.control == Some(Control::NoUnique) {
            forget_unique(&mut add.jobs);
        }
        add
    }

    pub(crate) fn planted_settings(&self, mut settings: TypeSettings) -> TypeSettings {
        match self.world.control {
            Some(Control::NoConcurrency) => settings.concurrency = None,
            Some(Control::NoRate) => settings.rate = None,
            _ => {}
        }
        settings
    }

    pub(crate) async fn settle(
        &self,
        settlements: Arc<[Settlement]>,
        durability: Durability,
    ) -> Result<SettleAnswer, Error> {
        let Some(control) = self.world.control else {
            return self.call(self.inner.job_settle(settlements, durability)).await;
        };
        // What the store knows counts when the call arrives.
        let work = async {
            let mut planted = Vec::with_capacity(settlements.len());
            for of in settlements.iter() {
                planted.push(settlement(control, of.clone(), &self.inner).await?);
            }
            self.inner.job_settle(planted.into(), durability).await
        };
        self.call(work).await
    }
}

fn forget_unique(jobs: &mut [NewJob]) {
    jobs.iter_mut().for_each(|job| job.unique = None);
}

async fn settlement(
    control: Control,
    mut of: Settlement,
    store: &MemoryStore,
) -> Result<Settlement, Error> {
    match (control, of.verdict) {
        (Control::NoFollowers, _) => of.follow = None,
        (Control::NoPauses, Verdict::Again { .. }) => {
            of.verdict = Verdict::Again { after: Duration::ZERO };
        }
        (Control::LateOwner, _) if !of.only_if_expired => {
            let job = store.job_get(&of.lease.tenant, of.lease.id).await?;
            let newest = job.and_then(|job| job.lease).map(|lease| lease.token);
            of.lease.token = newest.unwrap_or(of.lease.token).max(of.lease.token);
        }
        _ => {}
    }
    Ok(of)
}
