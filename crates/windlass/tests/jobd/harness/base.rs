//! The database of one test, in any of the servers, with the table of the seed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use serde_json::Value;
use windlass_test_servers::{Kind, Server, mariadb, postgres};

/// The seed's table, with its own columns only.
const MARIADB_TABLE: &str = "CREATE TABLE `jobs` (
  `id` int(10) UNSIGNED NOT NULL AUTO_INCREMENT,
  `target` char(16) NOT NULL,
  `time_created` int(10) UNSIGNED NOT NULL,
  `time_started` int(10) UNSIGNED NOT NULL DEFAULT 0,
  `time_finished` int(10) UNSIGNED NOT NULL DEFAULT 0,
  `status` enum('waiting','manual','accepted','running','done','ignored')
    NOT NULL DEFAULT 'waiting',
  `result` enum('ok','fail') DEFAULT NULL,
  `return_code` tinyint(3) UNSIGNED DEFAULT NULL,
  `sig` char(10) DEFAULT NULL,
  `stdout` mediumtext DEFAULT NULL,
  `stderr` mediumtext DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `status_target_idx` (`status`, `target`, `id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8";

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
enum Place {
    Shared(&'static Server),
    Own(Arc<Server>),
    File(PathBuf),
}

#[derive(Clone)]
pub(crate) struct Base {
    place: Place,
    name: String,
}

/// What stands in a row of the table.
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
        Self::on(Place::Shared(mariadb()), mariadb().new_database(), MARIADB_TABLE)
    }

    /// In a MariaDB of its own, to be killed and frozen.
    pub(crate) fn own_mariadb() -> Self {
        let server = Arc::new(Server::start(Kind::MariaDb));
        let name = server.new_database();
        Self::on(Place::Own(server), name, MARIADB_TABLE)
    }

    pub(crate) fn postgres() -> Self {
        Self::on(Place::Shared(postgres()), postgres().new_database(), OTHER_TABLE)
    }

    pub(crate) fn sqlite(folder: &Path) -> Self {
        let file = folder.join("jobs.db");
        Self::on(Place::File(file), String::new(), OTHER_TABLE)
    }

    fn on(place: Place, name: String, table: &str) -> Self {
        let base = Self { place, name };
        base.sql(table);
        base
    }

    pub(crate) fn server(&self) -> &Server {
        match &self.place {
            Place::Shared(server) => server,
            Place::Own(server) => server,
            Place::File(_) => panic!("a file has no server"),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// For `storage = URL`.
    pub(crate) fn url(&self) -> String {
        match &self.place {
            Place::File(file) => format!("sqlite://{}", file.display()),
            _ => self.server().url(&self.name),
        }
    }

    /// Carries out SQL; answers lines of fields with tabs between.
    pub(crate) fn sql(&self, sql: &str) -> String {
        match &self.place {
            Place::File(file) => sqlite(file, sql),
            _ => self.server().sql(&self.name, sql),
        }
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
        let object = match &self.place {
            Place::File(_) => "json_object",
            _ if self.server().kind() == Kind::Postgres => "json_build_object",
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

fn sqlite(file: &Path, sql: &str) -> String {
    let base = Connection::open(file).unwrap();
    base.busy_timeout(super::PATIENCE).unwrap();
    let mut statement = base.prepare(sql).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    let mut told = String::new();
    while let Some(row) = rows.next().unwrap() {
        for column in 0..columns {
            let value: rusqlite::types::Value = row.get(column).unwrap();
            match value {
                rusqlite::types::Value::Null => told.push_str("NULL"),
                rusqlite::types::Value::Integer(number) => told.push_str(&number.to_string()),
                rusqlite::types::Value::Text(text) => told.push_str(&text),
                other => panic!("{other:?}"),
            }
            told.push(if column + 1 == columns { '\n' } else { '\t' });
        }
    }
    told
}
