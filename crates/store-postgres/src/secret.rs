//! Secrets, sealed: nothing here can be read without the key file.

use tokio_postgres::Row;
use windlass_core::limit::SECRETS_MAX;
use windlass_core::name::Tenant;
use windlass_core::secret::{Sealed, SealedSecret, SecretInfo, SecretName};
use windlass_core::time::Timestamp;

use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

const FIND: &str = "
    SELECT s.tenant, s.name, s.version, s.sealed
      FROM unnest($2::text[]) WITH ORDINALITY AS wanted (name, place)
      JOIN secret s ON s.tenant = $1 AND s.name = wanted.name
     ORDER BY wanted.place";
const COUNT: &str = "SELECT count(*) FROM secret WHERE tenant = $1 AND name <> $2";
/// Puts of one tenant run one after the other, so that the count is exact.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtext($1), hashtext(current_schema()))";
const PUT: &str = "
    INSERT INTO secret (tenant, name, version, updated_at, sealed) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (tenant, name) DO UPDATE
       SET version = excluded.version, updated_at = excluded.updated_at, sealed = excluded.sealed";

pub(crate) async fn put(tx: &mut Tx<'_>, secret: &SealedSecret) -> Result<SecretInfo> {
    let SealedSecret { tenant, name, version, sealed } = secret;
    let (tenant, named) = (tenant.as_str(), name.as_str());
    tx.execute(LOCK, &[&format!("secrets of {tenant}")]).await?;
    let others: i64 = tx.query_one(COUNT, &[&tenant, &named]).await?.try_get(0)?;
    if others >= SECRETS_MAX as i64 {
        return Err(Failure::conflict(format!("a tenant has at most {SECRETS_MAX} secrets")));
    }
    let (version_number, now) = (version.get(), tx.now.ms());
    tx.execute(PUT, &[&tenant, &named, &version_number, &now, &sealed.as_stored()]).await?;
    Ok(SecretInfo { name: name.clone(), version: *version, updated_at: tx.now })
}

pub(crate) async fn get(
    tx: &Tx<'_>,
    tenant: &Tenant,
    names: &[SecretName],
) -> Result<Vec<SealedSecret>> {
    let names: Vec<&str> = names.iter().map(SecretName::as_str).collect();
    let rows = tx.query(FIND, &[&tenant.as_str(), &names]).await?;
    rows.iter().map(secret).collect()
}

const LIST: &str = "
    SELECT name, version, updated_at FROM secret WHERE tenant = $1 ORDER BY name";

pub(crate) async fn list(tx: &Tx<'_>, tenant: &Tenant) -> Result<Vec<SecretInfo>> {
    let info = |row: &Row| {
        let (name, version) = (name(row.try_get(0)?)?, row::job_id(row.try_get(1)?)?);
        Ok(SecretInfo { name, version, updated_at: Timestamp(row.try_get(2)?) })
    };
    tx.query(LIST, &[&tenant.as_str()]).await?.iter().map(info).collect()
}

pub(crate) async fn delete(tx: &mut Tx<'_>, tenant: &Tenant, name: &SecretName) -> Result<bool> {
    let delete = "DELETE FROM secret WHERE tenant = $1 AND name = $2";
    Ok(tx.execute(delete, &[&tenant.as_str(), &name.as_str()]).await? > 0)
}

const ALL: &str = "
    SELECT tenant, name, version, sealed FROM secret
     WHERE (tenant, name) > ($1, $2) ORDER BY tenant, name LIMIT $3";

pub(crate) async fn all(
    tx: &Tx<'_>,
    after: Option<&(Tenant, SecretName)>,
    limit: usize,
) -> Result<Vec<SealedSecret>> {
    let (tenant, name) = after.map_or(("", ""), |(tenant, name)| (tenant.as_str(), name.as_str()));
    let rows = tx.query(ALL, &[&tenant, &name, &(limit as i64)]).await?;
    rows.iter().map(secret).collect()
}

/// The rows are locked in one order first: two daemons may reseal the same secrets.
const LOCK_ALL: &str = "
    SELECT 1 FROM secret WHERE (tenant, name) IN (SELECT * FROM unnest($1::text[], $2::text[]))
     ORDER BY tenant, name FOR NO KEY UPDATE";
const RESEAL: &str = "
    UPDATE secret s SET sealed = new.sealed
      FROM unnest($1::text[], $2::text[], $3::int8[], $4::bytea[])
           AS new (tenant, name, version, sealed)
     WHERE s.tenant = new.tenant AND s.name = new.name AND s.version = new.version";

pub(crate) async fn reseal(tx: &mut Tx<'_>, secrets: &[SealedSecret]) -> Result<u64> {
    let tenants: Vec<&str> = secrets.iter().map(|secret| secret.tenant.as_str()).collect();
    let names: Vec<&str> = secrets.iter().map(|secret| secret.name.as_str()).collect();
    let versions: Vec<i64> = secrets.iter().map(|secret| secret.version.get()).collect();
    let sealed: Vec<&[u8]> = secrets.iter().map(|secret| secret.sealed.as_stored()).collect();
    tx.execute(LOCK_ALL, &[&tenants, &names]).await?;
    tx.execute(RESEAL, &[&tenants, &names, &versions, &sealed]).await
}

fn secret(row: &Row) -> Result<SealedSecret> {
    let tenant: &str = row.try_get(0)?;
    let corrupt = |_| Failure::corrupt(format!("a secret of the tenant {tenant}"));
    Ok(SealedSecret {
        tenant: Tenant::new(tenant).map_err(corrupt)?,
        name: name(row.try_get(1)?)?,
        version: row::job_id(row.try_get(2)?)?,
        sealed: Sealed::from_stored(row.try_get::<_, Vec<u8>>(3)?),
    })
}

fn name(text: &str) -> Result<SecretName> {
    SecretName::new(text).map_err(|_| Failure::corrupt(format!("the secret {text}")))
}
