//! The command line of `disbatch`, compatible with the original.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use windlass_program::Secret;

use super::{
    ClientEnv, Command, Failure, Leftover, Login, OutputFormat, Target, TaskQuery, Trust, Variable,
};
use crate::config::{DEFAULT_PATH, ServerTls};

/// Maximum size of a task list on standard input.
const INPUT_BYTES_MAX: u64 = 256 * 1024 * 1024;

const NAME: &str = "disbatch";
const URL: &str = "http://localhost:8080";
const URL_VARIABLE: &str = "DISBATCH_URL";

/// Show and change queues, nodes and tasks of Disbatch.
#[derive(Debug, Parser)]
#[command(name = NAME, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the server's answer as JSON.
    #[arg(long, global = true)]
    json: bool,
    /// As in the original, these options may also precede the command.
    #[command(flatten)]
    early: EarlyOptions,
    #[command(subcommand)]
    command: CliCommand,
}

const EXAMPLES: &str = "\
Examples:
  disbatch queues                                  all queues with their task counts
  disbatch create-queue demo Disbatch::Plugin::Demo
  disbatch update-queue demo threads 5             run at most five of its tasks at a time
  disbatch update-queue demo threads null          no limit; in 4.x this stops the queue
  disbatch create-task demo user alice             one task, with {\"user\": \"alice\"}
  disbatch create-tasks demo '[{\"n\": 1}, {\"n\": 2}]'
  disbatch create-tasks demo - < tasks.json        the same list from standard input
  disbatch tasks '{\"node\": \"host-a\", \"status\": 2}'    failed tasks of a node
  disbatch task 571fac85ee63413233049fbd --full    one task with all of its output
  disbatch retry 571fac85ee63413233049fbd
  disbatch delete-queue demo --tasks delete        a queue and its tasks

A queue is given by name or ID. Times and output of tasks are shown as the server sends them.
Exit status: 0 done, 1 refused or failed (one sentence on standard error), 2 wrong usage.";

#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
struct ServerArgs {
    /// Address of the command interface [env: DISBATCH_URL] [default: http://localhost:8080]
    #[arg(long, short = 'u', global = true, value_name = "URL")]
    url: Option<String>,
    /// User name for the login.
    #[arg(long, short = 'n', global = true, value_name = "NAME")]
    username: Option<String>,
    /// Password of that user. Other users of this host can see it here; prefer a file or the
    /// variable DISBATCH_PASSWORD.
    #[arg(long, global = true, value_name = "TEXT", conflicts_with = "password_file")]
    password: Option<String>,
    /// File with the password in its first line.
    #[arg(long = "password_file", alias = "password-file", global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Token for the login, instead of a user; or set the variable DISBATCH_TOKEN.
    #[arg(long, global = true, value_name = "TEXT", conflicts_with = "username")]
    token: Option<String>,
    /// File with the CA certificate for the server.
    #[arg(long = "ssl_ca_file", alias = "ssl-ca-file", global = true, value_name = "FILE")]
    ssl_ca_file: Option<PathBuf>,
    /// Accept any certificate.
    #[arg(long = "disable_ssl_verification", alias = "disable-ssl-verification", global = true)]
    disable_ssl_verification: bool,
    /// Configuration whose `attributes.ssl` defines the accepted certificates, if no option
    /// does [default: /etc/disbatch/config.json]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct EarlyOptions {
    #[arg(long = "collection", hide = true)]
    early_collection: Option<String>,
    #[arg(long = "limit", hide = true)]
    early_limit: Option<u64>,
    #[arg(long = "skip", hide = true)]
    early_skip: Option<u64>,
    #[arg(long = "fields", hide = true)]
    early_fields: Option<String>,
    #[arg(long = "count", hide = true)]
    early_count: bool,
    #[arg(long = "terse", hide = true)]
    early_terse: bool,
    #[arg(long = "full", hide = true)]
    early_full: bool,
    #[arg(long = "epoch", hide = true)]
    early_epoch: bool,
    #[arg(long = "pretty", hide = true)]
    early_pretty: bool,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// List the plugins that queues can use.
    Plugins,
    /// List the queues with their task counts.
    #[command(alias = "status")]
    Queues,
    /// Create a queue.
    CreateQueue {
        /// Its name.
        name: String,
        /// Its plugin, one of those listed by `plugins`.
        plugin: String,
    },
    /// Change fields of a queue: name, plugin, threads, sort.
    UpdateQueue {
        #[command(flatten)]
        change: Change,
    },
    /// Delete a queue.
    DeleteQueue {
        /// Its name or its id.
        queue: String,
        /// What to do with its tasks. Without it, a queue with tasks is not deleted.
        #[arg(long, value_name = "WHAT")]
        tasks: Option<LeftoverArg>,
    },
    /// List the nodes: which are alive, and their limits.
    Nodes,
    /// Change a node: maxthreads, a number or null.
    UpdateNode {
        #[command(flatten)]
        change: Change,
    },
    /// Create a task.
    CreateTask {
        /// Its queue, by name or id.
        queue: String,
        /// Names and values of its params, alternating.
        #[arg(value_name = "KEY VALUE", allow_negative_numbers = true)]
        params: Vec<String>,
    },
    /// Create many tasks.
    CreateTasks {
        /// Their queue, by name or id.
        queue: String,
        /// A JSON list with the params of each task; with --collection an object with a `filter`
        /// and `params`. `-` reads it from standard input.
        #[arg(value_name = "JSON")]
        list: String,
        /// One task for each matching document of this collection; a param
        /// `document.x` becomes the document's field x.
        #[arg(long, value_name = "NAME")]
        collection: Option<String>,
    },
    /// Find tasks: a table on a terminal, otherwise the server's JSON.
    Tasks(TasksArgs),
    /// Show one task with its output.
    Task {
        /// Its id, 24 hexadecimal digits.
        id: String,
        /// Show output that is kept in files, too.
        #[arg(long)]
        full: bool,
    },
    /// Cancel a task, even while it runs.
    Cancel {
        /// Its id, 24 hexadecimal digits.
        id: String,
    },
    /// Queue an ended task again.
    Retry {
        /// Its id, 24 hexadecimal digits.
        id: String,
    },
}

#[derive(Debug, Args)]
struct Change {
    /// Its name or its id.
    name: String,
    /// Names and values of the fields, alternating.
    #[arg(value_name = "FIELD VALUE", required = true, allow_negative_numbers = true)]
    fields: Vec<String>,
}

#[derive(Debug, Args)]
struct TasksArgs {
    /// A JSON object with fields that have an index: id, queue, status with queue, node.
    filter: Option<String>,
    /// Print only the number of tasks.
    #[arg(long)]
    count: bool,
    /// Show at most this many [default: 20]
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Skip this many tasks.
    #[arg(long, value_name = "N")]
    skip: Option<u64>,
    /// Fields to show, as a JSON list or object.
    #[arg(long, value_name = "JSON")]
    fields: Option<String>,
    /// Omit stdout and stderr.
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "noterse")]
    terse: bool,
    #[arg(long, hide = true, alias = "no-terse", overrides_with = "terse")]
    noterse: bool,
    /// Show output that is kept in files, too.
    #[arg(long)]
    full: bool,
    /// Show times as seconds.
    #[arg(long)]
    epoch: bool,
    /// Print JSON with one field per line.
    #[arg(long)]
    pretty: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LeftoverArg {
    Keep,
    Delete,
}

