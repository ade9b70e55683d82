//! Inserts and adds of jobs, with their idempotency keys, the journal's mark and the pieces of
//! payloads. The jobs themselves: `enter`.

use std::borrow::Cow;
use std::collections::HashSet;

use futures_util::future::try_join;
use windlass_core::edit::MovedJobs;
use windlass_core::family::{self, Unfit};
use windlass_core::limit::REPEATED_RETENTION;
use windlass_core::name::Tenant;
use windlass_core::store::{
    Add, Added, EndRequest, Error, IdempotencyRecord, Insert, Inserted, Insertion, JournalId,
    JournalMark, Piece,
};
use windlass_core::time::Timestamp;
use windlass_core::{JobId, NewJob};

use crate::change;
use crate::enter;
use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

pub(crate) async fn job_insert(tx: &mut Tx<'_>, insert: &Insert) -> Result<Insertion> {
    // Neither waits for the answer to the other.
    let (moved, types) =
        try_join(move_mark(tx, insert.mark), enter::known_types(tx, &insert.jobs)).await?;
    if let Err(position) = moved {
        return Ok(Insertion::Behind(position));
    }
    let repeats = repeats(tx, &insert.keys).await?;
    let mut answers = Vec::with_capacity(insert.jobs.len());
    for run in insert.jobs.chunk_by(|a, b| !repeats.contains(&a.id) && !repeats.contains(&b.id)) {
        match repeats.contains(&run[0].id) {
            false => answers.extend(enter::enter_known(tx, run, types.clone()).await?),
            true => answers.push(insert_cancelled(tx, &run[0]).await?),
        }
    }
    check_pieces(tx, &insert.jobs, &answers).await?;
    Ok(Insertion::Done(answers))
}

/// Records the keys of an insert. Returns the jobs of adds whose keys other adds used first.
async fn repeats(tx: &mut Tx<'_>, keys: &[IdempotencyRecord]) -> Result<HashSet<JobId>> {
    let mut repeats = HashSet::new();
    lock_keys(tx, keys.iter().map(|record| (&record.tenant, record.key.as_str()))).await?;
    for record in keys {
        match idempotency_of(tx, &record.tenant, &record.key).await {
            Ok(Some(known)) if record.is_repeat_of(&known) => repeats.extend(&record.ids),
            Ok(_) => remember(tx, record).await?,
            // These jobs were accepted, and others wait behind them.
            Err(failure) if failure.is_of_one_row() => replace_damaged(tx, record).await?,
            Err(failure) => return Err(failure),
        }
    }
    Ok(repeats)
}

async fn insert_cancelled(tx: &mut Tx<'_>, new: &NewJob) -> Result<Inserted> {
    let inserted = enter::enter(tx, std::slice::from_ref(new)).await?[0];
    if inserted != Inserted::New {
        return Ok(inserted);
    }
    let (tenant, keep) = (new.key.tenant.clone(), REPEATED_RETENTION);
    change::job_cancel(tx, &EndRequest { tenant, id: new.id, keep }).await?;
    Ok(Inserted::Repeated)
}

pub(crate) async fn job_add(tx: &mut Tx<'_>, add: &Add) -> Result<Added> {
    let Add { tenant, jobs, key } = add;
    let now = tx.now;
    if let Some(key) = key {
        lock_keys(tx, [(tenant, key.key.as_str())]).await?;
        if let Some(record) = idempotency_get(tx, tenant, &key.key).await? {
            remove_unused_pieces(tx, jobs).await?;
            return Ok(Added::Known(record));
        }
    }
    let begun = match begin_all(tx, jobs).await? {
        Ok(begun) => begun,
        Err((parent, unfit)) => {
            remove_unused_pieces(tx, jobs).await?;
            return Ok(Added::Unfit { parent, unfit });
        }
    };
    let (mut ids, mut moved) = (Vec::with_capacity(jobs.len()), Box::<MovedJobs>::default());
    let answers = enter::enter(tx, &begun).await?;
    check_pieces(tx, &begun, &answers).await?;
    for (job, answer) in begun.iter().zip(answers) {
        ids.push(match answer {
            Inserted::Held(holder) => holder,
            Inserted::New => {
                moved.note_entered(job, now);
                job.id
            }
            Inserted::Duplicate | Inserted::Repeated => job.id,
        });
    }
    if let Some(key) = key {
        remember(tx, &IdempotencyRecord::new(tenant, key, ids.clone(), now)).await?;
    }
    Ok(Added::New { ids, moved })
}

const INCOMPLETE: &str = "
    SELECT n.id FROM unnest($1::int8[], $2::int8[]) AS n (id, bytes)
     WHERE n.bytes <> (SELECT coalesce(sum(octet_length(p.data)), 0) FROM piece p
                        WHERE p.id = n.id)
     ORDER BY n.id LIMIT 1";

