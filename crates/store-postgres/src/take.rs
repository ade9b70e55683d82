//! Takes: hands out due jobs by name; a decision says what becomes of each.

use std::collections::{BTreeMap, HashSet};

use tokio_postgres::types::ToSql;
use windlass_core::edit::{FullJob, Take, TakeAnswer, TakeRoom, TakenJob};
use windlass_core::limit::CHILDREN_SHOWN_MAX;
use windlass_core::{Job, JobId, Payload, State, TypeKey};

use crate::claim;
use crate::edit;
use crate::error::{Failure, Result};
use crate::family;
use crate::put;
use crate::queue::{self, QueueKey};
use crate::read;
use crate::row::{self, Stored};
use crate::search::{self, Found};
use crate::tx::Tx;
use crate::withheld;

/// `None` if no requested job is ready, but some may be among the due jobs that are not promoted
/// yet, or behind damaged or expired ones: then `write_when_ready` tries again.
pub(crate) async fn job_take(tx: &mut Tx<'_>, take: &Take) -> Result<Option<TakeAnswer>> {
    let more_due = queue::promote_if_due(tx).await?;
    // Only open types are searched.
    tx.announce().await?;
    let Found { wanted, any_expired, full, mut types, rests, next } =
        search::search(tx, take).await?;
    if wanted.is_empty() && (more_due || any_expired) {
        return Ok(None);
    }
    let locked = lock(tx, &wanted, take.limit).await?;
    if locked.is_empty() && !wanted.is_empty() {
        // Others take or change all of them; if they do not, this take must find them.
        return Err(Failure::Moved);
    }
    let (mut took, mut any_damaged) = (TakeAnswer { full, next, ..TakeAnswer::default() }, false);
    let mut room = TakeRoom::of(take);
    // By type: its id, and how many of its jobs.
    let mut given: BTreeMap<TypeKey, (i32, usize)> = BTreeMap::new();
    for key in wanted.iter().filter(|key| locked.contains(&key.id)) {
        let candidate = Candidate::read(tx, key.id, take.payload_bytes_max).await;
        match row::unless_damaged(key.id, candidate)? {
            Some(candidate) if !room.has_place(candidate.payloads()) => {
                took.oversized = took.given.is_empty() && took.kept == 0;
                break;
            }
            Some(candidate) => {
                let type_key = candidate.before.job.key.clone();
                if take_one(tx, candidate, take, &mut took).await? {
                    given.entry(type_key).or_insert((key.type_id, 0)).1 += 1;
                }
            }
            None => {
                any_damaged = true;
                queue::remove(tx, *key).await?;
                withheld::add(tx, key.type_id, &[key.id]).await?;
            }
        }
    }
    claim::note_asked(tx, &wanted.iter().map(|key| key.type_id).collect()).await?;
    // There may be others behind the damaged ones.
    if any_damaged && took.given.is_empty() && took.kept == 0 && !took.oversized {
        return Ok(None);
    }
    took.moved.tidy();
    for (type_id, jobs) in given.values() {
        types.entry(*type_id).and_modify(|of_type| of_type.spend(*jobs, tx.now));
    }
    claim::note_spent(tx, &types).await?;
    if !took.given.is_empty() || took.kept > 0 {
        let rest =
            |(key, jobs): (&TypeKey, &(i32, usize))| types[&jobs.0].rest(key, jobs.1, tx.now);
        took.rests = given.iter().filter_map(rest).collect();
    } else {
        took.rests = rests;
        took.rests.sort_by(|one, other| one.key.cmp(&other.key));
    }
    Ok(Some(took))
}

/// The rows are sorted before they are locked, and no more are locked than are asked for.
const LOCK: &str = "
    SELECT k.id FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::int8[], $5::int8[])
                     WITH ORDINALITY AS k (type_id, rank, run_at, tie, id, place)
      JOIN ready r ON r.type_id = k.type_id AND r.rank = k.rank AND r.run_at = k.run_at
                  AND r.tie = k.tie AND r.id = k.id
      JOIN job j ON j.id = k.id
     ORDER BY k.place LIMIT $6
       FOR NO KEY UPDATE OF j SKIP LOCKED FOR UPDATE OF r SKIP LOCKED";

