//! `windlass daemons`.

use anyhow::bail;
use serde_json::{Value, json};

use super::http::Daemon;
use super::{Show, cell};
use crate::output::{Table, long, number, text};

/// Daemons in one request, and the most requests for one command.
const PAGE_DAEMONS: &str = "1000";
const PAGES_MAX: usize = 100;

pub(super) async fn run(daemon: &Daemon, show: Show) -> anyhow::Result<()> {
    let daemons = all(daemon).await?;
    let mut table = Table::new(&[
        number("SYSID"),
        text("STATE"),
        text("HOST"),
        text("ADDRESS"),
        text("VERSION"),
        text("STARTED"),
        text("LAST BEAT"),
        text("PICKING"),
        number("RUNNING"),
        number("IN JOURNAL"),
        long("ISOLATION"),
    ]);
    for daemon in &daemons {
        let names = ["sysid", "state", "host", "listen", "version", "started_at", "last_beat_at"];
        let mut row: Vec<String> = names.iter().map(|name| cell(&daemon[name])).collect();
        let missing = daemon["layers_missing"].as_array().map_or(0, Vec::len);
        row.extend([
            cell(&daemon["picking"]),
            cell(&daemon["running"]),
            cell(&daemon["journal"]["waiting"]),
            if missing == 0 { "all".to_owned() } else { format!("{missing} missing") },
        ]);
        table.row(row);
    }
    show.table(&json!({ "daemons": daemons }), table, "no daemon has reported yet")
}

async fn all(daemon: &Daemon) -> anyhow::Result<Vec<Value>> {
    let (mut daemons, mut after) = (Vec::new(), None::<String>);
    for _ in 0..PAGES_MAX {
        let mut query = vec![("limit", PAGE_DAEMONS)];
        query.extend(after.as_deref().map(|after| ("after", after)));
        let mut page = daemon.get("/v1/daemons", &query).await?;
        let Value::Array(more) = page["daemons"].take() else {
            bail!("the daemon's answer has no daemons");
        };
        daemons.extend(more);
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break;
        }
    }
    Ok(daemons)
}
