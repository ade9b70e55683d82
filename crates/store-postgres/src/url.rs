//! The address of a database: a URL as libpq reads it, with `sslmode` and `sslrootcert`.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use windlass_core::store::Error;

use crate::error::with_sources;

/// The address, taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    /// How to reach each of its hosts, in the order of the URL.
    pub(crate) hosts: Vec<Config>,
    pub(crate) check: Check,
    /// For messages: the server and the database, never the password.
    pub(crate) name: String,
}

/// How the certificate of the server is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Check {
    /// Any certificate is accepted: the traffic is encrypted, but the server may be another one.
    Nothing,
    /// One of these authorities has signed it.
    Authority(PathBuf),
    /// It is also valid for the name of the host. `None` stands for the system's authorities.
    Full(Option<PathBuf>),
}

/// For a TCP connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that acknowledges nothing for this long has gone.
const SILENCE_MAX: Duration = Duration::from_secs(15);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
const PORT: u16 = 5432;

impl Address {
    /// An `Error::Conflict` says what is wrong with the URL, without showing it: it may contain a
    /// password.
    pub(crate) fn parse(url: &str) -> Result<Address, Error> {
        let known = ["postgres://", "postgresql://"];
        if !known.iter().any(|scheme| url.starts_with(scheme)) {
            return Err(refused("it does not begin with postgres:// or postgresql://"));
        }
        let (plain, tls) = take_tls(url)?;
        let mut config: Config =
            plain.parse().map_err(|error: tokio_postgres::Error| refused(&with_sources(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(refused("it names no host"));
        }
        let check = tls.check()?;
        config
            .ssl_mode(tls.mode.ssl_mode())
            .application_name("windlass")
            .tcp_user_timeout(SILENCE_MAX)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES)
            // Of several hosts, the one that can be written; a standby is of no use.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        let name = name_of(&config);
        Ok(Address { hosts: each(&config)?, check, name })
    }
}

/// The same for each single host: the driver would try them one after the other, and wait for one
/// that accepts connections but does not answer.
fn each(config: &Config) -> Result<Vec<Config>, Error> {
    let (hosts, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    for (others, what) in [(hosts.len(), "hosts"), (addresses.len(), "hostaddrs")] {
        if others != 0 && others != count {
            return Err(refused(&format!("it has {others} {what}, but {count} hosts")));
        }
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(refused(&format!("it has {} ports, but {count} hosts", ports.len())));
    }
    let one = |at: usize| {
        let mut one = shared(config);
        match hosts.get(at) {
            Some(Host::Tcp(host)) => drop(one.host(host)),
            // As libpq does: a socket of this machine needs no TLS.
            Some(Host::Unix(path)) => drop(one.host_path(path).ssl_mode(SslMode::Disable)),
            None => {}
        }
        if let Some(address) = addresses.get(at) {
            one.hostaddr(*address);
            if hosts.is_empty() {
                // The name that a certificate has to have.
                one.host(address.to_string());
            }
        }
        one.port(ports.get(at).or(ports.first()).copied().unwrap_or(PORT));
        one
    };
    Ok((0..count).map(one).collect())
}

/// Everything but the hosts.
fn shared(config: &Config) -> Config {
    let mut shared = Config::new();
    shared
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    config.get_user().map(|user| shared.user(user));
    config.get_password().map(|password| shared.password(password));
    config.get_dbname().map(|name| shared.dbname(name));
    config.get_options().map(|options| shared.options(options));
    config.get_application_name().map(|name| shared.application_name(name));
    config.get_connect_timeout().map(|time| shared.connect_timeout(*time));
    config.get_tcp_user_timeout().map(|time| shared.tcp_user_timeout(*time));
    config.get_keepalives_interval().map(|time| shared.keepalives_interval(time));
    config.get_keepalives_retries().map(|count| shared.keepalives_retries(count));
    shared
}

fn refused(why: &str) -> Error {
    Error::Conflict(format!("the URL of the PostgreSQL store is not valid: {why}"))
}

/// `PostgreSQL at host:port, database name`.
fn name_of(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
    let named = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(host) => host.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let hosts: Vec<String> = match config.get_hosts() {
        [] => config.get_hostaddrs().iter().map(ToString::to_string).collect(),
        _ => named.collect(),
    };
    let hosts = hosts.iter().enumerate().map(|(at, host)| format!("{host}:{}", port(at)));
    let hosts = hosts.collect::<Vec<_>>().join(", ");
    match config.get_dbname() {
        Some(database) => format!("PostgreSQL at {hosts}, database {database}"),
        None => format!("PostgreSQL at {hosts}"),
    }
}

/// `sslmode` as libpq means it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Mode {
    fn parse(text: &str) -> Result<Mode, Error> {
        Ok(match text {
            "disable" => Mode::Disable,
            "prefer" => Mode::Prefer,
            "require" => Mode::Require,
            "verify-ca" => Mode::VerifyCa,
            "verify-full" => Mode::VerifyFull,
            _ => {
                return Err(refused(
                    "sslmode is not one of disable, prefer, require, verify-ca and verify-full",
                ));
            }
        })
    }

    fn ssl_mode(self) -> SslMode {
        match self {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }
}

struct Tls {
    mode: Mode,
    root: Option<String>,
}

/// The value of `sslrootcert` that stands for the authorities of the operating system.
const SYSTEM: &str = "system";

impl Tls {
    fn check(&self) -> Result<Check, Error> {
        let file = self.root.as_ref().filter(|root| *root != SYSTEM).map(PathBuf::from);
        let system = self.root.is_some() && file.is_none();
        match (self.mode, file) {
            (Mode::VerifyFull, file) => Ok(Check::Full(file)),
            // The authorities of the system sign for anybody, so the name has to fit as well.
            (Mode::Disable, _) => Ok(Check::Nothing),
            _ if system => Err(refused("sslrootcert=system needs sslmode=verify-full")),
            (Mode::VerifyCa, None) => Err(refused("sslmode=verify-ca needs a sslrootcert")),
            (Mode::Prefer | Mode::Require, None) => Ok(Check::Nothing),
            // libpq checks the authority whenever it has one.
            (Mode::Prefer | Mode::Require | Mode::VerifyCa, Some(file)) => {
                Ok(Check::Authority(file))
            }
        }
    }
}

/// Takes out what the driver does not know, or knows only in part.
fn take_tls(url: &str) -> Result<(String, Tls), Error> {
    let mut tls = Tls { mode: Mode::Prefer, root: None };
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), tls)) };
    let mut rest = Vec::new();
    for option in query.split('&') {
        match option.split_once('=') {
            Some(("sslmode", mode)) => tls.mode = Mode::parse(mode)?,
            Some(("sslrootcert", file)) => tls.root = Some(decoded(file)?),
            _ => rest.push(option),
        }
    }
    let rest = rest.join("&");
    Ok((if rest.is_empty() { base.to_owned() } else { format!("{base}?{rest}") }, tls))
}

