//! Takes: hands out due jobs by name; a decision says what becomes of each.

use std::collections::BTreeMap;

use rusqlite::Connection;
use windlass_core::edit::{FullJob, Take, TakeAnswer, TakeRoom, TakenJob};
use windlass_core::limit::CHILDREN_SHOWN_MAX;
use windlass_core::store::Rest;
use windlass_core::{Job, JobId, Payload, State};

use crate::claim;
use crate::edit;
use crate::error::{Failure, Result};
use crate::family;
use crate::put;
use crate::queue;
use crate::row::{self, Stored};
use crate::search::{Found, Search};
use crate::tx::Tx;
use crate::withheld;

/// `None` if no requested job is ready, but some may be among the due jobs that are not promoted
/// yet, or behind damaged or expired ones: then `write_when_ready` tries again.
pub(crate) fn job_take(tx: &mut Tx<'_>, take: &Take) -> Result<Option<TakeAnswer>> {
    let more_due = queue::promote(tx)?;
    // The search reads counters and fronts from the rows of types.
    tx.apply_counts()?;
    let now = tx.now;
    let Found { wanted, expired, full, rests, next } = Search::new(tx, take)?.run()?;
    let any_expired = !expired.is_empty();
    for key in expired {
        queue::remove(tx, key)?;
        withheld::add(tx, key.type_id, key.id)?;
    }
    if wanted.is_empty() && (more_due || any_expired) {
        return Ok(None);
    }
    let (mut took, mut any_damaged) = (TakeAnswer { full, next, ..TakeAnswer::default() }, false);
    let mut room = TakeRoom::of(take);
    let mut given: BTreeMap<i64, usize> = BTreeMap::new();
    for (id, type_id) in wanted {
        tx.asked(type_id, now);
        match row::unless_damaged(id, Candidate::read(tx.conn, id, take.payload_bytes_max))? {
            Some(candidate) if !room.has_place(candidate.payloads()) => {
                took.oversized = took.given.is_empty() && took.kept == 0;
                break;
            }
            Some(candidate) => {
                if take_one(tx, candidate, take, &mut took)? {
                    *given.entry(type_id).or_default() += 1;
                }
            }
            None => {
                any_damaged = true;
                queue::remove_damaged(tx, type_id, id)?;
                withheld::add(tx, type_id, id)?;
            }
        }
    }
    // There may be others behind the damaged ones.
    if any_damaged && took.given.is_empty() && took.kept == 0 && !took.oversized {
        return Ok(None);
    }
    took.moved.tidy();
    took.rests = match took.given.is_empty() && took.kept == 0 {
        true => rests,
        false => spend(tx, given)?,
    };
    took.rests.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(Some(took))
}

/// So many jobs of these types have started. Returns the types that rest now.
fn spend(tx: &mut Tx<'_>, given: BTreeMap<i64, usize>) -> Result<Vec<Rest>> {
    let mut rests = Vec::new();
    for (type_id, jobs) in given {
        let Some(of_type) = claim::unless_suspended(tx.conn, type_id)? else { continue };
        if of_type.rate.is_some() {
            let key = tx.types.key(tx.conn, type_id)?;
            rests.extend(claim::spend(tx, type_id, &key, of_type.rate, jobs)?);
        }
    }
    Ok(rests)
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
    fn read(conn: &Connection, id: i64, mut children_bytes: u64) -> Result<Candidate> {
        let missing = || Failure::corrupt(format!("job {id} is ready but has no row"));
        let stored = row::find(conn, id)?.ok_or_else(missing)?;
        let before = edit::full_job(conn, &stored)?;
        let parent = family::parent(conn, &stored.job)?;
        let parent = parent.map(|parent| edit::full_job(conn, &parent)).transpose()?;
        let mut ended = |state| ended_children(conn, &stored.job, state, &mut children_bytes);
        let (finished, cancelled) = (ended(State::Finished)?, ended(State::Cancelled)?);
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
fn take_one(
    tx: &mut Tx<'_>,
    candidate: Candidate,
    take: &Take,
    took: &mut TakeAnswer,
) -> Result<bool> {
    let Candidate { stored, before, parent, finished, cancelled } = candidate;
    let decision = take.decision(&before, tx.now)?;
    let job = put::put(tx, &stored, &decision.put, &mut took.moved)?;
    if decision.give {
        let payload = decision.put.payload;
        took.given.push(TakenJob { before, job, payload, parent, finished, cancelled });
    } else {
        took.kept += 1;
    }
    Ok(decision.give)
}

pub(crate) const ENDED_CHILDREN: &str = "
    SELECT j.payload_bytes, j.parts, j.payload, a.id
      FROM aside a CROSS JOIN job j ON j.id = a.id
     WHERE a.parent_id = ?1 AND a.state = ?2 ORDER BY a.id LIMIT ?3";

/// Reads the payloads that fit into `bytes_left`.
fn ended_children(
    conn: &Connection,
    job: &Job,
    state: State,
    bytes_left: &mut u64,
) -> Result<Vec<(JobId, Payload)>> {
    let mut children = Vec::new();
    if !job.children {
        return Ok(children);
    }
    let mut find = conn.prepare_cached(ENDED_CHILDREN)?;
    let values = [job.id.get(), row::state_number(state), CHILDREN_SHOWN_MAX as i64];
    let mut rows = find.query(values)?;
    while let Some(row) = rows.next()? {
        let (id, bytes) = (row.get(3)?, row.get::<_, i64>(0)? as u64);
        let payload = match bytes <= *bytes_left {
            true => {
                edit::in_one(conn, row::job_id(id)?, claim::payload(conn, id, row, [0, 1, 2])?)?
            }
            false => Payload::Pieces { bytes },
        };
        *bytes_left = bytes_left.saturating_sub(payload.inline_len());
        children.push((row::job_id(id)?, payload));
    }
    Ok(children)
}
