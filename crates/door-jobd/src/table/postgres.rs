//! The table in PostgreSQL:
//!
//! ```sql
//! CREATE TABLE jobs (
//!   id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
//!   target VARCHAR(16) NOT NULL,
//!   time_created BIGINT NOT NULL,
//!   time_started BIGINT NOT NULL DEFAULT 0,
//!   time_finished BIGINT NOT NULL DEFAULT 0,
//!   status VARCHAR(8) NOT NULL DEFAULT 'waiting'
//!     CHECK (status IN ('waiting','manual','accepted','running','done','ignored')),
//!   result VARCHAR(4) CHECK (result IN ('ok','fail')),
//!   return_code SMALLINT,
//!   sig VARCHAR(10),
//!   stdout TEXT,
//!   stderr TEXT
//! );
//! CREATE INDEX jobs_status_target_idx ON jobs (status, target, id);
//! ```

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls};

use super::fit::{Alphabet, ColumnLimits, TableLimits};
use super::pool::{Pool, PooledConnection};
use super::session::{Backend, Dialect, Fault, Session, Value};
use super::url::Server;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// PostgreSQL allows values of one gigabyte, but we should not need memory for several copies of
/// that.
const PACKET_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A time limit for locks, and the expected text formats.
const SETTINGS: &str =
    "SET lock_timeout = '5s'; SET default_transaction_isolation = 'read committed'";

const DIALECT: Dialect = Dialect {
    quote: '"',
    lock: " FOR UPDATE",
    now: "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
    as_text: "CAST({} AS TEXT)",
    or_replace: "ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, boot = excluded.boot, \
                 lease_until = excluded.lease_until, was = excluded.was",
    number: "BIGINT",
    name: "VARCHAR(255)",
};

const SKIP_LOCKED: &str = " FOR UPDATE SKIP LOCKED";

/// Error classes that pass: lost connections, insufficient resources, operator intervention, system
/// errors.
const PASSING: [&str; 4] = ["08", "53", "57", "58"];

pub(super) struct Postgres {
    config: Config,
    pool: Pool<Client>,
}

impl Postgres {
    pub(super) fn new(server: &Server) -> Self {
        let mut config = Config::new();
        config
            .host(&server.host)
            .port(server.port)
            .user(&server.user)
            .password(&server.password)
            .dbname(&server.database)
            .application_name("windlass");
        Self { config, pool: Pool::new() }
    }

    async fn connect(&self) -> Result<Client, Fault> {
        let connecting = async {
            let (client, connection) = self.config.connect(NoTls).await?;
            // The task ends with the client.
            tokio::spawn(connection);
            client.batch_execute(SETTINGS).await?;
            Ok(client)
        };
        let late = |_| Fault::Away("connecting took too long".into());
        timeout(CONNECT_TIME_MAX, connecting).await.map_err(late)?.map_err(|error| fault(&error))
    }

    async fn session(&self) -> Result<PostgresSession, Fault> {
        let mut pooled = self.pool.borrow().await?;
        // Idle connections may have been closed by the server long ago.
        while let Some(idle) = pooled.connection() {
            if idle.batch_execute("BEGIN").await.is_ok() {
                return Ok(PostgresSession { pooled });
            }
            pooled.take_idle();
        }
        let client = pooled.put(self.connect().await?);
        client.batch_execute("BEGIN").await.map_err(|error| fault(&error))?;
        Ok(PostgresSession { pooled })
    }
}

#[async_trait]
impl Backend for Postgres {
    fn dialect(&self) -> Dialect {
        DIALECT
    }

    async fn begin(&self) -> Result<Box<dyn Session>, Fault> {
        Ok(Box::new(self.session().await?))
    }

    async fn inspect(&self, schema: Option<&str>, table: &str) -> Result<TableLimits, Fault> {
        let mut session = Box::new(self.session().await?);
        let columns = "SELECT CAST(column_name AS TEXT), CAST(data_type AS TEXT), \
                       CAST(character_maximum_length AS BIGINT) \
                       FROM information_schema.columns \
                       WHERE table_schema = COALESCE(?, current_schema()) AND table_name = ?";
        let schema = Value::from(schema.map(str::to_owned));
        let columns = session.rows(columns, vec![schema, Value::Text(table.into())]).await?;
        let encoding =
            session.rows("SELECT current_setting('server_encoding')", Vec::new()).await?;
        let utf8 = encoding.first().and_then(|row| row.first()).is_some_and(|e| e.text() == "UTF8");
        let alphabet = if utf8 { Alphabet::NoNul } else { Alphabet::Ascii };
        let mut limits = TableLimits {
            packet_bytes_max: Some(PACKET_BYTES_MAX),
            skip: SKIP_LOCKED,
            ..TableLimits::default()
        };
        for column in &columns {
            let [name, kind, chars] = column.as_slice() else { continue };
            let chars_max = chars.id().and_then(|chars| usize::try_from(chars).ok());
            let column_limits = ColumnLimits { chars_max, alphabet, ..ColumnLimits::default() };
            match name.text().as_str() {
                "target" => limits.target = column_limits,
                "stdout" => limits.stdout = column_limits,
                "stderr" => limits.stderr = column_limits,
                "sig" => limits.signal = column_limits,
                "return_code" if kind.text() == "smallint" => {
                    limits.code = Some((i16::MIN.into(), i16::MAX.into()));
                }
                _ => {}
            }
        }
        session.commit().await?;
        Ok(limits)
    }

