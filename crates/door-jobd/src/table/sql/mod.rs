//! The table in any SQL database: each operation is a transaction, a transaction that conflicted is
//! retried, and one with an unknown outcome is repaired by the next.
//!
//! In every transaction the rows of the table are locked first, in the order of their ids, then the
//! marks, so that workers do not deadlock.

mod accept;
mod lease;
mod names;
mod run;

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use windlass_core::sync::lock;

use super::fit::TableLimits;
use super::session::{Backend, Fault, Session, Value};
use super::{
    End, Fetched, Interrupted, Manual, Origin, Owner, Recovered, Row, Table, TableError, Unwritten,
};
use names::Names;

/// Maximum number of ids per statement.
const IDS_AT_ONCE_MAX: usize = 500;

/// How often a conflicting transaction is tried.
const CLASH_TRIES_MAX: u32 = 10;

/// A transaction that takes longer is abandoned with its connection: the server may be frozen.
const TRANSACTION_TIME_MAX: Duration = Duration::from_secs(60);

pub(in crate::table) struct SqlTable {
    backend: Box<dyn Backend>,
    table: OwnedTable,
    info_cell: OnceCell<TableInfo>,
    /// Rows that may have been accepted without a confirmation.
    unconfirmed_rows: Mutex<Vec<Row>>,
}

/// The owner and the name of the table.
struct OwnedTable {
    names: Names,
    owner: Owner,
}

/// What is known about the table.
struct TableInfo {
    limits: TableLimits,
    /// Whether there is a table of marks.
    marks: bool,
}

/// The context of a transaction.
struct TxContext<'a> {
    names: &'a Names,
    owner: &'a Owner,
    limits: &'a TableLimits,
    marks: bool,
}

/// One transaction, which may be tried several times until it commits.
#[async_trait]
trait Transaction: Sync {
    type Done: Send;

    async fn carry_out(
        &self,
        context: &TxContext<'_>,
        session: &mut dyn Session,
    ) -> Result<Self::Done, Fault>;

    /// The rows that this transaction accepts on commit.
    fn accepted(&self, _done: &Self::Done) -> Vec<Row> {
        Vec::new()
    }
}

impl SqlTable {
    pub(in crate::table) fn new(backend: Box<dyn Backend>, table: &str, owner: Owner) -> Self {
        let names = Names::new(table, backend.dialect());
        let owner = Owner { boot: owner.boot & i64::MAX.unsigned_abs(), ..owner };
        Self {
            backend,
            table: OwnedTable { names, owner },
            info_cell: OnceCell::new(),
            unconfirmed_rows: Mutex::default(),
        }
    }

    async fn transact<W: Transaction>(&self, work: &W) -> Result<W::Done, TableError> {
        let info = self.info().await?;
        let context = TxContext {
            names: &self.table.names,
            owner: &self.table.owner,
            limits: &info.limits,
            marks: info.marks,
        };
        for tried in 1.. {
            match self.attempt(work, &context).await {
                Err(Fault::Clash(_)) if tried < CLASH_TRIES_MAX => {
                    let pause = fastrand::u64(1..=20) * u64::from(tried);
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                }
                done => return done.map_err(TableError::from),
            }
        }
        Err(TableError::Away("others were in the way".into()))
    }

    async fn attempt<W: Transaction>(
        &self,
        work: &W,
        context: &TxContext<'_>,
    ) -> Result<W::Done, Fault> {
        let attempt = async {
            let mut session = self.backend.begin().await?;
            let done = work.carry_out(context, &mut *session).await?;
            let unconfirmed =
                UnconfirmedCommit { rows: work.accepted(&done), about: &self.unconfirmed_rows };
            session.commit().await?;
            unconfirmed.confirm();
            Ok(done)
        };
        let late = |_| Fault::Away("the database did not answer in time".into());
        timeout(TRANSACTION_TIME_MAX, attempt).await.map_err(late)?
    }

    /// Rows accepted without a confirmation go back first, so that they are found again.
    async fn return_unconfirmed(&self) -> Result<(), TableError> {
        let unconfirmed_rows = {
            let mut unconfirmed_rows = lock(&self.unconfirmed_rows);
            std::mem::take(&mut *unconfirmed_rows)
        };
        if unconfirmed_rows.is_empty() {
            return Ok(());
        }
        if !self.info().await?.marks {
            tracing::warn!(rows = unconfirmed_rows.len(), "unknown whether rows were accepted");
            return Ok(());
        }
        let handed = self.hand_back(&unconfirmed_rows).await;
        if handed.is_err() {
            lock(&self.unconfirmed_rows).extend(unconfirmed_rows);
        }
        handed
    }

