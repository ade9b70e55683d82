//! Abandoned claims and takes of workers. If the answer of one is lost, or its jobs cannot be given
//! back because the store is away, the store may hold leases that nobody has. Those of a claim last
//! as long as the worker asked for, and an attempt whose lease expires counts. The tokens are kept
//! here; each beat looks for what is left of them and releases it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Mutex;

use windlass_core::Store;
use windlass_core::job::Token;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::{Error, LeaseRef};
use windlass_core::sync::lock;

/// Claims that are kept; the leases of further ones have to expire.
const ABANDONED_MAX: usize = 100_000;
/// Claims that one call of the store looks for.
const LOOK_MAX: usize = 1000;

#[derive(Default)]
pub(crate) struct Abandoned {
    tokens: Mutex<BTreeSet<Token>>,
}

impl Abandoned {
    /// Notes the claim if its answer was lost. Returns the answer.
    pub(crate) fn note_unanswered<T>(
        &self,
        token: Token,
        answer: Result<T, Error>,
    ) -> Result<T, Error> {
        if !matches!(answer, Ok(_) | Err(Error::Conflict(_))) {
            self.note(token);
        }
        answer
    }

    pub(crate) fn note(&self, token: Token) {
        let mut tokens = lock(&self.tokens);
        if tokens.len() < ABANDONED_MAX {
            tokens.insert(token);
        }
    }

    /// Leases that are to be released. A claim without any is forgotten.
    pub(crate) async fn leases(&self, store: &dyn Store) -> Result<Vec<LeaseRef>, Error> {
        let asked: Vec<Token> = lock(&self.tokens).iter().copied().take(LOOK_MAX).collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let leases = store.lease_claimed(asked.clone(), BATCH_JOBS_MAX).await?;
        if leases.len() < BATCH_JOBS_MAX {
            let held: HashSet<Token> = leases.iter().map(|lease| lease.token).collect();
            let mut tokens = lock(&self.tokens);
            asked.iter().filter(|token| !held.contains(token)).for_each(|token| {
                tokens.remove(token);
            });
        }
        Ok(leases)
    }
}