/// Locks the first of these jobs with their places in the queue, and passes those that others have
/// locked: like a claim, a take waits for nobody.
async fn lock(tx: &Tx<'_>, wanted: &[QueueKey], limit: u32) -> Result<HashSet<i64>> {
    let ids: Vec<i64> = wanted.iter().map(|key| key.id).collect();
    let types: Vec<i32> = wanted.iter().map(|key| key.type_id).collect();
    let ranks: Vec<i32> = wanted.iter().map(|key| key.rank).collect();
    let times: Vec<i64> = wanted.iter().map(|key| key.run_at.ms()).collect();
    let ties: Vec<i64> = wanted.iter().map(|key| key.tie).collect();
    let values: [&(dyn ToSql + Sync); 6] = [&types, &ranks, &times, &ties, &ids, &i64::from(limit)];
    Ok(tx.ids(LOCK, &values).await?.into_iter().collect())
}

/// A ready job with all that is shown of it. It is read before anything is changed, so that a
/// damaged one can be set aside.
struct Candidate {
    stored: Stored,
    before: FullJob,
    parent: Option<FullJob>,
    finished: Vec<(JobId, Payload)>,
    cancelled: Vec<(JobId, Payload)>,
}

impl Candidate {
    async fn read(tx: &Tx<'_>, id: i64, mut children_bytes: u64) -> Result<Candidate> {
        let missing = || Failure::corrupt(format!("job {id} is ready but has no row"));
        let stored = row::find(tx, id).await?.ok_or_else(missing)?;
        let before = edit::full_job(tx, &stored).await?;
        let parent = match family::parent(tx, &stored.job).await? {
            Some(parent) => Some(edit::full_job(tx, &parent).await?),
            None => None,
        };
        let bytes = &mut children_bytes;
        let finished = ended_children(tx, &stored.job, State::Finished, bytes).await?;
        let cancelled = ended_children(tx, &stored.job, State::Cancelled, bytes).await?;
        Ok(Candidate { stored, before, parent, finished, cancelled })
    }

    /// All that are in memory.
    fn payloads(&self) -> impl Iterator<Item = &Payload> {
        let jobs = [&self.before].into_iter().chain(&self.parent).map(|full| &full.payload);
        let children = self.finished.iter().chain(&self.cancelled);
        jobs.chain(children.map(|(_, payload)| payload))
    }
}

/// Returns whether the caller gets the job.
async fn take_one(
    tx: &mut Tx<'_>,
    candidate: Candidate,
    take: &Take,
    took: &mut TakeAnswer,
) -> Result<bool> {
    let Candidate { stored, before, parent, finished, cancelled } = candidate;
    let decision = take.decision(&before, tx.now)?;
    let job = put::put(tx, &stored, &decision.put, &mut took.moved).await?;
    if decision.give {
        let payload = decision.put.payload;
        took.given.push(TakenJob { before, job, payload, parent, finished, cancelled });
    } else {
        took.kept += 1;
    }
    Ok(decision.give)
}

/// A payload that does not fit is not read.
const ENDED_CHILDREN: &str = "
    SELECT payload_bytes, parts, CASE WHEN payload_bytes <= $4 THEN payload END, id FROM job
     WHERE parent_id = $1 AND state = $2 ORDER BY id LIMIT $3";

/// Reads the payloads that fit into `bytes_left`.
async fn ended_children(
    tx: &Tx<'_>,
    job: &Job,
    state: State,
    bytes_left: &mut u64,
) -> Result<Vec<(JobId, Payload)>> {
    let mut children = Vec::new();
    if !job.children {
        return Ok(children);
    }
    let (limit, most) = (CHILDREN_SHOWN_MAX as i64, i64::try_from(*bytes_left).unwrap_or(i64::MAX));
    let values: [&(dyn ToSql + Sync); 4] =
        [&job.id.get(), &row::state_number(state), &limit, &most];
    for row in tx.query(ENDED_CHILDREN, &values).await? {
        let (id, bytes) = (row::job_id(row.try_get(3)?)?, row.try_get::<_, i64>(0)? as u64);
        let payload = match bytes <= *bytes_left {
            true => edit::in_one(tx, id, read::payload(id.get(), &row, [0, 1, 2])?).await?,
            false => Payload::Pieces { bytes },
        };
        *bytes_left = bytes_left.saturating_sub(payload.inline_len());
        children.push((id, payload));
    }
    Ok(children)
}