/// Pieces are put relaxed: a server that crashed may have lost some of them since.
async fn check_pieces(tx: &Tx<'_>, jobs: &[NewJob], answers: &[Inserted]) -> Result<()> {
    let has_entered = |answer| matches!(answer, &Inserted::New | &Inserted::Repeated);
    let entered = jobs.iter().zip(answers).filter(|(_, answer)| has_entered(answer));
    let needed = entered.filter_map(|(job, _)| Some((job.id.get(), job.pieces_needed()?)));
    let (ids, bytes): (Vec<i64>, Vec<i64>) =
        needed.map(|(id, bytes)| (id, i64::try_from(bytes).unwrap_or(i64::MAX))).unzip();
    if ids.is_empty() {
        return Ok(());
    }
    match tx.query_opt(INCOMPLETE, &[&ids, &bytes]).await? {
        None => Ok(()),
        Some(row) => Err(Error::pieces_missing(row::job_id(row.try_get(0)?)?).into()),
    }
}

/// Jobs in their first state, or the parent that cannot have them.
type Begun<'a> = std::result::Result<Cow<'a, [NewJob]>, (JobId, Unfit)>;

/// Gives jobs their first state, and locks their parents. No job of an add is the parent of another
/// one, so all can be checked before any is inserted.
pub(crate) async fn begin_all<'a>(tx: &Tx<'_>, jobs: &'a [NewJob]) -> Result<Begun<'a>> {
    let parents: Vec<i64> = jobs.iter().filter_map(|job| job.parent).map(JobId::get).collect();
    if parents.is_empty() {
        return Ok(Ok(Cow::Borrowed(jobs)));
    }
    let found = row::find_all(tx, &parents).await?;
    let mut begun = jobs.to_vec();
    for job in &mut begun {
        let Some(parent) = job.parent else { continue };
        let of_tenant = found.get(&parent.get()).map(|stored| &stored.job);
        let of_tenant = of_tenant.filter(|parent| parent.key.tenant == job.key.tenant);
        if let Err(unfit) = family::begin(job, of_tenant) {
            return Ok(Err((parent, unfit)));
        }
    }
    Ok(Ok(Cow::Owned(begun)))
}

/// Keys share a bounded number of locks, because the server has room for few. Their numbers are not
/// those of types.
const LOCK_KEYS: &str = "
    SELECT pg_advisory_xact_lock(lock_class(), sorted.number)
      FROM (SELECT DISTINCT
                   4096 + (hashtext(concat_ws('/', k.tenant, encode(k.key, 'hex'))) & 1023)
                   AS number
              FROM unnest($1::text[], $2::bytea[]) AS k (tenant, key)
             ORDER BY number) AS sorted";

/// Lets only one transaction at a time decide about an idempotency key, also if it is new.
async fn lock_keys<'a>(
    tx: &Tx<'_>,
    keys: impl IntoIterator<Item = (&'a Tenant, &'a str)>,
) -> Result<()> {
    let (tenants, keys): (Vec<&str>, Vec<&[u8]>) =
        keys.into_iter().map(|(tenant, key)| (tenant.as_str(), key.as_bytes())).unzip();
    if !keys.is_empty() {
        tx.execute(LOCK_KEYS, &[&tenants, &keys]).await?;
    }
    Ok(())
}

const REMEMBER: &str = "
    INSERT INTO idempotency AS i (tenant, key, fingerprint, ids, expires_at)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (tenant, key) DO UPDATE
       SET fingerprint = excluded.fingerprint, ids = excluded.ids, expires_at = excluded.expires_at
     WHERE excluded.expires_at > i.expires_at";

/// A replayed journal repeats old records: the one that expires last is from the newest add.
async fn remember(tx: &Tx<'_>, record: &IdempotencyRecord) -> Result<()> {
    let ids: Vec<i64> = record.ids.iter().map(|id| id.get()).collect();
    let (tenant, key) = (record.tenant.as_str(), record.key.as_bytes());
    let (fingerprint, expires_at) = (record.fingerprint.cast_signed(), record.expires_at.ms());
    tx.execute(REMEMBER, &[&tenant, &key, &fingerprint, &ids, &expires_at]).await?;
    Ok(())
}

/// Whether the damaged record was of the same key and add cannot be known: as if it was not.
async fn replace_damaged(tx: &Tx<'_>, record: &IdempotencyRecord) -> Result<()> {
    tracing::error!(tenant = %record.tenant, "replacing the damaged record of an idempotency key");
    let remove = "DELETE FROM idempotency WHERE tenant = $1 AND key = $2";
    tx.execute(remove, &[&record.tenant.as_str(), &record.key.as_bytes()]).await?;
    remember(tx, record).await
}

pub(crate) async fn idempotency_get(
    tx: &Tx<'_>,
    tenant: &Tenant,
    key: &str,
) -> Result<Option<IdempotencyRecord>> {
    let known = idempotency_of(tx, tenant, key).await?;
    Ok(known.filter(|record| record.expires_at > tx.now))
}

