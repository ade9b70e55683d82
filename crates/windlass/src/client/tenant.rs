//! `windlass tenant …`.

use anyhow::Context;
use serde_json::Value;

use super::http::Daemon;
use super::{Show, cell};
use crate::Usage;
use crate::cli::{TenantCommand, TenantSet};
use crate::output::{Table, plain, text};

/// What stands for a setting that is not set.
const DEFAULT: &str = "default";

pub(super) async fn run(daemon: &Daemon, show: Show, command: TenantCommand) -> anyhow::Result<()> {
    let path = format!("/v1/tenants/{}", daemon.tenant());
    let mut settings = daemon.get(&path, &[]).await?;
    match command {
        TenantCommand::Show => {
            let mut table = Table::new(&[text("SETTING"), text("VALUE")]);
            let set = settings.as_object().context("the daemon's answer is no object")?;
            for (name, value) in set {
                let value = if value.is_null() { DEFAULT.into() } else { cell(value) };
                table.row(vec![name.clone(), value]);
            }
            show.table(&settings, table, "there are no settings")
        }
        TenantCommand::Set(set) => {
            change(&mut settings, &set)?;
            let answer = daemon.put(&path, &settings).await?;
            let tenant = plain(daemon.tenant().as_str());
            show.answer(&answer, || format!("the settings of {tenant} are changed\n"))
        }
    }
}

fn change(settings: &mut Value, set: &TenantSet) -> anyhow::Result<()> {
    let TenantSet { weight, slots_min, slots_max } = set;
    let named = [("weight", weight), ("slots_min", slots_min), ("slots_max", slots_max)];
    for (name, value) in named {
        let Some(value) = value else { continue };
        settings[name] = match value.as_str() {
            DEFAULT => Value::Null,
            number => number.parse::<u32>().map(Value::from).map_err(|_| {
                let flag = name.replace('_', "-");
                Usage(format!("--{flag} takes a whole number or `{DEFAULT}`"))
            })?,
        };
    }
    Ok(())
}
