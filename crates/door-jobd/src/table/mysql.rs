//! The table in MySQL or MariaDB, as the original has it:
//!
//! ```sql
//! CREATE TABLE jobs (
//!   id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
//!   target CHAR(16) NOT NULL,
//!   time_created INT UNSIGNED NOT NULL,
//!   time_started INT UNSIGNED NOT NULL DEFAULT 0,
//!   time_finished INT UNSIGNED NOT NULL DEFAULT 0,
//!   status ENUM('waiting','manual','accepted','running','done','ignored')
//!     NOT NULL DEFAULT 'waiting',
//!   result ENUM('ok','fail') DEFAULT NULL,
//!   return_code TINYINT UNSIGNED DEFAULT NULL,
//!   sig CHAR(10) DEFAULT NULL,
//!   stdout MEDIUMTEXT DEFAULT NULL,
//!   stderr MEDIUMTEXT DEFAULT NULL,
//!   KEY status_target_idx (status, target, id)
//! ) ENGINE=InnoDB;
//! ```

use std::time::Duration;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Params};
use tokio::time::timeout;

use super::fit::{Alphabet, ColumnLimits, TableLimits};
use super::pool::{Pool, PooledConnection};
use super::session::{Backend, Dialect, Fault, Session, Value};
use super::url::Server;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Time limit for disconnecting from a server that may be frozen.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// Prepared statements that a connection keeps.
const STATEMENTS_MAX: usize = 64;

/// Detects a dead peer even when nothing is sent.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// How long to wait for another session's lock.
const LOCK_WAIT_SECONDS: u32 = 5;

const DIALECT: Dialect = Dialect {
    quote: '`',
    lock: " FOR UPDATE",
    now: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
    as_text: "{}",
    or_replace: "ON DUPLICATE KEY UPDATE owner = VALUES(owner), boot = VALUES(boot), \
                 lease_until = VALUES(lease_until), was = VALUES(was)",
    number: "BIGINT UNSIGNED",
    name: "VARCHAR(255) CHARACTER SET utf8mb4",
};

const SKIP_LOCKED: &str = " FOR UPDATE SKIP LOCKED";

/// Server errors that mean a conflict with other sessions.
const CLASHES: [u16; 3] = [1205, 1213, 1020];

/// Server errors that pass: too many connections, a full disk, shutting down, temporarily
/// read-only, a killed query, a cluster node that is not ready.
const PASSING: [u16; 14] =
    [1021, 1040, 1047, 1053, 1077, 1114, 1158, 1159, 1160, 1161, 1203, 1290, 1317, 1836];

/// The format of the binary log, if there is one.
const BINARY_LOG: &str =
    "SHOW SESSION VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')";

/// Server error for unknown syntax.
const SYNTAX: u16 = 1064;

pub(super) struct Mysql {
    options: Opts,
    pool: Pool<Conn>,
}

impl Mysql {
    pub(super) fn new(server: &Server) -> Self {
        let options = OptsBuilder::default()
            .ip_or_hostname(server.host.clone())
            .tcp_port(server.port)
            .user(Some(server.user.clone()))
            .pass(Some(server.password.clone()))
            .db_name(Some(server.database.clone()))
            .prefer_socket(false)
            .tcp_keepalive(Some(KEEPALIVE))
            .stmt_cache_size(STATEMENTS_MAX);
        Self { options: options.into(), pool: Pool::new() }
    }

    async fn connect(&self) -> Result<Conn, Fault> {
        let connecting = async {
            let mut connection = Conn::new(self.options.clone()).await?;
            let lock_wait = format!("SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_SECONDS}");
            connection.query_drop(lock_wait).await?;
            // Without gap locks, workers do not block each other where no row is. A statement-based
            // binary log does not allow that.
            let log: Vec<(String, String)> = connection.query(BINARY_LOG).await?;
            let is = |value: &str| log.iter().any(|(_, set)| set.eq_ignore_ascii_case(value));
            if !(is("ON") && is("STATEMENT")) {
                let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
                connection.query_drop(level).await?;
            }
            Ok(connection)
        };
        let late = |_| Fault::Away("connecting took too long".into());
        timeout(CONNECT_TIME_MAX, connecting).await.map_err(late)?.map_err(fault)
    }

    async fn session(&self) -> Result<MysqlSession, Fault> {
        let mut pooled = self.pool.borrow().await?;
        // Idle connections may have been closed by the server long ago.
        while let Some(idle) = pooled.connection() {
            if idle.query_drop("START TRANSACTION").await.is_ok() {
                return Ok(MysqlSession { pooled });
            }
            pooled.take_idle();
        }
        let connection = pooled.put(self.connect().await?);
        connection.query_drop("START TRANSACTION").await.map_err(fault)?;
        Ok(MysqlSession { pooled })
    }
}

#[async_trait]
impl Backend for Mysql {
    fn dialect(&self) -> Dialect {
        DIALECT
    }

    async fn begin(&self) -> Result<Box<dyn Session>, Fault> {
        Ok(Box::new(self.session().await?))
    }