/// The original's default.
const LIMIT: u64 = 20;

/// The complete command, with help for the name under which it was called.
fn spec(called: &'static str, version: &'static str) -> clap::Command {
    let examples = EXAMPLES.replace("\n  disbatch ", &format!("\n  {called} "));
    Cli::command().bin_name(called).version(version).after_help(examples)
}

/// The parsed command line.
pub(super) struct ParsedArgs {
    pub(super) target: Target,
    pub(super) command: Command,
    pub(super) form: OutputFormat,
}

/// Parses the arguments after the program's name. Help and unknown commands are handled here.
pub(super) fn parse(
    called: &'static str,
    words: &[String],
    env: &ClientEnv<'_>,
) -> Result<ParsedArgs, Failure> {
    let line = std::iter::once(OsString::from(called)).chain(words.iter().map(OsString::from));
    let matches = spec(called, env.version).try_get_matches_from(line);
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|answer| {
        // A closed output is not a failure.
        let _ = answer.print();
        Failure::Printed(u8::try_from(answer.exit_code()).unwrap_or(u8::MAX))
    })?;
    let form = match (cli.json, env.is_terminal) {
        (true, _) => OutputFormat::Json,
        (false, true) => OutputFormat::Plain,
        (false, false) => OutputFormat::Piped,
    };
    let target = target(cli.server, env.variable)?;
    let command = command(cli.command, cli.early)?;
    Ok(ParsedArgs { target, command, form })
}

