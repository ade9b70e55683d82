//! The database of one test, on any of the servers, with the table of the seed.

use std::ops::Deref;
use std::path::Path;

use serde_json::Value;
use windlass_test_servers::{Database, JOBD_TABLE, Kind, mariadb, postgres};

/// The same table elsewhere.
const OTHER_TABLE: &str = "CREATE TABLE jobs (
  id integer PRIMARY KEY,
  target varchar(16) NOT NULL,
  time_created integer NOT NULL,
  time_started integer NOT NULL DEFAULT 0,
  time_finished integer NOT NULL DEFAULT 0,
  status varchar(16) NOT NULL DEFAULT 'waiting',
  result varchar(4) DEFAULT NULL,
  return_code integer DEFAULT NULL,
  sig varchar(10) DEFAULT NULL,
  stdout text DEFAULT NULL,
  stderr text DEFAULT NULL
)";

#[derive(Clone)]
pub(crate) struct Base {
    database: Database,
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) status: String,
    pub(crate) result: Option<String>,
    pub(crate) code: Option<i64>,
    pub(crate) sig: Option<String>,
    pub(crate) stdout: Option<String>,
    pub(crate) stderr: Option<String>,
    pub(crate) started: i64,
    pub(crate) finished: i64,
}

impl Base {
    /// In the MariaDB that all tests of the process share.
    pub(crate) fn mariadb() -> Self {
        Self::on(Database::in_shared(mariadb()), JOBD_TABLE)
    }

    /// In its own MariaDB, to be killed and frozen.
    pub(crate) fn own_mariadb() -> Self {
        Self::on(Database::in_own(Kind::MariaDb), JOBD_TABLE)
    }

    pub(crate) fn postgres() -> Self {
        Self::on(Database::in_shared(postgres()), OTHER_TABLE)
    }

    pub(crate) fn sqlite(folder: &Path) -> Self {
        Self::on(Database::in_file(folder.join("jobs.db")), OTHER_TABLE)
    }

    fn on(database: Database, table: &str) -> Self {
        database.sql(table);
        Self { database }
    }

    /// The first field of the answer, as a number.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        let told = self.sql(sql);
        told.trim().parse().unwrap_or_else(|_| panic!("{sql}: {told:?}"))
    }

    /// How many rows have this status.
    pub(crate) fn count(&self, status: &str) -> i64 {
        self.number(&format!("SELECT COUNT(*) FROM jobs WHERE status = '{status}'"))
    }

    pub(crate) fn status(&self, id: u64) -> String {
        self.sql(&format!("SELECT status FROM jobs WHERE id = {id}")).trim().to_owned()
    }

    pub(crate) fn row(&self, id: u64) -> Row {
        let object = match self.kind() {
            Some(Kind::Postgres) => "json_build_object",
            _ => "JSON_OBJECT",
        };
        let told = self.sql(&format!(
            "SELECT {object}('status', status, 'result', result, 'code', return_code, 'sig', sig, \
             'stdout', stdout, 'stderr', stderr, 'started', time_started, \
             'finished', time_finished) FROM jobs WHERE id = {id}"
        ));
        let row: Value =
            serde_json::from_str(told.trim()).unwrap_or_else(|error| panic!("{error}: {told}"));
        let text = |key: &str| row[key].as_str().map(str::to_owned);
        Row {
            status: text("status").unwrap(),
            result: text("result"),
            code: row["code"].as_i64(),
            sig: text("sig"),
            stdout: text("stdout"),
            stderr: text("stderr"),
            started: row["started"].as_i64().unwrap(),
            finished: row["finished"].as_i64().unwrap(),
        }
    }
}

impl Deref for Base {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}
