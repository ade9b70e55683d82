//! The queue that River, Oban and others keep in PostgreSQL, without anything around it: one table,
//! `FOR UPDATE SKIP LOCKED`, and a row that is updated when its job starts and when it ends. It has
//! two indexes beside its key; theirs have more.

use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use tokio_postgres::{Client as Connection, Statement};

use crate::postgres::cycle::{Client, Queue};
use crate::postgres::database::Database;

const TABLE: &str = "
    CREATE TABLE plain_job (
        id           int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        state        text NOT NULL DEFAULT 'available',
        queue        text NOT NULL,
        kind         text NOT NULL,
        priority     int2 NOT NULL DEFAULT 1,
        attempt      int2 NOT NULL DEFAULT 0,
        scheduled_at timestamptz NOT NULL DEFAULT now(),
        created_at   timestamptz NOT NULL DEFAULT now(),
        attempted_at timestamptz,
        attempted_by text[],
        finalized_at timestamptz,
        args         jsonb NOT NULL
    );
    CREATE INDEX plain_job_next ON plain_job (state, queue, priority, scheduled_at, id);
    CREATE INDEX plain_job_ended ON plain_job (state, finalized_at) WHERE finalized_at IS NOT NULL";
const ADD: &str = "
    INSERT INTO plain_job (queue, kind, args)
    SELECT 'default', 'bench', unnest($1::text[])::jsonb";
const CLAIM: &str = "
    WITH next AS (
        SELECT id FROM plain_job
         WHERE state = 'available' AND queue = 'default' AND scheduled_at <= now()
         ORDER BY priority, scheduled_at, id LIMIT $1
           FOR UPDATE SKIP LOCKED
    )
    UPDATE plain_job j
       SET state = 'running', attempt = attempt + 1, attempted_at = now(),
           attempted_by = array_append(attempted_by, 'bench')
      FROM next WHERE j.id = next.id
    RETURNING j.id, j.kind, j.attempt, j.args::text";
const END: &str = "
    UPDATE plain_job SET state = 'completed', finalized_at = now()
     WHERE id = ANY ($1) AND state = 'running'";

pub(crate) struct PlainQueue {
    database: Arc<Database>,
    /// Whether claims and ends are answered before they are synced.
    relaxed: bool,
    payload: String,
}

impl PlainQueue {
    /// Creates the table.
    pub(crate) async fn create(database: &Database) -> anyhow::Result<()> {
        Ok(database.connect().await?.batch_execute(TABLE).await?)
    }

    /// Payloads of this many bytes.
    pub(crate) fn new(database: Arc<Database>, bytes: usize, relaxed: bool) -> PlainQueue {
        let text = "x".repeat(bytes - "{\"x\":\"\"}".len());
        PlainQueue { database, relaxed, payload: format!("{{\"x\":\"{text}\"}}") }
    }
}

#[async_trait]
impl Queue for PlainQueue {
    async fn client(&self, _: usize) -> anyhow::Result<Box<dyn Client>> {
        let adder = self.database.connect().await?;
        let worker = self.database.connect().await?;
        if self.relaxed {
            worker.batch_execute("SET synchronous_commit = off").await?;
        }
        Ok(Box::new(PlainClient {
            add: adder.prepare(ADD).await?,
            claim: worker.prepare(CLAIM).await?,
            end: worker.prepare(END).await?,
            payload: self.payload.clone(),
            adder,
            worker,
        }))
    }
}

struct PlainClient {
    adder: Connection,
    worker: Connection,
    add: Statement,
    claim: Statement,
    end: Statement,
    payload: String,
}

#[async_trait]
impl Client for PlainClient {
    async fn add(&mut self, jobs: usize) -> anyhow::Result<()> {
        let payloads = vec![self.payload.as_str(); jobs];
        self.adder.execute(&self.add, &[&payloads]).await?;
        Ok(())
    }

    async fn run(&mut self, jobs: usize) -> anyhow::Result<usize> {
        let limit = i64::try_from(jobs).context("a small batch")?;
        let rows = self.worker.query(&self.claim, &[&limit]).await?;
        let ids: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        Ok(self.worker.execute(&self.end, &[&ids]).await? as usize)
    }
}