/// The record of a key, even if it is outdated.
async fn idempotency_of(
    tx: &Tx<'_>,
    tenant: &Tenant,
    key: &str,
) -> Result<Option<IdempotencyRecord>> {
    let find = "SELECT fingerprint, ids, expires_at FROM idempotency
                WHERE tenant = $1 AND key = $2";
    let found = tx.query_opt(find, &[&tenant.as_str(), &key.as_bytes()]).await?;
    let Some(row) = found else { return Ok(None) };
    let ids: Vec<i64> = row.try_get(1)?;
    Ok(Some(IdempotencyRecord {
        tenant: tenant.clone(),
        key: key.to_owned(),
        fingerprint: row.try_get::<_, i64>(0)?.cast_unsigned(),
        ids: ids.into_iter().map(row::job_id).collect::<Result<_>>()?,
        expires_at: Timestamp(row.try_get(2)?),
    }))
}

/// Of those who move it from the same place, one deletes the row, and the others wait for it.
const MOVE_MARK: &str = "
    WITH before AS (DELETE FROM journal WHERE journal = $1 AND position = $2 RETURNING journal)
    INSERT INTO journal (journal, position) SELECT journal, $3 FROM before";
/// Two that set the first mark of a journal do so one after the other.
const LOCK_MARK: &str = "
    SELECT pg_advisory_xact_lock(
               hashtextextended(concat_ws('/', current_schema(), 'journal', $1::int8), 0))";
const FIRST_MARK: &str = "
    INSERT INTO journal (journal, position)
    SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM journal WHERE journal = $1)";

/// Moves the mark, or returns where it is, if it is not where the caller has seen it.
async fn move_mark(
    tx: &Tx<'_>,
    mark: Option<JournalMark>,
) -> Result<std::result::Result<(), Option<JobId>>> {
    let Some(mark) = mark else { return Ok(Ok(())) };
    let JournalMark { journal, from, position } = mark;
    let moved = match from {
        Some(from) => tx.execute(MOVE_MARK, &[&journal.0, &from.get(), &position.get()]).await?,
        None => {
            tx.execute(LOCK_MARK, &[&journal.0]).await?;
            tx.execute(FIRST_MARK, &[&journal.0, &position.get()]).await?
        }
    };
    match moved {
        0 => Ok(Err(journal_position(tx, journal).await?)),
        _ => Ok(Ok(())),
    }
}

pub(crate) async fn journal_position(tx: &Tx<'_>, journal: JournalId) -> Result<Option<JobId>> {
    let find = "SELECT position FROM journal WHERE journal = $1 ORDER BY position DESC LIMIT 1";
    let found = tx.query_opt(find, &[&journal.0]).await?;
    found.map(|row| row::job_id(row.try_get(0)?)).transpose()
}

const PUT_PIECES: &str = "
    INSERT INTO piece (id, position, data)
    SELECT DISTINCT ON (n.id, n.position) n.id, n.position, n.data
      FROM unnest($1::int8[], $2::int4[], $3::bytea[]) WITH ORDINALITY
           AS n (id, position, data, nth)
     ORDER BY n.id, n.position, n.nth DESC
    ON CONFLICT (id, position) DO UPDATE SET data = excluded.data";
/// Pieces without a job are removed later.
const NOTE_WAITING: &str = "
    INSERT INTO piece_waiting (id, put_at)
    SELECT DISTINCT id, $2::int8 FROM unnest($1::int8[]) AS id ORDER BY id
    ON CONFLICT (id) DO UPDATE SET put_at = excluded.put_at";

pub(crate) async fn payload_put(tx: &mut Tx<'_>, pieces: &[Piece]) -> Result<()> {
    let ids: Vec<i64> = pieces.iter().map(|piece| piece.id.get()).collect();
    let too_many = |_| Failure::conflict("a payload has too many pieces");
    let places = pieces.iter().map(|piece| i32::try_from(piece.index).map_err(too_many));
    let places: Vec<i32> = places.collect::<Result<_>>()?;
    let data: Vec<&[u8]> = pieces.iter().map(|piece| piece.bytes.as_ref()).collect();
    tx.execute(PUT_PIECES, &[&ids, &places, &data]).await?;
    tx.execute(NOTE_WAITING, &[&ids, &tx.now.ms()]).await?;
    Ok(())
}

/// Deletes the pieces of jobs that are not inserted.
async fn remove_unused_pieces(tx: &Tx<'_>, jobs: &[NewJob]) -> Result<()> {
    let in_pieces = jobs.iter().filter(|job| job.payload.is_in_pieces());
    let mut unused: Vec<i64> = in_pieces.map(|job| job.id.get()).collect();
    if !unused.is_empty() {
        let known = enter::existing(tx, &unused).await?;
        unused.retain(|id| !known.contains(id));
    }
    enter::remove_pieces(tx, &unused).await
}
