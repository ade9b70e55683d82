//! What both topologies know of PostgreSQL: its programs, its user, and questions in SQL.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::machine::User;

pub(crate) const PORT: u16 = 5432;
/// The database and the role of the daemons, which is no superuser.
pub(crate) const DATABASE: &str = "windlass";
/// The superuser of the servers, and the system user that runs them.
pub(crate) const SUPERUSER: &str = "postgres";
/// Where Debian installs PostgreSQL's programs, by version.
const HOME: &str = "/usr/lib/postgresql";
/// A server that does not answer within this time is not asked any longer, in seconds.
const ANSWER_SECONDS_MAX: &str = "20";

/// The folder with the programs of the newest version.
pub(crate) fn programs() -> Result<PathBuf> {
    let found = std::fs::read_dir(HOME).into_iter().flatten().flatten();
    let newest = found.map(|entry| entry.path().join("bin")).filter(|bin| bin.is_dir()).max();
    newest.context("PostgreSQL is missing; run: apt-get install -y postgresql")
}

pub(crate) fn user() -> Result<User> {
    let id = |what: &str| {
        let output = Command::new("id").args([what, SUPERUSER]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.parse().with_context(|| format!("the system has no user {SUPERUSER}"))
    };
    Ok(User { user: id("-u")?, group: id("-g")? })
}

/// Asks as superuser. Returns lines of fields separated by `|`.
pub(crate) fn sql(at: Ipv4Addr, database: &str, text: &str) -> Result<String> {
    let output = psql(at, database).args(["--command", text]).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{text}: {}", told.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The client, which gives up after a while.
fn psql(at: Ipv4Addr, database: &str) -> Command {
    let mut command = Command::new("timeout");
    command.arg(ANSWER_SECONDS_MAX);
    client(&mut command, at, database);
    command
}

/// Adds the client with its arguments.
pub(crate) fn client(command: &mut Command, at: Ipv4Addr, database: &str) {
    command.args(["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
    command.args(["--set=ON_ERROR_STOP=1", "--username", SUPERUSER, "--dbname", database]);
    command.args(["--host", &at.to_string(), "--port", &PORT.to_string()]);
    // Also where the database is read-only.
    command.env("PGCONNECT_TIMEOUT", "3").env("PGPASSWORD", SUPERUSER);
    command.env("PGOPTIONS", "-c default_transaction_read_only=off");
}

/// Makes the role and the database of the daemons.
pub(crate) fn create_database(at: Ipv4Addr) -> Result<()> {
    sql(at, SUPERUSER, &format!("CREATE ROLE {DATABASE} LOGIN PASSWORD '{DATABASE}'"))?;
    sql(at, SUPERUSER, &format!("CREATE DATABASE {DATABASE} OWNER {DATABASE}"))?;
    Ok(())
}

/// The store's URL over these servers.
pub(crate) fn url(servers: &[Ipv4Addr]) -> String {
    let hosts: Vec<String> = servers.iter().map(|server| format!("{server}:{PORT}")).collect();
    format!("postgres://{DATABASE}:{DATABASE}@{}/{DATABASE}", hosts.join(","))
}

pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let path = programs()?.join(name);
    ensure!(Path::new(&path).is_file(), "{} is missing", path.display());
    Ok(path)
}