    async fn close(&self) {
        self.pool.close();
    }
}

struct PostgresSession {
    pooled: PooledConnection<Client>,
}

impl PostgresSession {
    fn client(&mut self) -> Result<&mut Client, Fault> {
        self.pooled.connection().ok_or_else(|| Fault::Away("the connection is gone".into()))
    }
}

#[async_trait]
impl Session for PostgresSession {
    async fn rows(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Vec<Value>>, Fault> {
        let values: Vec<_> = values.into_iter().map(parameter).collect();
        let values: Vec<_> = values.iter().map(borrowed).collect();
        let rows = self.client()?.query_typed(&numbered(sql), &values).await;
        let rows = rows.map_err(|error| fault(&error))?;
        rows.iter().map(|row| (0..row.len()).map(|at| value(row, at)).collect()).collect()
    }

    async fn run(&mut self, sql: &str, values: Vec<Value>) -> Result<(), Fault> {
        let values: Vec<_> = values.into_iter().map(parameter).collect();
        let values: Vec<_> = values.iter().map(borrowed).collect();
        let ran = self.client()?.execute_typed(&numbered(sql), &values).await;
        ran.map(|_| ()).map_err(|error| fault(&error))
    }

    async fn commit(mut self: Box<Self>) -> Result<(), Fault> {
        self.client()?.batch_execute("COMMIT").await.map_err(|error| fault(&error))?;
        self.pooled.keep();
        Ok(())
    }
}

type Parameter = (Box<dyn ToSql + Sync + Send>, Type);

/// Text is sent without a type, so that the server converts it to the column's type.
fn parameter(value: Value) -> Parameter {
    match value {
        Value::Null => (Box::new(None::<String>), Type::UNKNOWN),
        Value::Int(number) => (Box::new(number), Type::INT8),
        Value::Text(text) => (Box::new(text), Type::UNKNOWN),
    }
}

fn borrowed((value, kind): &Parameter) -> (&(dyn ToSql + Sync), Type) {
    (&**value, kind.clone())
}

/// Replaces `?` by `$1`, `$2` …, except in quoted names and texts.
fn numbered(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 16);
    let (mut number, mut quote) = (0, None);
    for c in sql.chars() {
        match (c, quote) {
            ('?', None) => {
                number += 1;
                out.push_str(&format!("${number}"));
                continue;
            }
            ('"' | '\'', None) => quote = Some(c),
            (_, Some(open)) if open == c => quote = None,
            _ => {}
        }
        out.push(c);
    }
    out
}

fn value(row: &tokio_postgres::Row, at: usize) -> Result<Value, Fault> {
    let kind = row.columns()[at].type_();
    let read = if *kind == Type::INT8 {
        row.try_get::<_, Option<i64>>(at).map(Value::from)
    } else if *kind == Type::INT4 {
        row.try_get::<_, Option<i32>>(at).map(|number| Value::from(number.map(i64::from)))
    } else if *kind == Type::INT2 {
        row.try_get::<_, Option<i16>>(at).map(|number| Value::from(number.map(i64::from)))
    } else {
        row.try_get::<_, Option<String>>(at).map(Value::from)
    };
    read.map_err(|error| fault(&error))
}

fn fault(error: &Error) -> Fault {
    let Some(db_error) = error.as_db_error() else { return Fault::Away(error.to_string()) };
    let text = format!("{}: {}", db_error.severity(), db_error.message());
    let code = db_error.code();
    let clashes = [
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::T_R_DEADLOCK_DETECTED,
        &SqlState::LOCK_NOT_AVAILABLE,
    ];
    if clashes.contains(&code) {
        Fault::Clash(text)
    } else if PASSING.iter().any(|class| code.code().starts_with(class))
        || *code == SqlState::READ_ONLY_SQL_TRANSACTION
    {
        Fault::Away(text)
    } else {
        Fault::Refused(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_numbered_but_not_in_quotes() {
        assert_eq!(
            numbered("a = ? AND \"b?\" = '?' OR c = ?"),
            "a = $1 AND \"b?\" = '?' OR c = $2"
        );
    }
}
