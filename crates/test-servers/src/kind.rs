//! The differences between the servers: their programs and command lines.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The superuser in every server, and its password.
pub(crate) const USER: &str = "windlass";
pub(crate) const PASSWORD: &str = "loopback";

/// Where Debian installs PostgreSQL's programs, by version; they are not on the search path.
const POSTGRES_HOME: &str = "/usr/lib/postgresql";

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    MariaDb,
    Postgres,
}

impl Kind {
    /// The Debian package with its programs.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb-server",
            Self::Postgres => "postgresql",
        }
    }

    /// The user it runs as when started by root.
    pub(crate) fn system_user(self) -> &'static str {
        match self {
            Self::MariaDb => "mysql",
            Self::Postgres => "postgres",
        }
    }

    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::MariaDb => "mysql",
            Self::Postgres => "postgres",
        }
    }

    /// The database that always exists.
    pub(crate) fn first_database(self) -> &'static str {
        match self {
            Self::MariaDb => "mysql",
            Self::Postgres => "postgres",
        }
    }

    /// Initialises an empty data directory.
    pub(crate) fn install(self, data: &Path) -> Command {
        match self {
            Self::MariaDb => {
                let mut command = self.command("mariadb-install-db");
                command.args(["--no-defaults", "--skip-test-db", "--skip-name-resolve"]);
                command.arg("--auth-root-authentication-method=normal");
                command.arg("--innodb-log-file-size=16M");
                command.arg(format!("--datadir={}", data.display()));
                command
            }
            Self::Postgres => {
                let mut command = self.command("initdb");
                command.args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
                command.arg(format!("--username={USER}")).arg("--pgdata").arg(data);
                command
            }
        }
    }

    /// Runs in the foreground. `durable` servers keep acknowledged writes when they are killed.
    pub(crate) fn serve(self, data: &Path, port: u16, durable: bool) -> Command {
        match self {
            Self::MariaDb => {
                let mut command = self.command("mariadbd");
                command.args(["--no-defaults", "--bind-address=127.0.0.1", "--socket=socket"]);
                command.args(["--skip-log-bin", "--skip-name-resolve", "--skip-slave-start"]);
                command.args(["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"]);
                command.args(["--performance-schema=OFF", "--max-connections=300"]);
                command.arg(format!("--innodb-flush-log-at-trx-commit={}", u8::from(durable)));
                command.arg(format!("--port={port}"));
                command.arg(format!("--datadir={}", data.display()));
                command.arg(format!("--init-file={}", init_file(data).display()));
                command
            }
            Self::Postgres => {
                let mut command = self.command("postgres");
                let fsync = if durable { "on" } else { "off" };
                command.arg("-D").arg(data).args(["-p", &port.to_string()]);
                let settings = ["listen_addresses=127.0.0.1", "unix_socket_directories="];
                let settings = settings.into_iter().map(str::to_owned);
                for setting in
                    settings.chain([format!("fsync={fsync}"), "max_connections=300".into()])
                {
                    command.args(["-c", &setting]);
                }
                command
            }
        }
    }

    /// Executes SQL from its arguments, with plain output.
    pub(crate) fn client(self, port: u16, database: &str, sql: &str) -> Command {
        let mut command = self.session(port, database);
        match self {
            Self::MariaDb => command.arg(format!("--execute={sql}")),
            Self::Postgres => command.args(["--command", sql]),
        };
        command
    }

    /// Executes SQL from its input, with plain output.
    pub(crate) fn session(self, port: u16, database: &str) -> Command {
        match self {
            Self::MariaDb => {
                let mut command = self.command("mariadb");
                command.args([
                    "--no-defaults",
                    "--host=127.0.0.1",
                    "--batch",
                    "--skip-column-names",
                ]);
                command.args(["--default-character-set=utf8mb4", "--protocol=tcp", "--raw"]);
                command.arg(format!("--port={port}"));
                command.arg(format!("--user={USER}")).arg(format!("--password={PASSWORD}"));
                command.arg(format!("--database={database}"));
                command
            }
            Self::Postgres => {
                let mut command = self.command("psql");
                command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
                command.args(["--field-separator=\t", "--set=ON_ERROR_STOP=1"]);
                command.args(["--host=127.0.0.1", "--port", &port.to_string()]);
                command.args(["--username", USER, "--dbname", database]);
                command
            }
        }
    }

    /// # Panics
    ///
    /// If the program is missing; the message says what to install.
    fn command(self, program: &str) -> Command {
        let found = self.find(program).unwrap_or_else(|| {
            let package = self.package();
            panic!(
                "the tests need {program}; run as root: \
                 apt-get update && apt-get install -y --no-install-recommends {package}"
            )
        });
        let mut command = Command::new(found);
        command.env("LC_ALL", "C").env_remove("PGPASSWORD").env_remove("PGHOST");
        command
    }

    fn find(self, program: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        folders.extend(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
        if self == Self::Postgres {
            let versions = std::fs::read_dir(POSTGRES_HOME).into_iter().flatten().flatten();
            folders.splice(0..0, versions.map(|version| version.path().join("bin")));
        }
        folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file())
    }
}

/// MariaDB executes this at every start.
pub(crate) fn init_file(data: &Path) -> PathBuf {
    data.with_file_name("init.sql")
}
