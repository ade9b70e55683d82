//! A table of jobs in a private database, workers on it, and direct access to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::table::{self, End, Fetched, Owner, Storage, Table};
use tempfile::TempDir;
use windlass_core::launch::Output;
use windlass_test_servers::{Database, JOBD_TABLE, Kind, Server, mariadb, postgres};

/// Never expires during a test.
pub(crate) const LEASE: Duration = Duration::from_secs(3600);

/// A lease that expires at once.
pub(crate) const NO_LEASE: Duration = Duration::ZERO;

/// No ids.
pub(crate) const NOBODY: [u64; 0] = [];

/// The sources that document the other two.
const POSTGRES: &str = include_str!("../../postgres.rs");
const SQLITE: &str = include_str!("../../sqlite.rs");

/// The tables of PostgreSQL and SQLite as the code documents them.
pub(crate) fn documented_tables() -> [String; 2] {
    [documented(POSTGRES), documented(SQLITE)]
}

/// The SQL in the documentation of a module.
fn documented(source: &str) -> String {
    let lines = source.lines().skip_while(|line| !line.contains("```sql")).skip(1);
    let lines = lines.take_while(|line| !line.contains("```"));
    lines.map(|line| line.trim_start_matches("//! ").to_owned() + "\n").collect()
}

pub(crate) struct World {
    database: Database,
    /// The folder of a SQLite file.
    _folder: Option<TempDir>,
}

/// Declares one test for each database.
macro_rules! everywhere {
    ($($name:ident)*) => {$(
        mod $name {
            use windlass_test_kit::wait::in_time;

            use crate::table::tests::harness::World;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn mysql() {
                in_time("the test ends", super::$name(World::mysql())).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                in_time("the test ends", super::$name(World::postgres())).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                in_time("the test ends", super::$name(World::sqlite())).await;
            }
        }
    )*};
}
pub(crate) use everywhere;

impl World {
    pub(crate) fn mysql() -> Self {
        Self::on(Database::in_shared(mariadb()), JOBD_TABLE)
    }

    pub(crate) fn postgres() -> Self {
        Self::on(Database::in_shared(postgres()), &documented(POSTGRES))
    }

    pub(crate) fn sqlite() -> Self {
        let folder = TempDir::new().unwrap();
        let database = Database::in_file(folder.path().join("jobs.db"));
        Self { _folder: Some(folder), ..Self::on(database, &documented(SQLITE)) }
    }

    /// On a server that the test may kill.
    pub(crate) fn mortal(kind: Kind) -> Self {
        match kind {
            Kind::MariaDb => Self::on(Database::in_own(kind), JOBD_TABLE),
            Kind::Postgres => Self::on(Database::in_own(kind), &documented(POSTGRES)),
        }
    }

    pub(crate) fn mysql_with(replace: &[(&str, &str)]) -> Self {
        let change = |sql: String, (old, new): &(&str, &str)| {
            assert!(sql.contains(old), "{old}");
            sql.replace(old, new)
        };
        let sql = replace.iter().fold(JOBD_TABLE.to_owned(), change);
        Self::on(Database::in_shared(mariadb()), &sql)
    }

    fn on(database: Database, table: &str) -> Self {
        database.sql(table);
        Self { database, _folder: None }
    }

    pub(crate) fn server(&self) -> &Server {
        self.database.server()
    }

    pub(crate) fn database(&self) -> &str {
        self.database.name()
    }

    pub(crate) fn is_mysql(&self) -> bool {
        self.database.kind() == Some(Kind::MariaDb)
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.database.kind() == Some(Kind::Postgres)
    }

    pub(crate) fn url(&self) -> String {
        self.database.url()
    }

    pub(crate) fn worker(&self, name: &str) -> Arc<dyn Table> {
        static BOOT: AtomicU64 = AtomicU64::new(1);
        let boot = BOOT.fetch_add(1, Ordering::Relaxed);
        let storage = Storage::parse(&self.url(), None).unwrap();
        table::open(&storage, Owner { name: name.into(), boot })
    }

    /// Lines of fields separated by tabs, as the database's client prints them.
    #[track_caller]
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.database.sql(sql)
    }

    /// Rows of these targets; their ids are 1, 2, 3 …
    pub(crate) fn add(&self, status: &str, targets: &[&str]) {
        let row = |target: &&str| format!("('{target}', 1, '{status}')");
        for targets in targets.chunks(1000) {
            let rows: Vec<String> = targets.iter().map(row).collect();
            let rows = rows.join(", ");
            self.sql(&format!("INSERT INTO jobs (target, time_created, status) VALUES {rows}"));
        }
    }

    /// `id status`, by id.
    pub(crate) fn statuses(&self) -> Vec<(u64, String)> {
        let lines = self.sql("SELECT id, status FROM jobs ORDER BY id");
        let read = |line: &str| {
            let (id, status) = line.split_once('\t').unwrap();
            (id.parse().unwrap(), status.to_owned())
        };
        lines.lines().map(read).collect()
    }

    pub(crate) fn status(&self, id: u64) -> String {
        self.one("status", id)
    }

    /// One field; `NULL` in every database if it has no value.
    pub(crate) fn one(&self, column: &str, id: u64) -> String {
        let text = if self.is_mysql() { "CHAR" } else { "TEXT" };
        let field = format!("COALESCE(CAST({column} AS {text}), 'NULL')");
        let line = self.sql(&format!("SELECT {field} FROM jobs WHERE id = {id}"));
        line.strip_suffix('\n').unwrap_or(&line).to_owned()
    }

    pub(crate) fn marks(&self) -> String {
        self.sql("SELECT id, owner, was FROM jobs_windlass ORDER BY id")
    }
}

pub(crate) fn names(targets: &[&str]) -> Vec<String> {
    targets.iter().map(|target| (*target).to_owned()).collect()
}

pub(crate) fn ids(fetched: &Fetched) -> Vec<u64> {
    fetched.rows.iter().map(|row| row.id).collect()
}

/// A successful job without output.
pub(crate) fn end(id: u64) -> End {
    End {
        id,
        ok: true,
        code: Some(0),
        signal: None,
        stdout: Output::default(),
        stderr: Output::default(),
        note: None,
        finished_at: 1_700_000_000,
    }
}

pub(crate) fn output(bytes: &[u8]) -> Output {
    Output { bytes: bytes.to_vec(), dropped: 0 }
}
