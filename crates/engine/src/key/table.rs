//! A daemon's copy of all keys: a check reads it and nothing else, so that it costs little and does
//! not wait for others.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::Duration;

use tokio::sync::{self, watch};

use windlass_core::Timestamp;
use windlass_core::key::{Key, KeyDigest, KeyId, KeyText, Standing};
use windlass_core::limit::{KEY_RETENTION, KEY_TOUCH_INTERVAL};
use windlass_core::store::{Error, KeyRevision, Store};
use windlass_core::sync::{lock, read, write};

use crate::api::{Caller, KeyRefusal};

/// Changed keys that are read at once.
const PAGE_KEYS_MAX: usize = 1000;
/// Shortest sleep until an expiry, which is exact to a millisecond.
const TICK: Duration = Duration::from_millis(1);
/// What a key that does not exist is compared with, so that its check takes as long.
const NOBODY: KeyDigest = KeyDigest([0; 32]);

/// At most `KEYS_MAX` keys, since the store has no more.
#[derive(Default)]
pub(crate) struct KeyTable {
    entries: RwLock<HashMap<KeyId, Entry>>,
    /// Up to which change the table has been read. Locked while it is read.
    seen: sync::Mutex<KeyRevision>,
    /// Says that keys have changed, to requests that wait.
    changed: watch::Sender<()>,
    /// Keys whose use is to be noted in the store.
    used: Mutex<BTreeSet<KeyId>>,
}

struct Entry {
    key: Key,
    /// When its use was noted last, in milliseconds.
    noted_at: AtomicI64,
}

impl KeyTable {
    /// Whose key this is. A wrong secret is answered like an unknown id.
    pub(crate) fn check(&self, text: &str, now: Timestamp) -> Result<Caller, KeyRefusal> {
        let given = KeyText::parse(text).ok_or(KeyRefusal::Unknown)?;
        let digest = given.digest();
        let entries = read(&self.entries);
        let entry = entries.get(&given.id());
        let is_right = digest == entry.map_or(NOBODY, |entry| entry.key.digest);
        let Some(entry) = entry.filter(|_| is_right) else { return Err(KeyRefusal::Unknown) };
        let owner = &entry.key.owner;
        let caller = Caller { id: given.id(), role: owner.role, tenant: owner.tenant.clone() };
        match entry.key.standing(now) {
            Standing::InForce => {}
            Standing::Expired => return Err(KeyRefusal::Expired(caller)),
            Standing::Revoked => return Err(KeyRefusal::Revoked(caller)),
        }
        if entry.is_to_be_noted(now) {
            lock(&self.used).insert(given.id());
        }
        Ok(caller)
    }

