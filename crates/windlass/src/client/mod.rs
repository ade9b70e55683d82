//! The commands that talk to a daemon: each sends HTTP requests and shows the answer, as tables for
//! people or as the daemon's own JSON.

mod add;
mod audit;
mod chunk;
mod daemons;
mod follow;
mod handler;
pub(crate) mod http;
mod jobs;
mod key;
mod load;
mod log;
mod pinned;
mod run;
mod secret;
mod status;
mod tenant;
mod types;
pub(crate) mod when;

use std::process::ExitCode;

use anyhow::Context;
use serde_json::Value;

use windlass_core::State;

use crate::cli::{Action, Target};
use crate::keys::Places;
use crate::keys::find;
use crate::output;

pub(crate) use self::http::Daemon;

/// Carries out one command against the daemon that `target` names.
pub(crate) async fn run(target: &Target, action: Action) -> anyhow::Result<ExitCode> {
    let places = Places::of_process();
    if let Action::Login { url } = &action {
        key::login(target, url, &places).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let url = find::url(&target.url, &places);
    let login = find::find(target.login()?, &url, &places)?;
    let daemon = Daemon::new(&url, &target.tenant, login)?;
    let show = Show { json: target.json };
    match action {
        Action::Run(run) => return run::run(daemon, show, &run).await,
        Action::Add(add) => add::run(&daemon, show, &add).await,
        Action::Handler(command) => handler::run(&daemon, show, command).await,
        Action::Jobs(command) => jobs::run(&daemon, show, command).await,
        Action::Types(command) => types::run(&daemon, show, command).await,
        Action::Tenant(command) => tenant::run(&daemon, show, command).await,
        Action::Key(command) => key::run(&daemon, show, command).await,
        Action::Audit(wanted) => audit::run(&daemon, show, &wanted).await,
        Action::Secret(command) => secret::run(&daemon, show, command).await,
        Action::Status => status::run(&daemon, show).await,
        Action::Daemons => daemons::run(&daemon, show).await,
        Action::Serve(_)
        | Action::Backup(_)
        | Action::Restore(_)
        | Action::Doctor(_)
        | Action::Demo
        | Action::Login { .. }
        | Action::Completions { .. }
        | Action::Jobd { .. }
        | Action::Den(_)
        | Action::Dci(_)
        | Action::Disbatch { .. }
        | Action::Dtr { .. }
        | Action::Fence { .. }
        | Action::JobdMaster { .. }
        | Action::Jobctl { .. } => unreachable!("these commands talk to no Windlass daemon"),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// How the answer is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Show {
    json: bool,
}

impl Show {
    /// Prints the answer as JSON, or the text that `human` returns.
    fn answer(self, answer: &Value, human: impl FnOnce() -> String) -> anyhow::Result<()> {
        if self.json {
            output::print_json(answer)?;
        } else {
            output::print(&human())?;
        }
        Ok(())
    }

    fn table(self, answer: &Value, table: output::Table, empty: &str) -> anyhow::Result<()> {
        self.answer(answer, || match table.is_empty() {
            true => format!("{empty}\n"),
            false => table.render(output::width()),
        })
    }
}

/// A JSON value as a table cell: text unchanged, absent values as `-`.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}

/// The same, but `None` for an absent value.
fn cell_if_there(value: &Value) -> Option<String> {
    (!value.is_null()).then(|| cell(value))
}

fn is_ended(job: &Value) -> anyhow::Result<bool> {
    let state = job["state"].as_str().and_then(State::from_name);
    Ok(state.context("the daemon's answer has a job in an unknown state")?.is_ended())
}

/// `1 job`, `2 jobs`.
fn jobs(count: u64) -> String {
    if count == 1 { "1 job".into() } else { format!("{count} jobs") }
}

/// The list in an answer; empty if there is none.
fn items<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    let list = if answer.is_array() { answer } else { &answer[name] };
    list.as_array().map_or(&[], Vec::as_slice)
}
