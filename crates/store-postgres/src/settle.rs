//! Settlements of running jobs: leases are deleted, each job's row is rewritten once, and results
//! and logs are stored in their own tables. Plain settlements that follow each other are carried
//! out together, by a fixed number of statements. One that concerns a family or adds jobs with
//! unique keys is carried out alone.

use std::collections::HashMap;

use windlass_core::edit::MovedJobs;
use windlass_core::job::{Ended, Progress, Token};
use windlass_core::retry::Verdict;
use windlass_core::state::{self, Event};
use windlass_core::store::{Inserted, LeaseRef, SettleAnswer, Settled, Settlement};
use windlass_core::time::Timestamp;
use windlass_core::{JobId, NewJob, State};

use crate::attempt;
use crate::enter;
use crate::error::Result;
use crate::extra;
use crate::family;
use crate::insert;
use crate::lease;
use crate::queue::{self, QueueKey};
use crate::rewrite::Rewrites;
use crate::row::{self, Stored, part};
use crate::tx::{Tx, values};

/// With their parents, in the order of their ids: a change of a parent locks its children after it.
const LOCK: &str = "
    SELECT id FROM job
     WHERE id IN (SELECT unnest($1::int8[]) UNION
                  SELECT parent_id FROM job WHERE id = ANY ($1) AND parent_id IS NOT NULL)
     ORDER BY id FOR NO KEY UPDATE";

/// So that none is renewed between here, where it may have expired, and its end.
const LOCK_LEASES: &str = "SELECT id FROM lease WHERE id = ANY ($1) ORDER BY id FOR UPDATE";

pub(crate) async fn job_settle(
    tx: &mut Tx<'_>,
    settlements: &[Settlement],
) -> Result<SettleAnswer> {
    let ids: Vec<i64> = settlements.iter().map(|settlement| settlement.lease.id.get()).collect();
    tx.later(LOCK, values![ids.clone()]).await?;
    tx.later(LOCK_LEASES, values![ids.clone()]).await?;
    let mut running = row::read_all(tx, &ids).await?;
    let mut answer = SettleAnswer::default();
    answer.settled.reserve_exact(settlements.len());
    let mut run = Vec::new();
    for settlement in settlements {
        let id = settlement.lease.id.get();
        let held = running.get(&id).filter(|stored| is_held(stored, settlement, tx.now));
        let Some(stored) = held else {
            answer.settled.push(Settled::Stale);
            continue;
        };
        if is_plain(stored, settlement) {
            run.extend(running.remove(&id).map(|stored| (settlement, stored)));
            answer.settled.push(Settled::Done);
            continue;
        }
        settle_plain(tx, &std::mem::take(&mut run), &mut answer.moved).await?;
        answer.settled.push(settle_alone(tx, settlement, &mut answer.moved).await?);
        // It may have changed others too: one of them may have a child now.
        running = row::read_all(tx, &ids).await?;
    }
    settle_plain(tx, &run, &mut answer.moved).await?;
    Ok(answer)
}

/// Whether the job runs under the lease of the settlement, and may be settled by it.
fn is_held(stored: &Stored, by: &Settlement, now: Timestamp) -> bool {
    let is_of_lease = |lease: &windlass_core::Lease| {
        lease.token == by.lease.token && (!by.only_if_expired || lease.expires_at <= now)
    };
    stored.job.key.tenant == by.lease.tenant && stored.job.lease.as_ref().is_some_and(is_of_lease)
}

/// Whether a settlement changes only its own job, and adds jobs that nothing keeps out but their
/// ids.
fn is_plain(stored: &Stored, by: &Settlement) -> bool {
    let has_no_ties = |new: &NewJob| new.parent.is_none() && new.unique.is_none();
    stored.parts & part::FAMILY == 0
        && stored.job.parent.is_none()
        && by.adds.iter().chain(&by.follow).all(has_no_ties)
}

/// A settlement, and its running job.
type Settling<'a> = (&'a Settlement, Stored);

async fn settle_plain(tx: &mut Tx<'_>, run: &[Settling<'_>], moved: &mut MovedJobs) -> Result<()> {
    if run.is_empty() {
        return Ok(());
    }
    let entering = run.iter().flat_map(|(by, _)| by.adds.iter().chain(&by.follow));
    add_new(tx, entering.cloned().collect(), moved).await?;
    let noted = attempt::put_all(tx, run).await?;
    carry_out(tx, run, &noted).await
}