fn target(args: ServerArgs, variable: Variable<'_>) -> Result<Target, Failure> {
    let set = |name: &str| variable(name).filter(|text| !text.is_empty());
    let (login, trust) = (login(&args, set)?, trust(&args)?);
    let url = args.url.or_else(|| variable(URL_VARIABLE)).unwrap_or_else(|| URL.to_owned());
    Ok(Target { url, login, trust })
}

const TOGETHER: &str = "--username and --password go together";

/// Options override the environment.
fn login(
    args: &ServerArgs,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Login>, Failure> {
    let Some(user) = &args.username else {
        if args.password.is_some() || args.password_file.is_some() {
            return Err(Failure::Usage(TOGETHER.into()));
        }
        let token = args.token.clone().or_else(|| variable("DISBATCH_TOKEN"));
        return Ok(token.map(|token| Login::Token(Secret::new(token))));
    };
    let password = match &args.password_file {
        None => args.password.clone().or_else(|| variable("DISBATCH_PASSWORD")),
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| {
                Failure::Failed(format!("{} cannot be read: {error}", path.display()))
            })?;
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
    };
    match password {
        Some(password) => {
            Ok(Some(Login::Basic { user: user.clone(), password: Secret::new(password) }))
        }
        None => Err(Failure::Usage(TOGETHER.into())),
    }
}

fn trust(args: &ServerArgs) -> Result<Trust, Failure> {
    if let Some(path) = &args.ssl_ca_file {
        return Ok(Trust::CaFile(path.clone()));
    }
    if args.disable_ssl_verification {
        return Ok(Trust::Everybody);
    }
    let tls = match &args.config {
        Some(path) => {
            ServerTls::of_file(path).map_err(|error| Failure::Failed(error.to_string()))?
        }
        // The default file may be missing or unreadable.
        None => ServerTls::of_file(Path::new(DEFAULT_PATH)).unwrap_or_default(),
    };
    Ok(match tls {
        Some(ServerTls { verify: false, .. }) => Trust::Everybody,
        Some(ServerTls { ca_file: Some(path), .. }) => Trust::CaFile(path),
        _ => Trust::System,
    })
}

fn command(words: CliCommand, early: EarlyOptions) -> Result<Command, Failure> {
    Ok(match words {
        CliCommand::Plugins => Command::Plugins,
        CliCommand::Queues => Command::Queues,
        CliCommand::Nodes => Command::Nodes,
        CliCommand::CreateQueue { name, plugin } => Command::CreateQueue { name, plugin },
        CliCommand::UpdateQueue { change } => {
            Command::UpdateQueue { queue: change.name, fields: pairs(change.fields)? }
        }
        CliCommand::UpdateNode { change } => {
            Command::UpdateNode { node: change.name, fields: pairs(change.fields)? }
        }
        CliCommand::DeleteQueue { queue, tasks } => {
            let tasks = tasks.map(|tasks| match tasks {
                LeftoverArg::Keep => Leftover::Keep,
                LeftoverArg::Delete => Leftover::Delete,
            });
            Command::DeleteQueue { queue, tasks }
        }
        CliCommand::CreateTask { queue, params } => {
            Command::CreateTask { queue, params: pairs(params)? }
        }
        CliCommand::CreateTasks { queue, list, collection } => {
            let json = if list == "-" { input()? } else { list };
            Command::CreateTasks { queue, json, collection: collection.or(early.early_collection) }
        }
        CliCommand::Tasks(args) => Command::Tasks(task_query(args, early)),
        CliCommand::Task { id, full } => Command::Task { id, full: full || early.early_full },
        CliCommand::Cancel { id } => Command::Cancel { id },
        CliCommand::Retry { id } => Command::Retry { id },
    })
}

