//! The store of a test's daemons: the embedded one, or a database of their own on a PostgreSQL
//! server that all tests of the process share.
//!
//! A test runs on both, unless it is about the embedded store: its file, its backups, the SQL of
//! the Bedrock door. Such a test names it (`Config::embedded`, `Door::embedded`) and has it
//! whatever the environment chooses. Only it can ask for the store's file.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use windlass_test_kit::process::{Tied, run};
use windlass_test_kit::wait::PATIENCE;
use windlass_test_servers::{Database, postgres};

use super::daemon::Config;

/// Chooses the store of all tests that do not name one: `sqlite`, or `postgres`.
/// `cargo xtask test --store` sets it.
const CHOICE: &str = "WINDLASS_TEST_STORE";

#[derive(Clone)]
pub(crate) enum Store {
    /// The embedded one, in the data directory.
    Embedded,
    /// The embedded one, in a file elsewhere.
    File(PathBuf),
    Server(Database),
}

impl Store {
    /// As the environment chooses.
    pub(crate) fn chosen() -> Store {
        match std::env::var(CHOICE).unwrap_or_default().as_str() {
            "" | "sqlite" => Store::Embedded,
            "postgres" => Store::Server(Database::in_shared(postgres())),
            other => panic!("{CHOICE} is sqlite or postgres, not {other}"),
        }
    }

    /// For daemons, unless they find it by themselves.
    pub(crate) fn url(&self) -> Option<String> {
        match self {
            Store::Embedded => None,
            Store::File(file) => Some(format!("sqlite:{}", file.display())),
            Store::Server(database) => Some(database.url()),
        }
    }
}

const LOCK_FILE: &str = "
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=int(sys.argv[2]))
store.execute('BEGIN EXCLUSIVE')
print('locked', flush=True)
sys.stdin.read()
";

/// Locks all tables against writers, or none: holding some while waiting for others could
/// deadlock with the transactions under way. The connection keeps the locks until it ends.
const LOCK_TABLES: &str = "
BEGIN;
DO $$
DECLARE
    tables text := (SELECT string_agg('windlass.' || quote_ident(tablename), ', ')
                      FROM pg_tables WHERE schemaname = 'windlass' AND tablename ~ 'PATTERN');
BEGIN
    FOR tries IN 1..10000 LOOP
        BEGIN
            EXECUTE 'LOCK TABLE ' || tables || ' IN EXCLUSIVE MODE NOWAIT';
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.005);
        END;
    END LOOP;
    RAISE 'the tables are always in use';
END $$;
SELECT 'locked';
";

/// Another program that blocks the store. While it exists, no other process can write to the store,
/// and all can read. The lock ends with its process.
pub(crate) struct StoreLock {
    _holder: Tied,
}

impl StoreLock {
    pub(crate) fn take(config: &Config) -> StoreLock {
        let file = match config.store() {
            Store::Embedded => config.home.store(),
            Store::File(file) => file.clone(),
            Store::Server(database) => return StoreLock::of_tables(database, "."),
        };
        let mut command = Command::new("python3");
        command.args(["-c", LOCK_FILE]).arg(file).arg(PATIENCE.as_secs().to_string());
        StoreLock::hold(&mut command, "")
    }

    /// Of a database, those tables whose names match; writers of others go on.
    pub(crate) fn of_tables(database: &Database, pattern: &str) -> StoreLock {
        StoreLock::hold(&mut database.session(), &LOCK_TABLES.replace("PATTERN", pattern))
    }

    fn hold(command: &mut Command, script: &str) -> StoreLock {
        let mut holder = Tied::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let input = holder.stdin.as_mut().expect("stdin is piped");
        input.write_all(script.as_bytes()).expect("it reads");
        let mut said = String::new();
        let stdout = holder.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut said).expect("it says something");
        assert_eq!(said.trim(), "locked", "the store can be locked");
        StoreLock { _holder: holder }
    }
}

/// Runs a small Python program; returns what it prints.
pub(crate) fn python(program: &str, arguments: &[&str]) -> String {
    run(Command::new("python3").args(["-c", program]).args(arguments), b"").ok()
}
