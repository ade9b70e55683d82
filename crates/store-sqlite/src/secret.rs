//! Secrets, sealed: nothing here can be read without the key file.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use windlass_core::limit::SECRETS_MAX;
use windlass_core::name::Tenant;
use windlass_core::secret::{Sealed, SealedSecret, SecretInfo, SecretName};
use windlass_core::store::{Durability, Error, Secrets};
use windlass_core::time::Timestamp;

use crate::SqliteStore;
use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

const SYNCED: Durability = Durability::Synced;

type Answer<T> = std::result::Result<T, Error>;

#[async_trait]
impl Secrets for SqliteStore {
    async fn secret_put(&self, secret: SealedSecret) -> Answer<SecretInfo> {
        self.writer.write(SYNCED, 1, move |tx| put(tx, &secret)).await
    }

    async fn secret_get(
        &self,
        tenant: &Tenant,
        names: Vec<SecretName>,
    ) -> Answer<Vec<SealedSecret>> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| get(conn, &tenant, &names)).await
    }

    async fn secret_list(&self, tenant: &Tenant) -> Answer<Vec<SecretInfo>> {
        let tenant = tenant.clone();
        self.readers.read(move |conn| list(conn, &tenant)).await
    }

    async fn secret_delete(&self, tenant: &Tenant, name: &SecretName) -> Answer<bool> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.writer.write(SYNCED, 1, move |tx| delete(tx, &tenant, &name)).await
    }

    async fn secret_all(
        &self,
        after: Option<(Tenant, SecretName)>,
        limit: usize,
    ) -> Answer<Vec<SealedSecret>> {
        self.readers.read(move |conn| all(conn, after.as_ref(), limit)).await
    }

    async fn secret_reseal(&self, secrets: Vec<SealedSecret>) -> Answer<u64> {
        self.writer.write(SYNCED, secrets.len(), move |tx| reseal(tx, &secrets)).await
    }
}

const FIND: &str = "
    SELECT tenant, name, version, sealed FROM secret WHERE tenant = ?1 AND name = ?2";
const COUNT: &str = "SELECT count(*) FROM secret WHERE tenant = ?1 AND name <> ?2";
const PUT: &str = "
    INSERT INTO secret (tenant, name, version, updated_at, sealed) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (tenant, name) DO UPDATE
       SET version = excluded.version, updated_at = excluded.updated_at, sealed = excluded.sealed";

fn put(tx: &mut Tx<'_>, secret: &SealedSecret) -> Result<SecretInfo> {
    let SealedSecret { tenant, name, version, sealed } = secret;
    let place = [tenant.as_str(), name.as_str()];
    let others: i64 = tx.conn.prepare_cached(COUNT)?.query_row(place, |row| row.get(0))?;
    if others >= SECRETS_MAX as i64 {
        let message = format!("a tenant has at most {SECRETS_MAX} secrets");
        return Err(Failure::Store(Error::Conflict(message)));
    }
    let values = params![place[0], place[1], version.get(), tx.now.ms(), sealed.as_stored()];
    tx.conn.prepare_cached(PUT)?.execute(values)?;
    Ok(SecretInfo { name: name.clone(), version: *version, updated_at: tx.now })
}

fn get(conn: &Connection, tenant: &Tenant, names: &[SecretName]) -> Result<Vec<SealedSecret>> {
    let mut find = conn.prepare_cached(FIND)?;
    let mut secrets = Vec::with_capacity(names.len());
    for name in names {
        let mut rows = find.query([tenant.as_str(), name.as_str()])?;
        if let Some(row) = rows.next()? {
            secrets.push(secret(row)?);
        }
    }
    Ok(secrets)
}

const LIST: &str = "
    SELECT name, version, updated_at FROM secret WHERE tenant = ?1 ORDER BY name";

fn list(conn: &Connection, tenant: &Tenant) -> Result<Vec<SecretInfo>> {
    let mut find = conn.prepare_cached(LIST)?;
    let mut rows = find.query([tenant.as_str()])?;
    let mut secrets = Vec::new();
    while let Some(row) = rows.next()? {
        secrets.push(SecretInfo {
            name: name(row.get(0)?)?,
            version: row::job_id(row.get(1)?)?,
            updated_at: Timestamp(row.get(2)?),
        });
    }
    Ok(secrets)
}

fn delete(tx: &mut Tx<'_>, tenant: &Tenant, name: &SecretName) -> Result<bool> {
    let delete = "DELETE FROM secret WHERE tenant = ?1 AND name = ?2";
    Ok(tx.conn.prepare_cached(delete)?.execute([tenant.as_str(), name.as_str()])? > 0)
}

const ALL: &str = "
    SELECT tenant, name, version, sealed FROM secret
     WHERE (tenant, name) > (?1, ?2) ORDER BY tenant, name LIMIT ?3";

fn all(
    conn: &Connection,
    after: Option<&(Tenant, SecretName)>,
    limit: usize,
) -> Result<Vec<SealedSecret>> {
    let (tenant, name) = after.map_or(("", ""), |(tenant, name)| (tenant.as_str(), name.as_str()));
    let mut find = conn.prepare_cached(ALL)?;
    let mut rows = find.query(params![tenant, name, limit as i64])?;
    let mut secrets = Vec::new();
    while let Some(row) = rows.next()? {
        secrets.push(secret(row)?);
    }
    Ok(secrets)
}

const RESEAL: &str = "
    UPDATE secret SET sealed = ?4 WHERE tenant = ?1 AND name = ?2 AND version = ?3";

fn reseal(tx: &mut Tx<'_>, secrets: &[SealedSecret]) -> Result<u64> {
    let mut reseal = tx.conn.prepare_cached(RESEAL)?;
    let mut replaced = 0;
    for SealedSecret { tenant, name, version, sealed } in secrets {
        let values = params![tenant.as_str(), name.as_str(), version.get(), sealed.as_stored()];
        replaced += reseal.execute(values)? as u64;
    }
    Ok(replaced)
}

fn secret(row: &Row<'_>) -> Result<SealedSecret> {
    let tenant: String = row.get(0)?;
    let corrupt = |_| Failure::corrupt(format!("a secret of the tenant {tenant}"));
    Ok(SealedSecret {
        tenant: Tenant::new(&tenant).map_err(corrupt)?,
        name: name(row.get(1)?)?,
        version: row::job_id(row.get(2)?)?,
        sealed: Sealed::from_stored(row.get(3)?),
    })
}

fn name(text: String) -> Result<SecretName> {
    SecretName::new(&text).map_err(|_| Failure::corrupt(format!("the secret {text}")))
}