    async fn info(&self) -> Result<&TableInfo, TableError> {
        let look = || async {
            let looking = self.inspect();
            let late = |_| Fault::Away("the database did not answer in time".into());
            timeout(TRANSACTION_TIME_MAX, looking).await.map_err(late)?
        };
        self.info_cell.get_or_try_init(look).await.map_err(TableError::from)
    }

    async fn inspect(&self) -> Result<TableInfo, Fault> {
        let names = &self.table.names;
        let limits = self.backend.inspect(names.schema.as_deref(), &names.bare).await?;
        self.try_all(&[names.probe()]).await?;
        let marks = match self.make_marks().await {
            Ok(()) => true,
            Err(Fault::Refused(reason)) => {
                tracing::warn!(
                    "without the table {} the rows of a worker that is killed stay accepted or \
                     running; it cannot be created or used: {reason}",
                    names.marks
                );
                false
            }
            Err(fault) => return Err(fault),
        };
        Ok(TableInfo { limits, marks })
    }

    /// A failure does not matter: the user may be allowed to use but not to create the table, or
    /// another worker may be creating it at the same time.
    async fn make_marks(&self) -> Result<(), Fault> {
        let names = &self.table.names;
        if self.try_all(&names.probe_marks()).await.is_ok() {
            return Ok(());
        }
        let made = self.try_all(&[names.make_marks()]).await;
        match (made, self.try_all(&names.probe_marks()).await) {
            (Err(Fault::Refused(reason)), Err(Fault::Refused(_))) => Err(Fault::Refused(reason)),
            (_, usable) => usable,
        }
    }

    /// Statements in a transaction of their own.
    async fn try_all(&self, statements: &[String]) -> Result<(), Fault> {
        let mut session = self.backend.begin().await?;
        for statement in statements {
            session.run(statement, Vec::new()).await?;
        }
        session.commit().await
    }
}

/// Covers the time from sending a commit until its answer, even if the caller is dropped.
struct UnconfirmedCommit<'a> {
    rows: Vec<Row>,
    about: &'a Mutex<Vec<Row>>,
}

impl UnconfirmedCommit<'_> {
    fn confirm(mut self) {
        self.rows.clear();
    }
}

impl Drop for UnconfirmedCommit<'_> {
    fn drop(&mut self) {
        if !self.rows.is_empty() {
            let rows = std::mem::take(&mut self.rows);
            lock(self.about).extend(rows);
        }
    }
}

