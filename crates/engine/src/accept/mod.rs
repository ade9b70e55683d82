//! Accept: jobs come in and are durable before anybody is told so.
//!
//! The ordinary way is the journal: one fdatasync for all adds that wait, and nothing else. An add
//! with a `unique` key must ask the store who holds the key, so it goes into the store at once, and
//! so does one with a `parent` (see `child`).

pub(crate) mod arrival;
pub(crate) mod child;
pub(crate) mod idempotency;
pub(crate) mod pieces;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use windlass_core::limit::{
    BATCH_JOBS_MAX, IDEMPOTENCY_TTL, KEY_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX,
};
use windlass_core::runner::Emitted;
use windlass_core::store::{Durability, IdempotencyRecord, Insert, Inserted, Insertion};
use windlass_core::{AddOptions, Invalid, JobId, NewJob, Payload, Tenant, Timestamp, TypeKey};
use windlass_journal::{Body, Entry, Key};

use crate::api::{AddJob, AddPayload, Added, Idempotency};
use crate::error::{Error, storage_error, store_error};
use crate::shared::Shared;

use arrival::{announce_inserted, arrivals};
use idempotency::Found;
use pieces::put_pieces;

/// How long an add with a key waits for the store, first to say whether it knows the key, then to
/// get to know it. After that the add is accepted all the same: accepting does not depend on it.
const KEY_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn add(
    shared: &Shared,
    key: &TypeKey,
    jobs: Vec<AddJob>,
    idempotency: Option<Idempotency>,
) -> Result<Added, Error> {
    check(&jobs)?;
    let Some(idempotency) = idempotency else {
        let ids = add_new(shared, key, jobs, None).await?;
        return Ok(Added { ids, repeated: false });
    };
    if idempotency.key.is_empty() || idempotency.key.len() > KEY_BYTES_MAX {
        return Err(Invalid::new("Idempotency-Key", "a key has 1 to 255 bytes").into());
    }
    let now = shared.now();
    let deciding = match shared.idempotencies.find(&key.tenant, &idempotency.key, now).await {
        Found::Answered(record) => return repeated(&record, &idempotency),
        Found::Mine(deciding) => deciding,
    };
    if let Some(record) = known_to_store(shared, &key.tenant, &idempotency.key, now).await {
        let answer = repeated(&record, &idempotency);
        deciding.answer(record);
        return answer;
    }
    let ids = add_new(shared, key, jobs, Some(&idempotency)).await?;
    // Other daemons know of the key through the store alone.
    if let Some(last) = ids.last() {
        shared.ingested_up_to(*last, KEY_PATIENCE).await;
    }
    deciding.answer(record_of(&key.tenant, &idempotency, ids.clone(), now));
    Ok(Added { ids, repeated: false })
}

/// Adds the jobs that an attempt asked for, in its tenant. An error says that they were not all
/// taken, and the attempt is to be made again.
pub(crate) async fn add_emitted(
    shared: &Shared,
    tenant: &Tenant,
    emitted: Vec<Emitted>,
) -> Result<(), Error> {
    let began = Instant::now();
    let now = shared.now();
    let mut numbers: HashMap<TypeKey, usize> = HashMap::new();
    let mut entries = Vec::with_capacity(emitted.len());
    let (mut unique, mut children) = (Vec::new(), Vec::new());
    for Emitted { name, payload, options } in emitted {
        let key = TypeKey { tenant: tenant.clone(), name };
        *numbers.entry(key.clone()).or_default() += 1;
        if options.unique.is_some() || options.parent.is_some() {
            let id = shared.journal.make_id().map_err(storage_error)?;
            let to = if options.parent.is_some() { &mut children } else { &mut unique };
            to.push(new_job(id, key, Payload::Inline(payload), options, now));
        } else {
            entries.push(entry(key, Body::Inline(payload), options, now));
        }
    }
    // These come first: if the others fail, an attempt that is made again finds its keys held.
    if !unique.is_empty() {
        insert(shared, unique, Vec::new()).await?;
    }
    if !children.is_empty() {
        child::insert(shared, tenant, children, Vec::new()).await?;
    }
    if !entries.is_empty() {
        append(shared, entries, None).await?;
    }
    for (key, jobs) in numbers {
        shared.metrics.accepted(&key, jobs, began.elapsed());
    }
    Ok(())
}

