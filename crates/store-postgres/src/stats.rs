//! Counts of the jobs of types: of those that have not ended from the tables as they are, and of
//! those that have from sums, because they may be very many.

use tokio_postgres::Row;
use windlass_core::name::Tenant;
use windlass_core::store::TypeStats;

use crate::error::Result;
use crate::row;
use crate::tx::Tx;

const OF_TENANT: &str = include_str!("../sql/stats_of_tenant.sql");
const OF_ALL: &str = include_str!("../sql/stats_of_all.sql");

/// Deferred jobs that are due count as ready: no claim has come by to make them so.
pub(crate) async fn stats(tx: &Tx<'_>, tenant: Option<&Tenant>) -> Result<Vec<TypeStats>> {
    let rows = match tenant {
        Some(tenant) => tx.query(OF_TENANT, &[&tx.now.ms(), &tenant.as_str()]).await?,
        None => tx.query(OF_ALL, &[&tx.now.ms()]).await?,
    };
    rows.iter().map(of_type).collect()
}

fn of_type(row: &Row) -> Result<TypeStats> {
    let count =
        |column: usize| Ok::<_, tokio_postgres::Error>(row.try_get::<_, i64>(column)? as u64);
    Ok(TypeStats {
        key: row::type_key(row.try_get(0)?, row.try_get(1)?)?,
        handler: row.try_get(2)?,
        suspended: row.try_get(3)?,
        settings: row.try_get(4)?,
        ready: count(5)?,
        deferred: count(6)?,
        running: count(7)?,
        paused: count(8)?,
        finished: count(9)?,
        failed: count(10)?,
        cancelled: count(11)?,
        oldest_ready_at: row::time(row, 12)?,
    })
}
