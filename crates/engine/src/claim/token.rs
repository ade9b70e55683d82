//! Tokens: this daemon names each of its claims. A boot number is good for many tokens; when they
//! are used up, and a few times in each lease, the daemon gets a new one from the store. They grow
//! over all daemons. The store refuses a lease whose token is smaller than the job's last one,
//! whether a claim, a take or an edit gives it; then the daemon gets another boot number. So the
//! tokens of a job only grow, and an outside resource that remembers the largest token can refuse a
//! late owner.
//!
//! Claims are tracked here until they are answered, and those of the dispatcher until their jobs
//! are in the running table, so that the check of leases against running jobs does not mistake them
//! for orphans, and a cancel finds a job that is about to run.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Mutex;

use tokio::sync::Notify;

use windlass_core::Store;
use windlass_core::job::{Boot, TOKENS_PER_BOOT, Token};
use windlass_core::store::Error;
use windlass_core::sync::lock;

/// Tokens that one claim tries. A new boot number is larger than all before it, so only a daemon
/// with an even newer one can cause another conflict.
const TRIED_MAX: usize = 4;

pub(crate) struct Tokens {
    next: tokio::sync::Mutex<(Boot, i64)>,
    under_way: Mutex<HashSet<Token>>,
    /// Notified when a claim is no longer under way.
    entered: Notify,
}

impl Tokens {
    pub(crate) fn new(boot: Boot) -> Tokens {
        Tokens {
            next: tokio::sync::Mutex::new((boot, 0)),
            under_way: Mutex::default(),
            entered: Notify::new(),
        }
    }

    /// A token that no other claim has.
    pub(crate) async fn next(&self, store: &dyn Store) -> Result<Token, Error> {
        let mut next = self.next.lock().await;
        if next.1 == TOKENS_PER_BOOT {
            // Under the lock: until this is done, no claim can get a token.
            *next = (store.boot_next().await?, 0);
        }
        let token = next.0.token(next.1);
        next.1 += 1;
        Ok(token)
    }

    /// Calls `claim` with a token that no other claim has, and again with another one if the store
    /// refuses it, because a job had a larger one.
    pub(crate) async fn with_token<T, F: Future<Output = Result<T, Error>>>(
        &self,
        store: &dyn Store,
        claim: impl Fn(Token) -> F,
    ) -> Result<T, Error> {
        let mut tried = 1;
        loop {
            match claim(self.next(store).await?).await {
                // A later claim of ours was faster.
                Err(Error::Conflict(_)) if tried == 1 => {}
                // Another daemon has a newer boot number.
                Err(Error::Conflict(_)) if tried < TRIED_MAX => self.refresh(store).await?,
                answer => return answer,
            }
            tried += 1;
        }
    }

    /// A few times in each lease: the next claims get larger tokens than any daemon has used.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<(), Error> {
        if self.next.lock().await.1 == 0 {
            return Ok(());
        }
        // Not under the lock, because this waits for a sync and there are tokens.
        let boot = store.boot_next().await?;
        let mut next = self.next.lock().await;
        *next = (*next).max((boot, 0));
        Ok(())
    }

    /// Marks a claim with this token as under way until the guard is dropped.
    pub(crate) fn under_way(&self, token: Token) -> UnderWay<'_> {
        lock(&self.under_way).insert(token);
        UnderWay { tokens: self, token }
    }

    /// Claims that are not answered, or whose jobs are not in the running table yet. As many as
    /// there are claims at once.
    pub(crate) fn all_under_way(&self) -> Vec<Token> {
        lock(&self.under_way).iter().copied().collect()
    }

    pub(crate) fn is_under_way(&self, token: Token) -> bool {
        lock(&self.under_way).contains(&token)
    }

    /// Waits until the jobs of the claim with this token are in the running table, if it is ours.
    pub(crate) async fn until_entered(&self, token: Token) {
        loop {
            let mut entered = pin!(self.entered.notified());
            entered.as_mut().enable();
            if !self.is_under_way(token) {
                return;
            }
            entered.await;
        }
    }
}

/// A claim that is not answered yet, or whose jobs are not in the running table yet.
pub(crate) struct UnderWay<'a> {
    tokens: &'a Tokens,
    token: Token,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        lock(&self.tokens.under_way).remove(&self.token);
        self.tokens.entered.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::memory::MemoryStore;
    use windlass_core::store::prelude::*;

    use super::*;

    #[tokio::test]
    async fn a_used_up_boot_number_is_followed_by_another_one() {
        let store = MemoryStore::default();
        let tokens = Tokens::new(Boot(5));
        tokens.next.lock().await.1 = TOKENS_PER_BOOT - 1;
        assert_eq!(tokens.next(&store).await, Ok(Boot(5).token(TOKENS_PER_BOOT - 1)));
        let Ok(next) = tokens.next(&store).await else { panic!("the store answers") };
        assert!(next > Boot(5).token(TOKENS_PER_BOOT - 1));

        tokens.next.lock().await.1 = TOKENS_PER_BOOT;
        store.set_available(false);
        assert!(tokens.next(&store).await.is_err());
    }

    #[tokio::test]
    async fn after_a_refresh_tokens_are_larger_than_those_of_others_before_it() {
        let store = MemoryStore::default();
        let ours = Tokens::new(store.boot_next().await.unwrap());
        let theirs = Tokens::new(store.boot_next().await.unwrap());
        let before = theirs.next(&store).await.unwrap();
        assert!(ours.next(&store).await.unwrap() < before);
        ours.refresh(&store).await.unwrap();
        assert!(ours.next(&store).await.unwrap() > before);
    }

    #[test]
    fn a_claim_is_under_way_until_its_guard_is_dropped() {
        let tokens = Tokens::new(Boot(5));
        let guard = tokens.under_way(Token(7));
        assert!(tokens.is_under_way(Token(7)) && !tokens.is_under_way(Token(8)));
        drop(guard);
        assert!(!tokens.is_under_way(Token(7)));
    }
}
