//! Adds with a key: the same key within its time is answered like the first add and adds nothing.
//!
//! A key is decided by one request at a time. What this daemon answered lately is in memory, so
//! repeats are recognised also while the store is away; everything else is in the store.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use windlass_core::store::IdempotencyRecord;
use windlass_core::{Tenant, Timestamp};

use crate::lock::lock;

/// Ids that the remembered answers may have together; the oldest answers go first.
const REMEMBERED_IDS_MAX: usize = 1_000_000;

type Name = (Tenant, String);

#[derive(Default)]
pub(crate) struct Idempotencies(Mutex<Keys>);

#[derive(Default)]
struct Keys {
    slots: HashMap<Name, Slot>,
    /// Answered keys, oldest first.
    order: VecDeque<Name>,
    ids: usize,
}

enum Slot {
    /// A request is deciding it now.
    Pending(Arc<Notify>),
    Answered(Arc<IdempotencyRecord>),
}

/// What a request finds.
pub(crate) enum Found<'a> {
    /// The key is this request's to decide.
    Mine(Deciding<'a>),
    Answered(Arc<IdempotencyRecord>),
}

impl Idempotencies {
    /// Waits for a request that is deciding the same key, then says what is known of it.
    pub(crate) async fn find(&self, tenant: &Tenant, key: &str, now: Timestamp) -> Found<'_> {
        let name = (tenant.clone(), key.to_owned());
        loop {
            let waiting = {
                let mut keys = self.keys();
                match keys.slots.get(&name) {
                    Some(Slot::Answered(record)) if record.expires_at > now => {
                        return Found::Answered(record.clone());
                    }
                    Some(Slot::Pending(notify)) => notify.clone().notified_owned(),
                    _ => {
                        keys.forget(&name);
                        keys.slots.insert(name.clone(), Slot::Pending(Arc::default()));
                        return Found::Mine(Deciding { keys: self, name, answer: None });
                    }
                }
            };
            waiting.await;
        }
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        lock(&self.0)
    }
}

impl Keys {
    fn remember(&mut self, name: Name, record: Arc<IdempotencyRecord>) {
        self.ids += record.ids.len();
        self.order.push_back(name.clone());
        self.slots.insert(name, Slot::Answered(record));
        while self.ids > REMEMBERED_IDS_MAX {
            let Some(oldest) = self.order.front().cloned() else { return };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, name: &Name) {
        if let Some(Slot::Answered(record)) = self.slots.get(name) {
            self.ids -= record.ids.len();
            self.order.retain(|other| other != name);
            self.slots.remove(name);
        }
    }
}

/// The right and duty to decide one key. Dropped without an answer, the next request decides.
pub(crate) struct Deciding<'a> {
    keys: &'a Idempotencies,
    name: Name,
    answer: Option<IdempotencyRecord>,
}

impl Deciding<'_> {
    pub(crate) fn answer(mut self, record: IdempotencyRecord) {
        self.answer = Some(record);
    }
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        let mut keys = self.keys.keys();
        let pending = keys.slots.remove(&self.name);
        if let Some(record) = self.answer.take() {
            keys.remember(self.name.clone(), Arc::new(record));
        }
        if let Some(Slot::Pending(notify)) = pending {
            notify.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1000);

    fn tenant() -> Tenant {
        Tenant::new("a").unwrap()
    }

    fn record(ids: usize) -> IdempotencyRecord {
        let id = windlass_core::JobId::new(1).unwrap();
        let expires_at = Timestamp(2000);
        let key = "k".to_owned();
        IdempotencyRecord { tenant: tenant(), key, fingerprint: 1, ids: vec![id; ids], expires_at }
    }

    #[tokio::test]
    async fn one_request_decides_and_the_others_hear_its_answer() {
        let keys = Idempotencies::default();
        let Found::Mine(deciding) = keys.find(&tenant(), "k", NOW).await else { panic!() };
        let tenant = tenant();
        let second = keys.find(&tenant, "k", NOW);
        tokio::pin!(second);
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        deciding.answer(record(1));
        assert!(matches!(second.await, Found::Answered(answer) if answer.fingerprint == 1));
    }

    #[tokio::test]
    async fn a_request_that_gives_up_leaves_the_key_to_the_next() {
        let keys = Idempotencies::default();
        drop(keys.find(&tenant(), "k", NOW).await);
        assert!(matches!(keys.find(&tenant(), "k", NOW).await, Found::Mine(_)));
    }

    #[tokio::test]
    async fn an_answer_is_forgotten_after_its_time_and_when_there_are_too_many() {
        let keys = Idempotencies::default();
        let Found::Mine(deciding) = keys.find(&tenant(), "k", NOW).await else { panic!() };
        deciding.answer(record(1));
        assert!(matches!(keys.find(&tenant(), "k", Timestamp(2000)).await, Found::Mine(_)));

        let Found::Mine(deciding) = keys.find(&tenant(), "big", NOW).await else { panic!() };
        deciding.answer(record(REMEMBERED_IDS_MAX + 1));
        assert!(matches!(keys.find(&tenant(), "big", NOW).await, Found::Mine(_)));
    }
}
