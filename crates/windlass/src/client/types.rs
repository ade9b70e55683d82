//! `windlass types …`.

use super::http::{Daemon, type_name};
use super::{Show, cell, items, when};
use crate::cli::Types;
use crate::output::{Table, long, number, plain, text};

pub(super) async fn run(daemon: &Daemon, show: Show, command: Types) -> anyhow::Result<()> {
    match command {
        Types::List => list(daemon, show).await,
        Types::Suspend { name } => {
            let path = daemon.path(&["types", type_name(&name)?, "suspend"]);
            let answer = daemon.post(&path, None).await?;
            show.answer(&answer, || format!("{} suspended\n", plain(&name)))
        }
        Types::Resume { name } => {
            let path = daemon.path(&["types", type_name(&name)?, "resume"]);
            let answer = daemon.post(&path, None).await?;
            show.answer(&answer, || format!("{} resumed\n", plain(&name)))
        }
    }
}

async fn list(daemon: &Daemon, show: Show) -> anyhow::Result<()> {
    let answer = daemon.get(&daemon.path(&["types"]), &[]).await?;
    let now = when::now();
    let counts = ["ready", "deferred", "running", "paused", "finished", "failed"];
    let mut table = Table::new(&[
        long("TYPE"),
        text("HANDLER"),
        text("SUSPENDED"),
        number("READY"),
        number("DEFERRED"),
        number("RUNNING"),
        number("PAUSED"),
        number("FINISHED"),
        number("FAILED"),
        text("WAITING SINCE"),
    ]);
    for item in items(&answer, "types") {
        let mut row = vec![cell(&item["type"]), cell(&item["handler"]), cell(&item["suspended"])];
        row.extend(counts.iter().map(|name| cell(&item[name])));
        row.push(when::ago(&item["oldest_ready_at"], now));
        table.row(row);
    }
    show.table(&answer, table, &format!("{} has no types yet", daemon.tenant()))
}
