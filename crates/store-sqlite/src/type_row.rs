//! Types: their ids, settings and statistics.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use windlass_core::handler::TypeSettings;
use windlass_core::name::{Tenant, TypeKey};
use windlass_core::rate::Spent;
use windlass_core::record;
use windlass_core::store::TypeStats;
use windlass_core::time::Timestamp;

use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

/// Types in the cache; beyond that it is cleared.
const CACHE_MAX: usize = 200_000;

/// Ids of types. A type is never removed and never gets another id, so an entry stays valid
/// whatever other processes do; only those whose insertion was rolled back are removed.
#[derive(Default)]
pub(crate) struct TypeCache {
    ids: HashMap<TypeKey, i64>,
    keys: HashMap<i64, TypeKey>,
    new: Vec<i64>,
    /// Where the search for unhandled jobs of a type continues, if it was not finished.
    searched_to: HashMap<i64, i64>,
}

impl TypeCache {
    /// The id of an existing type.
    pub(crate) fn find(&mut self, conn: &Connection, key: &TypeKey) -> Result<Option<i64>> {
        if let Some(id) = self.ids.get(key) {
            return Ok(Some(*id));
        }
        let found = type_id(conn, key)?;
        if let Some(id) = found {
            self.put(id, key);
        }
        Ok(found)
    }

    /// The id of a type, which is inserted if it is new.
    pub(crate) fn ensure(&mut self, conn: &Connection, key: &TypeKey) -> Result<i64> {
        if let Some(id) = self.find(conn, key)? {
            return Ok(id);
        }
        let add = "INSERT INTO type (tenant, name) VALUES (?1, ?2) RETURNING id";
        let names = params![key.tenant.as_str(), key.name.as_str()];
        let id = conn.prepare_cached(add)?.query_row(names, |row| row.get(0))?;
        self.put(id, key);
        self.new.push(id);
        Ok(id)
    }

    /// The type with this id.
    pub(crate) fn key(&mut self, conn: &Connection, id: i64) -> Result<TypeKey> {
        if let Some(key) = self.keys.get(&id) {
            return Ok(key.clone());
        }
        let mut find = conn.prepare_cached("SELECT tenant, name FROM type WHERE id = ?1")?;
        let mut rows = find.query([id])?;
        let missing = || Failure::corrupt(format!("type {id} has no row"));
        let row = rows.next()?.ok_or_else(missing)?;
        let key = row::type_key(row.get_ref(0)?.as_str(), row.get_ref(1)?.as_str())?;
        self.put(id, &key);
        Ok(key)
    }

    /// After a commit.
    pub(crate) fn keep(&mut self) {
        self.new.clear();
    }

    /// After a rollback.
    pub(crate) fn forget_new(&mut self) {
        for id in self.new.drain(..) {
            if let Some(key) = self.keys.remove(&id) {
                self.ids.remove(&key);
            }
        }
    }

    /// The last job id that an unfinished search in this type has read; 0 to start over.
    pub(crate) fn searched_to(&self, id: i64) -> i64 {
        self.searched_to.get(&id).copied().unwrap_or(0)
    }

    pub(crate) fn set_searched_to(&mut self, id: i64, job: Option<i64>) {
        match job {
            Some(job) => self.searched_to.insert(id, job),
            None => self.searched_to.remove(&id),
        };
    }

    fn put(&mut self, id: i64, key: &TypeKey) {
        if self.ids.len() >= CACHE_MAX {
            self.ids.clear();
            self.keys.clear();
            self.searched_to.clear();
        }
        self.ids.insert(key.clone(), id);
        self.keys.insert(id, key.clone());
    }
}

pub(crate) fn type_id(conn: &Connection, key: &TypeKey) -> Result<Option<i64>> {
    let mut find = conn.prepare_cached("SELECT id FROM type WHERE tenant = ?1 AND name = ?2")?;
    let names = params![key.tenant.as_str(), key.name.as_str()];
    Ok(find.query_row(names, |row| row.get(0)).optional()?)
}

pub(crate) fn suspend(tx: &mut Tx<'_>, key: &TypeKey, suspended: bool) -> Result<()> {
    let id = tx.types.ensure(tx.conn, key)?;
    let set = "UPDATE type SET suspended = ?2 WHERE id = ?1";
    tx.conn.prepare_cached(set)?.execute(params![id, suspended])?;
    tx.changed(id)
}

