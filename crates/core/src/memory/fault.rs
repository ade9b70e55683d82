//! Test aids: faults of a store, on demand.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Poll, Waker};

use crate::id::JobId;
use crate::store::{Error, Insertion, Settlement};
use crate::sync::lock;

use super::MemoryStore;

/// What a test does before a call, which is named.
type Before = dyn Fn(&'static str) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

#[derive(Clone)]
struct Hook(Arc<Before>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    hook: Option<Hook>,
    damaged: BTreeSet<JobId>,
    answers_lost: usize,
    claims_lost: usize,
    beats_damaged: usize,
    /// While inserts are held: how many of them may continue.
    insert_permits: Option<usize>,
    insert_held: Option<Waker>,
    answers_held: bool,
    /// Claims and takes whose answers are held.
    held: Vec<Waker>,
}

impl MemoryStore {
    /// A test aid: from now on, the calls with `before` wait for what this returns for their name:
    /// some writes, and all that a change of a job may read or write.
    pub fn set_hook<F>(&self, before: impl Fn(&'static str) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.faults().hook = Some(Hook(Arc::new(move |call| Box::pin(before(call)))));
    }

    pub(super) async fn before(&self, call: &'static str) {
        let hook = self.faults().hook.clone();
        if let Some(Hook(before)) = hook {
            before(call).await;
        }
    }

    /// A test aid: a settlement of a damaged job fails, with its whole batch, and so does a read of
    /// its type.
    pub fn set_damaged(&self, id: JobId, damaged: bool) {
        let mut faults = self.faults();
        let _ = if damaged { faults.damaged.insert(id) } else { faults.damaged.remove(&id) };
    }

    /// A test aid: the next `times` inserts are carried out, and their answers are lost.
    pub fn lose_answers(&self, times: usize) {
        self.faults().answers_lost = times;
    }

    /// A test aid: the next `times` claims and takes are carried out, and their answers are lost.
    pub fn lose_claims(&self, times: usize) {
        self.faults().claims_lost = times;
    }

    /// A test aid: the next `times` beats fail, as if the store were damaged.
    pub fn damage_beats(&self, times: usize) {
        self.faults().beats_damaged = times;
    }

    /// A test aid: how many beats are still to fail.
    pub fn beats_damaged(&self) -> usize {
        self.faults().beats_damaged
    }

    pub(super) fn undamaged_beat(&self) -> Result<(), Error> {
        let mut faults = self.faults();
        let Some(left) = faults.beats_damaged.checked_sub(1) else { return Ok(()) };
        faults.beats_damaged = left;
        Err(Error::Corrupt("the rows of daemons".into()))
    }

    /// A test aid: while inserts are held, new ones wait before they change anything.
    pub fn hold_inserts(&self, held: bool) {
        self.permit_inserts(held.then_some(0));
    }

    /// A test aid: lets one of the held inserts continue.
    pub fn let_one_insert(&self) {
        self.permit_inserts(Some(1));
    }

    /// A test aid: whether an insert is held now.
    pub fn is_insert_held(&self) -> bool {
        self.faults().insert_held.is_some()
    }

    /// A test aid: while answers are held, claims and takes are carried out but not answered.
    pub fn hold_answers(&self, held: bool) {
        let mut faults = self.faults();
        faults.answers_held = held;
        faults.held.drain(..).for_each(Waker::wake);
    }

    /// A test aid: whether the answer of a claim or take is held now.
    pub fn is_answer_held(&self) -> bool {
        !self.faults().held.is_empty()
    }

    pub(super) async fn answer_permitted(&self) {
        std::future::poll_fn(|ctx| {
            let mut faults = self.faults();
            if !faults.answers_held {
                return Poll::Ready(());
            }
            faults.held.push(ctx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn permit_inserts(&self, permits: Option<usize>) {
        let mut faults = self.faults();
        faults.insert_permits = permits;
        faults.insert_held.take().into_iter().for_each(Waker::wake);
    }

    pub(super) async fn insert_permitted(&self) {
        std::future::poll_fn(|ctx| {
            let mut faults = self.faults();
            match &mut faults.insert_permits {
                None => return Poll::Ready(()),
                Some(0) => {}
                Some(permits) => {
                    *permits -= 1;
                    return Poll::Ready(());
                }
            }
            faults.insert_held = Some(ctx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    pub(super) fn answered(&self, insertion: Insertion) -> Result<Insertion, Error> {
        let mut faults = self.faults();
        match (&insertion, faults.answers_lost.checked_sub(1)) {
            (Insertion::Behind(_), _) | (_, None) => Ok(insertion),
            (Insertion::Done(_), Some(left)) => {
                faults.answers_lost = left;
                Err(Error::Unavailable("the answer was lost".into()))
            }
        }
    }

    pub(super) fn claim_answered<T>(&self, claimed: Result<T, Error>) -> Result<T, Error> {
        let mut faults = self.faults();
        let Some(left) = faults.claims_lost.checked_sub(1) else { return claimed };
        faults.claims_lost = left;
        Err(Error::Unavailable("the answer was lost".into()))
    }

    pub(super) fn undamaged(&self, settlements: &[Settlement]) -> Result<(), Error> {
        settlements.iter().try_for_each(|of| self.undamaged_job(of.lease.id))
    }

    pub(super) fn undamaged_job(&self, id: JobId) -> Result<(), Error> {
        match self.faults().damaged.contains(&id) {
            false => Ok(()),
            true => Err(Error::Corrupt(format!("the row of job {id}").into())),
        }
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }
}
