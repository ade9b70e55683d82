//! The location of the table: `storage = mysql://…`, `postgres://…`, `sqlite://…`, or `mysql_*`
//! keys.

use std::fmt;

use percent_encoding::percent_decode_str;

/// The default table.
const TABLE: &str = "jobs";

/// Where the table is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Storage {
    Mysql(Server),
    Postgres(Server),
    Sqlite { path: String, table: String },
}

/// A database server, and the table in it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: String,
    pub database: String,
    pub table: String,
}

impl Storage {
    /// Reads `kind://user:password@host:port/database?table=name`, or `sqlite://path?table=name`.
    /// Special characters are percent-encoded. `table` is for a URL that names none.
    ///
    /// # Errors
    ///
    /// Says what is wrong without the URL itself, because it may contain a password.
    pub(crate) fn parse(url: &str, table: Option<&str>) -> Result<Self, String> {
        let (kind, rest) = url.split_once("://").ok_or("storage must be a URL")?;
        let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
        let table = match table_of(query)? {
            Some(named) => named,
            None => table.unwrap_or(TABLE).to_owned(),
        };
        match kind {
            "mysql" | "mariadb" => Ok(Self::Mysql(server(location, 3306, table)?)),
            "postgres" | "postgresql" => Ok(Self::Postgres(server(location, 5432, table)?)),
            "sqlite" if location.is_empty() => Err("storage names no file".into()),
            "sqlite" => Ok(Self::Sqlite { path: decode(location)?, table }),
            other => Err(format!("storage cannot be '{other}': use mysql, postgres or sqlite")),
        }
    }
}

fn server(location: &str, usual_port: u16, table: String) -> Result<Server, String> {
    let (address, database) = location.split_once('/').unwrap_or((location, ""));
    if database.is_empty() {
        return Err("storage names no database".into());
    }
    let (who, address) = address.rsplit_once('@').unwrap_or(("", address));
    let (user, password) = who.split_once(':').unwrap_or((who, ""));
    if user.is_empty() {
        return Err("storage names no user".into());
    }
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| "the port in storage is no port")?)
        }
        _ => (address, usual_port),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err("storage names no host".into());
    }
    Ok(Server {
        host: decode(host)?,
        port,
        user: decode(user)?,
        password: decode(password)?,
        database: decode(database)?,
        table,
    })
}

fn table_of(query: &str) -> Result<Option<String>, String> {
    let mut table = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("table", name)) if !name.is_empty() => table = Some(decode(name)?),
            Some(("table", _)) => return Err("storage names an empty table".into()),
            _ => return Err("storage knows no option but 'table'".into()),
        }
    }
    Ok(table)
}

fn decode(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| "storage is not UTF-8".into())
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mysql(server) => write!(f, "mysql://{server:?}"),
            Self::Postgres(server) => write!(f, "postgres://{server:?}"),
            Self::Sqlite { path, table } => write!(f, "sqlite://{path}?table={table}"),
        }
    }
}

/// Without the password, because this is what logs show.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, user, database, table, .. } = self;
        write!(f, "{user}@{host}:{port}/{database}?table={table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_url_is_read() {
        let url = "mysql://me%40here:p%3Aw@db.example:3307/shop?table=work";
        let Ok(Storage::Mysql(server)) = Storage::parse(url, Some("other")) else { panic!() };
        assert_eq!((server.user.as_str(), server.password.as_str()), ("me@here", "p:w"));
        assert_eq!((server.host.as_str(), server.port), ("db.example", 3307));
        assert_eq!((server.database.as_str(), server.table.as_str()), ("shop", "work"));

        let Ok(Storage::Postgres(server)) = Storage::parse("postgres://me@[::1]/x", None) else {
            panic!()
        };
        assert_eq!((server.host.as_str(), server.port), ("::1", 5432));
        assert_eq!((server.password.as_str(), server.table.as_str()), ("", "jobs"));

        let file = Storage::parse("sqlite:///var/lib/jobs.db", Some("work")).unwrap();
        let wanted = Storage::Sqlite { path: "/var/lib/jobs.db".into(), table: "work".into() };
        assert_eq!(file, wanted);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        let cases = [
            ("jobs.db", "must be a URL"),
            ("redis://me:secret@h/x", "cannot be 'redis'"),
            ("mysql://me:secret@h", "names no database"),
            ("mysql://h/x", "names no user"),
            ("mysql://me:secret@/x", "names no host"),
            ("mysql://me:secret@h:port/x", "is no port"),
            ("mysql://me:secret@h/x?tabel=y", "no option but 'table'"),
            ("mysql://me:secret@h/x?table=", "empty table"),
            ("mysql://me:secret%ff@h/x", "not UTF-8"),
            ("sqlite://", "names no file"),
        ];
        for (url, wanted) in cases {
            let told = Storage::parse(url, None).unwrap_err();
            assert!(told.contains(wanted) && !told.contains("secret"), "{url}: {told}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let storage = Storage::parse("mysql://me:secret@h/x", None).unwrap();
        assert_eq!(format!("{storage:?}"), "mysql://me@h:3306/x?table=jobs");
    }
}
