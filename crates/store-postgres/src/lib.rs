//! The shared store: Windlass's `Store` on PostgreSQL 14 or newer, for daemons on many machines.
//!
//! ```text
//!   call ──► a connection of the pool ──► one transaction ──► answer
//!                                            └─► hint to other daemons, at most one in 20 ms
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `contract` | the traits of the store; passes each call to its module |
//! | `open`, `migration` | whether the database is fit, its layout |
//! | `connect`, `url`, `tls` | how the server is reached |
//! | `connection` | one connection, and its statements |
//! | `pool` | a bounded number of connections, and how transactions begin |
//! | `tx` | one transaction, and what it announces |
//! | `clock` | the store's time, and what follows when the server's clock is set |
//! | `listen` | hints between daemons |
//! | `queue` | queued jobs: ready, deferred, and the promotion from one to the other |
//! | `front`, `upkeep` | where the queues begin; what is done in the background |
//! | `watch` | failures and panics of background tasks |
//! | `withheld` | queued jobs that must not be claimed: damaged or expired |
//! | `insert`, `enter`, `unique` | inserts and adds; the rows of new jobs; unique keys |
//! | `claim`, `lease` | claims, and the leases that they write |
//! | `settle`, `attempt`, `rewrite` | settlements, what attempts leave behind, rows that follow |
//! | `change`, `housekeeping` | the other verbs that change jobs |
//! | `edit`, `put` | decisions: what they are shown, and how their edits are applied |
//! | `take`, `search` | due jobs by name, handed out by a decision |
//! | `family`, `extra` | parents and children, and other things that few jobs have |
//! | `read`, `row` | the verbs that read jobs, and their rows |
//! | `stats` | how many jobs each type has |
//! | `waiting` | which types are open, in pages |
//! | `type_row`, `handler`, `sysid`, `key` | types, handlers, numbers of daemons, API keys |
//! | `daemon` | what daemons say of themselves |
//! | `audit` | the audit |
//! | `secret` | secrets of handlers, sealed |
//! | `tenant` | settings of tenants |
//! | `error` | translates PostgreSQL's error codes |
//!
//! Every call is one transaction, and a call that changes something can be repeated. Nothing is
//! cached. How transactions keep out of each other's way: `docs/decisions/021-postgres.md`.

#![forbid(unsafe_code)]

mod attempt;
mod audit;
mod change;
mod claim;
mod clock;
mod connect;
mod connection;
mod contract;
mod daemon;
mod edit;
mod enter;
mod error;
mod extra;
mod family;
mod front;
mod handler;
mod housekeeping;
mod insert;
mod key;
mod lease;
mod listen;
mod migration;
mod open;
mod pool;
mod put;
mod queue;
mod read;
mod rewrite;
mod row;
mod search;
mod secret;
mod settle;
mod stats;
mod sysid;
mod take;
mod tenant;
mod tls;
mod tx;
mod type_row;
mod unique;
mod upkeep;
mod url;
mod waiting;
mod watch;
mod withheld;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use windlass_core::store::{Durability, Error};

pub use crate::open::{OnCommit, Options};

use crate::clock::ServerClock;
use crate::error::{Failure, Result};
use crate::listen::Hints;
use crate::pool::{Mode, Pool};
use crate::tx::Tx;
use crate::upkeep::{Chores, Upkeep};

/// Times that a transaction is run because it lost against others. Deadlocks are rare: transactions
/// lock rows in the same order.
const TRIES_MAX: u32 = 20;
/// The first tries follow each other at once. Then others hold on to what a transaction needs, and
/// it pauses, twice as long each time.
const TRIES_AT_ONCE: u32 = 2;
const TRY_PAUSE_MIN: Duration = Duration::from_millis(1);
const TRY_PAUSE_MAX: Duration = Duration::from_millis(64);
/// Times that a claim or take is repeated because due jobs were not ready yet, or jobs that must
/// not be claimed were in the way.
const PROMOTIONS_MAX: usize = 1000;

/// The store. Its calls need a Tokio runtime; dropping it without `close` loses nothing.
pub struct PostgresStore {
    inner: Arc<Inner>,
    /// The same with a place of its own, for the beat.
    beat: Inner,
    /// Ends with the store.
    _upkeep: Upkeep,
}

/// What the calls of a store share with its upkeep.
struct Inner {
    pool: Pool,
    clock: Arc<ServerClock>,
    hints: Arc<Hints>,
    on_commit: Option<OnCommit>,
    chores: Arc<Chores>,
    /// For messages: the server and the database.
    server: String,
}

