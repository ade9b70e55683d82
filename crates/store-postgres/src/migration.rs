//! The layout of the schema, in numbered steps that only go forward. The table `layout` has the
//! number of applied steps, and marks the schema as ours.

use crate::connection::Session;
use crate::error::{Failure, Result};
use crate::pool::quoted;

/// Step number n (from 1) leads to version n.
const STEPS: [&str; 1] = [include_str!("../sql/001_initial.sql")];

/// Migrates the schema to the newest version, and creates it if it is missing. A newer one, or one
/// of another program, is refused and left unchanged.
pub(crate) async fn migrate(session: &Session, schema: &str, server: &str) -> Result<()> {
    bring_up(session, &STEPS, schema, server).await
}

/// Daemons that start at the same time migrate one after the other. The schema is the other half
/// of the key.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1465140300, hashtext($1))";

async fn bring_up(session: &Session, steps: &[&str], schema: &str, server: &str) -> Result<()> {
    let newest = steps.len() as i32;
    // Most starts find nothing to do, and then need no right to create anything.
    if applied(session, newest, schema, server).await? == newest {
        return Ok(());
    }
    session.batch("BEGIN").await?;
    let applied = apply(session, steps, schema, server).await;
    session.batch(if applied.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    applied
}

async fn apply(session: &Session, steps: &[&str], schema: &str, server: &str) -> Result<()> {
    let newest = steps.len() as i32;
    session.execute(LOCK, &[&schema]).await?;
    // Another daemon may have migrated it while this one waited for the lock.
    let from = applied(session, newest, schema, server).await?;
    if from == newest {
        return Ok(());
    }
    let name = quoted(schema);
    if from == 0 {
        // Not IF NOT EXISTS: that needs the right to create schemas, even if one is there.
        if !exists(session, schema).await? {
            session.batch(&format!("CREATE SCHEMA {name}")).await?;
        }
        session.batch(&format!("CREATE TABLE {name}.layout (version int4 NOT NULL)")).await?;
        session.batch(&format!("INSERT INTO {name}.layout VALUES (0)")).await?;
    }
    session.batch(&format!("SET LOCAL search_path = {name}, pg_temp")).await?;
    for step in &steps[from as usize..] {
        session.batch(step).await?;
    }
    session.batch(&format!("UPDATE {name}.layout SET version = {newest}")).await
}

async fn exists(session: &Session, schema: &str) -> Result<bool> {
    const FIND: &str = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1";
    Ok(session.query_opt(FIND, &[&schema]).await?.is_some())
}

/// The version of the schema: 0 if it is empty or missing, at most `newest`.
async fn applied(session: &Session, newest: i32, schema: &str, server: &str) -> Result<i32> {
    const RELATIONS: &str = "
        SELECT count(*), coalesce(bool_or(c.relname = 'layout'), false)
          FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = $1";
    let row = session.query_one(RELATIONS, &[&schema]).await?;
    match (row.try_get::<_, i64>(0)?, row.try_get(1)?) {
        (0, _) => Ok(0),
        (_, false) => Err(Failure::conflict(format!(
            "{server}: the schema {schema} belongs to another program, not to Windlass"
        ))),
        (_, true) => {
            let version = version(session, schema).await?;
            if (1..=newest).contains(&version) {
                return Ok(version);
            }
            Err(Failure::conflict(format!(
                "{server}: the schema {schema} has layout version {version} of a newer Windlass; \
                 this one supports versions up to {newest}"
            )))
        }
    }
}

async fn version(session: &Session, schema: &str) -> Result<i32> {
    let ask = format!("SELECT version FROM {}.layout", quoted(schema));
    session.number(&ask).await
}
