//! Access to the command interface: `users`, `tokens`, `tls`, `listen`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, MIN_SALT_LEN, Params, Version};

use super::keys::{Keys, kind};
use super::read;
use windlass_program::Secret;

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// Users and tokens. Without any, everyone who can reach the address has access.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// Names, each with a password or an argon2 hash of one (`$argon2…`).
    pub users: Vec<(String, Secret)>,
    pub tokens: Vec<Secret>,
}

impl Access {
    pub(crate) fn is_open(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

pub(super) fn read_access(keys: Keys<'_>) -> Result<Access, String> {
    let mut users = Vec::new();
    if let Some(named) = keys.below("users", "users")? {
        for (name, _) in named.iter() {
            if name.is_empty() || name.contains(':') || name.chars().any(char::is_control) {
                return Err(format!("`users`: {name:?} cannot be the name of a user"));
            }
            let missing = || format!("{} must be a password or a hash of one", named.name(name));
            let password = named.text(name)?.ok_or_else(missing)?;
            if is_hashed(password) && argon2_hash(password).is_none() {
                return Err(format!("{} is not a complete argon2 hash", named.name(name)));
            }
            users.push((name.clone(), Secret::new(password)));
        }
        if users.is_empty() {
            return Err("`users` is empty; add a user, or remove the key".into());
        }
    }
    let tokens = keys.texts("tokens")?;
    if keys.get("tokens").is_some() && tokens.is_empty() {
        return Err("`tokens` is empty; add a token, or remove the key".into());
    }
    Ok(Access { users, tokens: tokens.into_iter().map(Secret::new).collect() })
}

/// Whether this looks like a password hash.
pub(crate) fn is_hashed(password: &str) -> bool {
    password.starts_with("$argon2")
}

/// A complete, known hash that a password can be checked against.
pub(crate) fn argon2_hash(text: &str) -> Option<PasswordHash> {
    let hash = PasswordHash::new(text).ok()?;
    let algorithm = hash.algorithm.as_str().parse::<Algorithm>();
    let version = hash.version.map_or(Ok(Version::default()), Version::try_from);
    let salt = hash.salt.as_ref().filter(|salt| salt.len() >= MIN_SALT_LEN);
    let is_whole = algorithm.is_ok()
        && version.is_ok()
        && Params::try_from(&hash).is_ok()
        && salt.is_some()
        && hash.hash.is_some();
    is_whole.then_some(hash)
}

pub(super) fn read_tls(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<Option<Tls>, String> {
    let Some(keys) = keys.below("tls", "tls")? else { return Ok(None) };
    keys.warn_unknown(&["cert", "key"], warnings);
    let path = |key| keys.required(key, "\"/etc/disbatch/dci.pem\"").map(PathBuf::from);
    Ok(Some(Tls { cert: path("cert")?, key: path("key")? }))
}

/// Passwords and tasks must not cross a network unencrypted.
pub(super) fn read_listen(
    keys: Keys<'_>,
    access: &Access,
    tls: Option<&Tls>,
    warnings: &mut Vec<String>,
) -> Result<SocketAddr, String> {
    const EXPECTED: &str = "an address with a port, such as \"127.0.0.1:8080\"";
    let listen = match keys.get("listen") {
        None => LISTEN,
        Some(value) => {
            let wrong = || format!("`listen` must be {EXPECTED}, not {}", kind(value));
            let text = value.as_str().ok_or_else(wrong)?;
            read::address(text).ok_or_else(|| format!("`listen` must be {EXPECTED}"))?
        }
    };
    if !listen.ip().is_loopback() {
        if tls.is_none() {
            return Err(format!(
                "`listen` is {listen}, where others can listen in; give a certificate in `tls`, or \
                 listen on a loopback address such as 127.0.0.1:{}",
                listen.port()
            ));
        }
        if access.is_open() {
            warnings.push(format!(
                "anyone who can reach {listen} can change queues and tasks; set `users` or \
                 `tokens`"
            ));
        }
    }
    Ok(listen)
}
