//! ONE conformance suite that every store must pass, written from the text of the contract in
//! `windlass_core::store`, and a seeded model test that compares a store with the reference store.
//!
//! A store's test file provides a [`Harness`] and one line,
//! `windlass_store_test::conformance!(..)`, which makes every case below a named test, in one
//! module per area. The cases move the clock of the store, so none sleeps.

// Everything in this crate is test code, which the compiler cannot see.
#![allow(clippy::unwrap_used)]

mod add;
mod audit;
mod beat;
mod cancel;
mod claim;
mod clock;
mod concurrency;
mod count;
mod daemon;
mod decide;
mod delete;
mod emit;
mod expire;
mod family;
mod fixture;
mod follow;
mod handler;
mod hidden;
mod idempotency;
mod insert;
mod journal;
mod key;
mod kin;
mod lifecycle;
mod lifetime;
mod list;
mod log;
pub mod model;
mod payload;
mod persist;
mod purge;
mod rate;
mod release;
mod renew;
mod repeat;
mod rerun;
mod secret;
mod settings;
mod settle;
mod shared;
mod suite;
mod sysid;
mod take;
mod tenant;
mod tenant_settings;
mod undo;
mod unique;
mod waiting;

use std::sync::Arc;

use async_trait::async_trait;

use windlass_core::Store;
use windlass_core::time::ManualClock;

pub use suite::case;

/// The clock of a harness.
pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(fixture::NOW))
}

/// Makes the stores that the cases run on.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The clock of its stores; made by `clock()`.
    fn clock(&self) -> Arc<ManualClock>;

    /// A new, empty store.
    async fn fresh(&self) -> Arc<dyn Store>;

    /// Another handle on the data of the newest `fresh()` store, as a second daemon would open it.
    /// `None` if the store is for one daemon only.
    async fn second(&self) -> Option<Arc<dyn Store>>;

    /// Closes the store and reopens it on the same data. `None`, without closing it, if its data is
    /// lost when it is closed.
    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>>;

    /// Undoes everything that the newest `fresh()` store did since its last synced change, as a
    /// crash of its server or a power cut would, and returns the store to continue with. `None` if
    /// that is not possible.
    async fn undo_relaxed(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>>;
}