fn decoded(text: &str) -> Result<String, Error> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|_| refused("sslrootcert is not UTF-8"))?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<Address, Error> {
        Address::parse(&format!("postgres://me:secret@db.example:6432/jobs{query}"))
    }

    #[test]
    fn sslmode_and_sslrootcert_decide_together_what_is_checked() {
        let authority = || Check::Authority("/etc/ca file.pem".into());
        let file = "sslrootcert=/etc/ca%20file.pem";
        for (query, mode, check) in [
            (String::new(), SslMode::Prefer, Check::Nothing),
            ("?sslmode=disable".into(), SslMode::Disable, Check::Nothing),
            ("?sslmode=require".into(), SslMode::Require, Check::Nothing),
            (format!("?sslmode=require&{file}"), SslMode::Require, authority()),
            (format!("?{file}"), SslMode::Prefer, authority()),
            (format!("?{file}&sslmode=verify-ca"), SslMode::Require, authority()),
            ("?sslmode=verify-full".into(), SslMode::Require, Check::Full(None)),
            ("?sslmode=verify-full&sslrootcert=system".into(), SslMode::Require, Check::Full(None)),
            (
                format!("?sslmode=verify-full&{file}"),
                SslMode::Require,
                Check::Full(Some("/etc/ca file.pem".into())),
            ),
        ] {
            let address = parsed(&query).unwrap();
            assert_eq!((address.hosts[0].get_ssl_mode(), address.check), (mode, check), "{query}");
        }
    }

    #[test]
    fn a_url_that_is_not_valid_is_refused_without_showing_its_password() {
        for (query, told) in [
            ("?sslmode=allow", "sslmode is not one of"),
            ("?sslmode=verify-ca", "needs a sslrootcert"),
            ("?sslmode=verify-ca&sslrootcert=system", "needs sslmode=verify-full"),
            ("?sslrootcert=%ff", "not UTF-8"),
            ("?colour=red", "unknown option `colour`"),
            ("?hostaddr=127.0.0.1,127.0.0.2", "it has 1 hosts, but 2 hosts"),
            ("?port=1,2", "it has 3 ports, but 1 hosts"),
        ] {
            let Err(Error::Conflict(message)) = parsed(query) else { panic!("{query}") };
            assert!(message.contains(told) && !message.contains("secret"), "{message}");
        }
        for url in ["mysql://me:secret@db/jobs", "db.example", "postgres:///jobs"] {
            assert!(matches!(Address::parse(url), Err(Error::Conflict(_))), "{url}");
        }
    }

    #[test]
    fn each_host_has_its_port_and_all_else_of_the_url() {
        let url = "postgres://me:secret@a:1,b:2/jobs?connect_timeout=3&application_name=x";
        let address = Address::parse(url).unwrap();
        for (config, (host, port)) in address.hosts.iter().zip([("a", 1), ("b", 2)]) {
            assert_eq!(config.get_hosts(), [Host::Tcp(host.into())]);
            assert_eq!(config.get_ports(), [port]);
            assert_eq!(config.get_user(), Some("me"));
            assert_eq!(config.get_password(), Some(&b"secret"[..]));
            assert_eq!(config.get_dbname(), Some("jobs"));
            assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(3)));
            assert_eq!(config.get_tcp_user_timeout(), Some(&SILENCE_MAX));
            assert_eq!(config.get_keepalives_retries(), Some(KEEPALIVE_RETRIES));
            assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        }
        assert_eq!(address.hosts.len(), 2);
    }

    /// As libpq does: a socket needs no TLS, and an address without a name is its own name.
    #[test]
    fn sockets_and_bare_addresses_can_be_connected_to() {
        let first = |url| Address::parse(url).unwrap().hosts.remove(0);
        let socket = first("postgres://me@%2Frun%2Fpostgresql/jobs");
        assert_eq!(socket.get_ssl_mode(), SslMode::Disable);
        assert_eq!(socket.get_hosts(), [Host::Unix("/run/postgresql".into())]);
        let address = first("postgres:///jobs?hostaddr=127.0.0.1&user=me");
        assert_eq!(address.get_hosts(), [Host::Tcp("127.0.0.1".into())]);
        assert_eq!(address.get_ssl_mode(), SslMode::Prefer);
    }

    #[test]
    fn the_name_for_messages_has_hosts_and_database_but_no_password() {
        let name = |url| Address::parse(url).unwrap().name;
        assert_eq!(
            name("postgres://me:secret@a,b:6432/jobs?connect_timeout=3"),
            "PostgreSQL at a:5432, b:6432, database jobs"
        );
        assert_eq!(name("postgresql://h?hostaddr=127.0.0.1"), "PostgreSQL at h:5432");
    }
}
