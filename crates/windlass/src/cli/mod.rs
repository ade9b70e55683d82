//! The command line as types: what can be typed, and the help that says so. Nothing here acts.

mod add;
mod disbatch;
mod doctor;
mod handler;
mod jobs;
mod run;
mod serve;
mod types;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use self::add::Add;
pub(crate) use self::disbatch::{Dci, Den};
use self::doctor::DOCTOR_HELP;
pub(crate) use self::doctor::Doctor;
pub(crate) use self::handler::{Handler, HandlerGet, HandlerSet};
pub(crate) use self::jobs::{Jobs, JobsList, JobsLog, JobsRequeue};
pub(crate) use self::run::Run;
pub(crate) use self::serve::Serve;
pub(crate) use self::types::Types;

/// A durable, fair job queue in one binary.
#[derive(Debug, Parser)]
#[command(name = "windlass", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(subcommand)]
    pub(crate) command: Action,
}

const EXAMPLES: &str = "\
First steps:
  windlass demo                          see a queue at work, in ten seconds
  windlass serve                         start a daemon on 127.0.0.1:7600
  windlass run hello.py --payload world  run a first job, with the code in hello.py
  windlass add hello moon --wait         add another one of that type
  windlass jobs list                     look at the newest jobs

Exit status: 0 done, 1 refused or failed (one sentence on standard error), 2 wrong usage.";

