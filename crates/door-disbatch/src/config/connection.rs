//! The connection to the database: `mongohost`, `database`, `attributes`, `auth`.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::ConfigError;
use super::keys::{Keys, flag_of, kind};
use crate::relaxed;
use windlass_program::Secret;

/// Disbatch's MongoDB users, one for each of its programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Den,
    Web,
    TaskRunner,
    Plugin,
    Balance,
}

impl User {
    pub(crate) const ALL: [User; 5] =
        [User::Den, User::Web, User::TaskRunner, User::Plugin, User::Balance];

    /// Its name in the database and under `auth`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            User::Den => "disbatchd",
            User::Web => "disbatch_web",
            User::TaskRunner => "task_runner",
            User::Plugin => "plugin",
            User::Balance => "queuebalance",
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Connection {
    /// A `mongodb://` or `mongodb+srv://` address; may contain a password.
    pub uri: Secret,
    pub database: String,
    pub auth: Auth,
    /// TLS settings, in addition to those in the address.
    pub tls: Option<ServerTls>,
}

/// Hides what precedes the `@` of the address.
impl fmt::Debug for Connection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = out.debug_struct("Connection");
        all.field("uri", &self.shown_uri()).field("database", &self.database);
        all.field("auth", &self.auth).field("tls", &self.tls).finish()
    }
}

impl Connection {
    /// The address for display: without user and password.
    pub(crate) fn shown_uri(&self) -> String {
        let mut uri = self.without_login();
        let scheme_end = uri.find("://").map_or(0, |at| at + "://".len());
        if let Some(hosts) = uri[scheme_end..].find(['/', '?']) {
            uri.truncate(scheme_end + hosts);
        }
        uri
    }

    /// The address without user and password, for a program that logs in by itself.
    pub(super) fn without_login(&self) -> String {
        without_login(self.uri.reveal())
    }

    /// `None` if the file has no password for this user, who then does not log in.
    pub(crate) fn password(&self, user: User) -> Option<&Secret> {
        self.auth.0.iter().find(|(named, _)| *named == user).map(|(_, password)| password)
    }
}

fn without_login(uri: &str) -> String {
    match (uri.split_once("://"), uri.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
        _ => uri.to_owned(),
    }
}

/// The passwords of the database's users.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Auth(pub(crate) Vec<(User, Secret)>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerTls {
    pub ca_file: Option<PathBuf>,
    /// False: accept any certificate.
    pub verify: bool,
}

impl ServerTls {
    /// The TLS settings of a file, whatever else it contains.
    pub(crate) fn of_file(path: &Path) -> Result<Option<ServerTls>, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable { path: path.into(), error };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let syntax = |mistake| ConfigError::Syntax { path: path.into(), mistake };
        let Value::Object(map) = relaxed::parse(&text).map_err(syntax)? else { return Ok(None) };
        let read = read_attributes(Keys::new(&map), &mut Vec::new());
        read.map_err(|why| ConfigError::Wrong { path: path.into(), why })
    }
}

pub(super) fn read(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<Connection, String> {
    let uri = uri_of(keys.required("mongohost", "\"mongodb://localhost:27017\"")?)?;
    let database = keys.required("database", "\"disbatch\"")?.to_owned();
    if database.contains(['/', '\\', '.', ' ', '"', '$', '\0']) {
        return Err(
            "`database` must be a name without any of the signs / \\ . \" $ or spaces".into()
        );
    }
    let auth = read_auth(keys, warnings)?;
    Ok(Connection { uri: Secret::new(uri), database, auth, tls: read_attributes(keys, warnings)? })
}

/// The Perl driver also accepts a bare host name.
fn uri_of(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "`mongohost` must be an address such as mongodb://localhost:27017";
    let uri = if text.contains("://") { text.to_owned() } else { format!("mongodb://{text}") };
    let parse = |uri: &str| mongodb::options::ConnectionString::parse(uri);
    if parse(&uri).is_ok() {
        return Ok(uri);
    }
    // The driver's error may quote a password, so it gets the address without it.
    match parse(&without_login(&uri)) {
        Ok(_) => Err(format!("{EXPECTED}, with @ : / % in a password as %40 %3A %2F %25")),
        Err(error) => Err(format!("{EXPECTED}: {}", *error.kind)),
    }
}

fn read_auth(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<Auth, String> {
    let Some(keys) = keys.below("auth", "auth")? else { return Ok(Auth::default()) };
    keys.warn_unknown(&User::ALL.map(User::name), warnings);
    let mut passwords = Vec::new();
    for user in User::ALL {
        if let Some(password) = keys.text(user.name())? {
            passwords.push((user, Secret::new(password)));
        }
    }
    Ok(Auth(passwords))
}

/// Of the driver options only `ssl` is used; the others belong into the address.
fn read_attributes(
    keys: Keys<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<ServerTls>, String> {
    let Some(keys) = keys.below("attributes", "attributes")? else { return Ok(None) };
    for (key, _) in keys.iter().filter(|(key, _)| *key != "ssl") {
        warnings.push(format!(
            "{} is not used: options of the connection belong into the address `mongohost`",
            keys.name(key)
        ));
    }
    let whole = ServerTls { ca_file: None, verify: true };
    let Some(value) = keys.get("ssl") else { return Ok(None) };
    if let Some(wanted) = flag_of(value) {
        return Ok(wanted.then_some(whole));
    }
    let Value::Object(_) = value else {
        return Err(format!("`attributes.ssl` must be true or an object, not {}", kind(value)));
    };
    let Some(ssl) = keys.below("ssl", "attributes.ssl")? else { return Ok(None) };
    ssl.warn_unknown(&["SSL_ca_file", "SSL_verify_mode"], warnings);
    let verify = match ssl.get("SSL_verify_mode") {
        None => true,
        Some(mode) => {
            let wrong = || format!("{} must be 0 or 1", ssl.name("SSL_verify_mode"));
            mode.as_u64().ok_or_else(wrong)? != 0
        }
    };
    Ok(Some(ServerTls { ca_file: ssl.path("SSL_ca_file")?, verify }))
}
