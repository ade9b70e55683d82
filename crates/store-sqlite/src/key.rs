//! API keys.

use rusqlite::{Connection, OptionalExtension, Row, params};
use windlass_core::key::{Key, KeyCounts, KeyDigest, KeyId, NewKey, Owner, Role, Standing};
use windlass_core::limit::{KEY_RETENTION, KEY_TOUCH_INTERVAL};
use windlass_core::name::Tenant;
use windlass_core::store::{Error, KeyReplacement, KeyRevision, KeyRotate};
use windlass_core::time::Timestamp;

use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

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

const FIND: &str = select!("WHERE id = ?1");
const FORGET: &str = "
    DELETE FROM api_key
     WHERE min(coalesce(revoked_at, expires_at), coalesce(expires_at, revoked_at)) <= ?1";
const COUNT: &str = "
    SELECT (SELECT count(*) FROM api_key), (SELECT count(*) FROM api_key WHERE tenant = ?1)";
const PUT: &str = "
    INSERT INTO api_key (id, digest, role, tenant, name, created_at, expires_at, rev)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

pub(crate) fn put(tx: &mut Tx<'_>, new: &NewKey) -> Result<Key> {
    if let Some(known) = find(tx.conn, new.id)? {
        return match known.digest == new.digest {
            true => Ok(known),
            false => Err(conflict("there is another key with this id")),
        };
    }
    let now = tx.now;
    tx.conn.prepare_cached(FORGET)?.execute([(now - KEY_RETENTION).ms()])?;
    let tenant = new.owner.tenant.as_ref().map(Tenant::as_str);
    let (all, own): (i64, i64) =
        tx.conn.prepare_cached(COUNT)?.query_row([tenant], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let counts = KeyCounts { all: all as usize, own: own as usize };
    counts.room_for(new).map_err(|reason| conflict(&reason))?;
    let key = Key::made(new.clone(), now);
    let Owner { role, tenant, name } = &key.owner;
    tx.conn.prepare_cached(PUT)?.execute(params![
        key.id.to_string(),
        key.digest.0,
        role.as_str(),
        tenant.as_ref().map(Tenant::as_str),
        name,
        now.ms(),
        key.expires_at.map(Timestamp::ms),
        next_revision(tx.conn)?,
    ])?;
    Ok(key)
}

pub(crate) fn find(conn: &Connection, id: KeyId) -> Result<Option<Key>> {
    let mut find = conn.prepare_cached(FIND)?;
    let mut rows = find.query([id.to_string()])?;
    rows.next()?.map(key).transpose()
}

const LIST: &str = select!("WHERE id > ?1 ORDER BY id LIMIT ?2");
const LIST_OF: &str = select!("WHERE tenant = ?3 AND id > ?1 ORDER BY id LIMIT ?2");

pub(crate) fn list(
    conn: &Connection,
    tenant: Option<&Tenant>,
    after: Option<KeyId>,
    limit: usize,
) -> Result<Vec<Key>> {
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    let limit = limit as i64;
    let mut keys = Vec::new();
    let mut find = conn.prepare_cached(if tenant.is_some() { LIST_OF } else { LIST })?;
    let mut rows = match tenant {
        Some(tenant) => find.query(params![after, limit, tenant.as_str()])?,
        None => find.query(params![after, limit])?,
    };
    while let Some(row) = rows.next()? {
        keys.push(key(row)?);
    }
    Ok(keys)
}

const REVOKE: &str = "UPDATE api_key SET revoked_at = ?2, rev = ?3 WHERE id = ?1";

pub(crate) fn revoke(tx: &mut Tx<'_>, tenant: Option<&Tenant>, id: KeyId) -> Result<Option<Key>> {
    let key = match find_of(tx.conn, tenant, id)? {
        Some(key) if key.revoked_at.is_none() => key,
        known => return Ok(known),
    };
    let revision = next_revision(tx.conn)?;
    tx.conn.prepare_cached(REVOKE)?.execute(params![id.to_string(), tx.now.ms(), revision])?;
    Ok(Some(Key { revoked_at: Some(tx.now), ..key }))
}

const EXPIRE: &str = "
    UPDATE api_key SET expires_at = min(coalesce(expires_at, ?2), ?2), rev = ?3 WHERE id = ?1";

pub(crate) fn rotate(tx: &mut Tx<'_>, rotate: &KeyRotate) -> Result<Option<Key>> {
    let Some(old) = find_of(tx.conn, rotate.tenant.as_ref(), rotate.old)? else { return Ok(None) };
    if old.standing(tx.now) != Standing::InForce {
        return Err(conflict("the key is no longer in force"));
    }
    let KeyReplacement { id, digest, lifetime } = rotate.new;
    let new = put(tx, &NewKey { id, digest, owner: old.owner, lifetime })?;
    let (ends_at, revision) = (tx.now + rotate.overlap, next_revision(tx.conn)?);
    let values = params![old.id.to_string(), ends_at.ms(), revision];
    tx.conn.prepare_cached(EXPIRE)?.execute(values)?;
    Ok(Some(new))
}

const TOUCH: &str = "
    UPDATE api_key SET last_used_at = ?2
     WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at <= ?3)";

