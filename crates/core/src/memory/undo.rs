//! A test aid: a store that undoes relaxed changes, like a server that crashes or fails over while
//! its clients live on.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};

use crate::store::{Durability, Error};
use crate::time::Clock;

use super::{MemoryStore, State};

impl MemoryStore {
    /// A store that can `undo_relaxed`. `forgets` is the capability that it declares.
    pub fn undoable(forgets: bool, clock: Arc<dyn Clock>) -> MemoryStore {
        let store = MemoryStore::new(clock);
        {
            let mut state = store.locked();
            state.forgets = forgets;
            state.keep();
        }
        store
    }

    /// Restores the state after the last synced change.
    pub fn undo_relaxed(&self) {
        let synced = self.locked().synced.clone().expect("the store was made to undo changes");
        self.go_back(synced);
    }

    /// The state as it is now, as a standby may have it.
    pub fn standby(&self) -> Standby {
        Standby(Box::new(self.locked().clone()))
    }

    /// A standby takes over, which lacks what came later, synced or not.
    pub fn fail_over(&self, to: Standby) {
        self.go_back(to.0);
    }

    fn go_back(&self, synced: Box<State>) {
        let mut state = self.locked();
        let State { forgets, away, closed, revision, reported, looks_held, .. } = *state;
        let held = std::mem::take(&mut state.held);
        *state = State { forgets, away, closed, revision, reported, looks_held, held, ..*synced };
        // Waiting jobs may differ now, and revisions must not be reused.
        let keys: Vec<_> = state.types.keys().cloned().collect();
        keys.iter().for_each(|key| state.touch(key));
        state.keep();
    }
}

/// See `MemoryStore::standby`.
pub struct Standby(Box<State>);

/// The state during one call.
pub(super) struct Open<'a> {
    state: MutexGuard<'a, State>,
    durability: Durability,
}

impl<'a> Open<'a> {
    pub(super) fn new(state: MutexGuard<'a, State>) -> Open<'a> {
        Open { state, durability: Durability::Relaxed }
    }

    /// Makes the call's changes durable when it ends.
    pub(super) fn synced(self) -> Open<'a> {
        self.durable(Durability::Synced)
    }

    pub(super) fn durable(mut self, durability: Durability) -> Open<'a> {
        self.durability = durability;
        self
    }

    /// A change that may be refused. Then it makes nothing durable that came before it, either.
    pub(super) fn change<T>(
        mut self,
        durability: Durability,
        change: impl FnOnce(&mut State) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let done = change(&mut self.state)?;
        self.durability = durability;
        Ok(done)
    }
}

impl Deref for Open<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Open<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.durability == Durability::Synced && self.state.synced.is_some() {
            self.state.keep();
        }
    }
}

impl State {
    /// Makes the current state the one that an undo restores.
    fn keep(&mut self) {
        self.synced = None;
        self.synced = Some(Box::new(self.clone()));
    }
}