    /// Returns when a key is no longer in force. `now` tells the time.
    pub(crate) async fn ended(&self, id: KeyId, now: impl Fn() -> Timestamp) {
        let mut changed = self.changed.subscribe();
        loop {
            let (standing, expires_at) = match read(&self.entries).get(&id) {
                None => return,
                Some(Entry { key, .. }) => (key.standing(now()), key.expires_at),
            };
            if standing != Standing::InForce {
                return;
            }
            let expires = async {
                match expires_at {
                    Some(at) => tokio::time::sleep(at.since(now()).max(TICK)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // The sender lives as long as the table.
                _ = changed.changed() => {}
                () = expires => {}
            }
        }
    }

    /// Reads what has changed since the last time. The loop ends with the last change.
    pub(super) async fn refresh(&self, store: &dyn Store, now: Timestamp) -> Result<(), Error> {
        let mut seen = self.seen.lock().await;
        loop {
            let changed = store.key_changed(*seen, PAGE_KEYS_MAX).await?;
            let Some((newest, _)) = changed.last() else { return Ok(()) };
            *seen = *newest;
            let was_last = changed.len() < PAGE_KEYS_MAX;
            let mut entries = write(&self.entries);
            for (_, key) in changed {
                note(&mut entries, key);
            }
            // The store has removed them, or will with the next key.
            let forgotten = now - KEY_RETENTION;
            entries.retain(|_, entry| entry.key.ends_at().is_none_or(|at| at > forgotten));
            drop(entries);
            self.changed.send_replace(());
            if was_last {
                return Ok(());
            }
        }
    }

    /// A key as the store has answered it, unless a later change is known by now.
    pub(super) fn put(&self, key: Key) {
        note(&mut write(&self.entries), key);
        self.changed.send_replace(());
    }

    /// Takes the keys whose use is to be noted.
    pub(super) fn take_used(&self) -> Vec<KeyId> {
        std::mem::take(&mut *lock(&self.used)).into_iter().collect()
    }

    /// For keys whose use could not be noted.
    pub(super) fn put_back_used(&self, ids: Vec<KeyId>) {
        lock(&self.used).extend(ids);
    }
}

/// Changes of one key are not always noted in the order in which they were made. None gives it more
/// time, so the state that ends first is the latest.
fn note(entries: &mut HashMap<KeyId, Entry>, key: Key) {
    if entries.get(&key.id).is_none_or(|known| end_of(&key) <= end_of(&known.key)) {
        entries.insert(key.id, Entry::new(key));
    }
}

/// When a key is no longer in force. A revoked one is not, whatever the clock says.
fn end_of(key: &Key) -> Timestamp {
    match (key.revoked_at, key.expires_at) {
        (Some(_), _) => Timestamp(i64::MIN),
        (None, at) => at.unwrap_or(Timestamp(i64::MAX)),
    }
}

impl Entry {
    fn new(key: Key) -> Entry {
        let noted_at = key.last_used_at.map_or(i64::MIN, Timestamp::ms);
        Entry { key, noted_at: AtomicI64::new(noted_at) }
    }

    /// True once in an interval, for one of its callers.
    fn is_to_be_noted(&self, now: Timestamp) -> bool {
        let noted_at = self.noted_at.load(Ordering::Relaxed);
        noted_at <= (now - KEY_TOUCH_INTERVAL).ms()
            && self
                .noted_at
                .compare_exchange(noted_at, now.ms(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::Poll;

    use windlass_core::key::{NewKey, Owner, Role};
    use windlass_core::memory::MemoryStore;
    use windlass_core::name::Tenant;
    use windlass_core::store::{KeyReplacement, KeyRotate, prelude::*};
    use windlass_core::time::ManualClock;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    struct Stage {
        clock: Arc<ManualClock>,
        store: MemoryStore,
        table: KeyTable,
    }

    impl Stage {
        fn new() -> Stage {
            let clock = Arc::new(ManualClock::at(NOW));
            Stage { store: MemoryStore::new(clock.clone()), clock, table: KeyTable::default() }
        }

        async fn make(&self, lifetime: Option<Duration>) -> KeyText {
            self.make_for("acme", lifetime).await
        }

        async fn make_for(&self, tenant: &str, lifetime: Option<Duration>) -> KeyText {
            let text = KeyText::random().unwrap();
            let tenant = Some(Tenant::new(tenant).unwrap());
            let owner = Owner { role: Role::Worker, tenant, name: String::new() };
            let new = NewKey { id: text.id(), digest: text.digest(), owner, lifetime };
            self.store.key_put(new).await.unwrap();
            text
        }

        fn now(&self) -> Timestamp {
            use windlass_core::Clock;
            self.clock.now()
        }

        async fn refresh(&self) {
            self.table.refresh(&self.store, self.now()).await.unwrap();
        }

        fn check(&self, text: &KeyText) -> Result<Role, KeyRefusal> {
            self.table.check(&text.reveal(), self.now()).map(|caller| caller.role)
        }
    }

    #[tokio::test]
    async fn a_key_is_known_after_a_refresh_until_it_is_revoked() {
        let stage = Stage::new();
        let key = stage.make(None).await;
        assert_eq!(stage.check(&key), Err(KeyRefusal::Unknown));
        stage.refresh().await;
        assert_eq!(stage.check(&key), Ok(Role::Worker));
        stage.store.key_revoke(None, key.id()).await.unwrap();
        assert_eq!(stage.check(&key), Ok(Role::Worker), "not read yet");
        stage.refresh().await;
        assert!(
            matches!(stage.check(&key), Err(KeyRefusal::Revoked(caller)) if caller.id == key.id())
        );
    }

    #[tokio::test]
    async fn a_change_that_was_answered_counts_before_the_next_refresh() {
        let stage = Stage::new();
        let key = stage.make(None).await;
        stage.table.put(stage.store.key_find(key.id()).await.unwrap().unwrap());
        assert_eq!(stage.check(&key), Ok(Role::Worker));
        let revoked = stage.store.key_revoke(None, key.id()).await.unwrap().unwrap();
        stage.table.put(revoked);
        assert!(matches!(stage.check(&key), Err(KeyRefusal::Revoked(_))));
    }

    #[tokio::test]
    async fn an_answer_that_comes_late_gives_no_key_more_time() {
        let stage = Stage::new();
        let (revoked, rotated) = (stage.make(None).await, stage.make(None).await);
        let answer = async |key: &KeyText| stage.store.key_find(key.id()).await.unwrap().unwrap();
        let late = [answer(&revoked).await, answer(&rotated).await];
        stage.store.key_revoke(None, revoked.id()).await.unwrap();
        let text = KeyText::random().unwrap();
        let new = KeyReplacement { id: text.id(), digest: text.digest(), lifetime: None };
        let overlap = Duration::from_secs(5);
        let rotate = KeyRotate { tenant: None, old: rotated.id(), new, overlap };
        stage.store.key_rotate(rotate).await.unwrap();
        stage.refresh().await;
        late.into_iter().for_each(|key| stage.table.put(key));
        assert!(matches!(stage.check(&revoked), Err(KeyRefusal::Revoked(_))));
        assert_eq!(stage.check(&rotated), Ok(Role::Worker));
        stage.clock.set(NOW + overlap);
        assert!(matches!(stage.check(&rotated), Err(KeyRefusal::Expired(_))));
    }

    #[tokio::test]
    async fn a_key_expires_without_a_refresh() {
        let stage = Stage::new();
        let key = stage.make(Some(Duration::from_secs(5))).await;
        stage.refresh().await;
        assert_eq!(stage.check(&key), Ok(Role::Worker));
        stage.clock.set(NOW + Duration::from_secs(5));
        assert!(matches!(stage.check(&key), Err(KeyRefusal::Expired(_))));
    }

    #[tokio::test]
    async fn a_wrong_secret_is_answered_like_an_unknown_key() {
        let stage = Stage::new();
        let key = stage.make(None).await;
        stage.refresh().await;
        let text = key.reveal();
        let last = if text.ends_with('0') { "1" } else { "0" };
        let wrong = format!("{}{last}", &text[..text.len() - 1]);
        let unknown = KeyText::random().unwrap().reveal();
        for text in [wrong.as_str(), &unknown, "", "wl_", "x"] {
            let refused = stage.table.check(text, NOW).unwrap_err();
            assert_eq!(refused, KeyRefusal::Unknown, "{text}");
        }
        assert_eq!(stage.table.take_used(), []);
    }

    #[tokio::test]
    async fn more_keys_than_a_page_are_all_read() {
        let stage = Stage::new();
        let mut keys = Vec::new();
        for number in 0..PAGE_KEYS_MAX + 1 {
            let tenant = if number % 2 == 0 { "acme" } else { "globex" };
            keys.push(stage.make_for(tenant, None).await);
        }
        stage.refresh().await;
        assert!(keys.iter().all(|key| stage.check(key).is_ok()));
    }

    #[tokio::test]
    async fn the_use_of_a_key_is_noted_once_a_minute() {
        let stage = Stage::new();
        let key = stage.make(None).await;
        stage.refresh().await;
        for (seconds, noted) in [(0, true), (1, false), (59, false), (60, true), (61, false)] {
            stage.clock.set(NOW + Duration::from_secs(seconds));
            stage.check(&key).unwrap();
            stage.check(&key).unwrap();
            assert_eq!(stage.table.take_used().len(), usize::from(noted), "after {seconds} s");
        }
    }

    async fn is_pending(waits: &mut Pin<Box<impl Future<Output = ()>>>) -> bool {
        std::future::poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_key_is_reported_to_those_who_wait() {
        let stage = Stage::new();
        let (key, other) = (stage.make(None).await, stage.make(None).await);
        let short = stage.make(Some(Duration::from_secs(5))).await;
        stage.refresh().await;
        let ended = |key: &KeyText| stage.table.ended(key.id(), || stage.now());
        let mut waits = Box::pin(ended(&key));
        assert!(is_pending(&mut waits).await);
        stage.store.key_revoke(None, other.id()).await.unwrap();
        stage.refresh().await;
        assert!(is_pending(&mut waits).await, "another key has ended");
        stage.store.key_revoke(None, key.id()).await.unwrap();
        stage.refresh().await;
        waits.await;
        let mut waits = Box::pin(ended(&short));
        assert!(is_pending(&mut waits).await);
        stage.clock.set(NOW + Duration::from_secs(5));
        waits.await;
        ended(&KeyText::random().unwrap()).await;
    }

    #[tokio::test]
    async fn a_key_that_ended_long_ago_is_forgotten() {
        let stage = Stage::new();
        let key = stage.make(Some(Duration::from_secs(5))).await;
        stage.refresh().await;
        stage.clock.set(NOW + Duration::from_secs(5) + KEY_RETENTION);
        assert!(matches!(stage.check(&key), Err(KeyRefusal::Expired(_))));
        stage.make(None).await;
        stage.refresh().await;
        assert_eq!(read(&stage.table.entries).len(), 1);
    }
}