pub(crate) fn settings_put(tx: &mut Tx<'_>, key: &TypeKey, settings: &TypeSettings) -> Result<()> {
    let id = tx.types.ensure(tx.conn, key)?;
    let before = "SELECT rate, spent FROM type WHERE id = ?1";
    let columns = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (rate, spent) = tx.conn.prepare_cached(before)?.query_row([id], columns)?;
    let spent = Spent(spent).follow(rate, settings.rate, tx.now);
    let set = "
        UPDATE type SET settings = ?2, running_max = ?3, rate = ?4, spent = ?5 WHERE id = ?1";
    let text = record::settings_to_text(settings);
    let values = params![id, text, settings.concurrency, settings.rate, spent.0];
    tx.conn.prepare_cached(set)?.execute(values)?;
    tx.changed(id)
}

pub(crate) fn settings_get(conn: &Connection, key: &TypeKey) -> Result<TypeSettings> {
    let find = "SELECT settings FROM type WHERE tenant = ?1 AND name = ?2";
    let names = params![key.tenant.as_str(), key.name.as_str()];
    let text = conn.prepare_cached(find)?.query_row(names, |row| row.get(0)).optional()?;
    settings(text.flatten())
}

pub(crate) fn settings(text: Option<String>) -> Result<TypeSettings> {
    match text {
        None => Ok(TypeSettings::default()),
        Some(text) => record::settings_from_text(&text)
            .map_err(|reason| Failure::corrupt(format!("settings of a type: {reason}"))),
    }
}

pub(crate) const STATS: &str = "
    SELECT id, tenant, name, handler_id IS NOT NULL, suspended,
           ready, deferred, running, paused, finished, failed, cancelled, settings IS NOT NULL
      FROM type WHERE tenant = ?1 ORDER BY name";
/// The index contains only types that have something to show.
pub(crate) const STATS_OF_ALL: &str = "
    SELECT id, tenant, name, handler_id IS NOT NULL, suspended,
           ready, deferred, running, paused, finished, failed, cancelled, settings IS NOT NULL
      FROM type INDEXED BY type_shown WHERE shown ORDER BY tenant, name";

pub(crate) fn stats(conn: &Connection, tenant: Option<&Tenant>) -> Result<Vec<TypeStats>> {
    let mut statement = conn.prepare_cached(tenant.map_or(STATS_OF_ALL, |_| STATS))?;
    let mut rows = match tenant {
        Some(tenant) => statement.query([tenant.as_str()])?,
        None => statement.query([])?,
    };
    let mut stats = Vec::new();
    while let Some(row) = rows.next()? {
        let number = |column| row.get::<_, i64>(column).map(|number| number as u64);
        let ready = number(5)?;
        stats.push(TypeStats {
            key: row::type_key(row.get_ref(1)?.as_str(), row.get_ref(2)?.as_str())?,
            handler: row.get(3)?,
            suspended: row.get(4)?,
            settings: row.get(12)?,
            ready,
            deferred: number(6)?,
            running: number(7)?,
            paused: number(8)?,
            finished: number(9)?,
            failed: number(10)?,
            cancelled: number(11)?,
            oldest_ready_at: if ready > 0 { oldest_ready_at(conn, row.get(0)?)? } else { None },
        });
    }
    Ok(stats)
}

fn oldest_ready_at(conn: &Connection, type_id: i64) -> Result<Option<Timestamp>> {
    let next_rank = "SELECT rank, run_at FROM ready
                      WHERE type_id = ?1 AND rank > ?2 ORDER BY rank, run_at LIMIT 1";
    let mut next_rank = conn.prepare_cached(next_rank)?;
    let mut oldest: Option<i64> = None;
    let mut rank: i64 = -1;
    let columns = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?));
    // Bounded: there are no more ranks than priorities.
    while let Some((next, run_at)) = next_rank.query_row([type_id, rank], columns).optional()? {
        rank = next;
        oldest = Some(oldest.map_or(run_at, |oldest| oldest.min(run_at)));
    }
    Ok(oldest.map(Timestamp))
}
