//! API keys. Changes of keys run one after the other: each first locks the row of their revision,
//! so that revisions are committed in order and counts are exact.

use tokio_postgres::Row;
use windlass_core::key::{Key, KeyCounts, KeyDigest, KeyId, NewKey, Owner, Role, Standing};
use windlass_core::limit::{KEY_RETENTION, KEY_TOUCH_INTERVAL};
use windlass_core::name::Tenant;
use windlass_core::store::{KeyReplacement, KeyRevision, KeyRotate};
use windlass_core::time::Timestamp;

use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;
use crate::waiting;

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, digest, role, tenant, name, created_at, expires_at, last_used_at,
                    revoked_at, rev
               FROM api_key ",
            $rest
        )
    };
}

const FIND: &str = select!("WHERE id = $1");
/// `least` ignores NULL.
const FORGET: &str = "DELETE FROM api_key WHERE least(revoked_at, expires_at) <= $1";
const COUNT: &str = "SELECT count(*), count(*) FILTER (WHERE tenant = $1) FROM api_key";
const PUT: &str = "
    INSERT INTO api_key (id, digest, role, tenant, name, created_at, expires_at, rev)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

pub(crate) async fn put(tx: &mut Tx<'_>, new: &NewKey) -> Result<Key> {
    lock(tx).await?;
    if let Some(known) = find(tx, new.id).await? {
        return match known.digest == new.digest {
            true => Ok(known),
            false => Err(Failure::conflict("there is another key with this id")),
        };
    }
    let now = tx.now;
    tx.execute(FORGET, &[&(now - KEY_RETENTION).ms()]).await?;
    let tenant = new.owner.tenant.as_ref().map(Tenant::as_str);
    let row = tx.query_one(COUNT, &[&tenant]).await?;
    let (all, own): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let counts = KeyCounts { all: all as usize, own: own as usize };
    counts.room_for(new).map_err(Failure::conflict)?;
    let key = Key::made(new.clone(), now);
    let Owner { role, tenant, name } = &key.owner;
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 8] = [
        &key.id.to_string(),
        &key.digest.0.as_slice(),
        &role.as_str(),
        &tenant.as_ref().map(Tenant::as_str),
        name,
        &now.ms(),
        &key.expires_at.map(Timestamp::ms),
        &next_revision(tx).await?,
    ];
    tx.execute(PUT, &values).await?;
    Ok(key)
}

pub(crate) async fn find(tx: &Tx<'_>, id: KeyId) -> Result<Option<Key>> {
    tx.query_opt(FIND, &[&id.to_string()]).await?.as_ref().map(key).transpose()
}

const LIST: &str = select!("WHERE id > $1 ORDER BY id LIMIT $2");
const LIST_OF: &str = select!("WHERE tenant = $3 AND id > $1 ORDER BY id LIMIT $2");

pub(crate) async fn list(
    tx: &Tx<'_>,
    tenant: Option<&Tenant>,
    after: Option<KeyId>,
    limit: usize,
) -> Result<Vec<Key>> {
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    let limit = limit as i64;
    let rows = match tenant {
        Some(tenant) => tx.query(LIST_OF, &[&after, &limit, &tenant.as_str()]).await?,
        None => tx.query(LIST, &[&after, &limit]).await?,
    };
    rows.iter().map(key).collect()
}

const REVOKE: &str = "UPDATE api_key SET revoked_at = $2, rev = $3 WHERE id = $1";

pub(crate) async fn revoke(
    tx: &mut Tx<'_>,
    tenant: Option<&Tenant>,
    id: KeyId,
) -> Result<Option<Key>> {
    lock(tx).await?;
    let key = match find_of(tx, tenant, id).await? {
        Some(key) if key.revoked_at.is_none() => key,
        known => return Ok(known),
    };
    let revision = next_revision(tx).await?;
    tx.execute(REVOKE, &[&id.to_string(), &tx.now.ms(), &revision]).await?;
    Ok(Some(Key { revoked_at: Some(tx.now), ..key }))
}

const EXPIRE: &str = "
    UPDATE api_key SET expires_at = least(expires_at, $2), rev = $3 WHERE id = $1";

