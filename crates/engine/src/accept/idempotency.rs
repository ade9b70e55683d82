//! Adds with a key: a repeated key gets the answer of the first add and adds nothing.
//!
//! In one daemon, one request at a time decides a key. Recent answers are kept in memory, so that
//! repeats are recognised while the store is away; otherwise the store decides.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use windlass_core::store::IdempotencyRecord;
use windlass_core::sync::lock;
use windlass_core::{Tenant, Timestamp};

/// Remembered answers, and the total number of their ids; the oldest answers are dropped first.
const REMEMBERED_KEYS_MAX: usize = 100_000;
const REMEMBERED_IDS_MAX: usize = 1_000_000;

type Name = (Tenant, String);

#[derive(Default)]
pub(crate) struct Idempotencies(Mutex<Keys<Name>>);

struct Keys<N> {
    states: HashMap<N, KeyState>,
    /// Answered keys with the number of their answer, oldest first. Entries of forgotten or
    /// replaced answers stay until they are the oldest.
    order: VecDeque<(u64, N)>,
    /// The number of the newest answer.
    number: u64,
    /// The ids of all remembered answers together.
    ids: usize,
}

/// What a daemon remembers of a key.
enum KeyState {
    /// A request is deciding the key. `contradicted`: the store has decided otherwise by now.
    Pending {
        decided: Arc<Notify>,
        contradicted: bool,
    },
    Answered(u64, Arc<IdempotencyRecord>),
}

/// What is known of a key.
pub(crate) enum Found<'a> {
    /// This request decides the key.
    Mine(Deciding<'a>),
    Answered(Arc<IdempotencyRecord>),
}

impl Idempotencies {
    /// Waits for a request that is deciding the same key, then returns what is known of the key.
    pub(crate) async fn find(&self, tenant: &Tenant, key: &str, now: Timestamp) -> Found<'_> {
        let name = (tenant.clone(), key.to_owned());
        loop {
            let waiting = {
                let mut keys = self.keys();
                match keys.states.get(&name) {
                    Some(KeyState::Answered(_, record)) if record.expires_at > now => {
                        return Found::Answered(record.clone());
                    }
                    Some(KeyState::Pending { decided, .. }) => decided.clone().notified_owned(),
                    _ => {
                        keys.forget(&name);
                        let (decided, contradicted) = (Arc::default(), false);
                        let pending = KeyState::Pending { decided, contradicted };
                        keys.states.insert(name.clone(), pending);
                        return Found::Mine(Deciding { keys: self, name, answer: None });
                    }
                }
            };
            waiting.await;
        }
    }

    /// Forgets an answer that the store contradicts, even if it has not been given yet.
    pub(crate) fn forget(&self, tenant: &Tenant, key: &str) {
        self.keys().forget(&(tenant.clone(), key.to_owned()));
    }

    fn keys(&self) -> MutexGuard<'_, Keys<Name>> {
        lock(&self.0)
    }
}

impl<N> Default for Keys<N> {
    fn default() -> Keys<N> {
        Keys { states: HashMap::new(), order: VecDeque::new(), number: 0, ids: 0 }
    }
}

impl<N: Hash + Eq + Clone> Keys<N> {
    fn remember(&mut self, name: N, record: Arc<IdempotencyRecord>) {
        self.number += 1;
        self.ids += record.ids.len();
        self.order.push_back((self.number, name.clone()));
        self.states.insert(name, KeyState::Answered(self.number, record));
        while self.ids > REMEMBERED_IDS_MAX || self.order.len() > REMEMBERED_KEYS_MAX {
            let Some((number, name)) = self.order.pop_front() else { return };
            if matches!(self.states.get(&name), Some(KeyState::Answered(of, _)) if *of == number) {
                self.forget(&name);
            }
        }
    }

    fn forget(&mut self, name: &N) {
        if let Some(KeyState::Pending { contradicted, .. }) = self.states.get_mut(name) {
            *contradicted = true;
        } else if let Some(KeyState::Answered(_, record)) = self.states.remove(name) {
            self.ids -= record.ids.len();
        }
    }
}

/// The right to decide one key. If it is dropped without an answer, the next request decides.
pub(crate) struct Deciding<'a> {
    keys: &'a Idempotencies,
    name: Name,
    answer: Option<IdempotencyRecord>,
}

impl Deciding<'_> {
    /// Whether the store has decided otherwise by now.
    pub(crate) fn is_contradicted(&self) -> bool {
        let keys = self.keys.keys();
        matches!(keys.states.get(&self.name), Some(KeyState::Pending { contradicted: true, .. }))
    }

    pub(crate) fn answer(mut self, record: IdempotencyRecord) {
        self.answer = Some(record);
    }
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        let mut keys = self.keys.keys();
        let pending = keys.states.remove(&self.name);
        let Some(KeyState::Pending { decided, contradicted }) = pending else { return };
        if let Some(record) = self.answer.take().filter(|_| !contradicted) {
            keys.remember(self.name.clone(), Arc::new(record));
        }
        decided.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

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
    async fn an_answer_that_is_contradicted_before_it_is_given_is_not_remembered() {
        let keys = Idempotencies::default();
        let Found::Mine(deciding) = keys.find(&tenant(), "k", NOW).await else { panic!() };
        assert!(!deciding.is_contradicted());
        keys.forget(&tenant(), "k");
        assert!(deciding.is_contradicted());
        deciding.answer(record(1));
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

    thread_local! {
        static COMPARISONS: Cell<usize> = const { Cell::new(0) };
    }

    /// A name that counts how often it is compared.
    #[derive(Clone)]
    struct Counted(usize);

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Counted) -> bool {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0 == other.0
        }
    }

    impl Eq for Counted {}

    #[test]
    fn a_full_table_is_as_cheap_as_an_empty_one_and_grows_no_further() {
        const MORE: usize = 1000;
        const COMPARISONS_MAX: usize = 20 * MORE;
        for ids in [5 * REMEMBERED_IDS_MAX / REMEMBERED_KEYS_MAX, 1] {
            let mut keys = Keys::default();
            let fill = REMEMBERED_KEYS_MAX.min(REMEMBERED_IDS_MAX / ids);
            let record = Arc::new(record(ids));
            (0..fill).for_each(|n| keys.remember(Counted(n), record.clone()));
            COMPARISONS.set(0);
            (fill..fill + MORE).for_each(|n| keys.remember(Counted(n), record.clone()));
            assert!(COMPARISONS.get() <= COMPARISONS_MAX, "{} comparisons", COMPARISONS.get());
            assert_eq!((keys.states.len(), keys.order.len()), (fill, fill));
            assert_eq!(keys.ids, fill * ids);
            assert!(!keys.states.contains_key(&Counted(MORE - 1)), "the oldest went");
            assert!(keys.states.contains_key(&Counted(MORE)));
        }
    }

    #[test]
    fn a_key_that_is_answered_anew_lasts_as_long_as_its_new_answer() {
        let mut keys = Keys::default();
        for name in ["again", "other", "again"] {
            keys.forget(&name);
            keys.remember(name, Arc::new(record(REMEMBERED_IDS_MAX / 2)));
        }
        keys.remember("newest", Arc::new(record(REMEMBERED_IDS_MAX / 2)));
        assert!(keys.states.contains_key("again") && !keys.states.contains_key("other"));
    }
}
