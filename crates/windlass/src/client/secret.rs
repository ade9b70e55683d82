//! `windlass secret …`.

use std::io::{self, BufRead, IsTerminal, Read};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use windlass_core::limit::SECRET_BYTES_MAX;
use windlass_core::secret::{SecretName, SecretValue};
use zeroize::Zeroizing;

use super::http::Daemon;
use super::key::Hidden;
use super::{Show, cell, items, when};
use crate::Usage;
use crate::cli::{Secret, SecretSet};
use crate::output::{self, Table, long, text};

pub(super) async fn run(daemon: &Daemon, show: Show, command: Secret) -> anyhow::Result<()> {
    match command {
        Secret::Set(set) => put(daemon, show, &set).await,
        Secret::List => list(daemon, show).await,
        Secret::Rm { names } => remove(daemon, show, &names).await,
        Secret::Rekey => rekey(daemon, show).await,
    }
}

async fn put(daemon: &Daemon, show: Show, set: &SecretSet) -> anyhow::Result<()> {
    if !set.value.is_empty() {
        let why = "a value is not an argument, because other users see those in the list of \
                   processes: pipe it to `windlass secret set`, and choose a new value, since this \
                   one may have been seen";
        bail!(Usage(why.into()));
    }
    let name = SecretName::new(&set.name)?;
    let value = read_value(set.exact)?;
    let path = daemon.path(&["secrets", name.as_str()]);
    let answer = daemon.put_text(&path, value.reveal()).await?;
    show.answer(&answer, || format!("{name} is set, version {}\n", cell(&answer["version"])))
}

/// From the terminal without showing it, or all of standard input.
fn read_value(exact: bool) -> anyhow::Result<SecretValue> {
    let stdin = io::stdin();
    // One byte more than is accepted, and a line end.
    let bytes_max = SECRET_BYTES_MAX as u64 + 3;
    let mut bytes = Zeroizing::new(Vec::with_capacity(bytes_max as usize));
    if stdin.is_terminal() {
        output::note("Value: ");
        let hidden = Hidden::new().context("cannot hide what is typed; pipe the value instead")?;
        stdin.lock().take(bytes_max).read_until(b'\n', &mut bytes).context("cannot read it")?;
        drop(hidden);
        output::note("\n");
    } else {
        let read = stdin.lock().take(bytes_max).read_to_end(&mut bytes);
        read.context("cannot read the value from standard input")?;
    }
    if !exact {
        cut_line_end(&mut bytes);
    }
    Ok(SecretValue::new(std::mem::take(&mut bytes))?)
}

/// One line feed, with the carriage return before it.
fn cut_line_end(bytes: &mut Vec<u8>) {
    if bytes.pop_if(|last| *last == b'\n').is_some() {
        bytes.pop_if(|last| *last == b'\r');
    }
}

async fn list(daemon: &Daemon, show: Show) -> anyhow::Result<()> {
    let answer = daemon.get(&daemon.path(&["secrets"]), &[]).await?;
    let now = when::now();
    let mut table = Table::new(&[text("NAME"), text("VERSION"), text("UPDATED"), long("HANDLERS")]);
    for secret in items(&answer, "secrets") {
        let handlers: Vec<String> = items(secret, "handlers").iter().map(cell).collect();
        table.row(vec![
            cell(&secret["name"]),
            cell(&secret["version"]),
            when::ago(&secret["updated_at"], now),
            if handlers.is_empty() { "-".into() } else { handlers.join(", ") },
        ]);
    }
    show.table(&answer, table, "there are no secrets")
}

async fn remove(daemon: &Daemon, show: Show, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        // Checked before it becomes part of a path.
        let name = SecretName::new(name)?;
        let answer = daemon.delete(&daemon.path(&["secrets", name.as_str()])).await?;
        show.answer(&answer, || format!("{name} was removed\n"))?;
    }
    Ok(())
}

async fn rekey(daemon: &Daemon, show: Show) -> anyhow::Result<()> {
    let answer = daemon.post("/v1/secrets/rekey", Some(&json!({}))).await?;
    show.answer(&answer, || rekeyed(&answer))?;
    let unreadable = items(&answer, "unreadable");
    if !unreadable.is_empty() {
        let secret = |of: &Value| format!("{} of {}", cell(&of["name"]), cell(&of["tenant"]));
        let secrets: Vec<String> = unreadable.iter().map(secret).collect();
        bail!("these secrets cannot be read, and have to be set again: {}", secrets.join(", "));
    }
    Ok(())
}

fn rekeyed(answer: &Value) -> String {
    let secrets = match &answer["resealed"] {
        count if *count == 1 => "1 secret is".to_owned(),
        count => format!("{count} secrets are"),
    };
    let key = cell(&answer["key"]);
    format!("{secrets} encrypted with the new key {key}; make a new copy of the key file\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_not_part_of_a_value() {
        for (input, value) in
            [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), ("a\r", "a\r"), ("\n", "")]
        {
            let mut bytes = input.as_bytes().to_vec();
            cut_line_end(&mut bytes);
            assert_eq!(bytes, value.as_bytes(), "{input:?}");
        }
    }
}
