//! Settings of tenants. Changes run one after the other: each first locks the row of their
//! revision, so that revisions are committed in order and the count is exact.

use tokio_postgres::Row;
use windlass_core::limit::TENANT_SETTINGS_MAX;
use windlass_core::name::Tenant;
use windlass_core::record;
use windlass_core::store::TenantRevision;
use windlass_core::tenant::TenantSettings;

use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;
use crate::waiting;

const LOCK: &str = "SELECT 1 FROM meta WHERE name = 'tenant_revision' FOR UPDATE";
const COUNT: &str = "SELECT count(*) FROM tenant WHERE name <> $1";
const NEXT: &str = "
    UPDATE meta SET value = value + 1 WHERE name = 'tenant_revision' RETURNING value";
const PUT: &str = "
    INSERT INTO tenant (name, settings, rev) VALUES ($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET settings = excluded.settings, rev = excluded.rev";

pub(crate) async fn put(tx: &mut Tx<'_>, tenant: &Tenant, settings: &TenantSettings) -> Result<()> {
    let name = tenant.as_str();
    waiting::revive_if_lost(tx).await?;
    tx.query_one(LOCK, &[]).await?;
    let others: i64 = tx.query_one(COUNT, &[&name]).await?.try_get(0)?;
    if others >= TENANT_SETTINGS_MAX as i64 {
        let message = format!("at most {TENANT_SETTINGS_MAX} tenants have settings");
        return Err(Failure::conflict(message));
    }
    let revision: i64 = tx.query_one(NEXT, &[]).await?.try_get(0)?;
    tx.execute(PUT, &[&name, &record::tenant_to_text(settings), &revision]).await?;
    Ok(())
}

pub(crate) async fn get(tx: &Tx<'_>, tenant: &Tenant) -> Result<TenantSettings> {
    let find = "SELECT settings FROM tenant WHERE name = $1";
    let row = tx.query_opt(find, &[&tenant.as_str()]).await?;
    let text: Option<&str> = row.as_ref().map(|row| row.try_get(0)).transpose()?;
    text.map_or_else(|| Ok(TenantSettings::default()), |text| settings(tenant.as_str(), text))
}

const CHANGED: &str = "SELECT rev, name, settings FROM tenant WHERE rev > $1 ORDER BY rev LIMIT $2";

pub(crate) async fn changed(
    tx: &Tx<'_>,
    since: TenantRevision,
    limit: usize,
) -> Result<Vec<(TenantRevision, Tenant, TenantSettings)>> {
    let (mut changed, mut after) = (Vec::new(), since.0);
    while changed.len() < limit {
        let room = (limit - changed.len()) as i64;
        let rows = tx.query(CHANGED, &[&after, &room]).await?;
        let Some(last) = rows.last() else { break };
        after = last.try_get(0)?;
        for row in &rows {
            let name: &str = row.try_get(1)?;
            changed.extend(row::unless_row_damaged(&name, one_changed(row))?);
        }
    }
    Ok(changed)
}

fn one_changed(row: &Row) -> Result<(TenantRevision, Tenant, TenantSettings)> {
    let name: &str = row.try_get(1)?;
    let tenant = Tenant::new(name).map_err(|_| corrupt(name))?;
    Ok((TenantRevision(row.try_get(0)?), tenant, settings(name, row.try_get(2)?)?))
}

fn settings(tenant: &str, text: &str) -> Result<TenantSettings> {
    record::tenant_from_text(text).map_err(|_| corrupt(tenant))
}

fn corrupt(tenant: &str) -> Failure {
    Failure::corrupt(format!("settings of the tenant {tenant}"))
}
