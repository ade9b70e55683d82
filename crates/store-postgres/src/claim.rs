//! Claims. A claim writes a lease and not the job's row: a job with a lease is running. It takes
//! the front of `ready`, passing jobs that other transactions have locked, and never waits for
//! them. Its cost depends neither on how many others wait nor on how many there were: it begins at
//! the bounds in `front`.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use futures_util::future::try_join3;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use windlass_core::limit::{BATCH_JOBS_MAX, RATE};
use windlass_core::rate::Spent;
use windlass_core::state::{self, Event};
use windlass_core::store::{Claim, ClaimAnswer, Claimed, Hold, Pick, Rest};
use windlass_core::time::Timestamp;
use windlass_core::{HandlerId, Job, Lease, Payload, TypeKey};

use crate::error::{Failure, Result};
use crate::lease;
use crate::queue::{self, QueueKey};
use crate::row::{self, Stored, part};
use crate::sysid;
use crate::tx::{Tx, values};
use crate::type_row;
use crate::withheld;

/// Expired and damaged jobs that one claim moves out of its way. Bounds the transaction if there
/// are very many.
const SKIPPED_MAX: usize = 1000;
/// Ready jobs that are counted for an estimate of how many are left.
pub(crate) const READY_COUNTED_MAX: i64 = 1000;
/// Of them at least so many are counted by a claim, and more by one of many jobs.
const LEFT_COUNTED_MIN: i64 = 100;
/// `claimed_at` of a type is written at most this often, so that claims rarely write its row.
const CLAIMED_AT_MS: i64 = 1000;

