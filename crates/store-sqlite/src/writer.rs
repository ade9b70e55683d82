//! The writer thread. All operations that wait when it is free become one transaction, so that a
//! hundred callers share one commit. They are answered when that commit has returned.
//!
//! A group is committed with `synchronous = FULL` if one of its operations promises to survive a
//! power cut, and with `NORMAL` otherwise: then the write-ahead log is written but not synced.
//!
//! Why one synced commit makes all earlier ones durable: their frames lie before its own in the
//! same log file, and `fsync` covers the whole file, whichever process wrote it. If there was a
//! checkpoint in between, it synced the log first, copied the pages, and synced the database file
//! before the log was restarted (SQLite does so in `NORMAL` as in `FULL`), so frames that are no
//! longer in the log are already durable. The rule needs a commit that writes. So a synced group
//! that changed nothing (a flush, or a replayed insert of duplicates) writes a row of its own. A
//! power cut keeps all commits up to some point, and never a part of one: frames have checksums,
//! and recovery stops at the last complete commit. All of this holds only if no sync has failed;
//! `doubt` says what happens otherwise.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use tokio::sync::{mpsc, oneshot, watch};
use windlass_core::store::{Durability, Error};
use windlass_core::time::Clock;

use crate::doubt::Doubt;
use crate::error::{Failure, Result, closed};
use crate::open::{OnCommit, Options};
use crate::queue;
use crate::turn::Turnstile;
use crate::tx::Tx;
use crate::type_row::TypeCache;

/// Operations that wait for the thread; further callers wait for room.
const QUEUE_MAX: usize = 1024;
/// Operations in one transaction.
const GROUP_OPERATIONS_MAX: usize = 256;
/// Jobs that the operations of one transaction touch, not counting the last operation.
const GROUP_JOBS_MAX: usize = 20_000;

/// Pages in the write-ahead log before a checkpoint: pages that change often are copied only once.
const CHECKPOINT_PAGES: i32 = 8192;

/// The handle of the thread.
pub(crate) struct Writer {
    messages: mpsc::Sender<Message>,
    /// Closed when the thread has closed its connection.
    ended: watch::Receiver<()>,
}

enum Message {
    Run(Box<dyn Command>),
    Stop,
}

/// A queued operation: runs inside a transaction, possibly twice, and is answered once.
trait Command: Send {
    fn durability(&self) -> Durability;
    fn jobs(&self) -> usize;
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<()>;
    fn answer(self: Box<Self>, committed: std::result::Result<(), Error>);
}

struct Operation<T, F> {
    durability: Durability,
    jobs: usize,
    run: F,
    value: Option<T>,
    reply: oneshot::Sender<std::result::Result<T, Error>>,
}

impl<T, F> Command for Operation<T, F>
where
    T: Send,
    F: Fn(&mut Tx<'_>) -> Result<T> + Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn jobs(&self) -> usize {
        self.jobs
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        self.value = Some((self.run)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, committed: std::result::Result<(), Error>) {
        let Operation { value, reply, .. } = *self;
        let answer = committed.map(|()| value.expect("a committed operation has run"));
        // The send fails if the caller stopped waiting; the change stands regardless.
        let _ = reply.send(answer);
    }
}