pub(crate) async fn rotate(tx: &mut Tx<'_>, rotate: &KeyRotate) -> Result<Option<Key>> {
    lock(tx).await?;
    let Some(old) = find_of(tx, rotate.tenant.as_ref(), rotate.old).await? else { return Ok(None) };
    if old.standing(tx.now) != Standing::InForce {
        return Err(Failure::conflict("the key is no longer in force"));
    }
    let KeyReplacement { id, digest, lifetime } = rotate.new;
    let new = put(tx, &NewKey { id, digest, owner: old.owner, lifetime }).await?;
    let (ends_at, revision) = (tx.now + rotate.overlap, next_revision(tx).await?);
    tx.execute(EXPIRE, &[&old.id.to_string(), &ends_at.ms(), &revision]).await?;
    Ok(Some(new))
}

/// In the order of their ids, as all daemons touch the same keys.
const TOUCH: &str = "
    UPDATE api_key SET last_used_at = $2
     WHERE id IN (SELECT id FROM api_key
                   WHERE id = ANY ($1) AND (last_used_at IS NULL OR last_used_at <= $3)
                   ORDER BY id FOR UPDATE)";

pub(crate) async fn touch(tx: &mut Tx<'_>, ids: &[KeyId]) -> Result<()> {
    let (now, before) = (tx.now.ms(), (tx.now - KEY_TOUCH_INTERVAL).ms());
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    tx.execute(TOUCH, &[&ids, &now, &before]).await?;
    Ok(())
}

const CHANGED: &str = select!("WHERE rev > $1 ORDER BY rev LIMIT $2");

pub(crate) async fn changed(
    tx: &Tx<'_>,
    since: KeyRevision,
    limit: usize,
) -> Result<Vec<(KeyRevision, Key)>> {
    let (mut changed, mut after) = (Vec::new(), since.0);
    while changed.len() < limit {
        let room = (limit - changed.len()) as i64;
        let rows = tx.query(CHANGED, &[&after, &room]).await?;
        let Some(last) = rows.last() else { break };
        after = last.try_get(9)?;
        for row in &rows {
            let (id, revision): (&str, i64) = (row.try_get(0)?, row.try_get(9)?);
            let undamaged = row::unless_row_damaged(&id, key(row))?;
            changed.extend(undamaged.map(|key| (KeyRevision(revision), key)));
        }
    }
    Ok(changed)
}

/// Without a tenant, all keys are meant.
async fn find_of(tx: &Tx<'_>, tenant: Option<&Tenant>, id: KeyId) -> Result<Option<Key>> {
    let is_theirs =
        |key: &Key| tenant.is_none_or(|tenant| key.owner.tenant.as_ref() == Some(tenant));
    Ok(find(tx, id).await?.filter(is_theirs))
}

/// The next statement sees what the last holder of the lock has committed.
async fn lock(tx: &mut Tx<'_>) -> Result<()> {
    waiting::revive_if_lost(tx).await?;
    tx.query_one("SELECT 1 FROM meta WHERE name = 'key_revision' FOR UPDATE", &[]).await?;
    Ok(())
}

async fn next_revision(tx: &Tx<'_>) -> Result<i64> {
    let next = "UPDATE meta SET value = value + 1 WHERE name = 'key_revision' RETURNING value";
    Ok(tx.query_one(next, &[]).await?.try_get(0)?)
}

fn key(row: &Row) -> Result<Key> {
    let id: &str = row.try_get(0)?;
    let corrupt = || Failure::corrupt(format!("API key {id}"));
    let tenant: Option<&str> = row.try_get(3)?;
    Ok(Key {
        id: id.parse().map_err(|_| corrupt())?,
        digest: KeyDigest(row.try_get::<_, &[u8]>(1)?.try_into().map_err(|_| corrupt())?),
        owner: Owner {
            role: Role::from_name(row.try_get(2)?).ok_or_else(corrupt)?,
            tenant: tenant.map(Tenant::new).transpose().map_err(|_| corrupt())?,
            name: row.try_get(4)?,
        },
        created_at: Timestamp(row.try_get(5)?),
        expires_at: row::time(row, 6)?,
        last_used_at: row::time(row, 7)?,
        revoked_at: row::time(row, 8)?,
    })
}