/// Takes the first jobs of a type out of `ready`, and passes those that others have locked. `$1` is
/// the type, `$2` the smallest rank, `$3` how many at most, `$4` now. Ends with the job whose
/// payload brings all of them to `$5` bytes; those that have expired will not be claimed, and do
/// not count. The last column is how many were ready before, up to `$6`.
const FRONT: &str = concat!(
    "WITH locked AS MATERIALIZED (
        SELECT f.*
          FROM (SELECT greatest(rank, $2) AS rank, until,
                       CASE WHEN rank >= $2 THEN run_at ELSE -9223372036854775808 END AS run_at,
                       CASE WHEN rank >= $2 THEN tie ELSE -9223372036854775808 END AS tie,
                       CASE WHEN rank >= $2 THEN id ELSE -9223372036854775808 END AS id
                  FROM segments($1)) AS s
         CROSS JOIN LATERAL (
               SELECT r.ctid AS place, r.rank, r.run_at, r.tie, r.id
                 FROM ready r
                WHERE r.type_id = $1 AND r.rank < s.until
                  AND (r.rank, r.run_at, r.tie, r.id) >= (s.rank, s.run_at, s.tie, s.id)
                ORDER BY r.rank, r.run_at, r.tie, r.id LIMIT $3
                  FOR UPDATE SKIP LOCKED) AS f
         WHERE s.until > $2
         LIMIT $3
     ), found AS MATERIALIZED (
        SELECT l.*, b.payload,
               coalesce(sum(CASE WHEN b.parts & 2 <> 0 OR b.expires_at <= $4 THEN 0
                                 ELSE b.payload_bytes END)
                        OVER (ORDER BY l.rank, l.run_at, l.tie, l.id
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
          FROM locked l LEFT JOIN job b ON b.id = l.id
     ), gone AS (
        DELETE FROM ready
         WHERE ctid = ANY (ARRAY(SELECT place FROM found WHERE before < $5::int8))
     )
     SELECT ",
    row::columns!(),
    ", r.rank, r.run_at, r.tie, r.id, r.payload,
            (SELECT count(*)
               FROM (SELECT FROM segments($1) s
                      CROSS JOIN LATERAL (
                            SELECT FROM ready r
                             WHERE r.type_id = $1 AND r.rank < s.until
                               AND (r.rank, r.run_at, r.tie, r.id)
                                   >= (s.rank, s.run_at, s.tie, s.id)
                             ORDER BY r.rank, r.run_at, r.tie, r.id LIMIT $6) AS each
                      LIMIT $6) AS counted)
       FROM found r LEFT JOIN job_now j ON j.id = r.id
      WHERE r.before < $5::int8
      ORDER BY r.rank, r.run_at, r.tie, r.id"
);

/// `None` if no requested job is ready, but some may be among the due jobs that are not promoted
/// yet, or behind those that were skipped: then `write_when_ready` tries again.
pub(crate) async fn job_claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<Option<ClaimAnswer>> {
    let keys: Vec<_> = claim.picks.iter().map(|pick| pick.key.clone()).collect();
    let (owner, token) = (claim.owner, claim.token);
    // None of these waits for the answer to another.
    let (due, beat, (type_ids, mut types)) =
        try_join3(queue::is_any_due(tx), beat_until(tx, claim), named(tx, &keys)).await?;
    let more_due = due && queue::promote(tx).await?;
    if due {
        // Before types are closed below.
        tx.announce().await?;
    }
    if types.values().any(|of_type| of_type.limited) {
        types = claimable(tx, &type_ids).await?;
    }
    let (lease, boot) = match claim.hold {
        Hold::For(hold) => {
            (Lease { owner, token, expires_at: tx.now + hold, on_beat: false }, None)
        }
        Hold::Beat(boot) => (Lease { owner, token, expires_at: beat, on_beat: true }, Some(boot)),
    };
    let mut claiming = Claiming {
        lease,
        claimed: Vec::new(),
        picked: Vec::new(),
        bytes_left: claim.payload_bytes_max,
        skips_left: SKIPPED_MAX,
    };
    let mut rests = Vec::new();
    for (pick, type_id) in claim.picks.iter().zip(&type_ids) {
        if claiming.bytes_left == 0 {
            break;
        }
        let of_type = type_id.and_then(|id| types.get_mut(&id)).filter(|t| !t.suspended);
        if let Some(of_type) = of_type {
            let before = claiming.claimed.len();
            claiming.pick(tx, pick, of_type).await?;
            rests.extend(of_type.rest(&pick.key, claiming.claimed.len() - before, tx.now));
        }
    }
    note_spent(tx, &types).await?;
    claiming.note_left(tx, &types).await?;
    let Claiming { claimed, skips_left, .. } = claiming;
    lease::add_all(tx, &lease, boot, claimed.iter().map(|(claimed, id)| (&claimed.job, *id)))
        .await?;
    let claimed: Vec<Claimed> = claimed.into_iter().map(|(claimed, _)| claimed).collect();
    note_claimed(tx, &types).await?;
    let more_behind = skips_left == 0 || (more_due && is_any_deferred(tx, &types).await?);
    let answers = !claimed.is_empty() || !more_behind;
    Ok(answers.then_some(ClaimAnswer { jobs: claimed, rests }))
}

/// Until when the beat of the claim lasts; checks that it is the caller's.
async fn beat_until(tx: &Tx<'_>, claim: &Claim) -> Result<Timestamp> {
    match claim.hold {
        Hold::For(_) => Ok(tx.now),
        Hold::Beat(boot) => sysid::beat_until(tx, claim.owner, boot).await,
    }
}

/// What a claim needs to know about a type.
pub(crate) struct Claimable {
    pub(crate) type_id: i32,
    pub(crate) suspended: bool,
    handler: Option<HandlerId>,
    claimed_at: Option<i64>,
    /// Whether it has a `concurrency` or a `rate`.
    limited: bool,
    /// How many more of its jobs may run.
    pub(crate) room: u64,
    /// Its `rate`, and what has been spent of it.
    pub(crate) rate: Option<(f64, Spent)>,
    /// How many of its jobs this claim started.
    started: usize,
}

impl Claimable {
    /// How many more of its jobs may start now.
    pub(crate) fn starts_left(&self, now: Timestamp) -> u32 {
        self.rate.map_or(u32::MAX, |(rate, spent)| spent.left(rate, now))
    }

    /// Its rest after a claim that started so many of its jobs, if its rate is used up.
    pub(crate) fn rest(&self, key: &TypeKey, started: usize, now: Timestamp) -> Option<Rest> {
        Rest::of(key, self.rate?, started as u32, now)
    }

    /// So many of its jobs have started; `note_spent` writes it down.
    pub(crate) fn spend(&mut self, jobs: usize, now: Timestamp) {
        self.started += jobs;
        if let Some((rate, spent)) = &mut self.rate {
            *spent = spent.after(jobs as u32, *rate, now);
        }
    }
}

const CLAIMABLE: &str = "
    SELECT t.id, t.suspended, t.handler_id, t.claimed_at, t.running_max,
           CASE WHEN t.running_max IS NULL THEN 0
                ELSE (SELECT count(*) FROM lease l WHERE l.type_id = t.id) END,
           t.rate, t.spent
      FROM type t WHERE t.id = ANY ($1)";
/// The same without the leases of types with a limit: these are counted under a lock.
const NAMED: &str = "
    SELECT t.id, t.suspended, t.handler_id, t.claimed_at, t.running_max, 0::int8, t.rate, t.spent,
           t.tenant, t.name
      FROM unnest($1::text[], $2::text[]) AS k (tenant, name)
      JOIN type t ON t.tenant = k.tenant AND t.name = k.name";
const LOCK_LIMITED: &str = "
    SELECT id FROM type WHERE id = ANY ($1) AND (running_max IS NOT NULL OR rate IS NOT NULL)
     ORDER BY id FOR NO KEY UPDATE";

/// What a claim needs to know about these types. Those with a limit are locked: no other claim
/// counts or starts their jobs before this transaction ends.
pub(crate) async fn claimable(
    tx: &Tx<'_>,
    type_ids: &[Option<i32>],
) -> Result<HashMap<i32, Claimable>> {
    let ids: Vec<i32> =
        type_ids.iter().flatten().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let types = read_claimable(tx, &ids).await?;
    if types.values().any(|of_type| of_type.limited) {
        // This transaction may announce something.
        tx.will_raise().await?;
        tx.execute(LOCK_LIMITED, &[&ids]).await?;
        return read_claimable(tx, &ids).await;
    }
    Ok(types)
}

async fn read_claimable(tx: &Tx<'_>, ids: &[i32]) -> Result<HashMap<i32, Claimable>> {
    tx.query(CLAIMABLE, &[&ids]).await?.iter().map(decode).collect()
}

/// The ids of these types, in the same order, and what a claim needs to know about those that
/// exist.
async fn named(
    tx: &Tx<'_>,
    keys: &[TypeKey],
) -> Result<(Vec<Option<i32>>, HashMap<i32, Claimable>)> {
    let (tenants, names) = type_row::columns(keys);
    let rows = tx.query(NAMED, &[&tenants, &names]).await?;
    let types = rows.iter().map(decode).collect::<Result<_>>()?;
    let id = |row: &Row| Ok((row::type_key(row.try_get(8)?, row.try_get(9)?)?, row.try_get(0)?));
    let ids: HashMap<TypeKey, i32> = rows.iter().map(id).collect::<Result<_>>()?;
    Ok((keys.iter().map(|key| ids.get(key).copied()).collect(), types))
}

fn decode(row: &Row) -> Result<(i32, Claimable)> {
    let (most, running) = (row.try_get::<_, Option<i32>>(4)?, row.try_get::<_, i64>(5)?);
    let (rate, spent) = (row.try_get::<_, Option<f64>>(6)?, Spent(row.try_get(7)?));
    let rate = rate.map(|rate| (RATE.clamp(rate), spent));
    let room = |most: i32| (i64::from(most) - running).max(0) as u64;
    let type_id = row.try_get(0)?;
    let of_type = Claimable {
        type_id,
        suspended: row.try_get(1)?,
        handler: row.try_get::<_, Option<i64>>(2)?.map(row::job_id).transpose()?,
        claimed_at: row.try_get(3)?,
        limited: most.is_some() || rate.is_some(),
        room: most.map_or(u64::MAX, room),
        rate,
        started: 0,
    };
    Ok((type_id, of_type))
}

/// Turns jobs of the queue into claimed ones.
struct Claiming {
    lease: Lease,
    /// Each with the id of its type.
    claimed: Vec<(Claimed, i32)>,
    /// The types that were asked for.
    picked: Vec<Picked>,
    /// Payloads that still fit.
    bytes_left: u64,
    /// Jobs that may still be skipped.
    skips_left: usize,
}

/// What a pick found.
struct Picked {
    type_id: i32,
    /// How many jobs were claimed before and after it.
    before: usize,
    after: usize,
    /// Ready jobs that it left.
    ready: u64,
}

impl Claiming {
    async fn pick(&mut self, tx: &mut Tx<'_>, pick: &Pick, of_type: &mut Claimable) -> Result<()> {
        let before = self.claimed.len();
        let starts_left = of_type.starts_left(tx.now);
        if starts_left == 0 {
            // It is open all the same.
            return Ok(());
        }
        let limit = (pick.limit.min(starts_left) as usize).min(BATCH_JOBS_MAX - before);
        let full = before + limit.min(usize::try_from(of_type.room).unwrap_or(usize::MAX));
        let mut ready = 0;
        if let Some(floor) = pick.floor {
            let full = full.min(before + 1);
            ready = self.take(tx, of_type, row::rank(floor, 0), full, ready).await?;
        }
        ready = self.take(tx, of_type, 0, full, ready).await?;
        let started = self.claimed.len() - before;
        of_type.spend(started, tx.now);
        of_type.room -= if of_type.room == u64::MAX { 0 } else { started as u64 };
        let (type_id, after) = (of_type.type_id, self.claimed.len());
        self.picked.push(Picked { type_id, before, after, ready });
        Ok(())
    }

    /// Claims ready jobs of a type in order, beginning at this rank, until `full` are claimed in
    /// all. Those that are met on the way and must not be claimed are withheld. Returns how many
    /// are left, or `ready` if it did not look.
    async fn take(
        &mut self,
        tx: &mut Tx<'_>,
        of_type: &Claimable,
        rank_min: i32,
        full: usize,
        mut ready: u64,
    ) -> Result<u64> {
        let type_id = of_type.type_id;
        while self.claimed.len() < full && self.bytes_left > 0 && self.skips_left > 0 {
            let wanted = (full - self.claimed.len()).min(self.skips_left);
            let limit = wanted as i64;
            let bytes = i64::try_from(self.bytes_left).unwrap_or(i64::MAX);
            let counted = limit + (4 * limit).clamp(LEFT_COUNTED_MIN, READY_COUNTED_MAX);
            let values: [&(dyn ToSql + Sync); 6] =
                [&type_id, &rank_min, &limit, &tx.now.ms(), &bytes, &counted];
            let rows = tx.query(FRONT, &values).await?;
            let mut skipped = Vec::new();
            ready = 0;
            for found in &rows {
                let key = front_key(type_id, found)?;
                tx.passed(key);
                ready = found.try_get::<_, i64>(found.len() - 1)? as u64;
                match row::unless_damaged(key.id, self.start(tx.now, found, of_type))?.flatten() {
                    Some(started) => {
                        let bytes = started.payload.inline_len();
                        self.bytes_left = self.bytes_left.saturating_sub(bytes);
                        self.claimed.push((started, type_id));
                    }
                    None => {
                        self.skips_left -= 1;
                        skipped.push(key.id);
                    }
                }
            }
            ready = ready.saturating_sub(rows.len() as u64);
            withheld::add(tx, type_id, &skipped).await?;
            if rows.len() < wanted {
                break;
            }
        }
        Ok(ready)
    }

    /// `None` if the job has expired.
    fn start(&self, now: Timestamp, found: &Row, of_type: &Claimable) -> Result<Option<Claimed>> {
        if found.try_get::<_, Option<i64>>(0)?.is_none() {
            return Err(Failure::corrupt("a job is ready but has no row"));
        }
        let Stored { job, token, parts, .. } = row::stored(found)?;
        if job.expires_at.is_some_and(|at| at <= now) {
            return Ok(None);
        }
        let Some(state) = state::next(job.state, Event::Claim) else {
            return Err(Failure::corrupt(format!("job {} is ready and {}", job.id, job.state)));
        };
        if token > Some(self.lease.token) {
            return Err(Failure::LargerToken(job.id));
        }
        let payload = match parts & part::PIECES {
            0 => {
                let payload: Option<&[u8]> = found.try_get(found.len() - 2)?;
                Payload::Inline(Bytes::copy_from_slice(payload.unwrap_or_default()))
            }
            _ => Payload::Pieces { bytes: job.payload_bytes },
        };
        let (attempt, started_at) = (job.attempt + 1, Some(now));
        let mut job = Job { state, attempt, started_at, lease: Some(self.lease), ..job };
        job.extra.lent = false;
        Ok(Some(Claimed { job, payload, handler: of_type.handler, left: 0 }))
    }

    /// Says in each claimed job how many more a claim would get, and closes types that have none.
    async fn note_left(&mut self, tx: &mut Tx<'_>, types: &HashMap<i32, Claimable>) -> Result<()> {
        let mut answered_none = BTreeSet::new();
        for &Picked { type_id, before, after, ready } in &self.picked {
            let room = types[&type_id].room;
            let left = ready.min(room).min(READY_COUNTED_MAX as u64);
            self.claimed[before..after].iter_mut().for_each(|(claimed, _)| claimed.left = left);
            // Another transaction opens a type whose limit keeps jobs back.
            if (left == 0 || before == after) && room > 0 {
                answered_none.insert(type_id);
            }
        }
        if !answered_none.is_empty() {
            let answered_none: Vec<i32> = answered_none.into_iter().collect();
            tx.later("SELECT close_empty($1)", values![answered_none]).await?;
        }
        Ok(())
    }
}

fn front_key(type_id: i32, found: &Row) -> Result<QueueKey> {
    let first = found.len() - 6;
    let (rank, run_at) = (found.try_get(first)?, Timestamp(found.try_get(first + 1)?));
    let (tie, id) = (found.try_get(first + 2)?, found.try_get(first + 3)?);
    Ok(QueueKey { type_id, rank, run_at, tie, id })
}

const NOTE_CLAIMED: &str = "
    UPDATE type t SET claimed_at = greatest(t.claimed_at, $2)
      FROM (SELECT id FROM type WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE) AS locked
     WHERE t.id = locked.id";

/// Notes the types of which jobs were claimed, unless that was done a moment ago.
async fn note_claimed(tx: &mut Tx<'_>, types: &HashMap<i32, Claimable>) -> Result<()> {
    let now = tx.now.ms();
    let is_old = |of_type: &&Claimable| {
        of_type.started > 0 && of_type.claimed_at.is_none_or(|at| at + CLAIMED_AT_MS <= now)
    };
    let old = types.values().filter(is_old).map(|of_type| of_type.type_id).collect();
    note_asked(tx, &old).await
}

const NOTE_SPENT: &str = "
    UPDATE type t SET spent = k.spent FROM unnest($1::int4[], $2::int8[]) AS k (id, spent)
     WHERE t.id = k.id";

/// Writes down what the started jobs have spent of the rates of their types, which are locked.
pub(crate) async fn note_spent(tx: &mut Tx<'_>, types: &HashMap<i32, Claimable>) -> Result<()> {
    let spent = |of_type: &Claimable| Some((of_type.type_id, of_type.rate?.1.0));
    let started = types.values().filter(|of_type| of_type.started > 0);
    let (ids, spent): (Vec<i32>, Vec<i64>) = started.filter_map(spent).unzip();
    if !ids.is_empty() {
        tx.later(NOTE_SPENT, values![ids, spent]).await?;
    }
    Ok(())
}

/// A daemon or worker asked for jobs of these types, so they are not unhandled.
pub(crate) async fn note_asked(tx: &mut Tx<'_>, type_ids: &BTreeSet<i32>) -> Result<()> {
    if !type_ids.is_empty() {
        let type_ids: Vec<i32> = type_ids.iter().copied().collect();
        let now = tx.now.ms();
        tx.later(NOTE_CLAIMED, values![type_ids, now]).await?;
    }
    Ok(())
}

/// Whether a type that jobs can be claimed of has deferred ones.
async fn is_any_deferred(tx: &Tx<'_>, types: &HashMap<i32, Claimable>) -> Result<bool> {
    let ids = types.values().filter(|t| !t.suspended && t.room > 0).map(|t| t.type_id);
    let ids: Vec<i32> = ids.collect();
    let find = "SELECT FROM deferred WHERE type_id = ANY ($1) AND run_at <= $2 LIMIT 1";
    Ok(tx.query_opt(find, &[&ids, &tx.now.ms()]).await?.is_some())
}
