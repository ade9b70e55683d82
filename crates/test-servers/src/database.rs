//! One test's database: in a shared server, in its own server, or in a file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use windlass_test_kit::wait::PATIENCE;

use crate::{Kind, Server};

#[derive(Clone)]
enum Location {
    Shared(&'static Server),
    Own(Arc<Server>),
    File(PathBuf),
}

#[derive(Clone)]
pub struct Database {
    location: Location,
    name: String,
}

impl Database {
    /// In a server that the tests of the process share.
    pub fn in_shared(server: &'static Server) -> Self {
        Self { name: server.new_database(), location: Location::Shared(server) }
    }

    /// In its own server, which may be killed and frozen.
    pub fn in_own(kind: Kind) -> Self {
        let server = Server::start(kind);
        Self { name: server.new_database(), location: Location::Own(Arc::new(server)) }
    }

    /// In a SQLite file.
    pub fn in_file(file: PathBuf) -> Self {
        Self { name: String::new(), location: Location::File(file) }
    }

    /// # Panics
    ///
    /// If it is a file.
    #[track_caller]
    pub fn server(&self) -> &Server {
        match &self.location {
            Location::Shared(server) => server,
            Location::Own(server) => server,
            Location::File(_) => panic!("a file has no server"),
        }
    }

    /// The kind of its server; `None` for a file.
    pub fn kind(&self) -> Option<Kind> {
        (!matches!(self.location, Location::File(_))).then(|| self.server().kind())
    }

    /// Its name in the server; empty for a file.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> String {
        match &self.location {
            Location::File(file) => format!("sqlite://{}", file.display()),
            _ => self.server().url(&self.name),
        }
    }

    /// The server's own client, which executes what it reads from its input.
    ///
    /// # Panics
    ///
    /// If it is a file.
    pub fn session(&self) -> Command {
        self.server().session(&self.name)
    }

    /// Executes SQL; returns lines of fields separated by tabs.
    ///
    /// # Panics
    ///
    /// If it is refused.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> String {
        match &self.location {
            Location::File(file) => {
                in_sqlite(file, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
            }
            _ => self.server().sql(&self.name, sql),
        }
    }
}

fn in_sqlite(file: &Path, sql: &str) -> rusqlite::Result<String> {
    let base = Connection::open(file)?;
    base.busy_timeout(PATIENCE)?;
    if !sql.starts_with("SELECT") {
        base.execute_batch(sql)?;
        return Ok(String::new());
    }
    let mut statement = base.prepare(sql)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let mut lines = String::new();
    while let Some(row) = rows.next()? {
        for column in 0..columns {
            match row.get_ref(column)? {
                ValueRef::Null => lines.push_str("NULL"),
                ValueRef::Integer(number) => lines.push_str(&number.to_string()),
                other => lines.push_str(&String::from_utf8_lossy(other.as_bytes()?)),
            }
            lines.push(if column + 1 == columns { '\n' } else { '\t' });
        }
    }
    Ok(lines)
}
