//! Settings of tenants.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use windlass_core::limit::TENANT_SETTINGS_MAX;
use windlass_core::name::Tenant;
use windlass_core::record;
use windlass_core::store::{Durability, Error, TenantRevision, Tenants};
use windlass_core::tenant::TenantSettings;

use crate::SqliteStore;
use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

type Answer<T> = std::result::Result<T, Error>;
type Changed = (TenantRevision, Tenant, TenantSettings);

#[async_trait]
impl Tenants for SqliteStore {
    async fn tenant_settings_put(&self, tenant: &Tenant, settings: TenantSettings) -> Answer<()> {
        let tenant = tenant.clone();
        self.writer.write(Durability::Synced, 1, move |tx| put(tx, &tenant, &settings)).await
    }

    async fn tenant_settings_get(&self, tenant: &Tenant) -> Answer<TenantSettings> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| get(conn, &tenant)).await
    }

    async fn tenant_settings_changed(
        &self,
        since: TenantRevision,
        limit: usize,
    ) -> Answer<Vec<Changed>> {
        self.readers.read(move |conn| changed(conn, since, limit)).await
    }
}

const COUNT: &str = "SELECT count(*) FROM tenant WHERE name <> ?1";
const NEXT: &str = "
    UPDATE meta SET value = value + 1 WHERE name = 'tenant_revision' RETURNING value";
const PUT: &str = "
    INSERT INTO tenant (name, settings, rev) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET settings = excluded.settings, rev = excluded.rev";

fn put(tx: &mut Tx<'_>, tenant: &Tenant, settings: &TenantSettings) -> Result<()> {
    let name = tenant.as_str();
    let others: i64 = tx.conn.prepare_cached(COUNT)?.query_row([name], |row| row.get(0))?;
    if others >= TENANT_SETTINGS_MAX as i64 {
        let message = format!("at most {TENANT_SETTINGS_MAX} tenants have settings");
        return Err(Failure::Store(Error::Conflict(message)));
    }
    let revision: Option<i64> =
        tx.conn.prepare_cached(NEXT)?.query_row([], |row| row.get(0)).optional()?;
    let missing = || Failure::corrupt("the revision of the settings of tenants is missing");
    let revision = revision.ok_or_else(missing)?;
    let values = params![name, record::tenant_to_text(settings), revision];
    tx.conn.prepare_cached(PUT)?.execute(values)?;
    Ok(())
}

fn get(conn: &Connection, tenant: &Tenant) -> Result<TenantSettings> {
    let mut find = conn.prepare_cached("SELECT settings FROM tenant WHERE name = ?1")?;
    let text = find.query_row([tenant.as_str()], |row| row.get::<_, String>(0)).optional()?;
    text.map_or_else(|| Ok(TenantSettings::default()), |text| settings(tenant.as_str(), &text))
}

const CHANGED: &str = "SELECT rev, name, settings FROM tenant WHERE rev > ?1 ORDER BY rev";

fn changed(conn: &Connection, since: TenantRevision, limit: usize) -> Result<Vec<Changed>> {
    let mut find = conn.prepare_cached(CHANGED)?;
    let mut rows = find.query([since.0])?;
    let mut changed = Vec::new();
    while changed.len() < limit
        && let Some(row) = rows.next()?
    {
        let name = row.get_ref(1)?.as_str();
        changed.extend(row::unless_row_damaged(&name, one_changed(row))?);
    }
    Ok(changed)
}

fn one_changed(row: &Row<'_>) -> Result<Changed> {
    let (name, text): (String, String) = (row.get(1)?, row.get(2)?);
    let tenant = Tenant::new(&name).map_err(|_| corrupt(&name))?;
    Ok((TenantRevision(row.get(0)?), tenant, settings(&name, &text)?))
}

fn settings(tenant: &str, text: &str) -> Result<TenantSettings> {
    record::tenant_from_text(text).map_err(|_| corrupt(tenant))
}

fn corrupt(tenant: &str) -> Failure {
    Failure::corrupt(format!("settings of the tenant {tenant}"))
}