    async fn inspect(&self, schema: Option<&str>, table: &str) -> Result<TableLimits, Fault> {
        let mut session = Box::new(self.session().await?);
        let columns = "SELECT column_name, data_type, column_type, character_set_name, \
                       character_octet_length, character_maximum_length \
                       FROM information_schema.columns \
                       WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?";
        let schema = Value::from(schema.map(str::to_owned));
        let columns = session.rows(columns, vec![schema, Value::Text(table.into())]).await?;
        let packet = session.rows("SELECT @@max_allowed_packet", Vec::new()).await?;
        let packet = packet.first().and_then(|row| row.first()).and_then(Value::id);
        let mut limits = TableLimits {
            packet_bytes_max: packet.and_then(|bytes| usize::try_from(bytes).ok()),
            skip: DIALECT.lock,
            ..TableLimits::default()
        };
        for column in &columns {
            let [name, ..] = column.as_slice() else { continue };
            match name.text().to_ascii_lowercase().as_str() {
                "target" => limits.target = column_limits(column),
                "stdout" => limits.stdout = column_limits(column),
                "stderr" => limits.stderr = column_limits(column),
                "sig" => limits.signal = column_limits(column),
                "return_code" => limits.code = code_range(column),
                _ => {}
            }
        }
        session.commit().await?;
        if self.knows_skip_locked().await? {
            limits.skip = SKIP_LOCKED;
        }
        Ok(limits)
    }

    async fn close(&self) {
        for connection in self.pool.close() {
            let _ = timeout(CLOSE_TIME_MAX, connection.disconnect()).await;
        }
    }
}

impl Mysql {
    /// MySQL since 8.0 and MariaDB since 10.6.
    async fn knows_skip_locked(&self) -> Result<bool, Fault> {
        let mut session = self.session().await?;
        let Some(connection) = session.pooled.connection() else { return Ok(false) };
        match connection.query_drop(format!("SELECT 1 FROM DUAL{SKIP_LOCKED}")).await {
            Err(Error::Server(error)) if error.code == SYNTAX => Ok(false),
            asked => asked.map(|()| true).map_err(fault),
        }
    }
}

struct MysqlSession {
    pooled: PooledConnection<Conn>,
}

impl MysqlSession {
    fn connection(&mut self) -> Result<&mut Conn, Fault> {
        self.pooled.connection().ok_or_else(|| Fault::Away("the connection is gone".into()))
    }
}

#[async_trait]
impl Session for MysqlSession {
    async fn rows(&mut self, sql: &str, values: Vec<Value>) -> Result<Vec<Vec<Value>>, Fault> {
        let connection = self.connection()?;
        let rows: Result<Vec<mysql_async::Row>, Error> = if values.is_empty() {
            connection.query(sql).await
        } else {
            connection.exec(sql, parameters(values)).await
        };
        let rows = rows.map_err(fault)?;
        Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(value).collect()).collect())
    }

    async fn run(&mut self, sql: &str, values: Vec<Value>) -> Result<(), Fault> {
        let connection = self.connection()?;
        let ran = if values.is_empty() {
            connection.query_drop(sql).await
        } else {
            connection.exec_drop(sql, parameters(values)).await
        };
        ran.map_err(fault)
    }

    async fn commit(mut self: Box<Self>) -> Result<(), Fault> {
        self.connection()?.query_drop("COMMIT").await.map_err(fault)?;
        self.pooled.keep();
        Ok(())
    }
}

fn parameters(values: Vec<Value>) -> Params {
    let values = values.into_iter().map(|value| match value {
        Value::Null => mysql_async::Value::NULL,
        Value::Int(number) => mysql_async::Value::Int(number),
        Value::Text(text) => mysql_async::Value::Bytes(text.into_bytes()),
    });
    Params::Positional(values.collect())
}

fn value(value: mysql_async::Value) -> Value {
    match value {
        mysql_async::Value::Bytes(bytes) => Value::Text(String::from_utf8_lossy(&bytes).into()),
        mysql_async::Value::Int(number) => Value::Int(number),
        mysql_async::Value::UInt(number) => Value::from(number),
        _ => Value::Null,
    }
}

fn fault(error: Error) -> Fault {
    let reason = error.to_string();
    match error {
        Error::Server(server) if CLASHES.contains(&server.code) => Fault::Clash(reason),
        Error::Server(server) if PASSING.contains(&server.code) => Fault::Away(reason),
        Error::Server(_) | Error::Url(_) => Fault::Refused(reason),
        Error::Driver(mysql_async::DriverError::PacketTooLarge) => Fault::Refused(reason),
        Error::Driver(_) | Error::Io(_) | Error::Other(_) => Fault::Away(reason),
    }
}

fn column_limits(column: &[Value]) -> ColumnLimits {
    let [_, _, _, charset, bytes, chars] = column else { return ColumnLimits::default() };
    let charset = charset.text().to_ascii_lowercase();
    let size = |value: &Value| value.id().and_then(|size| usize::try_from(size).ok());
    let mut column_limits =
        ColumnLimits { bytes_max: size(bytes), chars_max: None, ..ColumnLimits::default() };
    match charset.as_str() {
        "" | "utf8mb4" => {}
        "utf8" | "utf8mb3" => column_limits.alphabet = Alphabet::ThreeBytes,
        "latin1" => column_limits.alphabet = Alphabet::Latin,
        _ => {
            // A character may need up to four bytes.
            column_limits.alphabet = Alphabet::Ascii;
            column_limits.bytes_max = column_limits.bytes_max.map(|bytes| bytes / 4);
        }
    }
    // Text types without a length report their bytes as characters, too.
    if size(chars) != column_limits.bytes_max {
        column_limits.chars_max = size(chars);
    }
    column_limits
}

fn code_range(column: &[Value]) -> Option<(i64, i64)> {
    let [_, kind, whole, ..] = column else { return None };
    let (signed, unsigned) = match kind.text().to_ascii_lowercase().as_str() {
        "tinyint" => ((-0x80, 0x7f), (0, 0xff)),
        "smallint" => ((-0x8000, 0x7fff), (0, 0xffff)),
        "mediumint" | "int" | "bigint" => ((i64::MIN, i64::MAX), (0, i64::MAX)),
        _ => return None,
    };
    Some(if whole.text().contains("unsigned") { unsigned } else { signed })
}