fn check(jobs: &[AddJob]) -> Result<(), Error> {
    if jobs.is_empty() {
        return Err(Invalid::new("jobs", "an add has at least one job").into());
    }
    for job in jobs {
        if matches!(&job.payload, AddPayload::Inline(p) if p.len() > PAYLOAD_INLINE_BYTES_MAX) {
            let reason = "a payload above 1 MiB must be streamed";
            return Err(Invalid::new("payload", reason).into());
        }
        let key_ok = |key: &String| !key.is_empty() && key.len() <= KEY_BYTES_MAX;
        if !job.options.unique.as_ref().is_none_or(key_ok) {
            return Err(Invalid::new("unique", "a unique key has 1 to 255 bytes").into());
        }
    }
    if jobs.iter().any(|job| goes_to_store(&job.options)) && jobs.len() > BATCH_JOBS_MAX {
        let reason =
            format!("an add with unique keys or parents has at most {BATCH_JOBS_MAX} jobs");
        return Err(Invalid::new("jobs", reason).into());
    }
    Ok(())
}

/// Only the store knows who holds a key, and what a parent does.
fn goes_to_store(options: &AddOptions) -> bool {
    options.unique.is_some() || options.parent.is_some()
}

async fn add_new(
    shared: &Shared,
    key: &TypeKey,
    jobs: Vec<AddJob>,
    idempotency: Option<&Idempotency>,
) -> Result<Vec<JobId>, Error> {
    let began = Instant::now();
    let count = jobs.len();
    let ids = if jobs.iter().any(|job| goes_to_store(&job.options)) {
        add_to_store(shared, key, jobs, idempotency).await?
    } else {
        add_to_journal(shared, key, jobs, idempotency).await?
    };
    shared.metrics.accepted(key, count, began.elapsed());
    Ok(ids)
}

async fn add_to_journal(
    shared: &Shared,
    key: &TypeKey,
    jobs: Vec<AddJob>,
    idempotency: Option<&Idempotency>,
) -> Result<Vec<JobId>, Error> {
    let now = shared.now();
    let entries = jobs
        .into_iter()
        .map(|AddJob { payload, options }| {
            let body = match payload {
                AddPayload::Inline(bytes) => Body::Inline(bytes),
                AddPayload::Spooled(spool) => Body::Spooled(spool),
            };
            entry(key.clone(), body, options, now)
        })
        .collect();
    let note = idempotency.map(|idempotency| Key {
        key: idempotency.key.clone(),
        fingerprint: idempotency.fingerprint,
    });
    append(shared, entries, note).await
}

async fn append(
    shared: &Shared,
    entries: Vec<Entry>,
    note: Option<Key>,
) -> Result<Vec<JobId>, Error> {
    let ids = shared.journal.append(entries, note).await.map_err(storage_error)?;
    ids.last().into_iter().for_each(|id| shared.note_appended(*id));
    Ok(ids)
}

fn entry(key: TypeKey, payload: Body, options: AddOptions, now: Timestamp) -> Entry {
    Entry {
        key,
        payload,
        priority: options.priority,
        run_at: options.run_at,
        expires_at: options.expires.map(|after| now + after),
        timeout: options.timeout,
        then: options.then,
        extra: options.extra,
    }
}