/// Which daemon and which tenant a command talks to.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Talking to a daemon")]
pub(crate) struct Target {
    /// Address of the daemon.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "WINDLASS_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7600"
    )]
    pub(crate) url: String,
    /// Whose jobs and handlers are meant.
    #[arg(
        long,
        global = true,
        value_name = "TENANT",
        env = "WINDLASS_TENANT",
        hide_env_values = true,
        default_value = "default"
    )]
    pub(crate) tenant: String,
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run the daemon: accept jobs, keep them, run them.
    Serve(Box<Serve>),
    /// Show how handlers are kept apart on this machine, by trying it.
    #[command(after_help = DOCTOR_HELP)]
    Doctor(Doctor),
    /// Start a queue in a temporary directory, give it work, show how it goes, and end.
    Demo,
    /// Set the handler in a file, add jobs for it, follow them to their end.
    Run(Run),
    /// Add jobs of one type, from the command line or from lines on standard input.
    Add(Box<Add>),
    /// Say how jobs of a type are run, or look at what was said.
    #[command(subcommand)]
    Handler(Handler),
    /// Look at jobs, cancel them, run them again.
    #[command(subcommand)]
    Jobs(Jobs),
    /// Look at the types of a tenant, suspend and resume them.
    #[command(subcommand)]
    Types(Types),
    /// Show the daemon and the numbers of every tenant.
    Status,
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  windlass completions bash > /etc/bash_completion.d/windlass"
    )]
    Completions {
        /// The shell that the script is for.
        shell: Shell,
    },
    /// Be jobd: run the jobs of a table that others fill.
    #[command(disable_help_flag = true)]
    Jobd {
        /// As those of jobd; without any, they are explained.
        #[arg(value_name = "OPTIONS", allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Be jobd-master: speak to many jobd workers.
    #[command(disable_help_flag = true)]
    JobdMaster {
        /// As those of jobd-master; without any, they are explained.
        #[arg(value_name = "OPTIONS", allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Be an execution node of Disbatch: run the tasks of its queues.
    Den(Den),
    /// Be Disbatch's command interface: queues, nodes and tasks over HTTP, with a page.
    Dci(Dci),
    /// Be disbatch: look at queues, nodes and tasks of a command interface, and change them.
    #[command(disable_help_flag = true)]
    Disbatch {
        /// As those of disbatch; without any, they are explained.
        #[arg(value_name = "WORDS", allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Be Disbatch's task runner: run one task that a node has claimed.
    #[command(disable_help_flag = true)]
    Dtr {
        /// As those of task_runner; `--help` explains them.
        #[arg(value_name = "OPTIONS", allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Guard what a node has started.
    #[command(hide = true, disable_help_flag = true)]
    Fence {
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Be jobctl: control jobd and jobd-master.
    #[command(disable_help_flag = true)]
    Jobctl {
        /// As those of jobctl; without any, they are explained.
        #[arg(value_name = "WORDS", allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
}

/// Reads the command line; on wrong usage, or when help is asked for, clap has the answer.
pub(crate) fn parse(line: Vec<String>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(disbatch::by_name(line))?;
    refuse_in_front(&mut command, &matches)?;
    Cli::from_arg_matches(&matches)
}

/// The whole command, with what is made from the table of keys.
pub(crate) fn command() -> Command {
    let mut command = Cli::command().mut_subcommand("serve", serve::with_keys);
    for (name, flags) in LOCAL {
        command = command.mut_subcommand(name, |command| refusing(command, flags));
    }
    command
}

/// The flags of `Target`.
const TARGET: [&str; 3] = ["url", "tenant", "json"];

/// Commands that talk to no daemon, and the flags that mean nothing to them.
const LOCAL: [(&str, &[&str]); 11] = [
    ("serve", &TARGET),
    ("demo", &TARGET),
    ("completions", &TARGET),
    ("jobd", &TARGET),
    ("jobd-master", &TARGET),
    ("jobctl", &TARGET),
    ("den", &TARGET),
    ("dci", &TARGET),
    (DISBATCH, &TARGET),
    ("dtr", &TARGET),
    // It prints JSON all the same.
    ("doctor", &["url", "tenant"]),
];

/// The one that has flags of the same names, for a server of its own.
const DISBATCH: &str = "disbatch";

/// In front of the command such flags would be read, and then not be used.
fn refuse_in_front(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let named = matches.subcommand_name();
    let Some((name, flags)) = LOCAL.iter().find(|(name, _)| named == Some(name)) else {
        return Ok(());
    };
    let typed = |flag: &&&str| matches.value_source(flag) == Some(ValueSource::CommandLine);
    let Some(flag) = flags.iter().find(typed) else { return Ok(()) };
    let why = if *name == DISBATCH {
        format!("--{flag} must stand behind `{DISBATCH}`")
    } else {
        format!("--{flag} cannot be used with `{name}`: this command does not talk to a daemon")
    };
    Err(command.error(ErrorKind::ArgumentConflict, why))
}

/// Commands that talk to no daemon refuse the flags that name one, and do not show them.
fn refusing(command: Command, flags: &[&'static str]) -> Command {
    let refuse = |_: &str| Err::<String, _>("this command does not talk to a daemon");
    flags.iter().fold(command, |command, name| {
        let optional = if *name == "json" { 0..=1 } else { 1..=1 };
        let arg = Arg::new(*name).long(*name).hide(true).num_args(optional);
        command.arg(arg.default_missing_value("true").value_parser(refuse))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        super::parse(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn the_target_may_stand_before_and_behind_the_command() {
        for line in ["windlass --tenant acme jobs list", "windlass jobs list --tenant acme"] {
            assert_eq!(parse(line).unwrap().target.tenant, "acme", "{line}");
        }
    }

    #[test]
    fn the_daemon_itself_takes_no_target() {
        let refused = parse("windlass serve --url http://x").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ValueValidation);
        let help = parse("windlass serve --help").unwrap_err().to_string();
        assert!(!help.contains("--tenant"), "{help}");
    }

    #[test]
    fn a_target_in_front_of_a_command_without_one_is_refused() {
        for line in [
            "windlass --url http://x serve",
            "windlass --json den",
            "windlass --tenant x jobctl list-targets",
            "windlass --tenant x doctor",
        ] {
            let refused = parse(line).unwrap_err();
            assert_eq!(refused.exit_code(), 2, "{line}");
            assert!(refused.to_string().contains("does not talk to a daemon"), "{refused}");
        }
        let refused = parse("windlass --json disbatch queues").unwrap_err().to_string();
        assert!(refused.contains("--json must stand behind `disbatch`"), "{refused}");
        assert!(parse("windlass --json doctor").unwrap().target.json);
    }

    #[test]
    fn the_programs_of_jobd_are_listed_and_their_words_left_alone() {
        let help = parse("windlass --help").unwrap_err().to_string();
        for name in ["jobd ", "jobd-master ", "jobctl "] {
            assert!(help.contains(&format!("\n  {name}")), "{help}");
        }
        let line = "windlass jobctl --port 1 --help list-targets --x";
        let Action::Jobctl { words } = parse(line).unwrap().command else { panic!("{line}") };
        assert_eq!(words, ["--port", "1", "--help", "list-targets", "--x"]);
    }

    #[test]
    fn the_help_of_serve_names_every_environment_variable() {
        for line in ["windlass help serve", "windlass serve --help"] {
            let help = parse(line).unwrap_err().to_string();
            for key in crate::config::KEYS {
                assert!(help.contains(&key.environment()), "{line}: {}", key.name);
            }
        }
    }
}