fn task_query(args: TasksArgs, early: EarlyOptions) -> TaskQuery {
    TaskQuery {
        filter: args.filter,
        count: args.count || early.early_count,
        fields: args.fields.or(early.early_fields),
        limit: args.limit.or(early.early_limit).unwrap_or(LIMIT),
        skip: args.skip.or(early.early_skip).unwrap_or(0),
        terse: args.terse || (early.early_terse && !args.noterse),
        full: args.full || early.early_full,
        epoch: args.epoch || early.early_epoch,
        pretty: args.pretty || early.early_pretty,
    }
}

fn pairs(words: Vec<String>) -> Result<Vec<(String, String)>, Failure> {
    let mut words = words.into_iter();
    let mut pairs = Vec::new();
    while let Some(key) = words.next() {
        let Some(value) = words.next() else {
            let why = format!("'{key}' has no value: names and values come in turn");
            return Err(Failure::Usage(why));
        };
        pairs.push((key, value));
    }
    Ok(pairs)
}

fn input() -> Result<String, Failure> {
    let mut text = String::new();
    let mut input = io::stdin().lock().take(INPUT_BYTES_MAX + 1);
    input
        .read_to_string(&mut text)
        .map_err(|error| Failure::Failed(format!("standard input cannot be read: {error}")))?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        let why = format!("standard input has more than {INPUT_BYTES_MAX} bytes");
        return Err(Failure::Failed(why));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[&str]) -> Result<(Target, Command), Failure> {
        let cli = Cli::try_parse_from(std::iter::once(&NAME).chain(line))
            .map_err(|answer| Failure::Printed(u8::try_from(answer.exit_code()).unwrap()))?;
        Ok((target(cli.server, &|_| None)?, command(cli.command, cli.early)?))
    }

    fn command_of(line: &[&str]) -> Command {
        read(line).unwrap().1
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_names_it_as_it_was_called() {
        for called in [NAME, "windlass disbatch"] {
            let help = spec(called, "1.2.3").render_help().to_string();
            assert!(help.contains(&format!("Usage: {called} [OPTIONS] <COMMAND>")), "{help}");
            assert!(help.contains(&format!("\n  {called} queues ")), "{help}");
        }
    }

    #[test]
    fn options_stand_before_and_behind_the_command() {
        let before = command_of(&["--limit", "3", "--terse", "--skip", "1", "tasks", "{}"]);
        let behind = command_of(&["tasks", "--limit=3", "{}", "--terse", "--skip", "1"]);
        assert_eq!(before, behind);
        let Command::Tasks(which) = before else { panic!("{before:?}") };
        assert_eq!((which.limit, which.skip, which.terse, which.full), (3, 1, true, false));
        let Command::Tasks(which) = command_of(&["tasks"]) else { panic!() };
        assert_eq!((which.limit, which.filter), (20, None));
        let before = command_of(&["--collection", "c", "create-tasks", "q", "{}"]);
        assert_eq!(before, command_of(&["create-tasks", "q", "--collection", "c", "{}"]));
        for line in [["-u", "http://x", "status"], ["queues", "--url", "http://x"]] {
            let (target, command) = read(&line).unwrap();
            assert_eq!((target.url.as_str(), command), ("http://x", Command::Queues));
        }
    }

    #[test]
    fn names_and_values_come_in_turn() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let fields = vec![pair("threads", "0"), pair("name", "x")];
        assert_eq!(
            command_of(&["update-queue", "q", "threads", "0", "name", "x"]),
            Command::UpdateQueue { queue: "q".into(), fields }
        );
        assert_eq!(
            command_of(&["create-task", "q", "n", "-5"]),
            Command::CreateTask { queue: "q".into(), params: vec![pair("n", "-5")] }
        );
        let none = Command::CreateTask { queue: "q".into(), params: Vec::new() };
        assert_eq!(command_of(&["create-task", "q"]), none);
        let error = read(&["update-node", "n", "maxthreads"]).unwrap_err();
        assert!(matches!(error, Failure::Usage(_)), "{error}");
        assert!(read(&["update-queue", "q"]).is_err());
    }

    #[test]
    fn a_queue_goes_with_or_without_its_tasks() {
        let delete = |tasks| Command::DeleteQueue { queue: "q".into(), tasks };
        assert_eq!(command_of(&["delete-queue", "q"]), delete(None));
        let kept = command_of(&["delete-queue", "q", "--tasks", "keep"]);
        assert_eq!(kept, delete(Some(Leftover::Keep)));
        let deleted = command_of(&["delete-queue", "--tasks=delete", "q"]);
        assert_eq!(deleted, delete(Some(Leftover::Delete)));
        assert!(read(&["delete-queue", "q", "--tasks", "forget"]).is_err());
    }

    #[test]
    fn logins_are_read_and_stay_hidden() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("password");
        std::fs::write(&file, "s3cret\nmore\n").unwrap();
        let file = file.to_str().unwrap();
        for line in [
            ["--username", "a", "--password", "s3cret", "plugins"],
            ["--username", "a", "--password_file", file, "plugins"],
        ] {
            let (target, _) = read(&line).unwrap();
            let Some(Login::Basic { user, password }) = &target.login else { panic!("{line:?}") };
            assert!(user == "a" && password.reveal() == "s3cret");
            assert!(!format!("{target:?}").contains("s3cret"));
        }
        let (target, _) = read(&["plugins", "--token", "s3cret"]).unwrap();
        assert!(matches!(&target.login, Some(Login::Token(token)) if token.reveal() == "s3cret"));
        for line in
            [&["--password", "s3cret", "plugins"][..], &["--password_file", file, "plugins"]]
        {
            assert!(matches!(read(line), Err(Failure::Usage(_))), "{line:?}");
        }
        assert!(read(&["--username", "a", "--token", "t", "plugins"]).is_err());
    }

    #[test]
    fn the_environment_counts_less_than_what_is_typed() {
        let set = |name: &str| Some(format!("in {name}"));
        let server =
            |line: &[&str]| Cli::try_parse_from(std::iter::once(&NAME).chain(line)).unwrap().server;
        let token_of = |line: &[&str]| match login(&server(line), set).unwrap() {
            Some(Login::Token(token)) => token.reveal().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(token_of(&["plugins"]), "in DISBATCH_TOKEN");
        assert_eq!(token_of(&["plugins", "--token", "t"]), "t");
        let password_of = |line: &[&str]| match login(&server(line), set).unwrap() {
            Some(Login::Basic { password, .. }) => password.reveal().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(password_of(&["-n", "a", "plugins"]), "in DISBATCH_PASSWORD");
        assert_eq!(password_of(&["-n", "a", "plugins", "--password", "p"]), "p");
        let error = login(&server(&["-n", "a", "plugins"]), |_| None).unwrap_err();
        assert!(matches!(error, Failure::Usage(_)));
        assert!(login(&server(&["plugins"]), |_| None).unwrap().is_none());
    }

    #[test]
    fn certificates_are_believed_by_option_or_by_file() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("config.json");
        let trust = |line: &[&str]| read(line).unwrap().0.trust;
        let ca = Trust::CaFile("/ca".into());
        assert_eq!(trust(&["--ssl_ca_file", "/ca", "--disable_ssl_verification", "plugins"]), ca);
        assert_eq!(trust(&["plugins", "--disable_ssl_verification"]), Trust::Everybody);
        let config = ["plugins", "--config", file.to_str().unwrap()];
        for (ssl, believed) in [
            (r#"{"SSL_ca_file": "/ca",}"#, ca.clone()),
            (r#"{"SSL_verify_mode": 0}"#, Trust::Everybody),
            ("1", Trust::System),
        ] {
            std::fs::write(&file, format!("{{\"attributes\": {{\"ssl\": {ssl}}}}} # x")).unwrap();
            assert_eq!(trust(&config), believed, "{ssl}");
        }
        std::fs::write(&file, "{").unwrap();
        assert!(read(&config).is_err());
    }
}
