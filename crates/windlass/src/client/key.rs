//! `windlass key …` and `windlass login`.

use std::io::{self, BufRead, IsTerminal, Read};

use anyhow::{Context, anyhow, bail};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::{Map, Value, json};

use windlass_core::{KeyText, Role};

use super::http::Daemon;
use super::{Show, cell, items, when};
use crate::cli::{Key, KeyCreate, KeyRotate, TENANT_DEFAULT, Target};
use crate::keys::{self, Login, Places};
use crate::output::{self, Table, long, plain, text};

/// Longest input that is read for a key.
const INPUT_BYTES_MAX: u64 = 4096;
/// Keys in one page of a list.
const PAGE_KEYS: &str = "1000";

pub(super) async fn run(daemon: &Daemon, show: Show, command: Key) -> anyhow::Result<()> {
    match command {
        Key::Create(create) => self::create(daemon, show, &create).await,
        Key::List => list(daemon, show).await,
        Key::Revoke { ids } => revoke(daemon, show, &ids).await,
        Key::Rotate(rotate) => self::rotate(daemon, show, &rotate).await,
    }
}

async fn create(daemon: &Daemon, show: Show, create: &KeyCreate) -> anyhow::Result<()> {
    let mut wish = Map::new();
    wish.insert("role".into(), create.role.clone().into());
    let tenant = daemon.tenant().as_str();
    if Role::from_name(&create.role).is_none_or(Role::has_tenant) {
        wish.insert("tenant".into(), tenant.into());
    } else if tenant != TENANT_DEFAULT {
        let role = plain(&create.role);
        bail!(
            "a key of the role {role} is for all tenants, not for {tenant} alone; leave out \
             --tenant and WINDLASS_TENANT for that, or make a key for a manager of {tenant}"
        );
    }
    wish.extend(create.name.clone().map(|name| ("name".into(), name.into())));
    wish.extend(create.expires.clone().map(|expires| ("expires".into(), expires.into())));
    let made = daemon.post("/v1/keys", Some(&wish.into())).await?;
    show_made(show, &made)
}

async fn rotate(daemon: &Daemon, show: Show, rotate: &KeyRotate) -> anyhow::Result<()> {
    let mut wish = Map::new();
    wish.extend(rotate.overlap.clone().map(|overlap| ("overlap".into(), overlap.into())));
    wish.extend(rotate.expires.clone().map(|expires| ("expires".into(), expires.into())));
    let path = format!("/v1/keys/{}/rotate", id(&rotate.id)?);
    let made = daemon.post(&path, Some(&wish.into())).await?;
    show_made(show, &made)
}

/// The key alone on standard output, so that it can be stored without a detour.
fn show_made(show: Show, made: &Value) -> anyhow::Result<()> {
    let key = made["key"].as_str().context("the daemon's answer has no key")?;
    show.answer(made, || format!("{key}\n"))?;
    if !show.json {
        let of = match made["tenant"].as_str() {
            Some(tenant) => format!("of {}", plain(tenant)),
            None => "of all tenants".into(),
        };
        let role = cell(&made["role"]);
        output::note(&format!("a key with the role {role} {of}; it is not shown again\n"));
    }
    Ok(())
}

async fn list(daemon: &Daemon, show: Show) -> anyhow::Result<()> {
    let (mut keys, mut after) = (Vec::new(), None::<String>);
    // Ends, because a store has a bounded number of keys, and they come in order.
    loop {
        let mut query = vec![("limit", PAGE_KEYS)];
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page = daemon.get("/v1/keys", &query).await?;
        keys.extend(items(&page, "keys").iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    let now = when::now();
    let mut table = Table::new(&[
        text("ID"),
        text("ROLE"),
        text("TENANT"),
        long("NAME"),
        text("CREATED"),
        text("LAST USED"),
        text("EXPIRES"),
        text("REVOKED"),
    ]);
    for key in &keys {
        let mut row = ["id", "role", "tenant", "name"].map(|name| cell(&key[name])).to_vec();
        let times = ["created_at", "last_used_at"].map(|name| when::ago(&key[name], now));
        row.extend(times);
        row.extend(["expires_at", "revoked_at"].map(|name| cell(&key[name])));
        table.row(row);
    }
    show.table(&json!({ "keys": keys }), table, "there are no keys")
}

async fn revoke(daemon: &Daemon, show: Show, ids: &[String]) -> anyhow::Result<()> {
    for text in ids {
        let id = id(text)?;
        let answer = daemon.delete(&format!("/v1/keys/{id}")).await?;
        show.answer(&answer, || format!("{id} revoked\n"))?;
    }
    Ok(())
}

/// Checked before it becomes part of a path.
fn id(text: &str) -> anyhow::Result<windlass_core::KeyId> {
    Ok(text.parse::<windlass_core::KeyId>()?)
}

/// Reads a key, tries it, and saves it for its daemon.
pub(super) async fn login(target: &Target, url: &str, places: &Places) -> anyhow::Result<()> {
    let key = read_key()?;
    if KeyText::parse(&key).is_none() {
        bail!("this is not a key; a key begins with wl_ and has {KEY_CHARS} characters");
    }
    let url = keys::find::url(url, places);
    // Files that were saved before stay, unless others are given.
    let given = Login { key: Some(key), ..target.login()? };
    let login = keys::find::find(given, &url, places)?;
    let daemon = Daemon::new(&url, &target.tenant, login.clone())?;
    // Every role may read it.
    daemon.get("/openapi.json", &[]).await?;
    let path = keys::saved::save(places, daemon.base(), &login)?;
    let shown = path.display().to_string();
    output::print(&format!("the key for {} is saved in {}\n", plain(&url), plain(&shown)))?;
    Ok(())
}

const KEY_CHARS: usize = "wl_".len() + 16 + 1 + 64;

/// From the terminal without showing it, or the first line of standard input.
fn read_key() -> anyhow::Result<String> {
    let stdin = io::stdin();
    let is_terminal = stdin.is_terminal();
    let _hidden = if is_terminal {
        output::note("Key: ");
        Some(Hidden::new().context("cannot hide what is typed; pipe the key instead")?)
    } else {
        None
    };
    let mut line = String::new();
    stdin.lock().take(INPUT_BYTES_MAX).read_line(&mut line).context("cannot read the key")?;
    if is_terminal {
        output::note("\n");
    }
    match line.trim() {
        "" => Err(anyhow!("no key was given")),
        key => Ok(key.to_owned()),
    }
}

/// What is typed is not shown until this is dropped.
pub(super) struct Hidden(rustix::termios::Termios);

impl Hidden {
    pub(super) fn new() -> io::Result<Hidden> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Hidden(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // The terminal was there a moment ago.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
