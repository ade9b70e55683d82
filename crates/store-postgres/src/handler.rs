//! Handlers, in versions. The type's row names the current one.

use tokio_postgres::Row;
use windlass_core::handler::{Handler, HandlerId, HandlerSpec, Lang};
use windlass_core::limit::HANDLER_VERSIONS_MAX;
use windlass_core::name::{Tenant, TypeKey};
use windlass_core::record;
use windlass_core::time::Timestamp;

use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

const PUT: &str = "
    INSERT INTO handler (id, type_id, created_at, lang, body, before, before_each, after_each, eid,
                         options)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    ON CONFLICT (id) DO UPDATE
       SET created_at = excluded.created_at, lang = excluded.lang, body = excluded.body,
           before = excluded.before, before_each = excluded.before_each,
           after_each = excluded.after_each, eid = excluded.eid, options = excluded.options
     WHERE handler.type_id = excluded.type_id";
const ENFORCE: &str = "UPDATE type SET handler_id = $2 WHERE id = $1";
const DROP_OLD: &str = "
    DELETE FROM handler
     WHERE type_id = $1 AND id <> $2
       AND id <= (SELECT id FROM handler WHERE type_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $3)";

pub(crate) async fn put(
    tx: &mut Tx<'_>,
    id: HandlerId,
    key: &TypeKey,
    spec: &HandlerSpec,
) -> Result<()> {
    tx.will_raise().await?;
    let type_id = tx.ensure_type(key).await?;
    // Locks the row of the type: versions of one type are put one after the other.
    tx.execute(ENFORCE, &[&type_id, &id.get()]).await?;
    let bytes = |text: &Option<String>| text.as_ref().map(|text| text.clone().into_bytes());
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 10] = [
        &id.get(),
        &type_id,
        &tx.now.ms(),
        &spec.lang.as_str(),
        &spec.body.as_bytes(),
        &bytes(&spec.before),
        &bytes(&spec.before_each),
        &bytes(&spec.after_each),
        &bytes(&spec.eid),
        &record::options_to_text(&spec.options),
    ];
    if tx.execute(PUT, &values).await? == 0 {
        return Err(Failure::conflict(format!("the handler id {id} belongs to another type")));
    }
    let kept = HANDLER_VERSIONS_MAX as i64;
    tx.execute(DROP_OLD, &[&type_id, &id.get(), &kept]).await?;
    tx.type_changed(type_id).await
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT h.id, t.tenant, t.name, h.created_at, h.lang, h.body, h.before, h.before_each,
                    h.after_each, h.eid, h.options
               FROM type t JOIN handler h ON ",
            $rest
        )
    };
}
const GET: &str = select!(
    "h.id = coalesce($3, t.handler_id)
      WHERE t.tenant = $1 AND t.name = $2 AND h.type_id = t.id"
);
const LIST: &str = select!("h.id = t.handler_id WHERE t.tenant = $1 ORDER BY t.name");

pub(crate) async fn get(
    tx: &Tx<'_>,
    key: &TypeKey,
    version: Option<HandlerId>,
) -> Result<Option<Handler>> {
    let version = version.map(HandlerId::get);
    let found = tx.query_opt(GET, &[&key.tenant.as_str(), &key.name.as_str(), &version]).await?;
    found.as_ref().map(handler).transpose()
}

pub(crate) async fn list(tx: &Tx<'_>, tenant: &Tenant) -> Result<Vec<Handler>> {
    tx.query(LIST, &[&tenant.as_str()]).await?.iter().map(handler).collect()
}

pub(crate) async fn delete(tx: &mut Tx<'_>, key: &TypeKey) -> Result<bool> {
    let Some(type_id) = tx.type_id(key).await? else { return Ok(false) };
    tx.will_raise().await?;
    let remove = "UPDATE type SET handler_id = NULL WHERE id = $1 AND handler_id IS NOT NULL";
    let removed = tx.execute(remove, &[&type_id]).await? > 0;
    if removed {
        tx.type_changed(type_id).await?;
    }
    Ok(removed)
}

fn handler(row: &Row) -> Result<Handler> {
    let id = row::job_id(row.try_get(0)?)?;
    let corrupt = |reason: String| Failure::corrupt(format!("handler {id}: {reason}"));
    let text = |column: usize| -> Result<Option<String>> {
        row.try_get::<_, Option<&[u8]>>(column)?.map(row::text).transpose()
    };
    let body = text(5)?.ok_or_else(|| corrupt("it has no body".into()))?;
    Ok(Handler {
        id,
        key: row::type_key(row.try_get(1)?, row.try_get(2)?)?,
        created_at: Timestamp(row.try_get(3)?),
        spec: HandlerSpec {
            lang: Lang::parse(row.try_get(4)?).map_err(|invalid| corrupt(invalid.to_string()))?,
            body,
            before: text(6)?,
            before_each: text(7)?,
            after_each: text(8)?,
            eid: text(9)?,
            options: record::options_from_text(row.try_get(10)?).map_err(corrupt)?,
        },
    })
}
