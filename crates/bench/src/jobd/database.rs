//! A private MariaDB with durable commits, and tables like jobd's.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

use windlass_test_servers::{JOBD_TABLE, Kind, Server};

use crate::machine;
use crate::process::database;

/// The target of all rows.
pub(crate) const TARGET: &str = "bench";
/// How often to check whether all rows are done.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

pub(crate) struct Database {
    server: Server,
    name: String,
}

impl Database {
    pub(crate) fn start() -> anyhow::Result<Database> {
        let server = database::start(Kind::MariaDb)?;
        let name = server.new_database();
        Ok(Database { server, name })
    }

    /// The keys of a worker's configuration for this table.
    pub(crate) fn config(&self, table: &Table) -> String {
        let Database { server, name } = self;
        format!(
            "mysql_host=127.0.0.1\nmysql_port={}\nmysql_user={}\nmysql_password={}\n\
             mysql_database={name}\nmysql_table={}\n",
            server.port(),
            server.user(),
            server.password(),
            table.name
        )
    }

    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let process = self.server.process_id().context("MariaDB is no longer running")?;
        machine::cpu(&process.to_string())
    }

    pub(crate) async fn table(&self, name: &'static str) -> anyhow::Result<Table> {
        let mut connection = Conn::new(Opts::from_url(&self.server.url(&self.name))?).await?;
        connection.query_drop(JOBD_TABLE.replace("`jobs`", name)).await?;
        Ok(Table { name, connection, added: 0 })
    }
}

/// A table, as seen by the program that adds jobs to it.
pub(crate) struct Table {
    name: &'static str,
    connection: Conn,
    added: u64,
}

impl Table {
    /// Adds waiting rows.
    pub(crate) async fn add(&mut self, rows: u64) -> anyhow::Result<()> {
        let name = self.name;
        let add = format!(
            "INSERT INTO {name} (target, time_created) \
             SELECT '{TARGET}', UNIX_TIMESTAMP() FROM seq_1_to_{rows}"
        );
        self.connection.query_drop(add).await.context("rows cannot be added")?;
        self.added += rows;
        Ok(())
    }

    /// Waits until all rows are done, and checks that they ended as expected.
    pub(crate) async fn done(&mut self, patience: Duration) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let left = format!(
            "SELECT id FROM {} WHERE status IN ('waiting', 'accepted', 'running') LIMIT 1",
            self.name
        );
        while self.connection.query_first::<u64, _>(&left).await?.is_some() {
            ensure!(began.elapsed() < patience, "the rows are not done after {patience:?}");
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        let took = began.elapsed();
        let ok = format!("SELECT COUNT(*) FROM {} WHERE result = 'ok'", self.name);
        let ok: Option<u64> = self.connection.query_first(ok).await?;
        ensure!(ok == Some(self.added), "{ok:?} of {} jobs succeeded", self.added);
        Ok(took)
    }
}
