//! Accept: jobs are durable before their add is answered.
//!
//! ```text
//! add ─► check ─┬─ plain ───────────► journal: one fdatasync for all adds that wait
//!               ├─ durable: store ──► store: the answer promises more than this machine's disk
//!               ├─ unique, parent ──► store: only it knows who holds a key, what a parent does
//!               └─ with a key ─► answered here lately? ─► store: key and jobs in one change
//!                                        └─ too many jobs ─┐  └─ away, hangs ─┴─► journal
//! ```
//! An add that goes to the store is carried to its end even if its client disconnects, because the
//! change and its announcement belong together. A plain add is carried out once the journal has it;
//! ingest announces it.
//!
//! An add with a key that went into the journal is decided when ingest brings it to the store: see
//! `Inserts::job_insert`.

pub(crate) mod direct;
pub(crate) mod idempotency;
pub(crate) mod pieces;

use std::sync::Arc;
use std::time::Duration;

use windlass_core::add::{Durable, check_key};
use windlass_core::limit::{BATCH_JOBS_MAX, PAYLOAD_INLINE_BYTES_MAX};
use windlass_core::runner::Emitted;
use windlass_core::size::format_size;
use windlass_core::store::{self, IdempotencyKey, IdempotencyRecord};
use windlass_core::{Invalid, JobId, Maxima, NewJob, Payload, Tenant, TypeKey};
use windlass_journal::{AddPayload, Entry};

use crate::api::{AddJob, Added};
use crate::detach::to_its_end;
use crate::error::{Error, storage_error};
use crate::shared::Shared;

use direct::Direct;
use idempotency::Found;

/// How long an add with a key waits for the ingest of the journal's backlog. One with too many jobs
/// for one call of the store also waits this long for its own ingest.
const KEY_PATIENCE: Duration = Duration::from_secs(2);
/// How long an add that the journal can take instead waits for one call of the store.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// Adds jobs of one type, all or none.
pub(crate) async fn add(
    shared: &Arc<Shared>,
    key: &TypeKey,
    jobs: Vec<AddJob>,
    idempotency: Option<IdempotencyKey>,
) -> Result<Added, Error> {
    let promised = promised(shared, &jobs);
    let store_only = promised == Durable::Store || any_goes_to_store(&jobs);
    check(&jobs, store_only, &shared.options.maxima)?;
    let (began, count) = (shared.clock.steady(), jobs.len());
    if promised == Durable::Store && shared.daemon.contact.store_hangs() {
        return Err(not_in_store("it does not answer"));
    }
    if idempotency.is_none() && !store_only {
        // Needs no task of its own: what the journal has is ingested and announced in any case.
        let ids = append_jobs(shared, key, jobs, None).await?;
        make_sure_number_is_ours(shared).await?;
        shared.metrics.accepted(key, count, shared.clock.since(began));
        return Ok(Added { ids, repeated: false });
    }
    let bytes: usize = jobs.iter().map(inline_bytes).sum();
    // An add that the journal can take instead is not queued behind adds blocked on the store.
    let room = if store_only { &shared.rooms.change } else { &shared.rooms.keyed };
    let room = room.take(bytes).await;
    let (shared, key) = (shared.clone(), key.clone());
    to_its_end(async move {
        let _room = room;
        let added = match idempotency {
            Some(idempotency) => add_keyed(&shared, &key, jobs, idempotency, store_only).await,
            None => {
                let added = direct::add(&shared, &key, jobs, None, None).await;
                let ids = added.and_then(Direct::added);
                ids.map(|ids| Added { ids, repeated: false })
            }
        };
        let added = match added {
            Err(Error::Unavailable(why)) if promised == Durable::Store => {
                return Err(not_in_store(&why));
            }
            added => added?,
        };
        make_sure_number_is_ours(&shared).await?;
        if !added.repeated {
            shared.metrics.accepted(&key, count, shared.clock.since(began));
        }
        Ok(added)
    })
    .await
}

fn inline_bytes(job: &AddJob) -> usize {
    match &job.payload {
        AddPayload::Inline(bytes) => bytes.len(),
        AddPayload::Spooled(_) => 0,
    }
}

/// After a suspension of this process, another daemon may have our number and make the same ids.
/// The beat finds out, and then sets `health.failure`.
async fn make_sure_number_is_ours(shared: &Shared) -> Result<(), Error> {
    shared.daemon.contact.await_recent_beat(&shared.clock).await;
    match &*shared.health.failure.borrow() {
        None => Ok(()),
        Some(why) => {
            let text = format!("it is not known whether the job was accepted: {why}");
            Err(Error::Unavailable(text))
        }
    }
}

/// What the answer to this add promises: the most that one of its jobs asks for, since all of them
/// are added or none.
fn promised(shared: &Shared, jobs: &[AddJob]) -> Durable {
    let asks_for_store =
        |job: &AddJob| job.options.durable.unwrap_or(shared.options.accept) == Durable::Store;
    if jobs.iter().any(asks_for_store) { Durable::Store } else { Durable::Journal }
}

fn not_in_store(why: &str) -> Error {
    let rule = "this add is answered only when the store has its jobs (accept, or durable=store)";
    Error::Unavailable(format!("the store did not confirm the jobs: {why}; {rule}"))
}

