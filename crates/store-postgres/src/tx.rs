//! One transaction. Before its commit it announces the types whose jobs it made ready, and counts
//! the jobs that have ended. Statements whose answers nobody needs are sent on without waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::join;
use windlass_core::State;
use windlass_core::name::TypeKey;
use windlass_core::store::Durability;
use windlass_core::sync::lock;
use windlass_core::time::Timestamp;

use crate::Inner;
use crate::clock::Step;
use crate::connection::{Sent, Session, Value};
use crate::error::{Failure, Result};
use crate::front::Passed;
use crate::pool::{Mode, Pooled};
use crate::queue::QueueKey;
use crate::type_row;

/// The parameters of a statement that is sent without waiting for its answer.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$(Box::new($value) as $crate::connection::Value),*]
    };
}
pub(crate) use values;

/// An open transaction; dereferences to its session. It changes nothing unless it is committed.
/// Each statement of a transaction that writes sees what was committed before it (READ COMMITTED);
/// all statements of one that only reads see the same state.
pub(crate) struct Tx<'s> {
    /// Lets the work of a transaction borrow from its caller, which outlives it.
    store: PhantomData<&'s Inner>,
    session: Pooled,
    mode: Mode,
    /// The store's time, the same for the whole transaction.
    pub(crate) now: Timestamp,
    /// The server's clock was set, and durations have not followed yet.
    pub(crate) step: Option<Step>,
    /// Statements whose answers nobody has waited for yet.
    sent: Mutex<Vec<Sent>>,
    /// Types of which it made jobs ready.
    ready: BTreeSet<i32>,
    /// Types of which it ended leases.
    freed: BTreeSet<i32>,
    /// It changed the handler, the settings or the suspension of a type.
    changes_type: bool,
    /// It has made jobs ready, and has announced that already.
    announced: bool,
    /// What it announced gave a type a new revision.
    raised: Arc<AtomicBool>,
    /// The first places where it added jobs, by type and rank.
    lows: BTreeMap<(i32, i32), Place>,
    /// How many more finished, failed and cancelled jobs each type has.
    ended: BTreeMap<i32, [i64; 3]>,
    /// The places from which it took jobs.
    pub(crate) passed: Passed,
    /// It has added to counts.
    pub(crate) has_counted: bool,
}

/// A place among jobs of the same rank: time, tie and id.
pub(crate) type Place = (i64, i64, i64);

impl Deref for Tx<'_> {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.session
    }
}

