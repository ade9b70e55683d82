//! The command line as types: arguments and their help. Nothing here acts.

mod add;
mod audit;
mod backup;
mod disbatch;
mod doctor;
mod handler;
mod jobs;
mod key;
mod run;
mod secret;
mod serve;
mod tenant;
mod types;

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use self::add::Add;
pub(crate) use self::audit::Audit;
use self::backup::{BACKUP_HELP, RESTORE_HELP};
pub(crate) use self::backup::{Backup, DataFlags, Restore};
pub(crate) use self::disbatch::{Dci, Den};
use self::doctor::DOCTOR_HELP;
pub(crate) use self::doctor::Doctor;
pub(crate) use self::handler::{Handler, HandlerGet, HandlerSet};
pub(crate) use self::jobs::{Jobs, JobsList, JobsLog, JobsRequeue};
pub(crate) use self::key::{Key, KeyCreate, KeyRotate};
pub(crate) use self::run::Run;
pub(crate) use self::secret::{Secret, SecretSet};
pub(crate) use self::serve::Serve;
pub(crate) use self::tenant::{TenantCommand, TenantSet};
pub(crate) use self::types::Types;
use crate::Usage;
use crate::keys::Login;

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
  windlass jobs list                     list the newest jobs

Exit code: 0 done, 1 refused or failed (one sentence on standard error), 2 wrong usage.";

const LOGIN_HELP: &str = "\
Examples:
  windlass login http://127.0.0.1:7600 < key.txt
  windlass login https://jobs.example:7600 --ca ca.pem < key.txt

--ca, --cert and --cert-key are saved with the key.";

