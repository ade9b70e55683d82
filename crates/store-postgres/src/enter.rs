//! New jobs: their rows, and everything that comes with them. A batch of jobs takes a fixed number
//! of statements, whatever its size; unique keys, parents, pieces and rare fields add some.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use windlass_core::name::{TypeKey, TypeName};
use windlass_core::store::Inserted;
use windlass_core::time::Timestamp;
use windlass_core::{JobId, NewJob, Payload, State};

use crate::error::{Failure, Result};
use crate::extra;
use crate::queue::{self, QueueKey};
use crate::row::{self, part};
use crate::tx::Tx;

const ENTER: &str = include_str!("../sql/enter.sql");

/// Inserts jobs, in order; one answer for each. Those with a parent have begun as it lets them.
pub(crate) async fn enter(tx: &mut Tx<'_>, jobs: &[NewJob]) -> Result<Vec<Inserted>> {
    let types = known_types(tx, jobs).await?;
    enter_known(tx, jobs, types).await
}

/// The same, with the ids of the types that existed a moment ago.
pub(crate) async fn enter_known(
    tx: &mut Tx<'_>,
    jobs: &[NewJob],
    types: HashMap<TypeKey, i32>,
) -> Result<Vec<Inserted>> {
    let mut answers = Vec::with_capacity(jobs.len());
    for distinct in distinct(jobs) {
        answers.extend(enter_distinct(tx, distinct, types.clone()).await?);
    }
    Ok(answers)
}

async fn enter_distinct(
    tx: &mut Tx<'_>,
    jobs: &[NewJob],
    types: HashMap<TypeKey, i32>,
) -> Result<Vec<Inserted>> {
    let mut answers = vec![Inserted::New; jobs.len()];
    let types = complete(tx, jobs, types, &mut answers).await?;
    hold(tx, jobs, &types, &mut answers).await?;
    let new: Vec<(&NewJob, i32)> = jobs
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| **answer == Inserted::New)
        .map(|(job, _)| (job, types[&job.key]))
        .collect();
    let entered = put(tx, &new).await?;
    for (job, answer) in jobs.iter().zip(&mut answers) {
        if *answer == Inserted::New && !entered.contains(&job.id.get()) {
            // Another transaction inserted it at the same time; its key must not be held twice.
            if job.unique.is_some() {
                return Err(Failure::Moved);
            }
            *answer = Inserted::Duplicate;
        }
    }
    let new: Vec<(&NewJob, i32)> =
        new.into_iter().filter(|(job, _)| entered.contains(&job.id.get())).collect();
    put_beside(tx, &new).await?;
    let now = tx.now;
    let queued = new.iter().filter(|(job, _)| !job.paused);
    let keys = queued.map(|(job, type_id)| (queue_key(job, *type_id), job.is_due(now)));
    queue::add_all(tx, keys.collect::<Vec<_>>()).await?;
    Ok(answers)
}

/// Inserts jobs whose inline payloads may be too large for a row, and then become pieces.
pub(crate) async fn enter_split(tx: &mut Tx<'_>, mut jobs: Vec<NewJob>) -> Result<Vec<Inserted>> {
    let pieces: Vec<Vec<Bytes>> = jobs.iter_mut().map(NewJob::split_payload).collect();
    let answers = enter(tx, &jobs).await?;
    for ((job, pieces), answer) in jobs.iter().zip(pieces).zip(&answers) {
        if *answer == Inserted::New {
            put_pieces(tx, job.id, &pieces).await?;
        }
    }
    Ok(answers)
}

fn queue_key(job: &NewJob, type_id: i32) -> QueueKey {
    let rank = row::rank(job.priority, extra::parts(&job.extra));
    QueueKey { type_id, rank, run_at: job.run_at, tie: job.extra.tie(), id: job.id.get() }
}

/// Splits jobs before each id that comes again, which is rare: whether that one is a duplicate
/// depends on whether the first has entered.
fn distinct(jobs: &[NewJob]) -> Vec<&[NewJob]> {
    let (mut parts, mut ids, mut from) = (Vec::new(), HashSet::new(), 0);
    for (index, job) in jobs.iter().enumerate() {
        if !ids.insert(job.id) {
            parts.push(&jobs[from..index]);
            (from, ids) = (index, HashSet::from([job.id]));
        }
    }
    parts.push(&jobs[from..]);
    parts
}

/// The ids of those of the jobs' types that exist.
pub(crate) async fn known_types(tx: &Tx<'_>, jobs: &[NewJob]) -> Result<HashMap<TypeKey, i32>> {
    let keys: Vec<TypeKey> =
        jobs.iter().map(|job| &job.key).collect::<BTreeSet<_>>().into_iter().cloned().collect();
    let ids = tx.type_ids(&keys).await?;
    Ok(keys.into_iter().zip(ids).filter_map(|(key, id)| Some((key, id?))).collect())
}

