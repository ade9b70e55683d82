//! `windlass handler …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Handler {
    /// Put a new version of a handler in force.
    Set(Box<HandlerSet>),
    /// Show the handler of a type.
    Get(HandlerGet),
    /// List the handlers of the tenant.
    List,
    /// Take the handler of a type away; its jobs wait until there is one again.
    Rm {
        /// The type.
        #[arg(value_name = "TYPE")]
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass handler set thumbnail thumbnail.py --timeout 30s
  windlass handler set mail mail.js --batch 20 --env SMTP_HOST=localhost
  windlass handler set report --lang exec --body '/usr/bin/report --daily'
  windlass handler set hook --lang http --body https://example.org/jobs --retry-attempts 5
  echo 'tr a-z A-Z' | windlass handler set shout - --lang sh

Options may also stand in the first comment of the file, such as '# windlass: timeout=30s batch=5';
flags win over them.")]
pub(crate) struct HandlerSet {
    /// The type whose jobs it runs.
    #[arg(value_name = "TYPE")]
    pub(crate) name: String,
    /// File with the source (or the URL, or the command line); - is standard input.
    #[arg(required_unless_present = "body")]
    pub(crate) file: Option<PathBuf>,
    /// The source, URL or command line itself, instead of a file.
    #[arg(long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,
    /// node, python, php, sh, exec or http; by default after the file's ending or its #! line.
    #[arg(long, value_name = "LANG")]
    pub(crate) lang: Option<String>,
    /// File whose source runs once when a context starts.
    #[arg(long, value_name = "FILE")]
    pub(crate) before: Option<PathBuf>,
    /// File whose source runs before each batch.
    #[arg(long, value_name = "FILE")]
    pub(crate) before_each: Option<PathBuf>,
    /// File whose source runs after each batch.
    #[arg(long, value_name = "FILE")]
    pub(crate) after_each: Option<PathBuf>,
    /// Handlers of one tenant with the same language and this same name share contexts.
    #[arg(long, value_name = "NAME")]
    pub(crate) eid: Option<String>,
    /// Time limit of one attempt.
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// Most jobs that are handed over at once.
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<u32>,
    /// Most contexts at the same time in one daemon.
    #[arg(long, value_name = "N")]
    pub(crate) contexts: Option<u32>,
    /// End a context after so many jobs and start a fresh one.
    #[arg(long, value_name = "N")]
    pub(crate) context_jobs: Option<u32>,
    /// End a context that has been idle for this long.
    #[arg(long, value_name = "DURATION")]
    pub(crate) idle: Option<String>,
    /// Memory of one process, such as 512MB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Time on a processor, of one process.
    #[arg(long, value_name = "DURATION")]
    pub(crate) cpu: Option<String>,
    /// Most processes at the same time.
    #[arg(long, value_name = "N")]
    pub(crate) processes: Option<u32>,
    /// Largest file that it may write, such as 1GB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) file_size: Option<String>,
    /// A variable of the handler's environment; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Attempts in all, the first included.
    #[arg(long, value_name = "N")]
    pub(crate) retry_attempts: Option<u32>,
    /// Pause before the second attempt.
    #[arg(long, value_name = "DURATION")]
    pub(crate) retry_delay: Option<String>,
    /// By this much each pause is longer than the one before.
    #[arg(long, value_name = "FACTOR")]
    pub(crate) retry_factor: Option<f64>,
    /// Longest pause between two attempts.
    #[arg(long, value_name = "DURATION")]
    pub(crate) retry_delay_max: Option<String>,
    /// No further attempt when the job has been due for this long.
    #[arg(long, value_name = "DURATION")]
    pub(crate) retry_age: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HandlerGet {
    /// The type.
    #[arg(value_name = "TYPE")]
    pub(crate) name: String,
    /// An earlier version, by its id.
    #[arg(long, value_name = "ID")]
    pub(crate) handler_version: Option<String>,
}