async fn settle_alone(tx: &mut Tx<'_>, by: &Settlement, moved: &mut MovedJobs) -> Result<Settled> {
    let id = by.lease.id.get();
    match insert::begin_all(tx, &by.adds).await? {
        Ok(begun) => add_new(tx, begun.into_owned(), moved).await?,
        Err((parent, unfit)) => return Ok(Settled::Unfit { parent, unfit }),
    }
    // Children that entered have marked it.
    let Some(stored) = row::find(tx, id).await? else { return Ok(Settled::Stale) };
    let waits = by.ended_well()
        && stored.parts & part::FAMILY != 0
        && family::children(tx, by.lease.id, None).await?.pending();
    let run = [(by, stored)];
    let noted = attempt::put_all(tx, &run).await?;
    if waits {
        // It has not ended yet, so the job that follows it is not added yet either.
        family::pause(tx, by, noted[0]).await?;
        return Ok(Settled::Paused);
    }
    carry_out(tx, &run, &noted).await?;
    if let Verdict::End(_) = by.verdict {
        family::after_end(tx, id, tx.now + by.keep).await?;
    }
    add_new(tx, by.follow.iter().cloned().collect(), moved).await?;
    Ok(Settled::Done)
}

/// Adds jobs with the end of another, unless they exist or their unique keys are held.
async fn add_new(tx: &mut Tx<'_>, jobs: Vec<NewJob>, moved: &mut MovedJobs) -> Result<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let answers = enter::enter_split(tx, jobs.clone()).await?;
    let entered = jobs.iter().zip(answers).filter(|(_, answer)| *answer == Inserted::New);
    entered.for_each(|(new, _)| moved.note_entered(new, tx.now));
    Ok(())
}

/// Carries out the verdicts. `parts` are the new parts of the jobs.
async fn carry_out(tx: &mut Tx<'_>, run: &[Settling<'_>], parts: &[i32]) -> Result<()> {
    let now = tx.now;
    let (mut rows, mut queued) = (Rewrites::default(), Vec::new());
    let (mut freed_keys, mut leases) = (Vec::new(), Vec::new());
    for ((by, stored), parts) in run.iter().zip(parts) {
        let job = &stored.job;
        leases.push((job.id.get(), stored.type_id));
        let counted = Attempts { number: job.attempt, started_at: job.started_at };
        let (attempts, run_at) = match by.verdict {
            Verdict::End(ending) => {
                let end = ending_of(stored, by, after(Event::End(ending)), *parts, now);
                tx.came(end.type_id, end.state);
                rows.push_end(&end);
                freed_keys.extend(end.unique.map(|unique| (end.type_id, unique, end.id)));
                continue;
            }
            Verdict::Again { after: pause } => {
                after(Event::Again);
                (counted, Some(now + pause))
            }
            Verdict::Repeat { run_at } => {
                after(Event::Again);
                (Attempts { number: 0, ..counted }, Some(run_at))
            }
            Verdict::Release { after: pause } => {
                after(Event::Release);
                let given_back =
                    Attempts { number: job.attempt.saturating_sub(1), started_at: None };
                (given_back, pause.map(|pause| now + pause))
            }
        };
        let again = again(tx, stored, by, attempts, run_at, *parts).await?;
        rows.push_again(&again);
        queued.push((again.key, run_at.is_none_or(|at| at <= now)));
    }
    drop_leases(tx, &leases).await?;
    rows.write(tx).await?;
    free_all(tx, &freed_keys).await?;
    queue::add_all(tx, queued).await
}

/// The attempts of a job that is queued again.
struct Attempts {
    number: u32,
    /// The start of the newest one; `None` if it does not count.
    started_at: Option<Timestamp>,
}

/// A running job that is queued again.
pub(crate) struct Again {
    pub(crate) key: QueueKey,
    pub(crate) attempt: u32,
    pub(crate) token: Token,
    /// Without it, the row keeps the one from before the lease.
    pub(crate) started_at: Option<Timestamp>,
    /// A repeat counts its age from here; without it, it stays as it is.
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) ended: Option<Ended>,
    pub(crate) parts: i32,
}

/// Without a new time, the job keeps its old one and its place.
async fn again(
    tx: &Tx<'_>,
    stored: &Stored,
    by: &Settlement,
    attempts: Attempts,
    run_at: Option<Timestamp>,
    parts: i32,
) -> Result<Again> {
    let Stored { job, type_id, .. } = stored;
    let id = job.id.get();
    let (run_at, tie, parts) = match run_at {
        Some(run_at) => (run_at, 0, extra::retimed(tx, id, parts).await?),
        None => (job.run_at, job.extra.tie(), parts & !part::LENT),
    };
    let rank = row::rank(job.priority, parts);
    Ok(Again {
        key: QueueKey { type_id: *type_id, rank, run_at, tie, id },
        attempt: attempts.number,
        token: by.lease.token,
        started_at: attempts.started_at,
        due_at: matches!(by.verdict, Verdict::Repeat { .. }).then_some(run_at),
        ended: by.ended,
        parts,
    })
}

