//! A private PostgreSQL server with durable commits.

use tokio_postgres::{Client, NoTls};

use windlass_test_servers::{Kind, Server};

use crate::process::database;

/// What every operator of a busy server sets: memory for what is read often, and rare checkpoints.
const SETTINGS: [&str; 3] =
    ["shared_buffers = '1GB'", "max_wal_size = '16GB'", "checkpoint_timeout = '30min'"];

pub(crate) struct Database {
    server: Server,
    name: String,
}

impl Database {
    pub(crate) fn start() -> anyhow::Result<Database> {
        let server = database::start(Kind::Postgres)?;
        let name = server.new_database();
        for setting in SETTINGS {
            server.sql(&name, &format!("ALTER SYSTEM SET {setting}"));
        }
        server.stop();
        server.restart();
        Ok(Database { server, name })
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// A connection; a task of its own serves it until it is dropped.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Collects what the planner has to know, and what is dead, as the server does after a while.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        Ok(self.connect().await?.batch_execute("VACUUM ANALYZE; CHECKPOINT").await?)
    }

    /// A transaction that is left open: while the answer lives, the server keeps every row that it
    /// could see, also those that are deleted.
    pub(crate) async fn pin(&self) -> anyhow::Result<Client> {
        let client = self.connect().await?;
        client
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()")
            .await?;
        Ok(client)
    }
}