/// Adds the types that are missing. Only jobs that are new add a type. Those with a unique key are
/// checked too: one of them may itself be the holder of its key.
async fn complete(
    tx: &mut Tx<'_>,
    jobs: &[NewJob],
    mut types: HashMap<TypeKey, i32>,
    answers: &mut [Inserted],
) -> Result<HashMap<TypeKey, i32>> {
    let unsure = |job: &&NewJob| job.unique.is_some() || !types.contains_key(&job.key);
    let unsure: Vec<i64> = jobs.iter().filter(unsure).map(|job| job.id.get()).collect();
    if unsure.is_empty() {
        return Ok(types);
    }
    let known = existing(tx, &unsure).await?;
    for (job, answer) in jobs.iter().zip(answers.iter_mut()) {
        if known.contains(&job.id.get()) {
            *answer = Inserted::Duplicate;
        }
    }
    let new = jobs.iter().zip(answers.iter()).filter(|(_, answer)| **answer == Inserted::New);
    let missing: BTreeSet<&TypeKey> =
        new.map(|(job, _)| &job.key).filter(|key| !types.contains_key(*key)).collect();
    let missing: Vec<TypeKey> = missing.into_iter().cloned().collect();
    let added = tx.ensure_types(&missing).await?;
    types.extend(missing.into_iter().zip(added));
    Ok(types)
}