/// The end of a job, whatever caused it.
pub(crate) struct End<'a> {
    pub(crate) id: i64,
    pub(crate) type_id: i32,
    pub(crate) state: State,
    pub(crate) attempt: u32,
    pub(crate) token: Option<Token>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Timestamp,
    pub(crate) purge_at: Timestamp,
    pub(crate) ended: Option<Ended>,
    pub(crate) parts: i32,
    pub(crate) unique: Option<&'a str>,
    pub(crate) parent: Option<JobId>,
}

fn ending_of<'a>(
    stored: &'a Stored,
    by: &Settlement,
    state: State,
    parts: i32,
    now: Timestamp,
) -> End<'a> {
    let job = &stored.job;
    End {
        id: job.id.get(),
        type_id: stored.type_id,
        state,
        attempt: job.attempt,
        token: stored.token,
        started_at: job.started_at,
        finished_at: now,
        purge_at: now + by.keep,
        ended: by.ended,
        parts,
        unique: job.unique.as_deref(),
        parent: job.parent,
    }
}

/// Ends a job that has already left its queue or lease.
pub(crate) async fn end(tx: &mut Tx<'_>, end: &End<'_>) -> Result<()> {
    let mut rows = Rewrites::default();
    tx.came(end.type_id, end.state);
    rows.push_end(end);
    rows.write(tx).await?;
    if let Some(unique) = end.unique {
        free_all(tx, &[(end.type_id, unique, end.id)]).await?;
    }
    if end.parts & part::FAMILY != 0 || end.parent.is_some() {
        family::after_end(tx, end.id, end.purge_at).await?;
    }
    Ok(())
}

/// The state after this event; panics if it is not allowed. Jobs that are queued again need only
/// the check: the row of a running job says `queued`.
fn after(event: Event) -> State {
    state::next(State::Running, event).expect("a running job may end or be queued again")
}

/// Deletes the lease; the caller writes what becomes of the job.
pub(crate) async fn drop_lease(tx: &mut Tx<'_>, id: i64, type_id: i32) -> Result<()> {
    drop_leases(tx, &[(id, type_id)]).await
}

/// Each with the id of its type.
async fn drop_leases(tx: &mut Tx<'_>, leases: &[(i64, i32)]) -> Result<()> {
    let ids: Vec<i64> = leases.iter().map(|(id, _)| *id).collect();
    tx.later("DELETE FROM lease WHERE id = ANY ($1)", values![ids]).await?;
    leases.iter().for_each(|(_, type_id)| tx.freed(*type_id));
    Ok(())
}

const FREE: &str = "
    DELETE FROM unique_key u
     USING unnest($1::int4[], $2::bytea[], $3::int8[]) AS k (type_id, key, id)
     WHERE u.type_id = k.type_id AND u.key = k.key AND u.id = k.id";

/// Frees unique keys that these jobs hold.
pub(crate) async fn free_all(tx: &Tx<'_>, keys: &[(i32, &str, i64)]) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let types: Vec<i32> = keys.iter().map(|(type_id, ..)| *type_id).collect();
    let texts: Vec<&[u8]> = keys.iter().map(|(_, key, _)| key.as_bytes()).collect();
    let ids: Vec<i64> = keys.iter().map(|(.., id)| *id).collect();
    tx.execute(FREE, &[&types, &texts, &ids]).await?;
    Ok(())
}

/// Stores the progress of running jobs; one answer for each.
pub(crate) async fn job_progress(
    tx: &mut Tx<'_>,
    progress: &[(LeaseRef, Progress)],
) -> Result<Vec<Settled>> {
    let held = lease::held(tx, progress.iter().map(|(lease, _)| lease)).await?;
    // Of several for one job the last one counts.
    let newest: HashMap<i64, &(LeaseRef, Progress)> = progress
        .iter()
        .enumerate()
        .filter(|(index, _)| held.contains(index))
        .map(|(_, noted)| (noted.0.id.get(), noted))
        .collect();
    let noted = newest.values().map(|(lease, progress)| (lease, progress));
    attempt::put_progress(tx, &noted.collect::<Vec<_>>()).await?;
    let answer = |index| if held.contains(&index) { Settled::Done } else { Settled::Stale };
    Ok((0..progress.len()).map(answer).collect())
}
