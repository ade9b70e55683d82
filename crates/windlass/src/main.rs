//! The `windlass` binary: the daemon, its command line and its demonstration. Only this crate
//! names concrete stores, runners and doors, and only it reads configuration and environment.
//!
//! | module | owns |
//! |---|---|
//! | `cli` | the command line |
//! | `config` | every key, from flags, environment, file and defaults |
//! | `serve` | the daemon's life cycle, from the first check to the last signal |
//! | `reload` | the files that a running daemon loads again |
//! | `wiring` | builds a daemon from its parts |
//! | `keys` | files with API keys: of a daemon, and for the commands |
//! | `secrets` | the key file of secrets |
//! | `open_files` | how many files the daemon may open, and its connections take |
//! | `private` | keeps other users from the daemon's files |
//! | `backup` | backups of a data directory, and their restore |
//! | `client` | the commands that talk to a daemon |
//! | `source` | parses a handler's file |
//! | `jobd` | the programs `jobd`, `jobd-master` and `jobctl` |
//! | `disbatch` | the programs of Disbatch |
//! | `doctor` | checks how handlers are isolated on this machine |
//! | `fence` | the process that cleans up after a killed Disbatch node |
//! | `demo` | the demonstration |
//! | `temporary` | a temporary daemon for the demonstration |
//! | `log`, `output`, `signal` | the edges: standard error, the terminal, signals |

mod backup;
mod cli;
mod client;
mod config;
mod demo;
mod disbatch;
mod doctor;
mod fence;
mod jobd;
mod keys;
mod log;
mod open_files;
mod output;
mod private;
mod reload;
mod secrets;
mod serve;
mod signal;
mod source;
mod temporary;
mod wiring;

use std::fmt;
use std::io;
use std::process::ExitCode;

use anyhow::Context;

use crate::cli::Action;
use crate::jobd::Program;

/// Refused or failed.
const FAILED: u8 = 1;
/// Wrong usage.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    windlass_runner::cell::enter_if_told();
    windlass_runner::doctor::attack_if_told();
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.collect();
    if let Some((program, words)) = jobd::program_of(&words) {
        return jobd::run(program, words);
    }
    if let Some((called, words)) = disbatch::arguments_of(&words) {
        return disbatch::client(called, words).unwrap_or_else(|error| failed(&error));
    }
    if let Some(words) = disbatch::task_runner_words(&words) {
        return disbatch::dtr(disbatch::TASK_RUNNER, words);
    }
    let cli = match cli::parse(words) {
        Ok(cli) => cli,
        Err(answer) => {
            // A closed output is not a failure.
            let _ = answer.print();
            return ExitCode::from(answer.exit_code() as u8);
        }
    };
    let ended = match cli.command {
        Action::Serve(flags) => serve::run(&flags),
        Action::Demo => demo::run(),
        Action::Backup(flags) => backup::run(&flags, cli.target.json),
        Action::Restore(flags) => backup::restore::run(&flags, cli.target.json),
        Action::Doctor(flags) => doctor::run(&flags, cli.target.json),
        Action::Completions { shell } => completions(shell),
        Action::Jobd { words } => Ok(jobd::run(Program::Worker, &words)),
        Action::JobdMaster { words } => Ok(jobd::run(Program::Master, &words)),
        Action::Jobctl { words } => Ok(jobd::run(Program::Ctl, &words)),
        Action::Disbatch { words } => disbatch::client(disbatch::COMMAND, &words),
        Action::Den(flags) => disbatch::den(&flags.config),
        Action::Dci(flags) => disbatch::dci(&flags.config),
        Action::Dtr { words } => Ok(disbatch::dtr("windlass dtr", &words)),
        Action::Fence { words } => fence::run(&words),
        action => ask(&cli.target, action),
    };
    ended.unwrap_or_else(|error| failed(&error))
}

fn ask(target: &cli::Target, action: Action) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the async runtime")?;
    runtime.block_on(client::run(target, action))
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "windlass", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the reason in one sentence; a closed output needs none.
fn failed(error: &anyhow::Error) -> ExitCode {
    let pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(pipe) {
        return ExitCode::SUCCESS;
    }
    output::print_error(&format!("{error:#}"));
    let by_flag = error.downcast_ref::<config::Error>().is_some_and(|error| error.by_flag);
    ExitCode::from(if error.is::<Usage>() || by_flag { MISUSED } else { FAILED })
}

/// Wrong usage that clap cannot detect.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