/// Those of these ids that exist.
pub(crate) async fn existing(tx: &Tx<'_>, ids: &[i64]) -> Result<HashSet<i64>> {
    let rows = tx.query("SELECT id FROM job WHERE id = ANY ($1)", &[&ids]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

const HOLD: &str = "
    INSERT INTO unique_key (type_id, key, id)
    SELECT * FROM unnest($1::int4[], $2::bytea[], $3::int8[]) AS k (type_id, key, id)
     ORDER BY k.type_id, k.key
    ON CONFLICT (type_id, key) DO NOTHING RETURNING id";
const HOLDERS: &str = "
    SELECT u.type_id, u.key, u.id
      FROM unnest($1::int4[], $2::bytea[]) AS k (type_id, key)
      JOIN unique_key u ON u.type_id = k.type_id AND u.key = k.key";

/// Takes the unique keys of new jobs, the first job of each key. Jobs whose key is held do not
/// enter, and their pieces are removed.
async fn hold(
    tx: &mut Tx<'_>,
    jobs: &[NewJob],
    types: &HashMap<TypeKey, i32>,
    answers: &mut [Inserted],
) -> Result<()> {
    let mut wanted: BTreeMap<(i32, &[u8]), JobId> = BTreeMap::new();
    let mut keyed = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        if let (Some(unique), Inserted::New) = (&job.unique, answers[index]) {
            let key = (types[&job.key], unique.as_bytes());
            wanted.entry(key).or_insert(job.id);
            keyed.push((index, key));
        }
    }
    if keyed.is_empty() {
        return Ok(());
    }
    let (type_ids, keys): (Vec<i32>, Vec<&[u8]>) = wanted.keys().copied().unzip();
    let ids: Vec<i64> = wanted.values().map(|id| id.get()).collect();
    tx.execute(HOLD, &[&type_ids, &keys, &ids]).await?;
    let mut holders: HashMap<(i32, Vec<u8>), JobId> = HashMap::new();
    for row in tx.query(HOLDERS, &[&type_ids, &keys]).await? {
        holders.insert((row.try_get(0)?, row.try_get(1)?), row::job_id(row.try_get(2)?)?);
    }
    let mut held = Vec::new();
    for (index, (type_id, key)) in keyed {
        // A key without a holder was freed between the two statements.
        let holder = holders.get(&(type_id, key.to_vec())).ok_or(Failure::Moved)?;
        if *holder != jobs[index].id {
            answers[index] = Inserted::Held(*holder);
            held.push(jobs[index].id.get());
        }
    }
    remove_pieces(tx, &held).await
}

/// Inserts the rows; returns the ids of those that did not exist.
async fn put(tx: &Tx<'_>, new: &[(&NewJob, i32)]) -> Result<HashSet<i64>> {
    if new.is_empty() {
        return Ok(HashSet::new());
    }
    let of = |field: fn(&NewJob) -> i64| new.iter().map(|(job, _)| field(job)).collect::<Vec<_>>();
    let maybe = |field: fn(&NewJob) -> Option<i64>| {
        new.iter().map(|(job, _)| field(job)).collect::<Vec<Option<i64>>>()
    };
    let types: Vec<i32> = new.iter().map(|(_, type_id)| *type_id).collect();
    let parts: Vec<i32> = new.iter().map(|(job, _)| parts(job)).collect();
    let states: Vec<i16> = new.iter().map(|(job, _)| row::state_number(state(job))).collect();
    let priorities: Vec<i16> = new.iter().map(|(job, _)| job.priority.get() as i16).collect();
    let unique: Vec<Option<&[u8]>> =
        new.iter().map(|(job, _)| job.unique.as_deref().map(str::as_bytes)).collect();
    let then: Vec<Option<&str>> =
        new.iter().map(|(job, _)| job.then.as_ref().map(TypeName::as_str)).collect();
    let payloads: Vec<Option<&[u8]>> = new.iter().map(|(job, _)| inline(&job.payload)).collect();
    let rows = tx
        .query(
            ENTER,
            &[
                &of(|job| job.id.get()),
                &types,
                &states,
                &priorities,
                &of(|job| job.run_at.ms()),
                &of(|job| job.due_at().ms()),
                &of(|job| job.created_at.ms()),
                &maybe(|job| job.expires_at.map(Timestamp::ms)),
                &maybe(|job| job.timeout.map(row::duration_ms)),
                &maybe(|job| job.parent.map(JobId::get)),
                &parts,
                &of(|job| job.payload.len() as i64),
                &unique,
                &then,
                &payloads,
            ],
        )
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

fn state(job: &NewJob) -> State {
    if job.paused { State::Paused } else { State::Queued }
}

fn parts(job: &NewJob) -> i32 {
    let pieces = if job.payload.is_in_pieces() { part::PIECES } else { 0 };
    pieces | extra::parts(&job.extra)
}

/// What a row has of a payload.
pub(crate) fn inline(payload: &Payload) -> Option<&[u8]> {
    match payload {
        Payload::Inline(bytes) => Some(bytes),
        Payload::Pieces { .. } => None,
    }
}

/// What new jobs have outside their rows.
async fn put_beside(tx: &Tx<'_>, new: &[(&NewJob, i32)]) -> Result<()> {
    let in_pieces = new.iter().filter(|(job, _)| job.payload.is_in_pieces());
    let in_pieces: Vec<i64> = in_pieces.map(|(job, _)| job.id.get()).collect();
    if !in_pieces.is_empty() {
        tx.execute("DELETE FROM piece_waiting WHERE id = ANY ($1)", &[&in_pieces]).await?;
    }
    for (job, _) in new {
        extra::write(tx, job.id.get(), &job.extra, 0).await?;
    }
    let parents: BTreeSet<(i64, &str)> = new
        .iter()
        .filter_map(|(job, _)| Some((job.parent?.get(), job.key.tenant.as_str())))
        .collect();
    for (parent, tenant) in parents {
        mark_parent(tx, tenant, parent).await?;
    }
    Ok(())
}

const MARK_PARENT: &str = "
    UPDATE job j SET parts = j.parts | 32 FROM type t
     WHERE j.id = $1 AND j.parts & 32 = 0 AND t.id = j.type_id AND t.tenant = $2";

/// Records that a job has children. The caller has locked it.
pub(crate) async fn mark_parent(tx: &Tx<'_>, tenant: &str, parent: i64) -> Result<()> {
    tx.execute(MARK_PARENT, &[&parent, &tenant]).await?;
    Ok(())
}

const PUT_PIECES: &str = "
    INSERT INTO piece (id, position, data)
    SELECT * FROM unnest($1::int8[], $2::int4[], $3::bytea[])
    ON CONFLICT (id, position) DO UPDATE SET data = excluded.data";

pub(crate) async fn put_pieces(tx: &Tx<'_>, id: JobId, pieces: &[Bytes]) -> Result<()> {
    if pieces.is_empty() {
        return Ok(());
    }
    let ids = vec![id.get(); pieces.len()];
    let places: Vec<i32> = (0..).take(pieces.len()).collect();
    let data: Vec<&[u8]> = pieces.iter().map(Bytes::as_ref).collect();
    tx.execute(PUT_PIECES, &[&ids, &places, &data]).await?;
    Ok(())
}

/// Removes the pieces of payloads of these ids.
pub(crate) async fn remove_pieces(tx: &Tx<'_>, ids: &[i64]) -> Result<()> {
    if !ids.is_empty() {
        tx.execute("DELETE FROM piece WHERE id = ANY ($1)", &[&ids]).await?;
        tx.execute("DELETE FROM piece_waiting WHERE id = ANY ($1)", &[&ids]).await?;
    }
    Ok(())
}