impl<'s> Tx<'s> {
    /// The session has begun a transaction.
    pub(crate) fn new(session: Pooled, mode: Mode, now: Timestamp, step: Option<Step>) -> Tx<'s> {
        Tx {
            store: PhantomData,
            session,
            mode,
            now,
            step,
            sent: Mutex::default(),
            ready: BTreeSet::new(),
            freed: BTreeSet::new(),
            changes_type: false,
            announced: false,
            raised: Arc::default(),
            lows: BTreeMap::new(),
            ended: BTreeMap::new(),
            passed: Passed::default(),
            has_counted: false,
        }
    }

    /// Whether it may change something.
    pub(crate) fn writes(&self) -> bool {
        self.mode != Mode::Read
    }

    /// The id of a type, if it exists.
    pub(crate) async fn type_id(&self, key: &TypeKey) -> Result<Option<i32>> {
        Ok(self.type_ids(std::slice::from_ref(key)).await?[0])
    }

    /// The ids of these types, in the same order; `None` for those that do not exist.
    pub(crate) async fn type_ids(&self, keys: &[TypeKey]) -> Result<Vec<Option<i32>>> {
        let found = type_row::find(self, keys).await?;
        Ok(keys.iter().map(|key| found.get(key).copied()).collect())
    }

    /// The id of a type, which is added if it is new.
    pub(crate) async fn ensure_type(&self, key: &TypeKey) -> Result<i32> {
        Ok(self.ensure_types(std::slice::from_ref(key)).await?[0])
    }

    /// The ids of these types, in the same order; new ones are added.
    pub(crate) async fn ensure_types(&self, keys: &[TypeKey]) -> Result<Vec<i32>> {
        let mut ids = self.type_ids(keys).await?;
        if ids.contains(&None) {
            type_row::add(self, keys).await?;
            ids = self.type_ids(keys).await?;
        }
        Ok(ids.into_iter().flatten().collect())
    }

    /// Sends a statement; its answer is waited for before the commit. What is sent behind it sees
    /// its effect.
    pub(crate) async fn later(&mut self, sql: &'static str, values: Vec<Value>) -> Result<()> {
        let sent = self.session.send(sql, values).await?;
        lock(&self.sent).push(sent);
        Ok(())
    }

    /// A job became ready at this place.
    pub(crate) fn made_ready(&mut self, key: QueueKey) {
        self.ready.insert(key.type_id);
        self.added(key);
    }

    /// A job was added at this place, before which there may be a bound.
    pub(crate) fn added(&mut self, key: QueueKey) {
        let place = key.place();
        let low = self.lows.entry((key.type_id, key.rank)).or_insert(place);
        *low = place.min(*low);
    }

    /// A job left the queue at this place.
    pub(crate) fn passed(&mut self, key: QueueKey) {
        self.passed.note(key, 1);
    }

    /// Many jobs left the queue, the last one at this place.
    pub(crate) fn passed_many(&mut self, key: QueueKey, jobs: u64) {
        self.passed.note(key, jobs);
    }

    /// A job of this type is in this state now.
    pub(crate) fn came(&mut self, type_id: i32, state: State) {
        self.count(type_id, state, 1);
    }

    /// A job of this type is no longer in this state, or no longer there.
    pub(crate) fn went(&mut self, type_id: i32, state: State) {
        self.count(type_id, state, -1);
    }

    /// Only ended jobs are counted: they may be very many.
    fn count(&mut self, type_id: i32, state: State, more: i64) {
        let ended = [State::Finished, State::Failed, State::Cancelled];
        if let Some(place) = ended.iter().position(|ended| *ended == state) {
            self.ended.entry(type_id).or_default()[place] += more;
        }
    }

    /// A lease of this type ended.
    pub(crate) fn freed(&mut self, type_id: i32) {
        self.freed.insert(type_id);
    }

    /// Called before the row of a type is locked whose revision will be raised: everywhere, this
    /// lock comes first.
    pub(crate) async fn will_raise(&self) -> Result<()> {
        self.execute("SELECT pg_advisory_xact_lock_shared(lock_class(), 0)", &[]).await?;
        Ok(())
    }

    /// The handler, settings or suspension of a type changed: it gets a new revision. `will_raise`
    /// was called.
    pub(crate) async fn type_changed(&mut self, type_id: i32) -> Result<()> {
        self.execute("SELECT raise_revision($1)", &[&vec![type_id]]).await?;
        self.changes_type = true;
        Ok(())
    }

    /// Opens the types noted so far, and lowers bounds that are behind jobs which were added.
    pub(crate) async fn announce(&mut self) -> Result<()> {
        let ready: Vec<i32> = std::mem::take(&mut self.ready).into_iter().collect();
        let freed: Vec<i32> = std::mem::take(&mut self.freed).into_iter().collect();
        let lows = std::mem::take(&mut self.lows);
        if ready.is_empty() && freed.is_empty() && lows.is_empty() {
            return Ok(());
        }
        let (types, ranks): (Vec<i32>, Vec<i32>) = lows.keys().copied().unzip();
        let times: Vec<i64> = lows.values().map(|place| place.0).collect();
        let ties: Vec<i64> = lows.values().map(|place| place.1).collect();
        let ids: Vec<i64> = lows.values().map(|place| place.2).collect();
        self.announced |= !ready.is_empty();
        let announce = "SELECT announce($1, $2, $3, $4, $5, $6, $7)";
        let values = values![ready, freed, types, ranks, times, ties, ids];
        let sent = self.session.send_asking(announce, values, self.raised.clone()).await?;
        lock(&self.sent).push(sent);
        Ok(())
    }

    /// Adds what was counted. Nothing is updated: other transactions of the type need not wait.
    async fn add_counts(&mut self) -> Result<()> {
        let ended = std::mem::take(&mut self.ended);
        let ended = ended.into_iter().filter(|(_, more)| *more != [0; 3]);
        let (types, more): (Vec<i32>, Vec<[i64; 3]>) = ended.unzip();
        if types.is_empty() {
            return Ok(());
        }
        self.has_counted = true;
        let of = |place: usize| more.iter().map(|more| more[place]).collect::<Vec<i64>>();
        self.later(ADD_COUNTS, values![types, of(0), of(1), of(2)]).await
    }

    /// Commits, and returns whether other daemons have something to look for.
    pub(crate) async fn commit(&mut self) -> Result<bool> {
        self.announce().await?;
        self.add_counts().await?;
        let sent = self.take_sent();
        let end = async {
            match self.mode {
                Mode::Write(Durability::Synced) => {
                    self.session.commit_synced("SELECT write_something(); COMMIT").await
                }
                Mode::Write(Durability::Relaxed) | Mode::Read => self.session.batch("COMMIT").await,
            }
        };
        // If a statement has failed, this commits nothing.
        let (ended, failed) = join(end, first_failure(sent)).await;
        match failed {
            Some(failure) => Err(failure),
            None => ended.map(|()| self.has_news()),
        }
    }

    /// Ends it after this failure, without a change, and returns the failure that it began with:
    /// statements that were sent behind that one have failed only because of it.
    pub(crate) async fn fail(self, failure: Failure) -> Failure {
        let first = first_failure(self.take_sent()).await;
        self.roll_back().await;
        first.unwrap_or(failure)
    }

    /// Whether others have something to look for, once all answers are there. Places that became
    /// free matter only for a type with a limit.
    fn has_news(&self) -> bool {
        self.changes_type || self.announced || self.raised.load(Ordering::Relaxed)
    }

    fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut *lock(&self.sent))
    }

    /// Gives its connection back: it has been committed.
    pub(crate) fn keep(self) {
        self.session.keep();
    }

    /// Ends it without a change. A connection on which this fails is not used again.
    pub(crate) async fn roll_back(self) {
        if self.batch("ROLLBACK").await.is_ok() {
            self.session.keep();
        }
    }
}

const ADD_COUNTS: &str = "
    INSERT INTO ended_delta (type_id, finished, failed, cancelled)
    SELECT * FROM unnest($1::int4[], $2::int8[], $3::int8[], $4::int8[])";

/// Waits for these statements, which were sent in this order.
async fn first_failure(sent: Vec<Sent>) -> Option<Failure> {
    let mut first = None;
    for sent in sent {
        first = first.or(sent.await.err());
    }
    first
}