/// The work of one transaction, which may be run several times.
type Work<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

impl Inner {
    /// The same store with a place of its own.
    fn for_beat(&self) -> Inner {
        Inner {
            pool: self.pool.with_own_place(),
            clock: self.clock.clone(),
            hints: self.hints.clone(),
            on_commit: self.on_commit.clone(),
            chores: self.chores.clone(),
            server: self.server.clone(),
        }
    }

    /// Runs a transaction that changes something; again, if it lost against another one.
    async fn write<'s, T, F>(
        &'s self,
        durability: Durability,
        work: F,
    ) -> std::result::Result<T, Error>
    where
        T: Send,
        F: for<'a> Fn(&'a mut Tx<'s>) -> Work<'a, T> + Send + Sync,
    {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.pool.unless_moved(self.try_write(durability, &work)).await {
                Err(failure) if failure.is_passing_clash() && tries < TRIES_MAX => {
                    tracing::debug!(?failure, "a transaction runs again");
                    sleep(pause_after(tries)).await;
                }
                done => return done.map_err(|failure| self.translated(failure)),
            }
        }
    }

    async fn try_write<'s, T, F>(&'s self, durability: Durability, work: &F) -> Result<T>
    where
        F: for<'a> Fn(&'a mut Tx<'s>) -> Work<'a, T> + Send + Sync,
    {
        let mut tx = self.begin(Mode::Write(durability)).await?;
        let done = match work(&mut tx).await {
            Ok(answer) => {
                let began = Instant::now();
                tx.commit().await.map(|news| (answer, news, began.elapsed()))
            }
            Err(failure) => Err(failure),
        };
        match done {
            Ok((answer, news, took)) => {
                self.chores.note(std::mem::take(&mut tx.passed), tx.has_counted);
                tx.keep();
                if news {
                    self.hints.send();
                }
                if let Some(on_commit) = &self.on_commit {
                    on_commit(took);
                }
                Ok(answer)
            }
            Err(failure) => Err(tx.fail(failure).await),
        }
    }

    /// Reads in one transaction, which sees one consistent state.
    async fn read<'s, T, F>(&'s self, work: F) -> std::result::Result<T, Error>
    where
        T: Send,
        F: for<'a> Fn(&'a mut Tx<'s>) -> Work<'a, T> + Send + Sync,
    {
        let read = async {
            let mut tx = self.begin(Mode::Read).await?;
            let answer = work(&mut tx).await;
            tx.roll_back().await;
            answer
        };
        self.pool.unless_moved(read).await.map_err(|failure| self.translated(failure))
    }

    /// Repeats an operation until it returns an answer. Each attempt is its own transaction and
    /// first makes a bounded number of due jobs ready.
    async fn write_when_ready<'s, T, F>(&'s self, work: F) -> std::result::Result<T, Error>
    where
        T: Send,
        F: for<'a> Fn(&'a mut Tx<'s>) -> Work<'a, Option<T>> + Send + Sync,
    {
        for _ in 0..PROMOTIONS_MAX {
            if let Some(answer) = self.write(Durability::Relaxed, &work).await? {
                return Ok(answer);
            }
        }
        Err(Error::Unavailable("very many jobs come due at once".into()))
    }

    /// Begins a transaction, after durations have followed the server's clock if that was set.
    async fn begin(&self, mode: Mode) -> Result<Tx<'_>> {
        let mut tx = clock::begin(self, mode).await?;
        if tx.step.is_some() {
            tx.roll_back().await;
            clock::follow(self).await?;
            tx = clock::begin(self, mode).await?;
        }
        Ok(tx)
    }

    fn translated(&self, failure: Failure) -> Error {
        failure.translate(&self.server)
    }
}

/// The pause after so many tries of a transaction.
fn pause_after(tries: u32) -> Duration {
    match tries.checked_sub(TRIES_AT_ONCE) {
        None | Some(0) => Duration::ZERO,
        Some(late) => (TRY_PAUSE_MIN * 2_u32.pow(late - 1)).min(TRY_PAUSE_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_keeps_losing_pauses_longer_and_longer_up_to_a_bound() {
        let pauses: Vec<u128> =
            (1..TRIES_MAX).map(|tries| pause_after(tries).as_millis()).collect();
        assert_eq!(pauses[..6], [0, 0, 1, 2, 4, 8]);
        assert!(pauses.is_sorted() && pauses.last() == Some(&TRY_PAUSE_MAX.as_millis()));
    }
}