fn check(jobs: &[AddJob], store_only: bool, maxima: &Maxima) -> Result<(), Error> {
    if jobs.is_empty() {
        return Err(Invalid::new("jobs", "an add needs at least one job").into());
    }
    for job in jobs {
        if matches!(&job.payload, AddPayload::Inline(p) if p.len() > PAYLOAD_INLINE_BYTES_MAX) {
            let size = format_size(PAYLOAD_INLINE_BYTES_MAX as u64);
            let reason = format!("a payload above {size} must be streamed");
            return Err(Invalid::new("payload", reason).into());
        }
        if let Some(key) = &job.options.unique {
            check_key("unique", key)?;
        }
        maxima.check_timeout(job.options.timeout)?;
    }
    if jobs.len() > BATCH_JOBS_MAX && store_only {
        let reason = format!(
            "an add with unique keys or parents, or one that the store confirms, has at most \
             {BATCH_JOBS_MAX} jobs"
        );
        return Err(Invalid::new("jobs", reason).into());
    }
    Ok(())
}

/// Only the store knows who holds a unique key and what state a parent is in.
fn any_goes_to_store(jobs: &[AddJob]) -> bool {
    jobs.iter().any(|job| job.options.unique.is_some() || job.options.parent.is_some())
}

/// The store decides the key together with the jobs, whatever daemons the key reaches. While the
/// store is away or hangs, this daemon decides alone from what it remembers, because accepting must
/// not depend on the store.
async fn add_keyed(
    shared: &Shared,
    key: &TypeKey,
    jobs: Vec<AddJob>,
    idempotency: IdempotencyKey,
    store_only: bool,
) -> Result<Added, Error> {
    check_key("key", &idempotency.key)?;
    let now = shared.now();
    let deciding = match shared.idempotencies.find(&key.tenant, &idempotency.key, now).await {
        Found::Answered(record) => return repeated(&record, &idempotency),
        Found::Mine(deciding) => deciding,
    };
    // Read once: an add that was to be decided by the store waits for it, and no other one does.
    let asks_store = store_only || !shared.daemon.contact.store_hangs();
    let decided = match asks_store {
        true => decide_in_store(shared, key, &jobs, &idempotency, store_only).await?,
        false => Direct::Undecided(Error::Unavailable("the store does not answer".into())),
    };
    let ids = match decided {
        Direct::New(ids) => ids,
        Direct::Known(record) => {
            let answer = repeated(&record, &idempotency);
            deciding.answer(record);
            return answer;
        }
        Direct::Undecided(error) if store_only => return Err(error),
        Direct::Undecided(_) => {
            let waits_for_ingest = asks_store && jobs.len() > BATCH_JOBS_MAX;
            let ids = append_jobs(shared, key, jobs, Some(idempotency.clone())).await?;
            // Other daemons learn of the key only through the store.
            if let (true, Some(last)) = (waits_for_ingest, ids.last()) {
                shared.fresh.up_to(*last, KEY_PATIENCE).await;
            }
            if deciding.is_contradicted()
                && let Direct::Known(record) =
                    direct::look_up(shared, &key.tenant, &idempotency).await
                && record.ids != ids
            {
                return repeated(&record, &idempotency);
            }
            ids
        }
    };
    deciding.answer(IdempotencyRecord::new(&key.tenant, &idempotency, ids.clone(), now));
    Ok(Added { ids, repeated: false })
}

async fn decide_in_store(
    shared: &Shared,
    key: &TypeKey,
    jobs: &[AddJob],
    idempotency: &IdempotencyKey,
    store_only: bool,
) -> Result<Direct, Error> {
    if let Some(backlog) = shared.fresh.backlog_newest {
        shared.fresh.up_to(backlog, KEY_PATIENCE).await;
    }
    if jobs.len() > BATCH_JOBS_MAX {
        return Ok(direct::look_up(shared, &key.tenant, idempotency).await);
    }
    let patience = (!store_only).then_some(STORE_PATIENCE);
    direct::add(shared, key, jobs.to_vec(), Some(idempotency), patience).await
}

/// One call of the store. With `patience`, it is given up after that, and the store hangs.
async fn step<T>(
    shared: &Shared,
    patience: Option<Duration>,
    call: impl Future<Output = Result<T, store::Error>>,
) -> Result<T, store::Error> {
    let Some(patience) = patience else { return call.await };
    let answered = tokio::time::timeout(patience, call).await;
    answered.unwrap_or_else(|_| {
        shared.daemon.contact.note_hang();
        Err(store::Error::Unavailable("it does not answer".into()))
    })
}

fn repeated(record: &IdempotencyRecord, idempotency: &IdempotencyKey) -> Result<Added, Error> {
    if record.fingerprint != idempotency.fingerprint {
        return Err(Error::KeyReused);
    }
    Ok(Added { ids: record.ids.clone(), repeated: true })
}

/// The jobs that an attempt emitted, in its tenant; they enter with its settlement. It does not
/// wait for parents: one that is still in the journal is not running, so it cannot have children.
pub(crate) fn emitted(
    shared: &Shared,
    tenant: &Tenant,
    emitted: Vec<Emitted>,
) -> Result<Vec<NewJob>, Error> {
    let now = shared.now();
    let new = |Emitted { name, payload, options }: Emitted| {
        let id = shared.journal.make_id().map_err(storage_error)?;
        let key = TypeKey { tenant: tenant.clone(), name };
        Ok(NewJob::with(options, id, key, Payload::Inline(payload), now))
    };
    emitted.into_iter().map(new).collect()
}

async fn append_jobs(
    shared: &Shared,
    key: &TypeKey,
    jobs: Vec<AddJob>,
    idempotency: Option<IdempotencyKey>,
) -> Result<Vec<JobId>, Error> {
    let entry = |AddJob { payload, options }| Entry { key: key.clone(), payload, options };
    let entries = jobs.into_iter().map(entry).collect();
    let ids = shared.journal.append(entries, idempotency).await.map_err(storage_error)?;
    ids.last().into_iter().for_each(|id| shared.fresh.note_appended(*id));
    Ok(ids)
}
