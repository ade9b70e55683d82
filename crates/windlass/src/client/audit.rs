//! `windlass audit`.

use anyhow::bail;
use serde_json::{Value, json};

use windlass_core::Clock;
use windlass_core::time::{SystemClock, format_time, parse_duration};

use super::http::Daemon;
use super::{Show, cell};
use crate::Usage;
use crate::cli::Audit;
use crate::output::{self, Table, long, number, text};

/// Entries in one request.
const PAGE_ENTRIES_MAX: usize = 1000;
/// Requests for one command; a page may be short.
const PAGES_MAX: usize = 10_000;

pub(super) async fn run(daemon: &Daemon, show: Show, wanted: &Audit) -> anyhow::Result<()> {
    if wanted.limit == 0 {
        bail!(Usage("--limit must be at least 1".into()));
    }
    let (entries, next) = pages(daemon, wanted).await?;
    let mut table = Table::new(&[
        text("AT"),
        text("BY"),
        text("ROLE"),
        text("FROM"),
        text("ACTION"),
        text("TENANT"),
        long("TYPE"),
        text("ID"),
        number("STATUS"),
        text("REASON"),
        number("COUNT"),
        long("DETAIL"),
    ]);
    for entry in &entries {
        let by = if entry["key"].is_null() { &entry["by"] } else { &entry["key"] };
        let names = ["role", "address", "action", "tenant", "type", "id"];
        let more = ["status", "reason", "count", "detail"];
        let mut row = vec![cell(&entry["at"]), cell(by)];
        row.extend(names.into_iter().chain(more).map(|name| cell(&entry[name])));
        table.row(row);
    }
    show.table(&json!({ "entries": entries, "next": next }), table, "no matching entries")?;
    if let (Some(cursor), false) = (next, show.json) {
        output::note(&format!("there may be more entries; continue with --after {cursor}\n"));
    }
    Ok(())
}

/// Fetches pages until there are enough entries; also returns the cursor of the rest.
async fn pages(daemon: &Daemon, wanted: &Audit) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    let (since, until) = (wanted.since.as_deref().map(time), wanted.until.as_deref().map(time));
    let (mut entries, mut after) = (Vec::new(), wanted.after.clone());
    for _ in 0..PAGES_MAX {
        let limit = (wanted.limit - entries.len()).min(PAGE_ENTRIES_MAX).to_string();
        let query = [
            ("limit", Some(limit.as_str())),
            ("after", after.as_deref()),
            ("tenant", wanted.of.as_deref()),
            ("key", wanted.by.as_deref()),
            ("action", wanted.action.as_deref()),
            ("since", since.as_deref()),
            ("until", until.as_deref()),
        ];
        let query: Vec<_> = query.into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
        let mut page = daemon.get("/v1/audit", &query).await?;
        let Value::Array(more) = page["entries"].take() else {
            bail!("the daemon's answer has no entries");
        };
        entries.extend(more);
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() || entries.len() >= wanted.limit {
            break;
        }
    }
    Ok((entries, after))
}

/// `24h` becomes the time that long ago; the daemon checks all others.
fn time(text: &str) -> String {
    match parse_duration(text) {
        Ok(ago) => format_time(SystemClock.now() - ago),
        Err(_) => text.to_owned(),
    }
}
