//! `jobctl`: sends one command to a worker or a master and prints the answer as a table or JSON.

mod args;
mod command;
mod show;
mod signal;
mod table;
#[cfg(test)]
mod tests;
mod usage;

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::args::Args;
use self::command::{Command, Mode};
use self::show::Shown;
use crate::client::RefuseAll;
use crate::config::CtlConfig;
use crate::log::{LineFormat, Log, LogConfig};
use crate::net::{self, AskError, Peer};
use crate::password::Password;
use crate::wire::Json;

/// The version of jobd whose commands these are.
const VERSION: &str = "1.12.0";
const CONFIG_FILE: &str = ".jobctl.conf";
const WORKER_PORT: u16 = 7080;
const MASTER_PORT: u16 = 7081;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// For answers that do not wait for jobs. A master allows its own workers less.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

const DONE: u8 = 0;
const FAILED: u8 = 1;

/// Runs one command; `args` are the arguments after the program's name, `home` is the directory of
/// the default configuration file. Returns the exit code.
pub fn run(args: &[String], home: Option<PathBuf>) -> u8 {
    match Args::parse(args) {
        Ok(args) => start(args, home).unwrap_or_else(|error| {
            print_error(&error);
            FAILED
        }),
        Err(error) => {
            print_error(&error);
            FAILED
        }
    }
}

/// Errors of this function go to standard error; those of the command to the log.
fn start(args: Args, home: Option<PathBuf>) -> Result<u8, String> {
    if args.version {
        print(VERSION);
        return Ok(DONE);
    }
    let Some((name, words)) = args.words.split_first().filter(|_| !args.help) else {
        print(usage::USAGE.trim_end());
        return Ok(DONE);
    };
    let path = args.config.as_ref().map(PathBuf::from);
    let path = path.or_else(|| home.map(|home| home.join(CONFIG_FILE)));
    let mut target = Target::read(&args, path.as_deref())?;
    if args.ask_password {
        let password = ask_password(&mut io::stdin().lock(), &mut io::stdout().lock());
        target.password = Some(password.map_err(|error| format!("cannot read: {error}"))?);
    }
    let log = LogConfig {
        file: None,
        level_file: target.log_level.clone(),
        level_console: target.log_level.clone(),
    };
    let log = Log::open(&log, LineFormat::Plain, "jobctl")?;
    // With `--json`, only JSON goes to standard output.
    let log = if args.json { Log::quiet() } else { log };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let answer = runtime.block_on(execute(&target, name, words, &log));
    let (text, code) = if args.json { json_of(answer) } else { text_of(answer, &log) };
    text.iter().for_each(|text| print(text));
    Ok(code)
}

/// The peer and how to reach it.
struct Target {
    mode: Mode,
    host: String,
    port: String,
    password: Option<Password>,
    log_level: String,
    /// Time limit for connecting and for an answer; `None` for the defaults.
    timeout: Option<Duration>,
}

impl Target {
    /// The file's settings, overridden by options. A missing file is an empty one.
    fn read(args: &Args, path: Option<&Path>) -> Result<Target, String> {
        let config = match path.filter(|path| path.exists()) {
            Some(path) => CtlConfig::read(path).map_err(|error| error.to_string())?,
            None => CtlConfig::default(),
        };
        let (mode, usual_port) = if args.master || config.master {
            (Mode::Master, MASTER_PORT)
        } else {
            (Mode::Worker, WORKER_PORT)
        };
        let port = || config.port.unwrap_or(usual_port).to_string();
        Ok(Target {
            mode,
            host: args.host.clone().unwrap_or(config.host),
            port: args.port.clone().unwrap_or_else(port),
            password: config.password,
            log_level: args.log_level.clone().unwrap_or(config.log_level),
            timeout: args.timeout.or(config.timeout),
        })
    }
}

/// A command and its answer.
type CommandResult = Result<(Command, Json), String>;

async fn execute(target: &Target, name: &str, words: &[String], log: &Log) -> CommandResult {
    let mode = if target.mode == Mode::Master { "master" } else { "worker" };
    log.info(format_args!("Working mode: {mode}"));
    let command = Command::find(target.mode, name);
    let command = command.ok_or_else(|| format!("Unsupported command: '{name}'"))?;
    let peer =
        connect(target, log).await.map_err(|error| format!("Connection failure: {error}"))?;
    log.info("Successfully connected.");
    let ask = command.ask(words)?;
    let answer = peer.ask(ask.kind, ask.data);
    // `run-manual` is answered when its jobs have ended, however late.
    let limit = target.timeout.or((!command.is_patient()).then_some(ANSWER_TIME_MAX));
    let answer = match limit {
        Some(limit) => answer.within(limit).await,
        None => answer.await,
    };
    peer.close();
    match answer {
        Ok(data) => Ok((command, data)),
        Err(AskError::Refused(error)) => Err(format!("Worker error: {error}")),
        Err(AskError::Late(limit)) => {
            let (host, port, seconds) = (&target.host, &target.port, limit.as_secs_f64());
            Err(format!("No answer from {host}:{port} within {seconds} seconds (see --timeout)."))
        }
        Err(error) => Err(error.to_string()),
    }
}

async fn connect(target: &Target, log: &Log) -> Result<Peer, String> {
    let Target { host, port, password, .. } = target;
    let number = port.parse().map_err(|_| format!("'{port}' is not a port number"))?;
    let connecting = net::connect(host, number, password.clone(), Arc::new(RefuseAll), log);
    match tokio::time::timeout(target.timeout.unwrap_or(CONNECT_TIME_MAX), connecting).await {
        Ok(Ok(peer)) => Ok(peer),
        Ok(Err(error)) => Err(format!("{host}:{port}: {error}")),
        Err(_) => Err(format!("{host}:{port}: no answer")),
    }
}

fn ask_password(input: &mut impl BufRead, output: &mut impl Write) -> io::Result<Password> {
    output.write_all(b"Enter password: ")?;
    output.flush()?;
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(Password::new(line.trim_end_matches(['\r', '\n'])))
}

/// The text to print, and the exit code. Errors go to the log.
fn text_of(answer: CommandResult, log: &Log) -> (Option<String>, u8) {
    match answer {
        Ok((command, data)) => {
            let Shown { text, warnings, failed } = show::show(command, &data);
            warnings.iter().for_each(|warning| log.warn(warning));
            (Some(text), if failed { FAILED } else { DONE })
        }
        Err(error) => {
            log.error(error);
            (None, FAILED)
        }
    }
}

/// The same as one line of JSON, whatever happened.
fn json_of(answer: CommandResult) -> (Option<String>, u8) {
    match answer {
        Ok((command, data)) => {
            let failed = show::show(command, &data).failed;
            (Some(data.to_string()), if failed { FAILED } else { DONE })
        }
        Err(error) => (Some(Json::from([("error", Json::from(error))]).to_string()), FAILED),
    }
}

/// A closed pipe is not an error.
fn print(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