impl TxContext<'_> {
    /// Locks rows by their ids, waiting for others or skipping what they have locked.
    async fn lock_rows(
        &self,
        session: &mut dyn Session,
        ids: &[u64],
        wait: bool,
    ) -> Result<Vec<Locked>, Fault> {
        let mut locked = Vec::new();
        let lock = if wait { self.names.dialect.lock } else { self.limits.skip };
        for ids in ids.chunks(IDS_AT_ONCE_MAX) {
            let rows = session.rows(&self.names.lock_rows(ids, lock), Vec::new()).await?;
            locked.extend(rows.iter().filter_map(|row| Locked::read(row)));
        }
        Ok(locked)
    }

    /// Locks rows by id and returns those that are ours.
    async fn lock_ours(
        &self,
        session: &mut dyn Session,
        mut ids: Vec<u64>,
    ) -> Result<(Vec<Locked>, Vec<u64>), Fault> {
        // All workers lock rows in the same order, which avoids deadlocks.
        ids.sort_unstable();
        let locked = self.lock_rows(session, &ids, true).await?;
        let there = locked.iter().map(|row| row.id).collect();
        let ours = self.ours(session, there).await?;
        Ok((locked, ours))
    }

    /// Gives rows their previous status back.
    async fn put_back(
        &self,
        session: &mut dyn Session,
        rows: impl Iterator<Item = &Row> + Clone + Send,
    ) -> Result<(), Fault> {
        for origin in [Origin::Waiting, Origin::Manual] {
            let rows = rows.clone().filter(|row| row.origin == origin);
            let ids: Vec<u64> = rows.map(|row| row.id).collect();
            self.update(session, &ids, &format!("status = '{}'", origin.status())).await?;
        }
        Ok(())
    }

    /// Those of these ids that have our mark; all if there are no marks.
    async fn ours(&self, session: &mut dyn Session, ids: Vec<u64>) -> Result<Vec<u64>, Fault> {
        if !self.marks || ids.is_empty() {
            return Ok(ids);
        }
        let mut ours = Vec::with_capacity(ids.len());
        for ids in ids.chunks(IDS_AT_ONCE_MAX) {
            let rows = session.rows(&self.names.our_marks(ids, self.owner), Vec::new()).await?;
            ours.extend(rows.iter().filter_map(|row| row.first().and_then(Value::id)));
        }
        ours.sort_unstable();
        Ok(ours)
    }

    async fn mark(
        &self,
        session: &mut dyn Session,
        ids: &[u64],
        origin: Origin,
        lease: Duration,
    ) -> Result<(), Fault> {
        for ids in ids.chunks(IDS_AT_ONCE_MAX).filter(|_| self.marks) {
            let sql = self.names.mark(ids, self.owner, origin, lease);
            session.run(&sql, Vec::new()).await?;
        }
        Ok(())
    }

    async fn unmark(&self, session: &mut dyn Session, ids: &[u64]) -> Result<(), Fault> {
        for ids in ids.chunks(IDS_AT_ONCE_MAX).filter(|_| self.marks) {
            session.run(&self.names.unmark(ids), Vec::new()).await?;
        }
        Ok(())
    }

    /// `set` is the part of an UPDATE after SET.
    async fn update(&self, session: &mut dyn Session, ids: &[u64], set: &str) -> Result<(), Fault> {
        for ids in ids.chunks(IDS_AT_ONCE_MAX) {
            session.run(&self.names.update(ids, set), Vec::new()).await?;
        }
        Ok(())
    }
}

/// A row that is locked until our transaction ends.
struct Locked {
    id: u64,
    status: String,
    target: String,
    finished_at: Option<u64>,
}

impl Locked {
    fn read(row: &[Value]) -> Option<Self> {
        let [id, status, target, finished_at] = row else { return None };
        Some(Self {
            id: id.id()?,
            status: status.text(),
            target: target.text(),
            finished_at: finished_at.id(),
        })
    }
}

fn ids_of(rows: &[Row]) -> Vec<u64> {
    rows.iter().map(|row| row.id).collect()
}

impl Origin {
    fn status(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Manual => "manual",
        }
    }

    fn read(text: &str) -> Self {
        if text == "manual" { Self::Manual } else { Self::Waiting }
    }
}

#[async_trait]
impl Table for SqlTable {
    async fn prepare(&self) -> Result<(), TableError> {
        self.info().await.map(|_| ())
    }

    async fn fetch(
        &self,
        targets: &[String],
        limit: u32,
        lease: Duration,
    ) -> Result<Fetched, TableError> {
        self.return_unconfirmed().await?;
        self.transact(&accept::Fetch { targets, limit: limit as usize, lease }).await
    }

    async fn accept_manual(
        &self,
        ids: &[u64],
        targets: &[String],
        lease: Duration,
    ) -> Result<Vec<Manual>, TableError> {
        self.return_unconfirmed().await?;
        self.transact(&accept::AcceptManual { ids, targets, lease }).await
    }

    async fn start(&self, ids: &[u64], now: i64) -> Result<Vec<u64>, TableError> {
        self.transact(&run::Start { ids, now }).await
    }

    async fn finish(&self, ends: &[End]) -> Result<Vec<Unwritten>, TableError> {
        self.finish_all(ends).await
    }

    async fn hand_back(&self, rows: &[Row]) -> Result<(), TableError> {
        self.transact(&lease::HandBack { rows }).await
    }

    async fn renew(&self, ids: &[u64], lease: Duration) -> Result<Vec<u64>, TableError> {
        self.transact(&lease::Renew { ids, lease }).await
    }

    async fn recover(
        &self,
        held: &[u64],
        interrupted: Interrupted,
        now: i64,
        reason: &str,
    ) -> Result<Recovered, TableError> {
        self.return_unconfirmed().await?;
        self.transact(&lease::Recover { held, interrupted, now, reason }).await
    }

    async fn close(&self) {
        self.backend.close().await;
    }
}
