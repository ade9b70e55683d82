//! `windlass doctor`: checks how handlers are isolated on this machine, layer by layer.

use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use windlass_runner::doctor::{Finding, LayerStatus, examine};

use crate::cli::Doctor;
use crate::config::{Config, Inputs};
use crate::output::{self, Table, long, text};
use crate::{FAILED, serve, wiring};

pub(crate) fn run(flags: &Doctor, json: bool) -> anyhow::Result<ExitCode> {
    let cores = serve::cores();
    let config = Config::load(&Inputs {
        flags: Vec::new(),
        config_flag: flags.config.as_deref(),
        environment: &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
        cores,
    })?;
    let directory = tempfile::Builder::new().prefix("windlass-").tempdir();
    let directory = directory.context("cannot create a temporary directory")?;
    let scratch = directory.path().join("scratch");
    let doors = std::iter::once(config.listen).chain(config.bedrock.listen).collect();
    let options = wiring::runner_options(&config, scratch, serve::handler_path(), doors)?;
    let runtime = serve::runtime(cores)?;
    let findings = runtime.block_on(examine(options))?;
    runtime.shutdown_background();
    directory.close().context("cannot remove the temporary directory")?;
    let in_force = findings.iter().all(|finding| finding.status != LayerStatus::NotInForce);
    if json {
        let layers = findings.iter().map(Layer::of).collect();
        output::print_json(&DoctorReport { in_force, layers })?;
    } else {
        output::print(&table(&findings))?;
    }
    Ok(if in_force { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

#[derive(Serialize)]
struct DoctorReport<'a> {
    /// Whether every configured layer is in force.
    in_force: bool,
    layers: Vec<Layer<'a>>,
}

#[derive(Serialize)]
struct Layer<'a> {
    layer: &'a str,
    standing: &'static str,
    detail: &'a str,
}

impl Layer<'_> {
    fn of(finding: &Finding) -> Layer<'_> {
        let Finding { layer, status, detail } = finding;
        Layer { layer, standing: words(*status), detail }
    }
}

fn words(status: LayerStatus) -> &'static str {
    match status {
        LayerStatus::InForce => "in force",
        LayerStatus::NotInForce => "not in force",
        LayerStatus::Absent => "absent",
    }
}

fn table(findings: &[Finding]) -> String {
    let mut table = Table::new(&[text("layer"), text("status"), long("detail")]);
    for Finding { layer, status, detail } in findings {
        let status = match status {
            LayerStatus::NotInForce => words(*status).to_uppercase(),
            LayerStatus::InForce | LayerStatus::Absent => words(*status).to_owned(),
        };
        table.row(vec![(*layer).to_owned(), status, detail.clone()]);
    }
    table.render(None)
}