/// This add waits for the store.
async fn add_to_store(
    shared: &Shared,
    key: &TypeKey,
    jobs: Vec<AddJob>,
    idempotency: Option<&Idempotency>,
) -> Result<Vec<JobId>, Error> {
    let now = shared.now();
    let (mut new, mut spools) = (Vec::with_capacity(jobs.len()), Vec::new());
    for AddJob { payload, options } in jobs {
        let id = shared.journal.make_id().map_err(storage_error)?;
        let payload = match payload {
            AddPayload::Inline(bytes) => Payload::Inline(bytes),
            AddPayload::Spooled(spool) => {
                let bytes = spool.bytes();
                spools.push((id, spool));
                Payload::Pieces { bytes }
            }
        };
        new.push(new_job(id, key.clone(), payload, options, now));
    }
    if new.iter().any(|job| job.parent.is_some()) {
        let ids = child::insert(shared, &key.tenant, new, spools).await?;
        // Decisions carry no keys. If the daemon dies between the two, a repeated add is a new one.
        if let Some(note) = idempotency {
            let keys = vec![record_of(&key.tenant, note, ids.clone(), now)];
            insert(shared, Vec::new(), keys).await?;
        }
        return Ok(ids);
    }
    for (id, spool) in spools {
        put_pieces(shared.store.as_ref(), id, spool.path()).await?;
    }
    let ids: Vec<JobId> = new.iter().map(|job| job.id).collect();
    let key_record = |note: &Idempotency| record_of(&key.tenant, note, ids.clone(), now);
    let keys = idempotency.map(key_record).into_iter().collect();
    let inserted = insert(shared, new, keys).await?;
    let held_or_new = |(id, inserted): (JobId, &Inserted)| match inserted {
        Inserted::Held(holder) => *holder,
        Inserted::New | Inserted::Duplicate => id,
    };
    Ok(ids.into_iter().zip(&inserted).map(held_or_new).collect())
}

async fn insert(
    shared: &Shared,
    jobs: Vec<NewJob>,
    keys: Vec<IdempotencyRecord>,
) -> Result<Vec<Inserted>, Error> {
    let arrivals = arrivals(&jobs);
    let insert = Insert { jobs, keys, mark: None, durability: Durability::Synced };
    let inserted = shared.store.job_insert(insert).await.and_then(Insertion::done);
    let inserted = inserted.map_err(store_error)?;
    announce_inserted(shared, arrivals, &inserted);
    Ok(inserted)
}

fn new_job(
    id: JobId,
    key: TypeKey,
    payload: Payload,
    options: AddOptions,
    now: Timestamp,
) -> NewJob {
    NewJob {
        priority: options.priority,
        run_at: options.run_at.unwrap_or(now),
        expires_at: options.expires.map(|after| now + after),
        timeout: options.timeout,
        unique: options.unique,
        then: options.then,
        parent: options.parent,
        extra: options.extra,
        ..NewJob::new(id, key, payload, now)
    }
}

async fn known_to_store(
    shared: &Shared,
    tenant: &Tenant,
    key: &str,
    now: Timestamp,
) -> Option<IdempotencyRecord> {
    if let Some(backlog) = shared.backlog_newest {
        shared.ingested_up_to(backlog, KEY_PATIENCE).await;
    }
    let asked = shared.store.idempotency_get(tenant, key, now);
    match tokio::time::timeout(KEY_PATIENCE, asked).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            tracing::warn!(%error, "cannot look an idempotency key up; the add is accepted");
            None
        }
        Err(_) => {
            tracing::warn!("no answer about an idempotency key in time; the add is accepted");
            None
        }
    }
}

fn record_of(
    tenant: &Tenant,
    idempotency: &Idempotency,
    ids: Vec<JobId>,
    now: Timestamp,
) -> IdempotencyRecord {
    IdempotencyRecord {
        tenant: tenant.clone(),
        key: idempotency.key.clone(),
        fingerprint: idempotency.fingerprint,
        ids,
        expires_at: now + IDEMPOTENCY_TTL,
    }
}

fn repeated(record: &IdempotencyRecord, idempotency: &Idempotency) -> Result<Added, Error> {
    if record.fingerprint != idempotency.fingerprint {
        let why = "this Idempotency-Key was used within 24 hours for another type or body";
        return Err(Error::Conflict(why.into()));
    }
    Ok(Added { ids: record.ids.clone(), repeated: true })
}
