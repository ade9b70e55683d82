//! Requests that wait for the end of a job.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use windlass_core::sync::lock;

/// Waiting requests by key. An entry exists as long as a request waits for it.
pub(crate) struct Waiters<K>(Mutex<HashMap<K, Entry>>);

struct Entry {
    notify: Arc<Notify>,
    waiting: usize,
}

impl<K> Default for Waiters<K> {
    fn default() -> Waiters<K> {
        Waiters(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Waiters<K> {
    /// Starts to watch `key`, until the result is dropped.
    pub(crate) fn watch(&self, key: &K) -> Watch<'_, K> {
        let mut entries = self.entries();
        let entry = entries
            .entry(key.clone())
            .or_insert_with(|| Entry { notify: Arc::default(), waiting: 0 });
        entry.waiting += 1;
        Watch { waiters: self, key: key.clone(), notify: entry.notify.clone() }
    }

    pub(crate) fn wake(&self, key: &K) {
        if let Some(entry) = self.entries().get(key) {
            entry.notify.notify_waiters();
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, Entry>> {
        lock(&self.0)
    }
}

/// A waiting request.
pub(crate) struct Watch<'a, K: Clone + Eq + Hash> {
    waiters: &'a Waiters<K>,
    key: K,
    notify: Arc<Notify>,
}

impl<K: Clone + Eq + Hash> Watch<'_, K> {
    /// Completes at the next wake-up after this call, even if it is not polled before that.
    pub(crate) fn next(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl<K: Clone + Eq + Hash> Drop for Watch<'_, K> {
    fn drop(&mut self) {
        let mut entries = self.waiters.entries();
        if let Some(entry) = entries.get_mut(&self.key) {
            entry.waiting -= 1;
            if entry.waiting == 0 {
                entries.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;

    #[tokio::test]
    async fn all_who_wait_for_a_key_are_woken_and_no_others() {
        let waiters = Waiters::default();
        let (a, b, c) = (waiters.watch(&1), waiters.watch(&1), waiters.watch(&2));
        let mut other = std::pin::pin!(c.next());
        let (first, second) = (a.next(), b.next());
        waiters.wake(&1);
        first.await;
        second.await;
        assert!(poll!(other.as_mut()).is_pending());
        waiters.wake(&2);
        other.await;
    }

    #[test]
    fn nothing_is_left_of_those_who_stopped_waiting() {
        let waiters = Waiters::default();
        let (a, b) = (waiters.watch(&1), waiters.watch(&1));
        drop(a);
        assert_eq!(waiters.entries().len(), 1);
        drop(b);
        assert!(waiters.entries().is_empty());
    }
}
