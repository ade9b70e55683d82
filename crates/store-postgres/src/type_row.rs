//! Types: their ids, and what is set for them.
//!
//! Ids are not cached: a server that forgot the insert of a type may give its id to another one.

use std::collections::HashMap;

use windlass_core::handler::TypeSettings;
use windlass_core::name::TypeKey;
use windlass_core::rate::Spent;
use windlass_core::record;

use crate::connection::Session;
use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

const FIND: &str = "
    SELECT t.tenant, t.name, t.id
      FROM unnest($1::text[], $2::text[]) AS k (tenant, name)
      JOIN type t ON t.tenant = k.tenant AND t.name = k.name";
/// In the order of their names, so that transactions that add the same types wait for each other
/// and not in a circle.
const ADD: &str = "
    INSERT INTO type (tenant, name)
    SELECT k.tenant, k.name FROM unnest($1::text[], $2::text[]) AS k (tenant, name)
     ORDER BY k.tenant COLLATE \"C\", k.name COLLATE \"C\"
    ON CONFLICT (tenant, name) DO NOTHING";

/// The ids of those of these types that exist.
pub(crate) async fn find(session: &Session, keys: &[TypeKey]) -> Result<HashMap<TypeKey, i32>> {
    let (tenants, names) = columns(keys);
    let rows = session.query(FIND, &[&tenants, &names]).await?;
    rows.iter()
        .map(|row| Ok((row::type_key(row.try_get(0)?, row.try_get(1)?)?, row.try_get(2)?)))
        .collect()
}

/// Adds those of these types that do not exist; another transaction may add them at the same time.
pub(crate) async fn add(session: &Session, keys: &[TypeKey]) -> Result<()> {
    let (tenants, names) = columns(keys);
    session.execute(ADD, &[&tenants, &names]).await?;
    Ok(())
}

pub(crate) fn columns(keys: &[TypeKey]) -> (Vec<&str>, Vec<&str>) {
    keys.iter().map(|key| (key.tenant.as_str(), key.name.as_str())).unzip()
}

pub(crate) async fn suspend(tx: &mut Tx<'_>, key: &TypeKey, suspended: bool) -> Result<()> {
    tx.will_raise().await?;
    let id = tx.ensure_type(key).await?;
    tx.execute("UPDATE type SET suspended = $2 WHERE id = $1", &[&id, &suspended]).await?;
    tx.type_changed(id).await
}

pub(crate) async fn settings_put(
    tx: &mut Tx<'_>,
    key: &TypeKey,
    settings: &TypeSettings,
) -> Result<()> {
    tx.will_raise().await?;
    let id = tx.ensure_type(key).await?;
    let most = settings.concurrency.map(|most| i32::try_from(most).unwrap_or(i32::MAX));
    let before = "SELECT rate, spent FROM type WHERE id = $1 FOR NO KEY UPDATE";
    let before = tx.query_one(before, &[&id]).await?;
    let spent = Spent(before.try_get(1)?).follow(before.try_get(0)?, settings.rate, tx.now);
    let set = "
        UPDATE type SET settings = $2, running_max = $3, rate = $4, spent = $5 WHERE id = $1";
    let text = record::settings_to_text(settings);
    tx.execute(set, &[&id, &text, &most, &settings.rate, &spent.0]).await?;
    tx.type_changed(id).await
}

pub(crate) async fn settings_get(tx: &mut Tx<'_>, key: &TypeKey) -> Result<TypeSettings> {
    let find = "SELECT settings FROM type WHERE tenant = $1 AND name = $2";
    let row = tx.query_opt(find, &[&key.tenant.as_str(), &key.name.as_str()]).await?;
    row.map_or_else(|| Ok(TypeSettings::default()), |row| settings(row.try_get(0)?))
}

/// Decodes the column.
pub(crate) fn settings(text: Option<&str>) -> Result<TypeSettings> {
    match text {
        None => Ok(TypeSettings::default()),
        Some(text) => record::settings_from_text(text)
            .map_err(|reason| Failure::corrupt(format!("settings of a type: {reason}"))),
    }
}