pub(crate) fn touch(tx: &mut Tx<'_>, ids: &[KeyId]) -> Result<()> {
    let (now, before) = (tx.now.ms(), (tx.now - KEY_TOUCH_INTERVAL).ms());
    let mut touch = tx.conn.prepare_cached(TOUCH)?;
    for id in ids {
        touch.execute(params![id.to_string(), now, before])?;
    }
    Ok(())
}

const CHANGED: &str = select!("WHERE rev > ?1 ORDER BY rev");

pub(crate) fn changed(
    conn: &Connection,
    since: KeyRevision,
    limit: usize,
) -> Result<Vec<(KeyRevision, Key)>> {
    let mut find = conn.prepare_cached(CHANGED)?;
    let mut rows = find.query([since.0])?;
    let mut changed = Vec::new();
    while changed.len() < limit
        && let Some(row) = rows.next()?
    {
        let id = row.get_ref(0)?.as_str();
        changed.extend(row::unless_row_damaged(&id, one_changed(row))?);
    }
    Ok(changed)
}

fn one_changed(row: &Row<'_>) -> Result<(KeyRevision, Key)> {
    Ok((KeyRevision(row.get(9)?), key(row)?))
}

/// Without a tenant, all keys are meant.
fn find_of(conn: &Connection, tenant: Option<&Tenant>, id: KeyId) -> Result<Option<Key>> {
    let is_theirs =
        |key: &Key| tenant.is_none_or(|tenant| key.owner.tenant.as_ref() == Some(tenant));
    Ok(find(conn, id)?.filter(is_theirs))
}

fn next_revision(conn: &Connection) -> Result<i64> {
    let next = "UPDATE meta SET value = value + 1 WHERE name = 'key_revision' RETURNING value";
    let revision = conn.prepare_cached(next)?.query_row([], |row| row.get(0)).optional()?;
    revision.ok_or_else(|| Failure::corrupt("the revision of the keys is missing"))
}

fn key(row: &Row<'_>) -> Result<Key> {
    let id: String = row.get(0)?;
    let corrupt = || Failure::corrupt(format!("API key {id}"));
    let role: String = row.get(2)?;
    let tenant: Option<String> = row.get(3)?;
    let tenant = tenant.map(|name| Tenant::new(&name)).transpose().map_err(|_| corrupt())?;
    let time = |column| Ok::<_, Failure>(row.get::<_, Option<i64>>(column)?.map(Timestamp));
    Ok(Key {
        id: id.parse().map_err(|_| corrupt())?,
        digest: KeyDigest(row.get(1)?),
        owner: Owner {
            role: Role::from_name(&role).ok_or_else(corrupt)?,
            tenant,
            name: row.get(4)?,
        },
        created_at: Timestamp(row.get(5)?),
        expires_at: time(6)?,
        last_used_at: time(7)?,
        revoked_at: time(8)?,
    })
}

fn conflict(message: &str) -> Failure {
    Failure::Store(Error::Conflict(message.to_owned()))
}