impl Writer {
    pub(crate) fn start(
        mut conn: Connection,
        doubt: Arc<Doubt>,
        options: &Options,
    ) -> Result<Writer> {
        let (messages, inbox) = mpsc::channel(QUEUE_MAX);
        let (end, ended) = watch::channel(());
        let log_pages = Arc::new(AtomicI32::new(0));
        let seen = log_pages.clone();
        conn.wal_hook(Some(move |_: &mut Wal, pages| {
            seen.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        let thread = Thread {
            conn,
            path: options.path.clone(),
            on_commit: options.on_commit.clone(),
            types: TypeCache::default(),
            clock: options.clock.clone(),
            synchronous: None,
            turnstile: Turnstile::open(options),
            doubt,
            due_left: false,
            log_pages,
        };
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || {
                thread.work(inbox);
                drop(end);
            })
            .expect("the system can start a thread");
        Ok(Writer { messages, ended })
    }

    /// Runs an operation in a transaction and returns after its commit. `jobs` is roughly how many
    /// jobs it touches. It runs again if another operation spoiled the transaction.
    pub(crate) async fn write<T, F>(
        &self,
        durability: Durability,
        jobs: usize,
        run: F,
    ) -> std::result::Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let operation = Operation { durability, jobs, run, value: None, reply };
        let message = Message::Run(Box::new(operation));
        self.messages.send(message).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Returns when all accepted operations have been answered and the file is closed.
    pub(crate) async fn stop(&self) {
        // The send fails if the thread has already ended.
        let _ = self.messages.send(Message::Stop).await;
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }
}

struct Thread {
    conn: Connection,
    path: PathBuf,
    on_commit: Option<OnCommit>,
    types: TypeCache,
    clock: Arc<dyn Clock>,
    /// The current value of the pragma; `None` if unknown.
    synchronous: Option<Durability>,
    turnstile: Turnstile,
    doubt: Arc<Doubt>,
    /// More jobs are due than the last transactions could make ready.
    due_left: bool,
    /// Pages in the write-ahead log after the newest commit; 0 if there was none since the last
    /// checkpoint.
    log_pages: Arc<AtomicI32>,
}

type Group = Vec<Box<dyn Command>>;
type CommandResult = std::result::Result<(), Error>;

/// What became of a group's transaction.
enum GroupResult {
    /// One result per operation.
    Answers(Vec<CommandResult>),
    /// It was rolled back because of the operation at this place, or because of all together if
    /// there is none at this place.
    Spoiled(usize),
}

/// An operation without a caller that makes due jobs ready.
fn promotion() -> Box<dyn Command> {
    let run = queue::promote as fn(&mut Tx<'_>) -> Result<bool>;
    let (durability, (reply, _)) = (Durability::Relaxed, oneshot::channel());
    Box::new(Operation { durability, jobs: 0, run, value: None, reply })
}

/// The parts of a group around the operation that spoiled it, in order; its operations one by one
/// if none of them alone did. Each part has fewer operations than the group.
fn around(mut group: Group, place: usize) -> Vec<Group> {
    if place >= group.len() {
        return group.into_iter().map(|command| vec![command]).collect();
    }
    let after = group.split_off(place + 1);
    let spoiler = group.split_off(place);
    [group, spoiler, after].into_iter().filter(|part| !part.is_empty()).collect()
}

impl Thread {
    fn work(mut self, mut inbox: mpsc::Receiver<Message>) {
        while let Some(group) = self.next_group(&mut inbox) {
            if !group.is_empty() {
                self.settle_group(group);
                self.checkpoint();
            }
        }
        if self.doubt.check_all().is_err() {
            let keep_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            if let Err(error) = self.conn.set_db_config(keep_log, true) {
                tracing::error!(file = %self.path.display(), %error, "cannot keep the log");
            }
        }
        if let Err((_, error)) = self.conn.close() {
            tracing::warn!(file = %self.path.display(), %error, "closing the store failed");
        }
    }

    /// Waits for an operation, and adds all others that wait by then; `None` after the last one.
    /// While there are none, due jobs are promoted.
    fn next_group(&mut self, inbox: &mut mpsc::Receiver<Message>) -> Option<Group> {
        let mut group = Group::new();
        let mut jobs = 0;
        let mut message = match inbox.try_recv() {
            Ok(message) => message,
            Err(_) if self.due_left => {
                self.due_left = false;
                return Some(vec![promotion()]);
            }
            Err(_) => inbox.blocking_recv()?,
        };
        loop {
            match message {
                // Operations accepted before the stop are still in the inbox, for later groups.
                Message::Stop => inbox.close(),
                Message::Run(command) => {
                    jobs += command.jobs();
                    group.push(command);
                }
            }
            if group.len() >= GROUP_OPERATIONS_MAX || jobs >= GROUP_JOBS_MAX {
                return Some(group);
            }
            match inbox.try_recv() {
                Ok(next) => message = next,
                Err(_) => return Some(group),
            }
        }
    }

    /// Answers all operations. One that spoils the transaction of its group runs alone; those
    /// before and after it stay together, so that it costs them a few commits, and not one each.
    fn settle_group(&mut self, group: Group) {
        let mut parts = vec![group];
        while let Some(mut group) = parts.pop() {
            match self.run_group(&mut group) {
                GroupResult::Answers(answers) => {
                    for (command, answer) in group.into_iter().zip(answers) {
                        command.answer(answer);
                    }
                }
                // The last part comes first, because the next one is popped from the end.
                GroupResult::Spoiled(place) => parts.extend(around(group, place).into_iter().rev()),
            }
        }
    }

    /// Runs one transaction. A group of one is never `Spoiled`.
    fn run_group(&mut self, group: &mut Group) -> GroupResult {
        let synced = group.iter().any(|c| c.durability() == Durability::Synced);
        let durability = if synced { Durability::Synced } else { Durability::Relaxed };
        let operations = group.len();
        let all = |error: Error| GroupResult::Answers(vec![Err(error); operations]);
        if let Err(error) = self.promise(synced) {
            return all(error);
        }
        if let Err(failure) = self.begin(durability) {
            return all(failure.translate(&self.path));
        }
        // Operations contain code of callers, such as decisions: a panic is only its caller's
        // error.
        let mut place = 0;
        let ran = Error::caught("an operation", || self.run_operations(group, synced, &mut place));
        let (answers, wrote) = match ran.flatten() {
            Ok(ran) => ran,
            Err(error) => {
                self.roll_back();
                return if operations == 1 { all(error) } else { GroupResult::Spoiled(place) };
            }
        };
        if let Err(failure) = self.commit(synced, wrote) {
            let error = self.doubt.judge(failure).translate(&self.path);
            self.roll_back();
            return all(error);
        }
        self.types.keep();
        match self.promise(synced) {
            Ok(()) => GroupResult::Answers(answers),
            Err(error) => all(error),
        }
    }

    /// Runs all operations up to the commit. Returns a result for each, and whether anything was
    /// written. An error or a panic requires a rollback of the whole transaction; `place` says then
    /// which operation it came from.
    fn run_operations(
        &mut self,
        group: &mut Group,
        synced: bool,
        place: &mut usize,
    ) -> std::result::Result<(Vec<CommandResult>, bool), Error> {
        let conn = &self.conn;
        let translated = |failure: Failure| failure.translate(&self.path);
        let changes_before = conn.total_changes();
        let begun = Tx::begin(conn, &mut self.types, self.clock.as_ref());
        let mut tx = begun.map_err(translated)?;
        let mut answers = Vec::with_capacity(group.len());
        for command in group.iter_mut() {
            let before = conn.total_changes();
            let answer = command.run(&mut tx).map_err(translated);
            let harmless = conn.total_changes() == before && !conn.is_autocommit();
            if let (Err(error), false) = (&answer, harmless) {
                return Err(error.clone());
            }
            answers.push(answer);
            *place = answers.len();
        }
        tx.apply_counts().map_err(translated)?;
        let due_left = tx.due_left;
        if synced && conn.total_changes() == changes_before {
            let mark = "UPDATE meta SET value = value + 1 WHERE name = 'synced'";
            let written = conn.prepare_cached(mark).and_then(|mut mark| mark.execute([]));
            written.map_err(|error| translated(error.into()))?;
        }
        let wrote = conn.total_changes() != changes_before;
        self.due_left |= due_left;
        Ok((answers, wrote))
    }

    /// Takes the lock at once, because SQLite does not let a read that becomes a write wait for it.
    fn begin(&mut self, durability: Durability) -> Result<()> {
        if self.synchronous != Some(durability) {
            self.synchronous = None;
            // Not from the cache: SQLite applies this pragma when it compiles it.
            self.conn.execute_batch(match durability {
                Durability::Synced => "PRAGMA synchronous = FULL",
                Durability::Relaxed => "PRAGMA synchronous = NORMAL",
            })?;
            self.synchronous = Some(durability);
        }
        let mut begin = self.conn.prepare_cached("BEGIN IMMEDIATE")?;
        self.turnstile.pass(|| begin.execute([]))?;
        Ok(())
    }

    fn commit(&self, synced: bool, wrote: bool) -> Result<()> {
        let began = Instant::now();
        self.conn.prepare_cached("COMMIT")?.execute([])?;
        if let Some(on_commit) = self.on_commit.as_ref().filter(|_| wrote) {
            // The commit stands even if its callback panics.
            let called =
                Error::caught("the commit callback", || on_commit(began.elapsed(), synced));
            called.unwrap_or_else(|error| tracing::error!(%error, "ignored a panic"));
        }
        Ok(())
    }

    /// Whether a commit may still be acknowledged. For a synced one, no process may have seen a
    /// failed sync.
    fn promise(&self, synced: bool) -> CommandResult {
        if synced { self.doubt.check_all() } else { self.doubt.check() }
    }

    /// Moves a large log into the file, as far as readers allow.
    fn checkpoint(&mut self) {
        if self.log_pages.swap(0, Ordering::Relaxed) < CHECKPOINT_PAGES
            || self.doubt.check_all().is_err()
        {
            return;
        }
        let moved = self
            .conn
            .prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")
            .and_then(|mut checkpoint| checkpoint.query_row([], |_| Ok(())));
        if let Err(error) = moved {
            tracing::warn!(file = %self.path.display(), %error, "the checkpoint failed");
            self.doubt.judge(error.into());
        }
    }

    fn roll_back(&mut self) {
        self.types.forget_new();
        if self.conn.is_autocommit() {
            return;
        }
        if let Err(error) = self.conn.execute_batch("ROLLBACK") {
            tracing::warn!(file = %self.path.display(), %error, "rolling back failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open;

    #[tokio::test]
    async fn an_operation_that_panics_is_undone_and_the_next_one_is_served() {
        let directory = tempfile::TempDir::new().unwrap();
        let options = Options::new(directory.path().join("jobs.db"));
        let doubt = Arc::new(Doubt::new(&options.path));
        let writer = Writer::start(open::writer(&options).unwrap(), doubt, &options).unwrap();
        let boot = "UPDATE meta SET value = value + 1 WHERE name = 'boot' RETURNING value";
        let count =
            |tx: &mut Tx<'_>| Ok(tx.conn.query_row(boot, [], |row| row.get::<_, i64>(0))?);
        for n in 1..=3 {
            let panicking = move |tx: &mut Tx<'_>| -> Result<i64> { panic!("{}", count(tx)?) };
            let answer = writer.write(Durability::Relaxed, 1, panicking).await;
            let told = format!("an operation panicked: {n}");
            assert_eq!(answer, Err(Error::Internal(told.into())));
            assert_eq!(writer.write(Durability::Relaxed, 1, count).await, Ok(n));
        }
    }
}
