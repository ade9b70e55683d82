//! Who may use the command interface, and how it is reached: `users`, `tokens`, `tls`, `listen`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::keys::{Keys, kind};
use super::read;
use crate::secret::Secret;

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// Who may come in. Without users and tokens, everybody who reaches the address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Names, each with a password or an argon2 hash of one (`$argon2…`).
    pub users: Vec<(String, Secret)>,
    pub tokens: Vec<Secret>,
}

impl Access {
    pub fn is_open(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
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
            if password.starts_with("$argon2") && !is_hash(password) {
                return Err(format!("{} is not a whole argon2 hash", named.name(name)));
            }
            users.push((name.clone(), Secret::new(password)));
        }
        if users.is_empty() {
            return Err("`users` names nobody; name one, or leave the key out".into());
        }
    }
    let tokens = keys.texts("tokens")?;
    if keys.get("tokens").is_some() && tokens.is_empty() {
        return Err("`tokens` is empty; give one, or leave the key out".into());
    }
    Ok(Access { users, tokens: tokens.into_iter().map(Secret::new).collect() })
}

fn is_hash(text: &str) -> bool {
    argon2::password_hash::phc::PasswordHash::new(text).is_ok()
}

pub(super) fn read_tls(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<Option<Tls>, String> {
    let Some(keys) = keys.below("tls", "tls")? else { return Ok(None) };
    keys.warn_unknown(&["cert", "key"], warnings);
    let path = |key| keys.required(key, "\"/etc/disbatch/dci.pem\"").map(PathBuf::from);
    Ok(Some(Tls { cert: path("cert")?, key: path("key")? }))
}

/// Passwords and tasks do not travel over a network that others may hear.
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
                "everybody who reaches {listen} may change queues and tasks; name `users` or \
                 `tokens`"
            ));
        }
    }
    Ok(listen)
}