/// The tenant of those who need only one.
pub(crate) const TENANT_DEFAULT: &str = "default";

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
    /// Tenant whose jobs and handlers to use.
    #[arg(
        long,
        global = true,
        value_name = "TENANT",
        env = "WINDLASS_TENANT",
        hide_env_values = true,
        default_value = TENANT_DEFAULT
    )]
    pub(crate) tenant: String,
    /// API key [default: the saved one, or that of a daemon of the same user on this machine].
    #[arg(long, global = true, value_name = "KEY", env = "WINDLASS_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,
    /// Certificate authorities to trust, in PEM [default: those of this machine].
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CA", hide_env_values = true)]
    pub(crate) ca: Option<PathBuf>,
    /// Client certificate in PEM, for a daemon that asks for one.
    #[arg(long, global = true, value_name = "FILE", env = "WINDLASS_CERT", hide_env_values = true)]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the client certificate [default: in the same file].
    #[arg(
        id = "cert-key",
        long,
        global = true,
        value_name = "FILE",
        env = "WINDLASS_CERT_KEY",
        hide_env_values = true
    )]
    pub(crate) cert_key: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Target {
    /// What the flags and the environment say.
    pub(crate) fn login(&self) -> Result<Login, Usage> {
        if self.cert_key.is_some() && self.cert.is_none() {
            return Err(Usage("--cert-key needs the certificate, too: --cert FILE".into()));
        }
        let Target { key, ca, cert, cert_key, .. } = self.clone();
        Ok(Login { key, ca, cert, cert_key, pinned: None })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run the daemon, which accepts, stores and runs jobs.
    Serve(Box<Serve>),
    /// Back up the data directory of a running or stopped daemon.
    #[command(after_help = BACKUP_HELP)]
    Backup(Backup),
    /// Restore a backup into an empty data directory.
    #[command(after_help = RESTORE_HELP)]
    Restore(Restore),
    /// Check by trial how well handlers are isolated on this machine.
    #[command(after_help = DOCTOR_HELP)]
    Doctor(Doctor),
    /// Run a short demonstration in a temporary directory.
    Demo,
    /// Set a handler from a file, add jobs for it and follow them until they end.
    Run(Run),
    /// Add jobs of one type, from the command line or from standard input.
    Add(Box<Add>),
    /// Set, show, list or remove handlers.
    #[command(subcommand)]
    Handler(Handler),
    /// List, show, cancel, retry or remove jobs.
    #[command(subcommand)]
    Jobs(Jobs),
    /// List, suspend or resume the types of a tenant.
    #[command(subcommand)]
    Types(Types),
    /// Show or change the settings of a tenant: its share of the slots.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Make, list, revoke or rotate API keys.
    #[command(subcommand)]
    Key(Key),
    /// List changes by people and keys, and refused requests.
    Audit(Audit),
    /// Set, list or remove secrets of handlers, or replace the key that encrypts them.
    #[command(subcommand)]
    Secret(Secret),
    /// Save an API key for a daemon; it is read from the terminal or standard input.
    #[command(after_help = LOGIN_HELP)]
    Login {
        /// Address of the daemon.
        #[arg(value_name = "URL")]
        url: String,
    },
    /// Show the state of the daemon and the job counts of every tenant.
    Status,
    /// List all daemons of the queue, with what waits in their journals.
    Daemons,
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  windlass completions bash > /etc/bash_completion.d/windlass"
    )]
    Completions {
        /// The shell to complete for.
        shell: Shell,
    },
    /// Run as a jobd-compatible worker.
    #[command(disable_help_flag = true)]
    Jobd {
        /// Options of jobd; without any, its help is printed.
        #[arg(value_name = "OPTIONS", allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Run as a jobd-compatible master.
    #[command(disable_help_flag = true)]
    JobdMaster {
        /// Options of jobd-master; without any, its help is printed.
        #[arg(value_name = "OPTIONS", allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Run a Disbatch-compatible execution node.
    Den(Den),
    /// Run a Disbatch-compatible command interface (HTTP API and web page).
    Dci(Dci),
    /// Run the Disbatch-compatible client: show and change queues, nodes and tasks.
    #[command(disable_help_flag = true)]
    Disbatch {
        /// Arguments of disbatch; without any, its help is printed.
        #[arg(value_name = "WORDS", allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Run one task that a Disbatch node has claimed.
    #[command(disable_help_flag = true)]
    Dtr {
        /// Options of task_runner; see `--help`.
        #[arg(value_name = "OPTIONS", allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Clean up processes that a Disbatch node has started.
    #[command(hide = true, disable_help_flag = true)]
    Fence {
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
    /// Run the jobctl-compatible client: control jobd workers and masters.
    #[command(disable_help_flag = true)]
    Jobctl {
        /// Arguments of jobctl; without any, its help is printed.
        #[arg(value_name = "WORDS", allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
}

/// Reads the command line. Wrong usage and requests for help are errors of clap.
pub(crate) fn parse(line: Vec<String>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(disbatch::by_name(line))?;
    refuse_in_front(&mut command, &matches)?;
    Cli::from_arg_matches(&matches)
}

/// The complete command, including the flags and help generated from the table of keys.
pub(crate) fn command() -> Command {
    let mut command = Cli::command().mut_subcommand("serve", serve::with_keys);
    for (name, flags) in LOCAL {
        command = command.mut_subcommand(name, |command| refusing(command, flags));
    }
    command
}

/// The flags of `Target`.
const TARGET: [&str; 7] = ["url", "tenant", "key", "ca", "cert", "cert-key", "json"];

/// Those that name a daemon.
const DAEMON: [&str; 6] = ["url", "tenant", "key", "ca", "cert", "cert-key"];

/// Commands that talk to no daemon, and the flags that they refuse.
const LOCAL: [(&str, &[&str]); 13] = [
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
    // Their output can be JSON, too.
    ("doctor", &DAEMON),
    ("backup", &DAEMON),
    ("restore", &DAEMON),
];

/// Has flags with the same names, which mean its own server.
const DISBATCH: &str = "disbatch";

/// Before the command, clap would accept these flags and nothing would use them.
fn refuse_in_front(command: &mut Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let named = matches.subcommand_name();
    let Some((name, flags)) = LOCAL.iter().find(|(name, _)| named == Some(name)) else {
        return Ok(());
    };
    let typed = |flag: &&&str| matches.value_source(flag) == Some(ValueSource::CommandLine);
    let Some(flag) = flags.iter().find(typed) else { return Ok(()) };
    let why = if *name == DISBATCH {
        format!("--{flag} must come after `{DISBATCH}`")
    } else {
        format!("--{flag} cannot be used with `{name}`: this command does not talk to a daemon")
    };
    Err(command.error(ErrorKind::ArgumentConflict, why))
}

/// Commands that talk to no daemon refuse the flags that name one, and hide them.
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
        assert!(refused.contains("--json must come after `disbatch`"), "{refused}");
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
