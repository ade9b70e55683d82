//! Handlers, in versions. The type's row names the current one.

use rusqlite::{Connection, Row, params};
use windlass_core::handler::{Handler, HandlerId, HandlerSpec, Lang};
use windlass_core::limit::HANDLER_VERSIONS_MAX;
use windlass_core::name::{Tenant, TypeKey};
use windlass_core::record;
use windlass_core::store::Error;
use windlass_core::time::Timestamp;

use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

const PUT: &str = "
    INSERT INTO handler (id, type_id, created_at, lang, body, before, before_each, after_each, eid,
                         options)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT (id) DO UPDATE
       SET created_at = excluded.created_at, lang = excluded.lang, body = excluded.body,
           before = excluded.before, before_each = excluded.before_each,
           after_each = excluded.after_each, eid = excluded.eid, options = excluded.options
     WHERE type_id = excluded.type_id";

pub(crate) fn put(tx: &mut Tx<'_>, id: HandlerId, key: &TypeKey, spec: &HandlerSpec) -> Result<()> {
    let conn = tx.conn;
    let type_id = tx.types.ensure(conn, key)?;
    let put = conn.prepare_cached(PUT)?.execute(params![
        id.get(),
        type_id,
        tx.now.ms(),
        spec.lang.as_str(),
        spec.body,
        spec.before,
        spec.before_each,
        spec.after_each,
        spec.eid,
        record::options_to_text(&spec.options),
    ])?;
    if put == 0 {
        let message = format!("the handler id {id} belongs to another type");
        return Err(Failure::Store(Error::Conflict(message)));
    }
    let enforce = "UPDATE type SET handler_id = ?2, handled = 1 WHERE id = ?1";
    conn.prepare_cached(enforce)?.execute([type_id, id.get()])?;
    tx.changed(type_id)?;
    let drop_old = "
        DELETE FROM handler
         WHERE type_id = ?1 AND id <> ?2
           AND id <= (SELECT id FROM handler
                       WHERE type_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?3)";
    let kept = HANDLER_VERSIONS_MAX as i64;
    conn.prepare_cached(drop_old)?.execute([type_id, id.get(), kept])?;
    Ok(())
}

const GET: &str = "
    SELECT h.id, t.tenant, t.name, h.created_at, h.lang, h.body, h.before, h.before_each,
           h.after_each, h.eid, h.options
      FROM type t JOIN handler h ON h.id = coalesce(?3, t.handler_id)
     WHERE t.tenant = ?1 AND t.name = ?2 AND h.type_id = t.id";

pub(crate) fn get(
    conn: &Connection,
    key: &TypeKey,
    version: Option<HandlerId>,
) -> Result<Option<Handler>> {
    let mut find = conn.prepare_cached(GET)?;
    let version = version.map(HandlerId::get);
    let mut rows = find.query(params![key.tenant.as_str(), key.name.as_str(), version])?;
    rows.next()?.map(handler).transpose()
}

const LIST: &str = "
    SELECT h.id, t.tenant, t.name, h.created_at, h.lang, h.body, h.before, h.before_each,
           h.after_each, h.eid, h.options
      FROM type t JOIN handler h ON h.id = t.handler_id
     WHERE t.tenant = ?1 ORDER BY t.name";

pub(crate) fn list(conn: &Connection, tenant: &Tenant) -> Result<Vec<Handler>> {
    let mut find = conn.prepare_cached(LIST)?;
    let mut rows = find.query([tenant.as_str()])?;
    let mut handlers = Vec::new();
    while let Some(row) = rows.next()? {
        handlers.push(handler(row)?);
    }
    Ok(handlers)
}

pub(crate) fn delete(tx: &mut Tx<'_>, key: &TypeKey) -> Result<bool> {
    let Some(type_id) = tx.types.find(tx.conn, key)? else { return Ok(false) };
    let remove = "UPDATE type SET handler_id = NULL, handled = 0 WHERE id = ?1 AND handled";
    let removed = tx.conn.prepare_cached(remove)?.execute([type_id])? > 0;
    if removed {
        tx.changed(type_id)?;
    }
    Ok(removed)
}

fn handler(row: &Row<'_>) -> Result<Handler> {
    let id = row::job_id(row.get(0)?)?;
    let corrupt = |reason: String| Failure::corrupt(format!("handler {id}: {reason}"));
    let lang: String = row.get(4)?;
    let options: String = row.get(10)?;
    Ok(Handler {
        id,
        key: row::type_key(row.get_ref(1)?.as_str(), row.get_ref(2)?.as_str())?,
        created_at: Timestamp(row.get(3)?),
        spec: HandlerSpec {
            lang: Lang::parse(&lang).map_err(|invalid| corrupt(invalid.to_string()))?,
            body: row.get(5)?,
            before: row.get(6)?,
            before_each: row.get(7)?,
            after_each: row.get(8)?,
            eid: row.get(9)?,
            options: record::options_from_text(&options).map_err(corrupt)?,
        },
    })
}
